"""The node agent ends a room: the real agent and the real script of a room, among processes of their own."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from lifetime import ENDS_WITH_US
from patience import PATIENCE_S

from rmsplugin.adapters.rms.slurm_cli import _ROOM_SCRIPT
from rmsplugin.defaults import ROOM_MARK
from rmsplugin.model.epochs import FIRST_EPOCH
from rmsplugin.node_agent import epoch
from rmsplugin.node_agent.errors import AgentError

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: namespaces, and processes of others")
ROOM, OTHER_ROOM = 12, 13
NOBODY = ["setpriv", "--reuid", "65534", "--clear-groups"]
VM = "vjob9-0"


class Host:
    """A node: a namespace of processes, and the agent's directories."""

    def __init__(self, directory: Path) -> None:
        self.vm_dir, self.config, self._script = directory / "vm", directory / "rmsplugin.toml", directory / "room"
        self.config.write_text(
            f'[nodes]\nstore = "{directory}/store"\nvm_dir = "{self.vm_dir}"\n[engine]\nuser = "root"\n'
        )
        self._script.write_text(_ROOM_SCRIPT)
        self._script.chmod(0o755)
        namespace = [*ENDS_WITH_US, "unshare", "--pid", "--mount-proc", "--fork", "--kill-child"]
        self._holder = subprocess.Popen(
            [*namespace, "sh", "-c", "echo; exec sleep infinity"], stdout=subprocess.PIPE, start_new_session=True
        )
        assert self._holder.stdout
        self._holder.stdout.readline()
        [self._init] = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children").read_text().split()
        self._inside = ["nsenter", "--target", self._init, "--pid", "--mount"]
        self._started: list[subprocess.Popen[str]] = []

    def close(self) -> None:
        """End everything there."""
        self._holder.kill()
        for each in (self._holder, *self._started):
            each.wait(PATIENCE_S)
            if each.stdout:
                each.stdout.close()

    def start(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        """A program on the node, with no other environment."""
        each = subprocess.Popen(
            [*self._inside, "env", "-i", *(f"{key}={value}" for key, value in environment.items()), *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._started.append(each)
        return each

    def sleeps(self, *, job: int = ROOM, mark: str = ROOM_MARK, before: Sequence[str] = ()) -> subprocess.Popen[str]:
        """A sleep, for which nobody waits in a script, once it is there."""
        each = self.start(*before, "sleep", "infinity", SLURM_JOB_ID=str(job), **dict([mark.split("=")]))
        wait_until(lambda: self._runs(f"SLURM_JOB_ID={job}", mark, "sleep"), "the sleep")
        return each

    def room(self, job: int) -> subprocess.Popen[str]:
        """What slurmd starts for a room."""
        each = self.start(str(self._script), SLURM_JOB_ID=str(job))
        wait_until(lambda: self._runs(f"SLURM_JOB_ID={job}", ROOM_MARK, "sleep"), "the room")
        return each

    def vm(self) -> subprocess.Popen[str]:
        """A process that looks like that of a VM."""
        words = (
            "bash",
            "-c",
            f'exec -a qemu-system-x86_64 "{sys.executable}" -c "{PROGRAM}" guest={VM},debug-threads=on',
        )
        each = self.start(*words)
        assert each.stdout and each.stdout.readline() == "up\n"
        return each

    def call(self, words: str) -> dict[str, Any]:
        """The agent's answer."""
        return self.answer_of(self.begin(words))

    def begin(self, words: str) -> subprocess.Popen[str]:
        """A call that has begun."""
        root = str(Path(__file__).parents[3])
        agent = (sys.executable, "-m", "rmsplugin.node_agent.main", "--config", str(self.config))
        return self.start(*agent, SSH_ORIGINAL_COMMAND=words, PYTHONPATH=root)

    def mount(self, *words: str) -> None:
        """Mount something at the directory of the VMs, as only this node sees it."""
        assert self.start("mount", *words, str(self.vm_dir)).wait(PATIENCE_S) == 0

    @staticmethod
    def answer_of(call: subprocess.Popen[str]) -> dict[str, Any]:
        output, _ = call.communicate(timeout=PATIENCE_S)
        answer: dict[str, Any] = json.loads(output)
        return answer

    def _runs(self, *marks: str) -> bool:
        """Whether a process of the node has these words in its environment, the last one as its name."""
        *environment, name = marks
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            try:
                inside = os.readlink(entry / "ns/pid") == os.readlink(f"/proc/{self._init}/ns/pid")
                words = (entry / "environ").read_text().split("\0") if inside else []
                if inside and {*environment} <= {*words} and (entry / "comm").read_text().strip() == name:
                    return True
            except OSError:
                continue  # it has just ended
        return False


PROGRAM = "import time; print('up', flush=True); time.sleep(100000)"


def wait_until(reached: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path)
    yield host
    host.close()


def test_the_script_of_the_room_ends_well_and_nothing_else_is_ended(host: Host) -> None:
    room = host.room(ROOM)
    others = [
        host.room(OTHER_ROOM),
        host.sleeps(mark="RMSPLUGIN_ROOM=no"),  # a process of the same job
        host.sleeps(mark=ROOM_MARK, before=NOBODY),
    ]
    assert host.call(f"end-room {ROOM}") == {"vms": [], "ended": True}
    assert room.wait(PATIENCE_S) == 0, "Slurm sees the job complete"
    assert host.call(f"end-room {ROOM}") == {"vms": [], "ended": False}, "it had no other"
    assert [each.poll() for each in others] == [None] * 3


def test_the_script_of_an_older_room_is_not_known(host: Host) -> None:
    older = host.start("sh", "-c", "echo; exec sleep infinity", SLURM_JOB_ID=str(ROOM))
    assert older.stdout and older.stdout.readline()
    assert host.call(f"end-room {ROOM}") == {"vms": [], "ended": False}
    assert older.poll() is None


def test_a_room_with_a_vm_is_not_ended(host: Host) -> None:
    room, vm = host.room(ROOM), host.vm()
    assert host.call(f"end-room {ROOM}") == {"vms": [VM], "ended": False}
    assert (room.poll(), vm.poll()) == (None, None)


def test_an_engine_whose_turn_is_over_ends_no_room(host: Host) -> None:
    room = host.room(ROOM)
    assert "error" not in host.call("obey --epoch 5")
    for deposed in ("", " --epoch 4"):
        assert host.call(f"end-room {ROOM}{deposed}")["kind"] == "deposed"
    assert room.poll() is None
    assert host.call(f"end-room {ROOM} --epoch 5") == {"vms": [], "ended": True}
    assert room.wait(PATIENCE_S) == 0


def test_an_engine_whose_turn_ends_while_its_call_waits_ends_no_room(host: Host) -> None:
    """The next engine has its word written down while the call waits for the file with the epoch."""
    room = host.room(ROOM)
    assert "error" not in host.call("obey --epoch 4")
    file = host.vm_dir / ".epoch"
    with file.open("r+") as held:
        fcntl.lockf(held, fcntl.LOCK_EX)
        call = host.begin(f"end-room {ROOM} --epoch 4")
        wait_until(lambda: is_waited_for(file), "the call to wait")
        held.write("5\n")
        held.flush()
    assert host.answer_of(call)["kind"] == "deposed"
    assert room.poll() is None


@pytest.mark.parametrize("own", [FIRST_EPOCH, 4], ids=["the first epoch", "a later one"])
def test_no_engine_of_a_higher_epoch_is_obeyed_in_the_middle_of_an_act(host: Host, own: int) -> None:
    """The first engine of a node has written nothing there before its act."""
    file = epoch.of_node(host.vm_dir)
    host.vm_dir.mkdir(mode=0o711)
    if own > FIRST_EPOCH:
        epoch.obey(file, own)
    with epoch.one_act(file, own):
        call = host.begin("obey --epoch 5")
        wait_until(lambda: call.poll() is not None or is_waited_for(Path(file)), "the call to wait")
        assert call.poll() is None, "it waits for the end of the act"
    assert host.answer_of(call) == {}
    with pytest.raises(AgentError, match=rf"turn of this engine \(epoch {own}\) is over"), epoch.one_act(file, own):
        pytest.fail("it is obeyed")


def test_the_first_act_of_all_on_a_node_makes_what_it_locks(host: Host) -> None:
    assert host.call(f"end-room {ROOM}") == {"vms": [], "ended": False}
    assert host.call("check")["epoch"] == FIRST_EPOCH


@pytest.mark.parametrize("disk", ["read-only", "read-only, no act before", "full, no act before"])
def test_a_room_is_ended_on_a_node_whose_disk_takes_nothing(host: Host, disk: str) -> None:
    """The disk that failed holds the epoch; VMs run on, and are moved off."""
    room = host.room(ROOM)
    if disk == "read-only":
        assert host.call(f"end-room {OTHER_ROOM}") == {"vms": [], "ended": False}
    else:
        host.vm_dir.mkdir(mode=0o711)
    if disk.startswith("full"):
        host.mount("-t", "tmpfs", "-o", "nr_inodes=1,mode=711", "none")
    else:
        host.mount("--bind", str(host.vm_dir))
        host.mount("-o", "remount,bind,ro")
    assert "error" in host.call("obey --epoch 5"), "no engine of a higher epoch is obeyed that is not written down"
    assert host.call(f"end-room {ROOM}") == {"vms": [], "ended": True}
    assert room.wait(PATIENCE_S) == 0


def test_a_deposed_engine_ends_no_room_on_a_node_whose_disk_can_only_be_read(host: Host) -> None:
    room = host.room(ROOM)
    assert "error" not in host.call("obey --epoch 5")
    host.mount("--bind", str(host.vm_dir))
    host.mount("-o", "remount,bind,ro")
    assert host.call(f"end-room {ROOM} --epoch 4")["kind"] == "deposed"
    assert room.poll() is None
    assert host.call(f"end-room {ROOM} --epoch 5") == {"vms": [], "ended": True}


def is_waited_for(file: Path) -> bool:
    """Whether a process waits for a lock of the file. To open it here would end the locks of this process."""
    inode = f":{file.stat().st_ino} "
    return any("->" in line and inode in line for line in Path("/proc/locks").read_text().splitlines())


@pytest.mark.parametrize("words", ["0", "-1", "x", "12_1", "12 13", ""])
def test_what_is_no_job_is_refused(host: Host, words: str) -> None:
    answer = host.call(f"end-room {words}")
    assert answer["kind"] == "failed" and answer["error"].startswith("not "), answer


def test_a_node_that_does_not_know_the_engines_account_says_so(host: Host) -> None:
    host.config.write_text(host.config.read_text().replace('"root"', '"no-such-account"'))
    assert host.call(f"end-room {ROOM}")["error"].startswith("this node has no account no-such-account")
