"""The wrapper as Slurm runs it, against real ssh servers that stand in for the VM and an engine of a few lines."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.server
import json
import os
import random
import signal
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import PATIENCE_S
from unit import guestbox

pytestmark = pytest.mark.skipif(bool(guestbox.missing()), reason=guestbox.missing() or "-")

WRAPPER_LINE = "#!/opt/bin/rmsplugin-job vms=1,cpus=1,memory=96,ntasks=1,cpus_per_task=1,image=default\n"
GEOMETRY = "vms=1,cpus=1,memory=96,ntasks=1,cpus_per_task=1,image=default"


class FakeEngine:
    """Answers on a unix socket as docs/protocols.md says; ``answers`` may be changed while it runs."""

    def __init__(self, path: Path, box: guestbox.Guestbox) -> None:
        vms = [{"name": g.vm.name, "address": g.vm.address, "host_key": g.vm.host_key} for g in box.guests]
        self.running: dict[str, object] = {
            "state": "running",
            "job_id": 12,
            "user": guestbox.USER,
            "vms": vms,
            "private_key": box.key.private_openssh,
            "start": 1,
        }
        self.access = self.running
        self.refusal: tuple[int, str] | None = None
        self.own_requeue = False
        self.requests: list[tuple[str, dict[str, object]]] = []
        engine = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def address_string(self) -> str:
                return "unix"

            def log_message(self, *_: object) -> None:
                pass

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                path = self.path.partition("?")[0].removeprefix("/v1/jobs/12/")
                engine.requests.append((path, json.loads(body) if body else {}))
                status, answer = 200, engine.access if path == "access" else {"ok": True}
                if path == "attached":
                    answer = {"state": "running", "returns": engine.access.get("returns", 0)}
                if path == "requeued":
                    answer = {"own": engine.own_requeue}
                if engine.refusal:
                    status, answer = engine.refusal[0], {"error": engine.refusal[1]}
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST

        class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
            daemon_threads = True
            request_queue_size = 50

            def get_request(self) -> tuple[object, tuple[str, int]]:
                return super().get_request()[0], ("unix", 0)

        self._path = path
        self._server_class, self._handler = Server, Handler
        self._server: Server | None = None
        self.up()

    def up(self) -> None:
        self._path.unlink(missing_ok=True)
        self._server = self._server_class(str(self._path), self._handler)
        self._path.chmod(0o777)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def down(self) -> None:
        if self._server:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def names(self) -> list[str]:
        return [name for name, _ in self.requests]


class Bench:
    """One guest, one engine, and jobs that are run on them one after the other."""

    def __init__(self, directory: Path, box: guestbox.Guestbox, flavour: str) -> None:
        self.box, self.directory, self.flavour = box, directory, flavour
        self.engine = FakeEngine(directory / "engine.sock", box)
        (directory / "rmsplugin.toml").write_text(f'[engine]\nsocket = "{directory}/engine.sock"\n')
        (directory / "bin").mkdir()
        self.set_fate("JobId=12 JobName=x UserId=u(1001) JobState=RUNNING Restarts=0")
        scontrol = directory / "bin/scontrol"
        scontrol.write_text(f"#!/bin/sh\ncat {directory}/fate\n")
        scontrol.chmod(0o755)
        self.guest = box.guests[0]
        self.out, self.err = directory / "out", directory / "err"

    def set_fate(self, line: str) -> None:
        (self.directory / "fate").write_text(line + "\n")

    def fresh(self) -> None:
        """Forget the job before."""
        self.reset_guest()
        self.engine.requests.clear()
        self.engine.refusal = None
        self.engine.access = self.engine.running
        self.out.write_bytes(b"")
        self.err.write_bytes(b"")
        for path in (self.out, self.err):
            os.chown(path, guestbox.UID, guestbox.UID)

    def reset_guest(self) -> None:
        """Let the guest be as it was before the script was started: with no tool that sees how the script ends."""
        self.guest.run(
            "for p in /proc/[0-9]*; do case $(tr '\\0' ' ' <$p/cmdline 2>/dev/null) in "
            "*/rmsplugin-guest\\ *) kill -9 ${p#/proc/} ;; esac; done 2>/dev/null; "
            "cd /run/rmsplugin/state && for f in pid started; do test ! -s $f || kill -9 $(cat $f) 2>/dev/null; done; "
            "cd ..; rm -rf state/* state/.[a-z]* job/* job/.[a-z]*; cd output && for f in *.relay *.reader; do "
            "test ! -s $f || kill -9 $(cat $f) 2>/dev/null; done; rm -rf ./*; "
            "exec /run/rmsplugin/bin/configure"
        )

    def script(self, text: str) -> None:
        (self.directory / "script").write_text(WRAPPER_LINE + text)
        (self.directory / "script").chmod(0o644)

    def start(
        self,
        *arguments: str,
        merged: bool = False,
        append: bool = True,
        environ: dict[str, str] | None = None,
        cwd: str = "/tmp",
        stdin: Path | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start the wrapper as slurmstepd does."""
        mode = os.O_WRONLY | (os.O_APPEND if append else os.O_TRUNC)
        out = os.open(self.out, mode)
        err = os.dup(out) if merged else os.open(self.err, mode)
        feed = os.open(stdin or "/dev/null", os.O_RDONLY)
        try:
            return subprocess.Popen(
                [
                    *("nsenter", f"--net={self.box.network}"),
                    *("setpriv", f"--reuid={guestbox.UID}", f"--regid={guestbox.UID}", "--clear-groups"),
                    *(sys.executable, "-m", "rmsplugin.wrapper.main", GEOMETRY, str(self.directory / "script")),
                    *arguments,
                ],
                stdin=feed,
                stdout=out,
                stderr=err,
                cwd=cwd,
                env={
                    "PATH": f"{self.directory}/bin:/usr/bin:/bin",
                    "HOME": f"/home/{guestbox.USER}",
                    "SLURM_JOB_ID": "12",
                    "RMSPLUGIN_CONFIG": str(self.directory / "rmsplugin.toml"),
                    "PYTHONPATH": str(Path(__file__).parents[3]),
                    "PYTHONDONTWRITEBYTECODE": "1",
                    **(environ or {}),
                },
            )
        finally:
            for fd in (out, err, feed):
                os.close(fd)

    def run(self, text: str, *arguments: str, **options: object) -> int:
        self.fresh()
        self.script(text)
        status = self.start(*arguments, **options).wait(PATIENCE_S)  # type: ignore[arg-type]
        print(self.err.read_bytes()[-1000:])  # shown when the test fails
        return status


def _bench(flavour: str) -> Iterator[Bench]:
    with guestbox.ready(flavour, 1) as box:
        yield Bench(box.directory, box, flavour)


@pytest.fixture(scope="module", params=guestbox.FLAVOURS)
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    yield from _bench(request.param)


@pytest.fixture(scope="module")
def small() -> Iterator[Bench]:
    """The busybox flavour only: for what does not depend on the guest."""
    yield from _bench("busybox")


@pytest.mark.parametrize(
    ("ending", "status"),
    [
        ("exit 0", 0),
        ("exit 3", 3),
        ("exit 143", 143),
        ("kill -TERM $$", -signal.SIGTERM),
        ("kill -INT $$", -signal.SIGINT),
        ("kill -KILL $$", -signal.SIGKILL),
        ("kill -SEGV $$", -signal.SIGSEGV),
        # A process of its own: `kill -9 -1` spares only who calls it.
        ("sh -c 'kill -9 -1'\necho not reached", -signal.SIGKILL),
        # Its parent, which keeps its zombie, heeds no such signal.
        ("trap '' TERM; kill -TERM -1; exit 5", 5),
    ],
)
def test_ends_as_the_script_ends(bench: Bench, ending: str, status: int) -> None:
    assert bench.run(f"#!/bin/sh\necho out; echo err >&2\n{ending}\n") == status
    assert bench.out.read_bytes() == b"out\n"
    assert bench.err.read_bytes() == b"err\n"
    finished = dict(bench.engine.requests)["finished"]
    assert finished == ({"exit_code": status, "signal": 0} if status >= 0 else {"exit_code": 0, "signal": -status})
    names = bench.engine.names()
    assert names.index("started") < names.index("finished")
    assert names.count("started") == 1
    assert "attached" in names


def test_the_script_finds_what_it_would_find_on_a_node(bench: Bench) -> None:
    script = (
        "#!/bin/sh\n"
        'for a; do printf "<%s>" "$a"; done; echo\n'
        "pwd; umask; ulimit -S -n\n"
        'echo "$ODD|$SLURM_JOB_NODELIST|$SLURM_NTASKS|$RMSPLUGIN_HOSTFILE|$HOME|$USER|${PATH%%:*}"\n'
        "cat; command -v srun; grep SigIgn /proc/self/status\n"
        "tr '\\0' '\\n' </proc/$$/environ | grep -c ^BASH_FUNC\n"
    )
    feed = bench.directory / "feed"
    feed.write_text("from a file\n")
    odd = "quote ' double \" dollar $x `y` back\\slash\nnew line\ttab " + bytes(range(128, 256)).decode("latin-1")
    arguments = ["a b", "", "it's", "*", "new\nline\n", "$HOME", "é\udcff", "-n"]
    environ = {"ODD": odd, "BASH_FUNC_f%%": "() { echo; }", "SLURM_JOB_NODELIST": "n1"}
    limit = 777

    import resource

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
    mask = os.umask(0o027)
    try:
        assert bench.run(script, *arguments, environ=environ, stdin=feed) == 0
    finally:
        os.umask(mask)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert bench.err.read_bytes() == b""
    expected = "".join(f"<{a}>" for a in arguments) + "\n/tmp\n0027\n777\n"
    expected += (
        f"{odd}|vjob12-0|1|/run/rmsplugin/etc/hostfile|/home/{guestbox.USER}|{guestbox.USER}|/run/rmsplugin/bin\n"
    )
    expected += f"from a file\n/run/rmsplugin/bin/srun\nSigIgn:\t{0:016x}\n1\n"
    assert os.fsdecode(bench.out.read_bytes()) == expected


def test_the_script_has_the_path_of_the_front_where_its_vm_has_it(small: Bench) -> None:
    """As configure makes it (test_script_place.py)."""
    path = small.directory / "script"
    small.guest.run(f"mkdir -p {path.parent} && : >{path} && chown {guestbox.UID} {path} && chmod 600 {path}")
    small.guest.run(f"ln -s {path} /run/rmsplugin/script")
    try:
        assert small.run('#!/bin/sh\necho "$0 $#"\nno-such-command\n', "one") == 127
    finally:
        small.guest.run(f"rm -rf {path} /run/rmsplugin/script")
    assert small.out.read_text() == f"{path} 1\n"
    assert small.err.read_text().startswith(f"{path}: ")


def test_a_missing_directory_is_told_and_replaced(small: Bench) -> None:
    with contextlib.ExitStack() as stack:
        place = small.directory / "only here 'x'"
        place.mkdir()
        stack.callback(place.rmdir)
        assert small.run("#!/bin/sh\npwd\n", cwd=str(place)) == 0
    assert small.out.read_text() == "/tmp\n"
    assert small.err.read_text() == (
        f"slurmstepd-vjob12-0: error: couldn't chdir to `{place}': No such file or directory: going to /tmp instead\n"
    )


@pytest.mark.parametrize(
    "line, status, error",
    [
        ("#!/no/such -x ", 2, "bad interpreter(/no/such -x ): No such file or directory"),
        ("#!", 2, "bad interpreter(): No such file or directory"),
        ("#!/tmp", 13, "/run/rmsplugin/job/slurm_script: Permission denied"),
        ("#!/etc/passwd", 13, "/run/rmsplugin/job/slurm_script: Permission denied"),
        ("#! /tmp/no-program x", 8, "/run/rmsplugin/job/slurm_script: Exec format error"),
    ],
)
def test_a_script_that_no_program_can_run_ends_as_in_slurm(small: Bench, line: str, status: int, error: str) -> None:
    small.guest.run("echo text >/tmp/no-program; chmod 755 /tmp/no-program")
    assert small.run(f"{line}\necho no\n") == status
    assert small.err.read_text() == f"slurmstepd-vjob12-0: error: execve(): {error}\n"
    assert small.out.read_bytes() == b""


def test_much_output_stays_apart_and_whole(bench: Bench) -> None:
    script = "#!/bin/sh\nseq 1 1300000 & seq 2000000 3000000 >&2; wait\n"
    assert bench.run(script) == 0
    assert bench.out.read_bytes() == b"".join(b"%d\n" % n for n in range(1, 1300001))
    assert bench.err.read_bytes() == b"".join(b"%d\n" % n for n in range(2000000, 3000001))


MUCH = "#!/bin/sh\nseq 1 6000000; echo end >&2\n"
OUTPUT = "/run/rmsplugin/output"
LOOK_AT_RELAY = f"""cd {OUTPUT}
if [ -e stdout.full ]; then echo full; else echo not; fi
cat stdout.acked
stat -c %s stdout"""


@functools.cache
def much_output() -> bytes:
    """What ``MUCH`` prints: made where it is needed, and not by each worker that collects tests."""
    return b"".join(b"%d\n" % number for number in range(1, 6000001))


def test_more_output_than_the_guest_may_keep_is_whole_and_leaves_its_memory(small: Bench) -> None:
    assert small.run(MUCH) == 0
    assert _digest(small.out.read_bytes()) == _digest(much_output())
    assert small.err.read_bytes() == b"end\n"
    kept_mib = int(small.guest.run(f"du -m {OUTPUT}/stdout").split()[0])
    assert kept_mib <= 16, "acknowledged 4 MiB, not acknowledged 4, the last read 2, about to be trimmed 2, reserved 4"


@pytest.mark.parametrize("pause_s, delivered", [(1, 0), (0, 1 << 20)], ids=["at once", "after a while"])
def test_a_script_waits_for_a_wrapper_that_does_not_deliver(small: Bench, pause_s: int, delivered: int) -> None:
    small.fresh()
    small.script(f"#!/bin/sh\necho 1\nsleep {pause_s}\nseq 2 6000000\n")
    process = small.start()
    guestbox.wait_until(lambda: small.out.stat().st_size > delivered)
    _stand_still(process)
    seen: list[list[str]] = [[]]

    def waits() -> bool:
        """The relay says that it waits, and half a second later nothing has changed."""
        time.sleep(0.5)
        seen.append(small.guest.run(LOOK_AT_RELAY).splitlines())
        return seen[-1] == seen[-2] and seen[-1][0] == "full"

    guestbox.wait_until(waits, what="the relay waits")
    acked, size = (int(number) for number in seen[-1][1:])
    assert 4 << 20 <= size - acked <= 6 << 20
    process.send_signal(signal.SIGCONT)
    assert process.wait(PATIENCE_S) == 0
    assert _digest(small.out.read_bytes()) == _digest(much_output())


@pytest.mark.parametrize("manner", ["appended", "truncated"])
def test_a_requeue_in_the_middle_of_much_output(small: Bench, manner: str) -> None:
    small.fresh()
    small.script(MUCH)
    process = small.start()
    guestbox.wait_until(lambda: int(small.guest.run(f"cat {OUTPUT}/stdout.kept 2>/dev/null || echo 0")) > 0)
    process.kill()
    process.wait()
    if manner == "truncated":
        os.truncate(small.out, 0)
    assert small.start().wait(PATIENCE_S) == 0
    result = small.out.read_bytes()
    if manner == "truncated":
        note, _, result = result.partition(b"\n")
        assert note.startswith(b"rmsplugin: error: this file was truncated")
        assert len(much_output()) - len(result) > 0
        assert f" {len(much_output()) - len(result)} bytes ".encode() in note
        assert _digest(result) == _digest(much_output()[-len(result) :])
    else:
        assert _digest(result) == _digest(much_output())


@pytest.mark.parametrize("text", [MUCH, "#!/bin/sh\nseq 1 1000\necho end >&2\n"], ids=["more", "less"])
def test_output_that_comes_once_more_after_a_checkpoint_is_passed_over(small: Bench, text: str) -> None:
    small.fresh()
    small.script(MUCH)
    process = small.start()
    guestbox.wait_until(lambda: small.out.stat().st_size > 12 << 20)
    _stand_still(process)
    # The VM goes back to when its script had just been started: here by another wrapper, which sees none of it.
    # Or the old connection stays as it is, says nothing any more, and only the engine tells that it is of no use.
    old = small.guest.signal_servers(signal.SIGSTOP if text is MUCH else signal.SIGKILL)
    small.reset_guest()
    small.script(text)
    out, err, small.out, small.err = small.out, small.err, small.directory / "other", small.directory / "error"
    for path in (small.out, small.err):
        path.write_bytes(b"")
        os.chown(path, guestbox.UID, guestbox.UID)
    other = small.start()
    guestbox.wait_until(lambda: small.out.stat().st_size > 1000)
    other.kill()
    other.wait()
    small.out, small.err = out, err
    small.engine.access = {**small.engine.running, "returns": 1, "returned": "it goes on from its checkpoint"}
    process.send_signal(signal.SIGCONT)
    assert process.wait(PATIENCE_S) == 0
    for pid in set(old) & set(small.guest.server_children()):
        with contextlib.suppress(ProcessLookupError):  # it ends with another process of its connection
            os.kill(pid, signal.SIGKILL)
    assert b"rmsplugin: it goes on from its checkpoint\n" in small.err.read_bytes()
    if text is MUCH:
        assert _digest(small.out.read_bytes()) == _digest(much_output())
        assert small.err.read_bytes().endswith(b"end\n")
    else:
        assert much_output().startswith(small.out.read_bytes())


def test_what_a_script_prints_before_it_kills_all_of_its_user_is_delivered(small: Bench) -> None:
    assert small.run("#!/bin/sh\nseq 1 10000\nsh -c 'kill -9 -1'\necho not reached\n") == -signal.SIGKILL
    assert small.out.read_bytes() == b"".join(b"%d\n" % n for n in range(1, 10001))


STEPS_LEFT = """#!/bin/sh
srun -n 1 sh -c 'trap "echo saved; exit 0" TERM; echo begun; while :; do sleep 0.1; done' &
(while kill -0 $$ 2>/dev/null; do sleep 0.1; done; srun -n 1 --overlap echo too late) &
until grep -q begun /run/rmsplugin/output/stdout; do sleep 0.1; done
exit 4
"""


def test_steps_that_a_script_leaves_behind_are_told_to_end_and_none_begins(small: Bench) -> None:
    assert small.run(STEPS_LEFT) == 4
    assert sorted(small.out.read_text().splitlines()) == ["begun", "saved"]
    told = small.err.read_text()
    assert "CANCELLED AT" in told
    assert "srun: Job step aborted: Waiting up to" in told


def test_a_child_that_goes_on_printing_does_not_hold_up_the_end(small: Bench) -> None:
    assert small.run("#!/bin/sh\nseq 1 10000\nyes >&1 &\necho $! >/tmp/child\nexit 3\n") == 3
    small.guest.run("kill $(cat /tmp/child)")  # fails if it has ended
    assert small.out.read_bytes().startswith(b"".join(b"%d\n" % n for n in range(1, 10001)))


def test_an_input_that_the_vm_cannot_hold_ends_the_job_with_a_sentence(small: Bench) -> None:
    feed = small.directory / "large"
    with feed.open("wb") as file:
        file.truncate(1 << 43)
    assert small.run("#!/bin/sh\necho must not run\n", stdin=feed) == 1
    assert small.out.read_bytes() == b""
    assert "standard input (8388608 MiB) does not fit into its VM, which has room for " in small.err.read_text()
    assert small.engine.names().count("access") == 1, "not tried again"


def test_a_script_for_which_the_vm_has_no_room_ends_the_job_with_a_sentence(small: Bench) -> None:
    place = "/run/rmsplugin/job"
    small.fresh()
    small.guest.run(f"mount -t tmpfs -o size=256k,mode=700,uid={guestbox.UID} small {place}/.")
    try:
        small.script("#!/bin/sh\n" + "# a comment\n" * 100_000)
        assert small.start().wait(PATIENCE_S) == 1
    finally:
        small.guest.run(f"umount {place}/.")
    assert small.err.read_text() == (
        "rmsplugin-job: the script could not be started: the files came incomplete, or do not fit\n"
    )


def test_a_script_that_fills_its_disk_ends_as_it_ends_with_all_its_output(small: Bench) -> None:
    """Of an image with a disk that one holds the job's directory, too."""
    place = "/run/rmsplugin/job"
    small.fresh()
    small.guest.run(f"mount -t tmpfs -o size=256k,mode=700,uid={guestbox.UID} small {place}/.")
    try:
        small.script(
            f"#!/bin/sh\ndd if=/dev/zero of={place}/fill bs=1k 2>/dev/null\n"
            "echo filled\nsleep 6\necho acknowledged by now\nsrun -n 1 echo step\nexit 7\n"
        )
        assert small.start().wait(PATIENCE_S) == 7
    finally:
        small.guest.run(f"umount -l {place}/.")
    assert small.out.read_text() == "filled\nacknowledged by now\nstep\n"
    assert small.err.read_text() == ""


def test_tools_that_fail_now_and_then_do_not_end_a_job(small: Bench) -> None:
    small.fresh()
    small.script("#!/bin/sh\nfor i in $(seq 1 20); do echo $i; sleep 0.5; done\n")
    process = small.start()
    # By the number of those that it kills.
    kill = (
        "n=0; for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline | grep -qE 'bin/rmsplugin-guest (control|follow)' && "
        "kill -9 ${p#/proc/} && n=$((n + 1)); done 2>/dev/null; echo $n"
    )
    cuts = 0
    while process.poll() is None:
        guestbox.wait_until(lambda: small.out.stat().st_size > 0 or process.poll() is not None)
        # All that hangs on the connection but its server: the wrapper sees commands that fail.
        cuts += int(small.guest.run(kill))
        time.sleep(0.7)
    assert process.wait() == 0, small.err.read_text()
    assert cuts >= 10
    assert small.out.read_text() == "".join(f"{n}\n" for n in range(1, 21))


def test_one_file_for_both_streams_keeps_their_order(bench: Bench) -> None:
    script = "#!/bin/sh\nfor i in $(seq 1 500); do echo out $i; echo err $i >&2; done\n"
    assert bench.run(script, merged=True) == 0
    assert bench.out.read_text() == "".join(f"out {i}\nerr {i}\n" for i in range(1, 501))
    assert bench.err.read_bytes() == b""


def test_output_comes_promptly(bench: Bench) -> None:
    bench.fresh()
    go = "/run/rmsplugin/job/go"
    bench.script(f"#!/bin/sh\nfor i in 1 2 3; do printf $i; until rm {go} 2>/dev/null; do sleep 0.05; done; done\n")
    process = bench.start()
    for seen in ("1", "12", "123"):  # while it says nothing more, and not even the end of the line
        guestbox.wait_until(lambda seen=seen: bench.out.read_text() == seen)  # type: ignore[misc]
        bench.guest.run(f"touch {go}", user=True)
    assert process.wait(PATIENCE_S) == 0


_TOOLS = "^/run/rmsplugin/bin/(rmsplugin-guest (begin|control|follow)|relay)"


def test_a_script_that_says_nothing_wakes_none_of_our_tools(small: Bench) -> None:
    process = _ready(small, "#!/bin/sh\necho ready\nexec sleep 1000\n")
    count = (
        f"for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline | grep -qE '{_TOOLS}' && "
        "echo $p $(grep voluntary_ctxt_switches $p/status | head -n 1); done 2>/dev/null; true"
    )
    counted: list[list[str]] = [[]]

    def all_sleep() -> bool:
        """For two seconds, once the last acknowledgement has come: what is polled more often never stands still.

        Two relays, two followers, one that waits, the supervisor that it was before, one that obeys.
        """
        time.sleep(2)
        counted.append(small.guest.run(count).splitlines())
        return len(counted[-1]) == 7 and counted[-1] == counted[-2]

    guestbox.wait_until(all_sleep, what="tools that sleep")
    process.kill()
    process.wait()


SLOW = (
    "#!/bin/sh\necho run >>/tmp/runs\n"
    "for i in $(seq 1 40); do seq $((i * 2000)) $((i * 2000 + 1999)); sleep 0.02; done\nexit 5\n"
)
SLOW_OUTPUT = b"".join(b"%d\n" % n for n in range(2000, 82000))


def _killed_and_rerun(bench: Bench, delays: list[float], prefix: bytes, between) -> None:  # type: ignore[no-untyped-def]
    bench.fresh()
    bench.guest.run("rm -f /tmp/runs")
    bench.out.write_bytes(prefix)
    bench.script(SLOW)
    for delay in delays:
        process = bench.start(merged=True)
        time.sleep(delay)
        guestbox.signalled(process, signal.SIGKILL)
        process.wait()
        between()
    assert bench.start(merged=True).wait(PATIENCE_S) == 5
    assert bench.guest.run("cat /tmp/runs") == "run\n"


def _digest(data: bytes) -> str:
    return f"{len(data)} bytes, {hashlib.sha256(data).hexdigest()}"


def test_a_start_that_cannot_be_prepared_is_tried_again_and_leaves_no_trace(small: Bench) -> None:
    small.fresh()
    feed = small.directory / "feed"
    feed.write_text("input\n")
    feed.chmod(0o000)
    small.script("#!/bin/sh\ncat\necho 'rm: cannot remove x' >&2\n")  # begins as a complaint of ours would
    process = small.start(stdin=feed)
    guestbox.wait_until(lambda: small.engine.names().count("started") >= 2, "it is tried again")
    feed.chmod(0o644)
    assert process.wait(PATIENCE_S) == 0
    assert small.out.read_bytes() == b"input\n"
    assert small.err.read_bytes() == b"rm: cannot remove x\n"


def test_a_start_that_can_never_be_prepared_ends_the_job_with_the_reason(small: Bench) -> None:
    small.fresh()
    feed = small.directory / "no feed"
    feed.write_text("input\n")
    feed.chmod(0o000)
    small.script("#!/bin/sh\necho ran\n")
    assert small.start(stdin=feed).wait(PATIENCE_S) == 1
    assert small.out.read_bytes() == b""
    (line,) = small.err.read_text().splitlines()
    assert line.startswith("rmsplugin-job: the start of the script could not be prepared: [Errno 13] Permission denied")
    # The job is requeued when its file can be read: the line is no part of what the script prints.
    feed.chmod(0o644)
    small.script("#!/bin/sh\ncat\necho 'rm: cannot remove x' >&2\n")
    assert small.start(stdin=feed).wait(PATIENCE_S) == 0
    assert small.err.read_text() == f"{line}\nrm: cannot remove x\n"


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("manner", ["appended", "truncated", "noted"])
def test_killed_at_any_moment_and_rerun_loses_and_repeats_nothing(small: Bench, manner: str, seed: int) -> None:
    chance = random.Random(f"{manner}{seed}")
    delays = [0.25 + chance.random() * 0.7 for _ in range(3)]
    note = b"slurmstepd: error: *** JOB 12 ON n1 CANCELLED DUE TO JOB REQUEUE ***\n"
    prefix = b"" if manner == "truncated" else b"before\n"

    def between() -> None:
        if manner == "truncated":
            os.truncate(small.out, 0)
        elif manner == "noted":
            with small.out.open("ab") as file:
                file.write(note)

    _killed_and_rerun(small, delays, prefix, between)
    result = small.out.read_bytes()
    if manner == "noted":
        assert result.count(note) == 3
        result = result.replace(note, b"")
    assert _digest(result) == _digest(prefix + SLOW_OUTPUT)


@pytest.mark.parametrize("seed", range(2))
def test_a_cut_connection_loses_and_repeats_nothing(bench: Bench, seed: int) -> None:
    bench.fresh()
    bench.guest.run("rm -f /tmp/runs")
    bench.script(SLOW)
    chance = random.Random(seed)
    process = bench.start()
    cuts = 0
    while process.poll() is None:
        time.sleep(0.2 + chance.random() * 0.3)
        cuts += len(bench.guest.signal_servers(signal.SIGKILL))
    assert process.wait() == 5, bench.err.read_text()
    assert cuts > 0
    assert _digest(bench.out.read_bytes()) == _digest(SLOW_OUTPUT)
    assert bench.err.read_bytes() == b""
    assert bench.guest.run("cat /tmp/runs") == "run\n"


@pytest.fixture
def former(small: Bench) -> Iterator[Bench]:
    """A bench whose VM has tools of a former release, which do one thing a command."""
    tools = "/run/rmsplugin/bin"
    small.guest.run(
        f"mkdir {tools}/former && ln -s ../vjob-tools {tools}/former/rmsplugin-guest && rm {tools}/rmsplugin-guest && "
        f"printf '%s\\n' '#!/bin/sh' 'test \"$1\" != begin || exit 2' 'exec {tools}/former/rmsplugin-guest \"$@\"' "
        f">{tools}/rmsplugin-guest && chmod 755 {tools}/rmsplugin-guest"
    )
    yield small
    small.guest.run(f"rm -r {tools}/former && ln -sf vjob-tools {tools}/rmsplugin-guest")


def test_a_vm_of_a_former_release_runs_the_script_once(former: Bench) -> None:
    process = _ready(former, "#!/bin/sh\necho run >>/tmp/former-runs\necho ready\nsleep 2\necho end\nexit 7\n")
    process.kill()
    process.wait()
    assert former.start().wait(PATIENCE_S) == 7
    assert (former.out.read_text(), former.guest.run("cat /tmp/former-runs; rm /tmp/former-runs")) == (
        "ready\nend\n",
        "run\n",
    )


def test_two_wrappers_at_once_run_the_script_once(bench: Bench) -> None:
    bench.fresh()
    bench.guest.run("rm -f /tmp/runs")
    bench.script("#!/bin/sh\necho run >>/tmp/runs; sleep 1; exit 4\n")
    processes = [bench.start() for _ in range(2)]
    assert [process.wait(PATIENCE_S) for process in processes] == [4, 4]
    assert bench.guest.run("cat /tmp/runs") == "run\n"


TRAPS = (
    "#!/bin/sh\ntrap 'echo usr1' USR1; trap 'echo int' INT; trap 'echo term; exit 9' TERM\n"
    "echo ready\nwhile :; do sleep 0.1; done\n"
)


def _ready(bench: Bench, text: str) -> subprocess.Popen[bytes]:
    bench.fresh()
    bench.script(text)
    process = bench.start()
    guestbox.wait_until(lambda: b"ready" in bench.out.read_bytes(), what="the script runs")
    return process


def test_signals_reach_the_script_and_those_of_a_suspend_do_not(bench: Bench) -> None:
    bench.set_fate("JobId=12 JobName=x UserId=u(1001) JobState=COMPLETING Restarts=0")
    process = _ready(bench, TRAPS)
    for number in (signal.SIGTSTP, signal.SIGCONT, signal.SIGUSR1):
        process.send_signal(number)
    guestbox.wait_until(lambda: b"usr1" in bench.out.read_bytes())
    process.send_signal(signal.SIGINT)
    guestbox.wait_until(lambda: b"int" in bench.out.read_bytes())
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 9
    assert bench.out.read_text() == "ready\nusr1\nint\nterm\n"


#: A script and a child of it, of which each says so when it gets SIGUSR1.
FAMILY = """#!/bin/sh
trap 'echo script' USR1
(trap 'echo child' USR1; echo ready; while :; do sleep 0.1; done) 2>/dev/null &
while :; do wait; done
"""


def children(process: subprocess.Popen[bytes]) -> list[int]:
    files = Path(f"/proc/{process.pid}/task").glob("*/children")  # each thread has its own
    return [int(pid) for file in files for pid in file.read_text().split()]


def test_signals_for_all_processes_reach_the_scripts_children_and_those_for_the_script_do_not(small: Bench) -> None:
    process = _ready(small, FAMILY)

    def heard() -> tuple[int, int]:
        words = small.out.read_text().split()
        return words.count("script"), words.count("child")

    for for_all, expected in ((False, (1, 0)), (True, (2, 1)), (False, (3, 1)), (True, (4, 2))):
        for pid in (process.pid, *(children(process) if for_all else ())):
            os.kill(pid, signal.SIGUSR1)
        guestbox.wait_until(lambda expected=expected: heard() == expected, what=f"script and child hear of {expected}")
    small.set_fate("JobId=12 JobName=x UserId=u(1001) JobState=CANCELLED Restarts=0")
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == -signal.SIGTERM
    assert heard() == (4, 2)


def test_a_wrapper_that_is_killed_leaves_no_process_behind(small: Bench) -> None:
    process = _ready(small, "#!/bin/sh\necho ready\nsleep 60\n")
    left = children(process)
    assert left
    process.kill()
    process.wait()
    guestbox.wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in left))


def test_a_cancelled_job_ends_with_all_its_processes(small: Bench) -> None:
    small.set_fate("JobId=12 JobName=x UserId=u(1001) JobState=CANCELLED Restarts=0")
    process = _ready(
        small, "#!/bin/sh\n(trap 'echo child; exit' TERM; while :; do sleep 0.1; done) &\necho ready\nwait\n"
    )
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == -signal.SIGTERM
    assert small.out.read_text() == "ready\nchild\n"


def _takes(process: subprocess.Popen[bytes], number: int) -> bool:
    """Whether a process has blocked a signal, to wait for it: until then the signal ends it."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    blocked = next(line for line in status.splitlines() if line.startswith("SigBlk:"))
    return bool(int(blocked.split()[1], 16) >> (number - 1) & 1)


def test_a_requeue_leaves_the_script_alone(small: Bench) -> None:
    small.set_fate("JobId=12 JobName=x UserId=u(1001) JobState=COMPLETING Restarts=1")
    process = _ready(small, TRAPS)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 128 + signal.SIGTERM
    assert ("requeued", {"by": "others", "restarts": 0}) in small.engine.requests
    small.set_fate("JobId=12 JobName=x UserId=u(1001) JobState=RUNNING Restarts=1")
    again = small.start(environ={"SLURM_RESTART_COUNT": "1"})
    guestbox.wait_until(lambda: _takes(again, signal.SIGTERM), what="the wrapper takes signals itself")
    again.send_signal(signal.SIGTERM)
    assert again.wait(PATIENCE_S) == 9
    assert small.out.read_text() == "ready\nterm\n"


def test_signals_that_come_while_the_wrapper_is_stopped_reach_the_script_although_its_job_is_requeued(
    small: Bench,
) -> None:
    small.set_fate("JobId=12 JobName=x UserId=u(1001) JobState=COMPLETING Restarts=1")
    process = _ready(small, TRAPS.replace("echo ready", "trap 'echo xcpu' XCPU; echo ready"))
    _stand_still(process)
    small.guest.signal_servers(signal.SIGKILL)  # its connection is of no use any more when it goes on
    for number in (signal.SIGUSR1, signal.SIGXCPU, signal.SIGTERM, signal.SIGCONT):
        process.send_signal(number)
    assert process.wait(PATIENCE_S) == 128 + signal.SIGTERM
    small.set_fate("JobId=12 JobName=x UserId=u(1001) JobState=RUNNING Restarts=1")
    again = small.start(environ={"SLURM_RESTART_COUNT": "1"})
    guestbox.wait_until(lambda: _takes(again, signal.SIGTERM), what="the wrapper takes signals itself")
    guestbox.wait_until(lambda: b"xcpu" in small.out.read_bytes())
    again.send_signal(signal.SIGTERM)
    assert again.wait(PATIENCE_S) == 9
    assert sorted(small.out.read_text().split()) == ["ready", "term", "usr1", "xcpu"]


def test_a_requeue_that_the_script_asked_for_ends_it(small: Bench) -> None:
    small.set_fate("JobId=12 JobName=x UserId=u(1001) JobState=COMPLETING Restarts=1")
    process = _ready(small, TRAPS)
    small.engine.own_requeue = True
    try:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 9
    finally:
        small.engine.own_requeue = False
    assert small.out.read_text() == "ready\nterm\n"


def test_no_answer_from_slurm_passes_no_sigterm_on(small: Bench) -> None:
    small.set_fate("")
    process = _ready(small, TRAPS)
    process.send_signal(signal.SIGTERM)
    time.sleep(1.5)
    assert process.poll() is None
    small.set_fate("JobId=12 JobName=x UserId=u(1001) JobState=TIMEOUT Restarts=0")
    assert process.wait(PATIENCE_S) == 9


TICKS = """#!/bin/sh
trap 'echo continued' CONT
(trap 'exit 0' USR1; echo $(exec sh -c 'echo $PPID') >/run/rmsplugin/job/child; while :; do sleep 0.1; done) &
touch /run/rmsplugin/job/ready
until [ -e /run/rmsplugin/job/end ]; do sleep 0.1; done
kill -USR1 $!
exit 7
"""
JOB_IN_GUEST, PID_IN_GUEST = "/run/rmsplugin/job", "/run/rmsplugin/state/pid"


def _children(process: subprocess.Popen[bytes], name: str) -> list[int]:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(pid) for pid in children if name in Path(f"/proc/{pid}/cmdline").read_text()]


def _stand_still(process: subprocess.Popen[bytes]) -> None:
    """Stop a wrapper so that nobody stands in for it."""
    for pid in _children(process, "sentry"):
        os.kill(pid, signal.SIGKILL)
    process.send_signal(signal.SIGSTOP)


def _is_stopped(bench: Bench, file: str) -> bool:
    return bench.guest.run(f"cut -d ' ' -f 3 /proc/$(cat {file})/stat") == "T\n"


@pytest.fixture
def ticking(small: Bench) -> Iterator[subprocess.Popen[bytes]]:
    """The wrapper of a script that runs until its test says ``end``, with a child in the background."""
    small.fresh()
    small.script(TICKS)
    process = small.start()
    guestbox.wait_until(lambda: small.guest.run(f"ls {JOB_IN_GUEST}").split().count("ready") > 0)
    yield process
    process.kill()
    process.wait()


def test_a_script_is_stopped_while_its_wrapper_is_and_the_engine_hears_of_it(
    small: Bench, ticking: subprocess.Popen[bytes]
) -> None:
    ticking.send_signal(signal.SIGSTOP)
    guestbox.wait_until(lambda: _is_stopped(small, PID_IN_GUEST))
    assert not _is_stopped(small, f"{JOB_IN_GUEST}/child"), "scancel -b is for the script alone"
    before = small.engine.names().count("attached")
    guestbox.wait_until(lambda: small.engine.names().count("attached") > before)
    small.guest.run(f"touch {JOB_IN_GUEST}/end")
    assert _is_stopped(small, PID_IN_GUEST)
    ticking.send_signal(signal.SIGCONT)
    assert ticking.wait(PATIENCE_S) == 7
    assert small.out.read_text() == "continued\n"


def test_what_stops_all_processes_of_a_job_stops_the_scripts_children(
    small: Bench, ticking: subprocess.Popen[bytes]
) -> None:
    telltale = _children(ticking, "cat")[0]
    for pid in (telltale, ticking.pid):
        os.kill(pid, signal.SIGSTOP)
    guestbox.wait_until(lambda: _is_stopped(small, f"{JOB_IN_GUEST}/child"))
    assert _is_stopped(small, PID_IN_GUEST)
    for pid in (telltale, ticking.pid):
        os.kill(pid, signal.SIGCONT)
    guestbox.wait_until(lambda: not _is_stopped(small, f"{JOB_IN_GUEST}/child"))
    small.guest.run(f"touch {JOB_IN_GUEST}/end")
    assert ticking.wait(PATIENCE_S) == 7


def test_a_wrapper_that_is_stopped_by_a_suspension_leaves_its_script_alone(
    small: Bench, ticking: subprocess.Popen[bytes]
) -> None:
    ticking.send_signal(signal.SIGTSTP)
    time.sleep(2)  # as Slurm does
    ticking.send_signal(signal.SIGSTOP)
    time.sleep(2)
    assert not _is_stopped(small, PID_IN_GUEST)
    assert _children(ticking, "stand_in")
    ticking.send_signal(signal.SIGCONT)
    small.guest.run(f"touch {JOB_IN_GUEST}/end")
    assert ticking.wait(PATIENCE_S) == 7
    assert small.out.read_text() == "", "the script was told of a suspension"


def test_a_stop_that_comes_before_the_script_is_kept_for_it(small: Bench) -> None:
    small.fresh()
    small.script(TICKS)
    small.engine.access = {"state": "starting", "reason": "boots"}
    process = small.start()
    guestbox.wait_until(lambda: "access" in small.engine.names())
    process.send_signal(signal.SIGSTOP)
    small.engine.access = small.engine.running
    before = small.engine.names().count("access")
    guestbox.wait_until(lambda: small.engine.names().count("access") > before, what="the stand-in looks for the script")
    assert small.guest.run(f"ls {JOB_IN_GUEST}") == ""
    process.send_signal(signal.SIGCONT)
    guestbox.wait_until(lambda: small.guest.run(f"ls {JOB_IN_GUEST}").split().count("ready") > 0)
    small.guest.run(f"touch {JOB_IN_GUEST}/end")
    assert process.wait(PATIENCE_S) == 7


def test_a_stopped_wrapper_goes_on_where_it_was(small: Bench) -> None:
    small.fresh()
    small.script(SLOW)
    process = small.start()
    time.sleep(0.8)
    process.send_signal(signal.SIGTSTP)
    process.send_signal(signal.SIGSTOP)
    time.sleep(0.5)
    small.guest.signal_servers(signal.SIGKILL)
    process.send_signal(signal.SIGCONT)
    assert process.wait(PATIENCE_S) == 5
    assert _digest(small.out.read_bytes()) == _digest(SLOW_OUTPUT)


def test_an_engine_that_is_down_is_waited_for_in_silence(small: Bench) -> None:
    small.fresh()
    small.script("#!/bin/sh\necho ready; sleep 1; echo done; exit 3\n")
    small.engine.down()
    process = small.start()
    time.sleep(1.0)
    assert process.poll() is None
    small.engine.up()
    guestbox.wait_until(lambda: b"ready" in small.out.read_bytes())
    small.engine.down()
    guestbox.wait_until(lambda: b"done" in small.out.read_bytes())
    time.sleep(0.5)
    assert process.poll() is None, "the engine has not been told yet"
    small.engine.up()
    assert process.wait(PATIENCE_S) == 3
    assert small.err.read_bytes() == b""
    assert "finished" in small.engine.names()


def test_vms_that_do_not_run_yet_are_waited_for(small: Bench) -> None:
    small.fresh()
    small.engine.access = {"state": "suspending", "reason": "a context switch"}
    small.script("#!/bin/sh\necho hello\n")
    process = small.start()
    time.sleep(2)
    assert process.poll() is None
    assert small.engine.names().count("access") <= 4, "no busy loop"
    small.engine.access = small.engine.running
    assert process.wait(PATIENCE_S) == 0
    assert small.out.read_text() == "hello\n"


def test_a_job_without_vms_says_so_and_runs_nothing(small: Bench) -> None:
    small.fresh()
    small.engine.refusal = (409, "the VMs of vjob 12 were lost")
    small.script("#!/bin/sh\necho must not run\n")
    assert small.start().wait(PATIENCE_S) == 1
    assert small.out.read_bytes() == b""
    assert small.err.read_text() == "rmsplugin-job: the VMs of vjob 12 were lost\n"


def test_cancelled_while_waiting_for_its_vms_it_ends(small: Bench) -> None:
    small.fresh()
    small.engine.access = {"state": "starting", "reason": ""}
    small.set_fate("JobId=12 JobName=x UserId=u(1001) JobState=CANCELLED Restarts=0")
    process = small.start()
    guestbox.wait_until(lambda: "access" in small.engine.names())
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == -signal.SIGTERM


def test_a_vm_with_another_host_key_gets_nothing(small: Bench) -> None:
    small.fresh()
    vm = {**small.engine.running["vms"][0], "host_key": guestbox.generate_keypair().public}  # type: ignore[index]
    small.engine.access = {**small.engine.running, "vms": [vm]}
    small.script("#!/bin/sh\necho must not run\n")
    assert small.start().wait(PATIENCE_S) == 1
    assert "another host key" in small.err.read_text()
    assert small.guest.run("cd /run/rmsplugin; ls job/ state/").split() == ["job/:", "state/:"]


def test_dies_with_slurmstepd(small: Bench) -> None:
    small.fresh()
    small.script("#!/bin/sh\necho ready; sleep 30\n")
    inner = small.directory / "inner"
    parent = subprocess.Popen(
        [
            *("nsenter", f"--net={small.box.network}", "sh", "-c", f'"$@" & echo $! >{inner}; wait', "sh"),
            *(sys.executable, "-m", "rmsplugin.wrapper.main", GEOMETRY, str(small.directory / "script")),
        ],
        env={
            "PATH": os.environ["PATH"],
            "SLURM_JOB_ID": "12",
            "RMSPLUGIN_CONFIG": str(small.directory / "rmsplugin.toml"),
            "PYTHONPATH": str(Path(__file__).parents[3]),
        },
        stdout=small.out.open("ab"),
    )
    guestbox.wait_until(lambda: b"ready" in small.out.read_bytes())
    pid = int(inner.read_text())
    parent.kill()
    parent.wait()

    def gone() -> bool:
        with contextlib.suppress(OSError):
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        return True

    guestbox.wait_until(gone)
