"""The command line program as users run it: real processes, a fake engine behind a real unix socket."""

from __future__ import annotations

import argparse
import contextlib
import http.server
import json
import os
import pty
import re
import shlex
import signal
import socketserver
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from unit.cli.json_documents import answer_of

from rmsplugin import __version__
from rmsplugin.cli.live import vjobs
from rmsplugin.cli.main import build_parser, main
from rmsplugin.cli.shared.arguments import memory_mib, split_command

PROGRAM = str(Path(sys.executable).parent / "rmsplugin")

SETTINGS = """\
[engine]
socket = "{socket}"
[slurm]
partitions = ["vjob"]

[partition.vjob]
hosts = "vmhosts"
[network]
pool = "10.77.1.10-10.77.1.20"
prefix_length = 16
[image.default]
kind = "kernel"
kernel = "/images/vmlinuz"
initrd = "/images/initrd.img"
"""

VJOBS = [
    {
        "job_id": 12,
        "display_id": "12",
        "user": "alice",
        "partition": "vjob",
        "state": "running",
        "reason": "all VMs answer",
        "vms": 1,
        "cpus": 2,
        "memory_mib": 512,
        "nodes": ["n1"],
        "submitted": 1000000000.0,
        "state_since": 1000000010.0,
        "losses": 0,
        "operation": {"id": 3, "kind": "migrate", "bytes_done": 25, "bytes_total": 100},
    },
    {
        "job_id": 1014,
        "display_id": "1012_3",
        "user": "bob",
        "partition": "vjob",
        "state": "waiting",
        "reason": "needs 2 VMs\x1b[31m\nof 4 CPUs",
        "vms": 2,
        "cpus": 4,
        "memory_mib": 16384,
        "nodes": [],
        "submitted": 1000000001.0,
        "state_since": 1000000001.0,
        "losses": 0,
        "operation": None,
    },
]

Answer = tuple[int, dict[str, Any]]


class FakeEngine:
    """Answers every request with what a test laid ready for its path, and remembers what it was asked."""

    def __init__(self, path: Path) -> None:
        self.requests: list[tuple[str, str, Any]] = []
        self.answers: dict[str, Callable[[dict[str, str]], Answer]] = {}
        engine = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def address_string(self) -> str:
                return "unix"

            def log_message(self, format: str, *args: Any) -> None:
                return

            def _answer(self) -> None:
                url = urllib.parse.urlsplit(self.path)
                length = int(self.headers.get("Content-Length", 0))
                engine.requests.append((self.command, self.path, json.loads(self.rfile.read(length) or b"null")))
                query = dict(urllib.parse.parse_qsl(url.query))
                found = engine.answers.get(url.path, lambda query: (404, {"error": "no such thing"}))
                status, body = found(query)
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                with contextlib.suppress(BrokenPipeError):  # the caller was interrupted
                    self.end_headers()
                    self.wfile.write(data)

            do_GET = do_POST = _answer

        class Server(socketserver.ThreadingUnixStreamServer):
            daemon_threads = True

        self.server = Server(str(path), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def lay(self, path: str, body: dict[str, Any], status: int = 200) -> None:
        self.answers[path] = lambda query: (status, body)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "rmsplugin.toml").write_text(SETTINGS.format(socket=tmp_path / "engine.sock"))
    return tmp_path


@pytest.fixture
def engine(site: Path) -> Iterator[FakeEngine]:
    fake = FakeEngine(site / "engine.sock")
    fake.lay("/v1/vjobs", {"vjobs": VJOBS})
    yield fake
    fake.server.shutdown()
    fake.server.server_close()


def environment(site: Path, **more: str) -> dict[str, str]:
    # PYTHONUNBUFFERED would hide what happens to output that is still buffered at the end.
    base = {key: value for key, value in os.environ.items() if not key.startswith(("RMSPLUGIN", "PYTHON"))}
    return {**base, "RMSPLUGIN_CONFIG": str(site / "rmsplugin.toml"), "TZ": "UTC", "COLUMNS": "80", **more}


def run(site: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [PROGRAM, *words],
        env=environment(site, **more),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert "Traceback" not in done.stderr + done.stdout
    return done


# -- help and usage ------------------------------------------------------------------------------------------------


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    actions = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return {name: command for action in actions for name, command in action.choices.items()}


def command_names() -> list[str]:
    """All commands, those of commands too: `ledger query`."""
    names = []
    for name, command in commands_of(build_parser()).items():
        names += [name, *(f"{name} {inner}" for inner in commands_of(command))]
    return names


def test_version(site: Path) -> None:
    assert run(site, "--version").stdout == f"rmsplugin {__version__}\n"


def test_help_names_every_command_and_imports_nothing_heavy(site: Path) -> None:
    help_text = run(site, "--help").stdout
    for name in commands_of(build_parser()):
        assert re.search(rf"^    {name}\b", help_text, re.MULTILINE), name
    assert not modules_loaded(site, "--help") & {
        "pydantic",
        "libvirt",
        "rich",
        "ortools",
        "paramiko",
        "aiohttp",
        "sqlite_utils",
    }


def modules_loaded(site: Path, *words: str) -> set[str]:
    """The modules that are loaded at the end of a command."""
    lines = (
        *("import sys", "from rmsplugin.cli.main import main"),
        *("try: main()", "finally: print(*sys.modules, file=sys.stderr)"),
    )
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines), *words],
        env=environment(site),
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stderr.split())


def test_a_command_that_asks_the_engine_loads_no_other_and_no_settings(site: Path, engine: FakeEngine) -> None:
    loaded = modules_loaded(site, "vjobs")
    assert {each for each in loaded if each.startswith("rmsplugin.cli.live.")} == {"rmsplugin.cli.live.vjobs"}
    assert not {each for each in loaded if each.startswith(("rmsplugin.cli.plan", "rmsplugin.cli.simulate"))}
    assert not loaded & {"rmsplugin.settings", "pydantic", "dataclasses", "inspect", "urllib.parse"}


def test_each_command_is_added_by_the_module_that_main_names_for_it() -> None:
    for name in commands_of(build_parser()):
        assert list(commands_of(build_parser(name))) == [name]


@pytest.mark.parametrize("name", command_names())
def test_every_command_has_help_with_examples_that_parse(site: Path, name: str) -> None:
    text = run(site, *name.split(), "--help").stdout.replace("\\\n", "")
    examples = re.findall(rf"^  (?:sudo )?rmsplugin ({name}.*)$", text, re.MULTILINE)
    assert examples, text
    for example in examples:
        own, _ = split_command(shlex.split(example))
        build_parser().parse_args(own)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ((), "required: COMMAND"),
        (("fly",), "there is no command 'fly'; `rmsplugin --help` lists them"),
        (("vjob",), "there is no command 'vjob'; did you mean vjobs?"),
        (("vjobs", "twelve"), "'twelve' is not a job id"),
        (("vjobs", "12;rm"), "is not a job id"),
        (("suspend",), "required: JOBID"),
        (("suspend", "12", "--to", "n1"), "unrecognized arguments"),
        (("resume", "12", "--to", "../n1"), "is not the name of a node"),
        (("migrate", "12", "--vm", "-1"), "--vm"),
        (("events", "-n", "0"), "at least 1"),
        (("events", "-n", "10001"), "has to be at most 10000"),
        (("cycles", "-n", "10001"), "has to be at most 10000"),
        (("vjobs", "-a", "--limit", "10001"), "has to be at most 10000"),
        (("vjobs", "-a", "--limit", "-1"), "'-1' is not a whole number"),
        (("events", "--since", "x"), "is not a whole number"),
        (("ssh", "12", "0", "uptime"), "unrecognized arguments: uptime"),
    ],
)
def test_wrong_usage_is_status_2_and_says_what_is_wrong(site: Path, words: tuple[str, ...], complaint: str) -> None:
    done = run(site, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr


@pytest.mark.parametrize("words", ["suspend 12 --to n1", "nodes -x", "ledger check -x"])
def test_an_option_that_a_command_has_not_is_refused_with_the_usage_of_that_command(site: Path, words: str) -> None:
    command = words.partition(" -")[0].removesuffix(" 12")
    error = run(site, *words.split()).stderr
    assert error.startswith(f"usage: rmsplugin {command} ")
    assert f"rmsplugin {command}: error: unrecognized arguments: -" in error


@pytest.mark.parametrize("words", [("vjobs",), ("vms",), ("status",), ("suspend", "1"), ("ssh", "1"), ("engine",)])
def test_wrong_settings_are_status_2_with_file_and_line(site: Path, words: tuple[str, ...]) -> None:
    file = site / "rmsplugin.toml"
    file.write_text(file.read_text() + "\n[engin]\nx = 1\n")
    done = run(site, *words)
    line = file.read_text().splitlines().index("[engin]") + 1
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"rmsplugin {words[0]}: {file}:{line}: engin: unknown key\n"


def test_a_fault_in_a_part_of_the_settings_that_a_command_does_not_need_keeps_no_user_from_the_engine(
    site: Path, engine: FakeEngine
) -> None:
    file = site / "rmsplugin.toml"
    file.write_text(file.read_text() + "\n[engin]\nx = 1\n")
    assert run(site, "vjobs", "--noheader", "--format=jobid").stdout.split() == ["12", "1012_3"]
    assert f"{file}:16: engin: unknown key" in run(site, "check").stdout


def test_a_fault_in_how_the_engine_is_reached_is_status_2(site: Path, engine: FakeEngine) -> None:
    file = site / "rmsplugin.toml"
    whole = file.read_text()
    for faulty in (whole.replace("socket = ", "socket = 5 #"), whole + "[slurm]\n", whole + "\xff"):
        file.write_text(faulty, encoding="latin-1")
        done = run(site, "vjobs")
        assert (done.returncode, done.stdout) == (2, "")
        assert str(file) in done.stderr


def test_missing_settings_are_status_2(site: Path) -> None:
    done = run(site, "vjobs", "--config", "/no/such/file")
    assert done.returncode == 2
    assert "/no/such/file" in done.stderr and "--config" in done.stderr


# -- no engine, an engine that says no, an engine that is strange ----------------------------------------------------


def test_no_engine_is_status_1_and_one_line(site: Path) -> None:
    done = run(site, "vjobs")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "no engine on this host" in done.stderr and "engine.url" in done.stderr


def test_a_dead_socket_is_status_1_and_one_line(site: Path, engine: FakeEngine) -> None:
    engine.server.shutdown()
    engine.server.server_close()
    done = run(site, "vms")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "engine.sock cannot be reached" in done.stderr


def test_unknown_account_of_the_engine_is_status_2(site: Path) -> None:
    file = site / "rmsplugin.toml"
    file.write_text(file.read_text().replace("[slurm]", 'url = "http://127.0.0.1:1"\nuser = "nobody-here"\n[slurm]'))
    done = run(site, "vms")
    assert done.returncode == 2
    assert "nobody-here" in done.stderr


@pytest.mark.parametrize("status", [400, 403, 404, 409, 500, 503])
def test_a_refusal_is_status_1_with_the_engines_words(site: Path, engine: FakeEngine, status: int) -> None:
    engine.lay("/v1/jobs/12/suspend", {"error": "vjob 12 is sleeping"}, status)
    done = run(site, "suspend", "12")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "rmsplugin suspend: vjob 12 is sleeping\n"


@pytest.mark.parametrize("body", [{}, {"vjobs": None}, {"vjobs": ["x"]}, {"vjobs": [{"state_since": "x"}]}])
def test_an_answer_of_another_shape_is_one_line(site: Path, engine: FakeEngine, body: dict[str, Any]) -> None:
    engine.lay("/v1/vjobs", body)
    done = run(site, "vjobs")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr


# -- tables --------------------------------------------------------------------------------------------------------


def test_columns_are_aligned_numbers_to_the_right(site: Path, engine: FakeEngine) -> None:
    done = run(site, "vjobs", "--format=jobid,user,memory,nodes,operation,submitted")
    assert done.stdout.splitlines() == [
        " JOBID USER  MEMORY NODES OPERATION   SUBMITTED",
        "    12 alice   512M n1    migrate:25% 2001-09-09T01:46:40",
        "1012_3 bob   16384M -     -           2001-09-09T01:46:41",
    ]


def test_programs_that_count_words_find_each_column(site: Path, engine: FakeEngine) -> None:
    done = run(site, "vjobs", "--format=jobid,user,memory,nodes,operation,checkpoint,submitted")
    assert {len(line.split()) for line in done.stdout.splitlines()} == {7}
    bare = run(site, "vjobs", "--noheader", "--parsable2", "--format=jobid,nodes,operation").stdout
    assert bare.splitlines()[1] == "1012_3||", "what has separators needs no sign"


def test_nothing_in_a_cell_moves_the_cursor_or_breaks_the_line(site: Path, engine: FakeEngine) -> None:
    done = run(site, "vjobs", "--noheader", "--format=reason")
    assert done.stdout.splitlines() == ["all VMs answer", r"needs 2 VMs\x1b[31m\nof 4 CPUs"]


def test_fixed_widths_cut_with_a_plus_and_negative_ones_align_left(site: Path, engine: FakeEngine) -> None:
    done = run(site, "vjobs", "--format=JobID%-8,user%4,state%3")
    assert done.stdout.splitlines() == ["JOBID    USER ST+", "12       ali+ ru+", "1012_3    bob wa+"]


def test_parsable2_neither_pads_nor_cuts(site: Path, engine: FakeEngine) -> None:
    done = run(site, "vjobs", "--parsable2", "--format=jobid,state%2,nodes")
    assert done.stdout.splitlines() == ["JOBID|STATE|NODES", "12|running|n1", "1012_3|waiting|"]


def test_noheader_of_an_empty_list_prints_nothing(site: Path, engine: FakeEngine) -> None:
    engine.lay("/v1/vms", {"vms": []})
    assert run(site, "vms", "--noheader").stdout == ""
    assert run(site, "vms", "--format=name,node").stdout == "NAME NODE\n"


def test_json_is_what_the_engine_said(site: Path, engine: FakeEngine) -> None:
    assert json.loads(run(site, "vjobs", "--json").stdout)["vjobs"] == VJOBS


@pytest.mark.parametrize(
    ("format", "complaint"),
    [("jobid,nope", "no field 'nope'"), ("jobid%x", "'jobid%x'"), ("", "''"), ("jobid%0", "width must not be 0")],
)
def test_a_wrong_format_is_status_2(site: Path, engine: FakeEngine, format: str, complaint: str) -> None:
    done = run(site, "vjobs", f"--format={format}")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert complaint in done.stderr


@pytest.mark.parametrize("name", ["vjobs", "vms", "nodes", "events"])
def test_every_documented_field_can_be_shown_of_an_empty_row(site: Path, engine: FakeEngine, name: str) -> None:
    text = run(site, name, "--help").stdout
    fields = re.findall(r"^  (\w+)  +\S", text[text.index("fields:") :], re.MULTILINE)
    assert len(fields) > 5
    engine.lay(f"/v1/{name}", {name: [{}]})
    assert run(site, name, f"--format={','.join(fields)}").returncode == 0


def test_vjobs_are_chosen_by_user_and_id(site: Path, engine: FakeEngine) -> None:
    def shown(*words: str) -> list[str]:
        return run(site, "vjobs", "--noheader", "--format=jobid", *words).stdout.split()

    assert shown("-u", "bob") == ["1012_3"]
    assert shown("12") == ["12"]
    assert shown("1012") == shown("1012_3") == shown("1014") == ["1012_3"]
    assert ("GET", "/v1/vjobs?ended=1&vjob=1012", None) in engine.requests
    assert shown("-u", "bob,root") == ["1012_3"], "an account without vjobs is no error"


def test_one_that_is_paused_is_shown_by_the_word_by_which_it_is_chosen(site: Path, engine: FakeEngine) -> None:
    engine.lay("/v1/vjobs", {"vjobs": [{**VJOBS[0], "state": "paused", "nodes": ["n1", "n3"]}]})
    shown = run(site, "vjobs", "--noheader", "--parsable2", "--format=jobid,state").stdout
    assert shown == "12|paused\n"


def test_unknown_vjobs_and_users_are_told_after_the_known_ones_are_shown(site: Path, engine: FakeEngine) -> None:
    for job in (13, 14):
        engine.lay(f"/v1/jobs/{job}", {"error": f"no vjob {job}"}, 404)
    done = run(site, "vjobs", "--noheader", "--format=jobid", "13", "12", "14")
    assert (done.returncode, done.stdout.split()) == (1, ["12"])
    assert done.stderr == "rmsplugin vjobs: no vjob 13\nrmsplugin vjobs: no vjob 14\n"
    done = run(site, "vjobs", "--noheader", "--format=jobid", "-u", "nobody-here,bob")
    assert (done.returncode, done.stdout.split()) == (2, ["1012_3"])
    assert done.stderr == "rmsplugin vjobs: no user nobody-here\n"


def test_a_vjob_that_the_engine_has_not_met_is_asked_for_by_its_id(site: Path, engine: FakeEngine) -> None:
    unmet = {"job_id": 13, "display_id": "13", "user": "bob", "state": "waiting", "reason": "not met yet"}
    engine.lay("/v1/jobs/13", {"vjob": unmet})
    done = run(site, "vjobs", "--parsable2", "--noheader", "--format=jobid,state,reason", "13", "12")
    assert done.stdout.splitlines()[0] == "13|waiting|not met yet"
    assert len(done.stdout.splitlines()) == 2


def test_nodes_are_shown_with_their_rooms(site: Path, engine: FakeEngine) -> None:
    held = {"name": "n1", "room": "held", "room_job": 7, "since": 1000000000.0, "until": 1000086400.0}
    held |= {"features": ["amd", "big"], "reason": ""}
    waits = {"name": "n2", "room": "requested", "room_job": 8, "since": None, "until": None, "features": []}
    waits |= {"reason": "its room is requested: Resources"}
    engine.lay("/v1/nodes", {"nodes": [held, waits]})
    done = run(site, "nodes", "--parsable2", "--format=node,room,roomjob,since,until,features,reason")
    assert done.stdout.splitlines()[1:] == [
        "n1|held|7|2001-09-09T01:46:40|2001-09-10T01:46:40|amd,big|",
        "n2|requested|8||||its room is requested: Resources",
    ]
    assert "ROOM" in run(site, "nodes").stdout


def test_lists_are_read_page_by_page(site: Path, engine: FakeEngine) -> None:
    vjobs = [{**VJOBS[0], "job_id": number, "display_id": str(number), "submitted": -number} for number in range(1, 6)]

    def answer(query: dict[str, str]) -> Answer:
        after = int(query.get("after", 0))
        page = vjobs[after : after + 2]
        return 200, {"vjobs": page, "vms": page, "next": after + 2 if after < 4 else None}

    engine.answers["/v1/vjobs"] = engine.answers["/v1/vms"] = answer
    done = run(site, "vjobs", "--noheader", "--format=jobid")
    assert [line.strip() for line in done.stdout.splitlines()] == ["5", "4", "3", "2", "1"]
    assert len(json.loads(run(site, "vms", "--json").stdout)["vms"]) == 5
    assert engine.requests[-1] == ("GET", "/v1/vms?after=4", None)


def test_a_reader_that_has_seen_enough_is_no_fault(site: Path, engine: FakeEngine) -> None:
    engine.lay("/v1/vjobs", {"vjobs": VJOBS * 3000})
    command = f"{PROGRAM} vjobs | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], env=environment(site), capture_output=True, text=True, check=True)
    assert (done.stdout.splitlines()[-1], done.stderr) == ("0", "")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_names_that_the_terminals_encoding_lacks_are_escaped(site: Path, engine: FakeEngine, encoding: str) -> None:
    name = "étude-日本"
    engine.lay("/v1/vjobs", {"vjobs": [{**VJOBS[0], "name": name}]})
    known = {**environment(site), "PYTHONIOENCODING": encoding}
    words = ("--noheader", "--format=name"), ("--json",)
    listed, document = (
        subprocess.run([PROGRAM, "vjobs", *each], env=known, capture_output=True, check=False) for each in words
    )
    assert (listed.returncode, listed.stderr, document.returncode) == (0, b"", 0)
    assert listed.stdout.strip() == name.encode(encoding, "backslashreplace")
    assert json.loads(document.stdout.decode(encoding))["vjobs"][0]["name"] == name


def test_a_full_disk_is_one_line(site: Path, engine: FakeEngine) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [PROGRAM, "vjobs"], env=environment(site), stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    assert done.stderr == "rmsplugin vjobs: standard output: No space left on device\n"


@pytest.mark.parametrize("words", ["--help", "vjobs --help", "--version"])
def test_a_help_that_nobody_reads_is_no_fault_and_one_on_a_full_disk_is_one_line(words: str) -> None:
    script = f"{PROGRAM} {words} | true; echo ${{PIPESTATUS[0]}}; {PROGRAM} {words} >/dev/full; echo $?"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "1"]
    assert re.fullmatch(r"rmsplugin: standard output: No space left on device\n", done.stderr)


@pytest.mark.parametrize("words", ["nonsense", "vjobs -t FOO", "vjobs --format foo", "vms x", "vms"])
@pytest.mark.parametrize("away", ["2>&-", "2>/dev/full", "2> >(true)"])
def test_complaints_that_nobody_reads_change_nothing(site: Path, words: str, away: str) -> None:
    """Neither the exit status, nor what is on standard output."""
    heard = run(site, *words.split())
    script = f"{PROGRAM} {words} {away}"
    done = subprocess.run(["bash", "-c", script], env=environment(site), capture_output=True, text=True, check=False)
    assert heard.stderr
    assert (done.returncode, done.stdout) == (heard.returncode, heard.stdout)


def test_a_socket_that_cannot_be_looked_at_is_said_and_is_no_fault_of_the_output(tmp_path: Path) -> None:
    path, socket = tmp_path / "rmsplugin.toml", tmp_path / "engine.sock"
    socket.symlink_to(socket)
    path.write_text(SETTINGS.format(socket=socket))
    why = f"the engine's socket cannot be looked at: '{socket}': Too many levels of symbolic links"
    for words in (["vjobs"], ["status"], ["events", "--follow"]):
        done = run(tmp_path, *words)
        assert (done.returncode, done.stderr) == (1, f"rmsplugin {words[0]}: {why}\n")
    told = json.loads(run(tmp_path, "vjobs", "--json").stdout)
    assert [each["description"] for each in told["errors"]] == [why]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (PermissionError(13, "Permission denied", "/a/b"), "/a/b: Permission denied"),
        (ConnectionResetError(104, "Connection reset by peer"), "Connection reset by peer"),
        (TimeoutError("timed out"), "timed out"),
        (OSError(98, "Address already in use"), "Address already in use"),
        (OSError(5, "Input/output error", "/a/b"), "/a/b: Input/output error"),
    ],
)
def test_what_the_system_refuses_elsewhere_is_no_fault_of_the_output(
    error: OSError, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuses(arguments: argparse.Namespace) -> Any:
        raise error

    monkeypatch.setattr(vjobs, "find_engine", refuses)
    assert main(["vjobs", "--json"]) == 1
    out, err = capsys.readouterr()
    assert err == f"rmsplugin vjobs: {said}\n"
    assert [each["description"] for each in json.loads(out)["errors"]] == [said]


def test_status_says_what_the_last_cycle_did(site: Path, engine: FakeEngine) -> None:
    cycle = {"time": 1000000000.0, "seconds": 0.25, "sentence": "2 vjobs run"}
    engine.lay("/v1/status", {"version": "1", "started": 999999999.0, "last_cycle": cycle, "problems": ["n3 is down"]})
    assert run(site, "status").stdout.splitlines() == [
        "engine 1, started 2001-09-09T01:46:39",
        "last cycle 2001-09-09T01:46:40 (0.2 s): 2 vjobs run",
        "problem: n3 is down",
    ]


def test_status_says_how_late_vjobs_are_because_nodes_were_off(site: Path, engine: FakeEngine) -> None:
    lateness = {"share": 0.01, "at_most": 0.02, "kept_on": 0, "sentence": "vjobs spent 1 % of their time waiting"}
    engine.lay("/v1/status", {"version": "1", "last_cycle": None, "lateness": lateness})
    assert "vjobs spent 1 % of their time waiting" in run(site, "status").stdout.splitlines()
    engine.lay("/v1/status", {"version": "1", "last_cycle": None, "lateness": None})
    assert "vjobs spent" not in run(site, "status").stdout


def test_status_says_where_the_engine_that_leads_runs(site: Path, engine: FakeEngine) -> None:
    engine.lay("/v1/status", {"version": "1", "started": 1.0, "host": "head2", "epoch": 4294967301})
    first, second, *_ = run(site, "status").stdout.splitlines()
    assert first.startswith("engine 1 on head2, started ") and second == "leads with epoch 4294967301"
    standby = {"host": "head", "url": "http://head:6830", "version": "2"}
    cluster = {
        "leads_since": 1.0,
        "standbys": [standby, {"host": "old", "url": "", "version": ""}],
        "degraded": ["slow"],
    }
    engine.lay("/v1/status", {"version": "1", "started": 1.0, "host": "head2", "epoch": 7, "cluster": cluster})
    _, leads, *others = run(site, "status").stdout.splitlines()
    assert leads.startswith("leads with epoch 7, since ")
    assert others[:3] == ["stands by: head, rmsplugin 2, http://head:6830", "stands by: old", "degraded: slow"]
    engine.lay("/v1/status", {"version": "1", "started": 1.0, "host": "head", "epoch": 1, "cluster": None})
    assert "leads" not in run(site, "status").stdout, "of a single engine there is nothing to say"


@pytest.mark.parametrize("words", [(), ("--to", "head2")])
def test_handover_waits_until_another_engine_leads(site: Path, engine: FakeEngine, words: tuple[str, ...]) -> None:
    told: Iterator[Answer] = iter(
        [(200, {"host": "head", "epoch": 7}), (200, {"host": "head", "epoch": 7}), (503, {"error": "closed"})]
    )
    engine.answers["/v1/status"] = lambda query: next(told, (200, {"host": "head2", "epoch": 8}))
    engine.lay("/v1/handover", {"to": "head2", "url": "", "version": "1"})
    done = run(site, "handover", "--json", *words)
    answer = answer_of(done.stdout)
    assert (done.returncode, answer["from"], answer["to"], answer["epoch"]) == (0, "head", "head2", 8)
    assert ("POST", "/v1/handover", {"to": words[-1] if words else ""}) in engine.requests
    epochs = iter([7])
    engine.answers["/v1/status"] = lambda query: (200, {"host": "head2", "epoch": next(epochs, 8)})
    assert run(site, "handover").stdout.startswith("head2 leads with epoch 8, after ")


def lead(host: str, epoch: int | None, *, kept_on: str = "", by: str = "") -> dict[str, Any]:
    """A group as a manager tells of it."""
    answers = epoch is not None
    return {
        **{"name": "g1", "host": host, "url": f"http://{host}:6830", "answers": answers, "epoch": epoch},
        **{"leads_since": 1.0 if answers else None, "problem": "" if answers else "silent"},
        **{"kept_on": kept_on, "kept_by": by},
    }


def lay_groups(engine: FakeEngine, *leads: dict[str, Any]) -> None:
    """The answers to `status`, one after the other; the last again and again."""
    told = iter(leads[:-1])
    site = {"version": "1", "started": 1.0, "host": "c1", "epoch": 3, "cluster": None}
    engine.answers["/v1/status"] = lambda query: (200, {**site, "groups": [next(told, leads[-1])]})


@pytest.mark.parametrize("words", [(), ("--to", "c2")])
def test_handover_of_a_group_waits_until_its_engine_answers_there(
    site: Path, engine: FakeEngine, words: tuple[str, ...]
) -> None:
    again = lead("c1", 8, kept_on="c2")  # its engine has been killed just now, and started again
    stages = (lead("c1", 7), lead("c1", 7, kept_on="c2"), again, lead("c2", None), lead("c2", 7), lead("c2", 9))
    lay_groups(engine, *stages)
    engine.lay("/v1/handover", {"to": "c2", "url": "http://c2:6830", "version": "1", "group": "g1"})
    done = run(site, "handover", "g1", "--json", *words)
    answer = answer_of(done.stdout)
    assert {**answer, "seconds": 0} == {"group": "g1", "from": "c1", "to": "c2", "epoch": 9, "seconds": 0}
    asked = {"to": words[-1] if words else "", "group": "g1"}
    assert (done.returncode, ("POST", "/v1/handover", asked) in engine.requests) == (0, True)
    lay_groups(engine, *stages)
    assert run(site, "handover", "g1").stdout.startswith("group g1 is on c2 with epoch 9, after ")


def test_handover_of_a_group_to_where_it_is_waits_for_no_other_engine(site: Path, engine: FakeEngine) -> None:
    lay_groups(engine, lead("c2", 8))
    engine.lay("/v1/handover", {"to": "c2", "url": "http://c2:6830", "version": "1", "group": "g1"})
    assert answer_of(run(site, "handover", "g1", "--to", "c2", "--json").stdout)["epoch"] == 8


def test_handover_of_a_group_to_any_waits_for_nothing(site: Path, engine: FakeEngine) -> None:
    lay_groups(engine, lead("c2", 8))
    engine.lay("/v1/handover", {"to": "", "url": "", "version": "", "group": "g1"})
    told = answer_of(run(site, "handover", "g1", "--to", "any", "--json").stdout)
    assert (told["group"], told["from"], told["to"], told["epoch"]) == ("g1", "c2", "", 8)
    assert "need not stay" in run(site, "handover", "g1", "--to", "any").stdout


def lay_two_groups(engine: FakeEngine) -> None:
    """Group ``g1`` is on c1, until it is handed over, and ``g2`` on c2."""
    given: dict[str, str] = {"g1": "c1", "g2": "c2"}

    def status(query: dict[str, str]) -> Answer:
        for _, path, body in engine.requests:
            if path == "/v1/handover" and body and body["to"] != "any":
                given[body["group"]] = body["to"]
        groups = [{**lead(host, 8 if host == "c1" else 9), "name": name} for name, host in given.items()]
        return 200, {"version": "1", "started": 1.0, "host": "c1", "epoch": 3, "cluster": None, "groups": groups}

    def handover(query: dict[str, str]) -> Answer:
        body = engine.requests[-1][2]
        assert body is not None
        host = "" if body["to"] == "any" else body["to"]
        return 200, {"to": host, "url": f"http://{host}:6830", "version": "1", "group": body["group"]}

    engine.answers["/v1/status"], engine.answers["/v1/handover"] = status, handover


def handed(engine: FakeEngine) -> list[object]:
    return [body for _, path, body in engine.requests if path == "/v1/handover"]


def test_all_groups_are_handed_over_one_after_the_other_those_that_are_there_first(
    site: Path, engine: FakeEngine
) -> None:
    lay_two_groups(engine)
    done = run(site, "handover", "--all", "--to", "c2")
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.partition(" with")[0] for line in done.stdout.splitlines()] == [
        "group g2 is on c2",
        "group g1 is on c2",
    ]
    assert handed(engine) == [{"to": "c2", "group": "g2"}, {"to": "c2", "group": "g1"}]
    told = answer_of(run(site, "handover", "--all", "--to", "any", "--json").stdout)["groups"]
    assert [(each["group"], each["to"]) for each in told] == [("g1", ""), ("g2", "")]


@pytest.mark.parametrize(("status", "code", "asked"), [(409, 2, 2), (503, 1, 1), (403, 1, 1)])
def test_what_a_group_refuses_keeps_no_other_one_and_what_may_be_tried_again_ends_it(
    site: Path, engine: FakeEngine, status: int, code: int, asked: int
) -> None:
    lay_two_groups(engine)
    engine.answers["/v1/handover"] = lambda query: (status, {"error": "it is so"})
    done = run(site, "handover", "--all", "--to", "c2", "--json")
    assert (done.returncode, len(handed(engine))) == (code, asked)
    untold = "; not tried any more: g1" if status == 503 else ""
    assert done.stderr == f"rmsplugin handover: it is so{untold}\n"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--all",), "--all needs --to HOST"),
        (("g1", "--all"), "not allowed with argument"),
        (("--all", "--to", "c2"), "no group is there: --all is for managers of groups"),
    ],
    ids=" ".join,
)
def test_all_groups_need_a_host_and_managers(
    site: Path, engine: FakeEngine, words: tuple[str, ...], complaint: str
) -> None:
    engine.lay("/v1/status", {"host": "c1", "epoch": 3})
    done = run(site, "handover", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr
    assert not handed(engine)


@pytest.mark.parametrize(("status", "code"), [(404, 2), (409, 2), (403, 1), (503, 1)])
def test_a_group_that_cannot_be_handed_over_is_wrong_input_unless_it_may_be_tried_again(
    site: Path, engine: FakeEngine, status: int, code: int
) -> None:
    lay_groups(engine, lead("c2", 8))
    engine.answers["/v1/handover"] = lambda query: (status, {"error": "it is so"})
    done = run(site, "handover", "g1")
    assert (done.returncode, done.stderr) == (code, "rmsplugin handover: it is so\n")


def test_status_tells_where_groups_are_by_an_operators_word(site: Path, engine: FakeEngine) -> None:
    lay_groups(engine, lead("c1", 7, kept_on="c1", by="alice"))
    assert ", by order of alice\n" in run(site, "status").stdout
    lay_groups(engine, lead("c1", 7, kept_on="c2", by="alice"))
    assert ", to go to c2 by order of alice\n" in run(site, "status").stdout
    lay_groups(engine, lead("c1", 7))
    assert "order" not in run(site, "status").stdout
    old = {name: value for name, value in lead("c1", 7).items() if not name.startswith("kept")}
    lay_groups(engine, old)
    assert "group g1 on c1 with epoch 7" in run(site, "status").stdout, "a manager of a release before"


# -- events --------------------------------------------------------------------------------------------------------


def event(number: int, message: str = "it happened") -> dict[str, Any]:
    return {"id": number, "time": 1e9, "vjob": "12", "vm": "", "node": "", "kind": "note", "message": message}


def test_events_pass_their_filters_on(site: Path, engine: FakeEngine) -> None:
    engine.lay("/v1/events", {"events": [event(7)]})
    run(site, "events", "--vjob", "12_3", "--since", "6", "-n", "5")
    assert engine.requests == [("GET", "/v1/events?since=6&limit=5&vjob=12_3", None)]


def test_a_list_of_events_that_was_cut_says_so(site: Path, engine: FakeEngine) -> None:
    engine.lay("/v1/events", {"events": [event(6), event(7)]})
    cut = "only the newest 2 events are shown; see --limit"
    assert run(site, "events", "--since", "1h", "-n", "2").stderr == f"rmsplugin events: {cut}\n"
    assert run(site, "events", "--since", "1h", "-n", "3").stderr == ""
    assert run(site, "events", "-n", "2").stderr == "", "who asks for so many knows it"
    done = run(site, "events", "--since", "1h", "-n", "2", "--json")
    assert (done.stderr, json.loads(done.stdout)["warnings"]) == ("", [{"description": cut}])


def test_a_kind_of_which_there_is_no_event_is_told_with_the_kinds_that_there_are(
    site: Path, engine: FakeEngine
) -> None:
    engine.answers["/v1/events"] = lambda query: (200, {"events": [] if "kind" in query else [event(6), event(7)]})
    done = run(site, "events", "--kind", "vjob-sleeping")
    assert done.returncode == 0
    told = "no such event; of the kinds of the newest 2 events there are note"
    assert done.stderr == f"rmsplugin events: {told}\n"


def test_follow_shows_each_event_once_and_waits_for_a_restarted_engine(site: Path, engine: FakeEngine) -> None:
    faults: Iterator[Answer | None] = iter([None, (503, {"error": "busy"})])

    def answer(query: dict[str, str]) -> Answer:
        happened = 1 if not engine.requests[1:] else 2
        events = [event(number) for number in range(int(query["since"]) + 1, happened + 1)]
        return next(faults, None) or (200, {"events": events})

    engine.answers["/v1/events"] = answer
    process = subprocess.Popen(
        [PROGRAM, "events", "--follow", "--noheader", "--format=id,message"],
        env=environment(site),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == ["1 it happened\n", "2 it happened\n"]
    deadline = time.monotonic() + PATIENCE_S
    while len(engine.requests) < 4 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, rest) == (130, "")
    assert errors == "rmsplugin events: busy; waiting for it\n"


def test_follow_goes_on_by_numbers_at_an_engine_of_an_older_release(site: Path, engine: FakeEngine) -> None:
    """An engine takes over that has no cursors yet, and later one that has them again."""
    words = "the query has the key 'after', which this request does not have (it has: limit, since)"
    answers: list[Callable[[dict[str, str]], Answer]] = [
        lambda query: (200, {"events": [event(7)], "cursor": "9:0123abcd"}),
        lambda query: (400, {"error": words}) if "after" in query else (200, {"events": []}),
        lambda query: (200, {"events": [event(10)]}) if query["since"] == "9" else (200, {"events": [event(1)]}),
        lambda query: (200, {"events": [event(11)], "cursor": "11:0123abcd"}) if query["since"] == "10" else (500, {}),
        lambda query: (200, {"events": [], "cursor": "11:0123abcd"}),
    ]
    engine.answers["/v1/events"] = lambda query: (answers.pop(0) if answers[1:] else answers[0])(query)
    process = subprocess.Popen(
        [PROGRAM, "events", "--follow", "--noheader", "--format=id"],
        env=environment(site),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(3)] == ["7\n", "10\n", "11\n"]
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, rest, errors) == (130, "", "")


def test_a_place_in_the_events_that_is_refused_is_wrong_input(site: Path, engine: FakeEngine) -> None:
    engine.lay("/v1/events", {"error": "this place is of others"}, status=409)
    for more in ((), ("--follow",)):
        done = run(site, "events", "--since", "1764590000000000,a:2:0123abcd", *more)
        assert (done.returncode, done.stderr) == (2, "rmsplugin events: this place is of others\n")
    asked = "/v1/events?since=0&limit=100&after=1764590000000000,a%3A2%3A0123abcd"
    assert {each[1] for each in engine.requests} == {asked}


# -- operations ----------------------------------------------------------------------------------------------------


def lay_operation(engine: FakeEngine, *states: str, error: str = "") -> None:
    turns = iter(states[:-1])
    engine.lay("/v1/jobs/12/migrate", {"operation": 7})

    def answer(query: dict[str, str]) -> Answer:
        time.sleep(0.05)
        state = next(turns, states[-1])
        return 200, {"id": 7, "state": state, "error": error, "bytes_done": 94 << 20, "bytes_total": 94 << 20}

    engine.answers["/v1/operations/7"] = answer


def test_an_operation_is_awaited_without_a_word_in_a_pipe(site: Path, engine: FakeEngine) -> None:
    lay_operation(engine, "running", "running", "done")
    done = run(site, "migrate", "12", "--to", "n2", "--vm", "vjob12-0")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"migrate 12: done in \d+\.\d s, 94\.0MB\n", done.stdout)
    assert engine.requests[0] == ("POST", "/v1/jobs/12/migrate", {"to": "n2", "vm": "vjob12-0"})
    assert len(engine.requests) == 4


def test_a_vm_is_named_by_its_number(site: Path, engine: FakeEngine) -> None:
    lay_operation(engine, "done")
    engine.lay("/v1/vms", {"vms": [{"name": "vjob120-1", "vjob": "120"}, {"name": "vjob12-1", "vjob": "12"}]})
    assert run(site, "migrate", "12", "--vm", "1").returncode == 0
    assert ("POST", "/v1/jobs/12/migrate", {"vm": "vjob12-1"}) in engine.requests
    done = run(site, "migrate", "12", "--vm", "2")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)


def test_a_failed_operation_is_status_1_with_its_error(site: Path, engine: FakeEngine) -> None:
    lay_operation(engine, "running", "failed", error="n2 has no room")
    done = run(site, "migrate", "12")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "rmsplugin migrate: n2 has no room\n")


def lay_elements(engine: FakeEngine, command: str, **states: str) -> None:
    """An array 12 whose elements are in these states; element 3 refuses, operation 7 of element 2 fails."""
    elements = [{"vjob": name, "state": state} for name, state in states.items()]
    names = [each["vjob"].removeprefix("e") for each in elements]
    for each, name in zip(elements, names, strict=True):
        each["vjob"] = f"12_{name}"
        engine.lay(f"/v1/jobs/12_{name}/{command}", {"operation": int(name)})
        ends = (
            {"state": "failed", "error": "n2 has no room"} if name == "2" else {"state": "done", "bytes_done": 1 << 20}
        )
        engine.lay(f"/v1/operations/{name}", {"id": int(name), **ends})
    for name in ("3", "4"):
        engine.lay(f"/v1/jobs/12_{name}/{command}", {"error": f"vjob 12_{name} is waiting: it has not begun"}, 409)
    for path in ("12", "12_%5B1-9%5D"):
        engine.lay(f"/v1/jobs/{path}/{command}", {"elements": elements})


@pytest.mark.parametrize("name", ["12", "12_[1-9]"])
def test_elements_of_an_array_are_operated_on_one_by_one_and_those_that_cannot_be_are_named(
    site: Path, engine: FakeEngine, name: str
) -> None:
    lay_elements(engine, "suspend", e1="running", e2="running", e3="waiting", e4="waiting", e5="sleeping")
    done = run(site, "suspend", name)
    assert done.returncode == 1
    assert re.fullmatch(r"suspend 12_1: done in \d+\.\d s, 1\.0MB\n", done.stdout)
    assert done.stderr.splitlines() == [
        "rmsplugin suspend: vjob 12_[3-4] is waiting: it has not begun",
        "rmsplugin suspend: vjob 12_2: n2 has no room",
    ]
    assert not any("12_5" in path for _, path, _ in engine.requests), "it sleeps already"


def test_elements_of_an_array_that_are_all_so_already(site: Path, engine: FakeEngine) -> None:
    lay_elements(engine, "resume", e1="running", e5="running")
    done = run(site, "resume", "12")
    assert (done.returncode, done.stderr) == (1, "rmsplugin resume: vjobs 12_[1,5] are running already\n")


def test_operations_of_elements_as_json(site: Path, engine: FakeEngine) -> None:
    lay_elements(engine, "migrate", e1="running", e5="running")
    done = run(site, "migrate", "12", "--json")
    assert [each["id"] for each in json.loads(done.stdout)["operations"]] == [1, 5]
    done = run(site, "migrate", "12", "--json", "--no-wait")
    told = [{"vjob": "12_1", "operation": 1}, {"vjob": "12_5", "operation": 5}]
    assert answer_of(done.stdout) == {"operations": told}
    assert run(site, "migrate", "12", "--no-wait").stdout == "operation 1\noperation 5\n"


@pytest.mark.parametrize(
    "words",
    [
        *(("suspend",), ("resume",), ("migrate",), ("usage",), ("decisions",), ("events", "--vjob"), ("vjobs",)),
        *(("confirm",), ("ssh",), ("report", "--job")),
    ],
)
@pytest.mark.parametrize("name", ["12_*", "12_[3-1]", "12_[0-4:2]", "x"])
def test_what_is_no_job_id_is_status_2_in_every_command(site: Path, words: tuple[str, ...], name: str) -> None:
    done = run(site, *words, name)
    assert (done.returncode, "is not a job id" in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (("usage",), "/v1/jobs/12_%5B1-3%2C7%5D/usage"),
        (("decisions",), "/v1/jobs/12_%5B1-3%2C7%5D/decisions"),
        (("events", "--vjob"), "/v1/events?since=0&limit=100&vjob=12_%5B1-3%2C7%5D"),
        (("ssh",), "/v1/jobs/12_%5B1-3%2C7%5D/access?wait=10"),
    ],
)
def test_elements_are_asked_for_by_one_name(site: Path, engine: FakeEngine, words: tuple[str, ...], path: str) -> None:
    run(site, *words, "12_[1-3,7]")
    assert engine.requests[0][1] == path


def test_what_is_preferred_is_asked_for_each_and_what_is_refused_is_named(site: Path, engine: FakeEngine) -> None:
    for name, why in (("12", {}), ("20_%5B1-3%5D", {"20_3": "vjob 20_3 is not split off"})):
        vjobs = [name] if not why else ["20_1", "20_2"]
        engine.lay(f"/v1/jobs/{name}/prefer", {"vjobs": vjobs, "refused": why})
    engine.lay("/v1/jobs/15/prefer", {"error": "no vjob 15: this job is in partition p, which has no vjobs"}, 404)
    done = run(site, "prefer", "12", "15", "20_[1-3]", "sleeping")
    assert (done.returncode, done.stdout) == (1, "12,20_[1-2]: is not to run\n")
    assert done.stderr.splitlines() == [
        "rmsplugin prefer: no vjob 15: this job is in partition p, which has no vjobs",
        "rmsplugin prefer: vjob 20_3 is not split off",
    ]
    assert engine.requests[0] == ("POST", "/v1/jobs/12/prefer", {"state": "sleeping"})
    done = run(site, "prefer", "12", "running", "--json")
    assert (done.returncode, answer_of(done.stdout)) == (0, {"state": "running", "vjobs": ["12"]})


def test_what_vms_are_resized_to_is_asked_for_each_vjob(site: Path, engine: FakeEngine) -> None:
    engine.lay("/v1/jobs/12/resize", {"vjobs": ["12"], "refused": {}})
    engine.lay("/v1/jobs/15/resize", {"error": "vjob 15 is waiting, and has no VMs yet"}, 409)
    done = run(site, "resize", "12", "15", "--cpus", "2", "--memory", "1.5G")
    assert (done.returncode, engine.requests) == (2, [])
    done = run(site, "resize", "12", "15", "--cpus", "2", "--memory", "2g")
    words = "12: each VM is to have 2 CPUs and 2048 MiB, from the next cycle on\n"
    assert (done.returncode, done.stdout) == (1, words)
    assert done.stderr == "rmsplugin resize: vjob 15 is waiting, and has no VMs yet\n"
    assert engine.requests[0] == ("POST", "/v1/jobs/12/resize", {"cpus": 2, "memory_mib": 2048})
    done = run(site, "resize", "12", "--cpus", "1")
    assert done.stdout == "12: each VM is to have 1 CPU, from the next cycle on\n"
    done = run(site, "resize", "12", "--cpus", "all", "--json")
    assert (done.returncode, answer_of(done.stdout)) == (0, {"cpus": 0, "memory_mib": None, "vjobs": ["12"]})
    assert engine.requests[-1] == ("POST", "/v1/jobs/12/resize", {"cpus": 0, "memory_mib": None})


@pytest.mark.parametrize(
    "words",
    [
        ("12",),
        ("12", "--cpus", "0"),
        ("12", "--cpus", "two"),
        ("12", "--memory", "0"),
        ("12", "--memory", "-1G"),
        ("12", "--memory", "9999999T"),
        ("12", "--memory", ""),
        ("12_*", "--cpus", "1"),
        ("--cpus", "1"),
    ],
)
def test_a_size_that_is_none_is_status_2(site: Path, engine: FakeEngine, words: tuple[str, ...]) -> None:
    assert run(site, "resize", *words).returncode == 2
    assert engine.requests == []


@pytest.mark.parametrize(("text", "mib"), [("512", 512), ("2g", 2048), ("1T", 1 << 20), ("1K", 1), ("1025kb", 2)])
def test_memory_is_read_as_sbatch_reads_it(text: str, mib: int) -> None:
    assert memory_mib(text) == mib


@pytest.mark.parametrize("words", [("12",), ("running",), ("12", "asleep"), ("12_*", "running")])
def test_a_preference_that_is_none_is_status_2(site: Path, engine: FakeEngine, words: tuple[str, ...]) -> None:
    assert run(site, "prefer", *words).returncode == 2
    assert engine.requests == []


def test_no_wait_prints_the_operation(site: Path, engine: FakeEngine) -> None:
    lay_operation(engine, "running")
    assert run(site, "migrate", "12", "--no-wait").stdout == "operation 7\n"
    assert answer_of(run(site, "migrate", "12", "--no-wait", "--json").stdout) == {"operation": 7}
    assert all(method == "POST" for method, _, _ in engine.requests)


def test_an_operation_outlives_a_restart_of_the_engine(site: Path, engine: FakeEngine) -> None:
    turns = iter([503, 503])
    engine.lay("/v1/jobs/12/suspend", {"operation": 8})
    engine.answers["/v1/operations/8"] = lambda query: (next(turns, 200), {"state": "done", "error": "restarting"})
    assert run(site, "suspend", "12").returncode == 0


def test_an_interrupted_wait_says_that_the_operation_goes_on(site: Path, engine: FakeEngine) -> None:
    lay_operation(engine, "running")
    process = subprocess.Popen(
        [PROGRAM, "migrate", "12"], env=environment(site), stderr=subprocess.PIPE, text=True, stdout=subprocess.DEVNULL
    )
    deadline = time.monotonic() + PATIENCE_S
    while len(engine.requests) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert errors == "operation 7 goes on in the engine; `rmsplugin vjobs` shows how far it is\n"


def test_progress_is_shown_on_a_terminal(site: Path, engine: FakeEngine) -> None:
    lay_operation(engine, "running", "done")
    engine.answers["/v1/operations/7"] = slowly(engine.answers["/v1/operations/7"])
    master, terminal = pty.openpty()
    process = subprocess.Popen(
        [PROGRAM, "migrate", "12"],
        env=environment(site, TERM="xterm"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=terminal,
        text=True,
    )
    os.close(terminal)
    shown = b""
    while chunk := read_terminal(master):
        shown += chunk
    assert process.wait(timeout=PATIENCE_S) == 0
    assert b"migrate 12" in shown and b"94.0/94.0 MiB" in shown


def slowly(answer: Callable[[dict[str, str]], Answer]) -> Callable[[dict[str, str]], Answer]:
    def slow(query: dict[str, str]) -> Answer:
        time.sleep(0.4)
        return answer(query)

    return slow


def read_terminal(master: int) -> bytes:
    try:
        return os.read(master, 65536)
    except OSError:  # the other side is closed
        return b""


# -- ssh -----------------------------------------------------------------------------------------------------------

FAKE_SSH = """\
#!/bin/sh
for word; do printf '%s\\n' "$word"; done >"$SEEN/words"
for word; do
    case $word in
    IdentityFile=*) file=${word#*=}; cat "$file" >"$SEEN/key"; stat -c '%a' "$file" "${file%/*}" >"$SEEN/modes"
        echo "${file%/*}" >"$SEEN/directory" ;;
    UserKnownHostsFile=*) cat "${word#*=}" >"$SEEN/known_hosts" ;;
    esac
done
[ -z "${LINGER:-}" ] || { : >"$SEEN/lingers"; exec sleep 30; }
exit 42
"""

ACCESS = {
    "state": "running",
    "job_id": 12,
    "user": "alice",
    "vms": [
        {"name": "vjob12-0", "address": "10.77.1.10", "host_key": "ssh-ed25519 AAAAzero"},
        {"name": "vjob12-1", "address": "10.77.1.11", "host_key": "ssh-ed25519 AAAAone"},
    ],
    "private_key": "-----BEGIN OPENSSH PRIVATE KEY-----\n",
    "start": 1,
}


@pytest.fixture
def ssh(site: Path, engine: FakeEngine) -> dict[str, str]:
    (site / "bin").mkdir()
    (site / "bin/ssh").write_text(FAKE_SSH)
    (site / "bin/ssh").chmod(0o755)
    engine.lay("/v1/jobs/12/access", ACCESS)
    return {"PATH": f"{site}/bin:{os.environ['PATH']}", "SEEN": str(site)}


def test_ssh_verifies_the_host_uses_only_the_vjobs_key_and_passes_the_status_on(
    site: Path, ssh: dict[str, str]
) -> None:
    done = run(site, "ssh", "12", "1", "--", "uptime", "-p", "--", "x y", **ssh)
    assert (done.returncode, done.stderr) == (42, "")
    words = (site / "words").read_text().splitlines()
    assert words[-8:] == ["-l", "alice", "--", "10.77.1.11", "uptime", "-p", "--", "x y"]
    assert words[:2] == ["-F", "none"]
    for option in ("StrictHostKeyChecking=yes", "IdentitiesOnly=yes", "IdentityAgent=none", "HostKeyAlias=vjob12-1"):
        assert option in words
    assert (site / "known_hosts").read_text() == "vjob12-1 ssh-ed25519 AAAAone\n"
    assert (site / "key").read_text() == ACCESS["private_key"]
    assert (site / "modes").read_text().split() == ["600", "700"]
    assert not Path((site / "directory").read_text().strip()).exists()


def test_ssh_takes_the_first_vm_and_a_shell_when_nothing_is_said(site: Path, ssh: dict[str, str]) -> None:
    assert run(site, "ssh", "12", **ssh).returncode == 42
    assert (site / "words").read_text().splitlines()[-2:] == ["--", "10.77.1.10"]
    assert run(site, "ssh", "12", "--", "date", **ssh).returncode == 42
    assert (site / "words").read_text().splitlines()[-2:] == ["10.77.1.10", "date"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_ssh_leaves_no_key_behind_whatever_signal_ends_it(
    site: Path, ssh: dict[str, str], number: signal.Signals
) -> None:
    process = subprocess.Popen([PROGRAM, "ssh", "12"], env=environment(site, LINGER="1", **ssh), start_new_session=True)
    deadline = time.monotonic() + PATIENCE_S
    while not (site / "lingers").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, number)  # as a terminal does it
    assert process.wait(timeout=PATIENCE_S) == 128 + number
    assert not Path((site / "directory").read_text().strip()).exists()


def test_an_interrupt_is_for_what_runs_in_the_vm(site: Path, ssh: dict[str, str]) -> None:
    traps = FAKE_SSH.replace("exec sleep 30", "while :; do sleep 0.1; done").replace(": >", "trap 'exit 7' INT; : >")
    (site / "bin/ssh").write_text(traps)
    process = subprocess.Popen([PROGRAM, "ssh", "12"], env=environment(site, LINGER="1", **ssh), start_new_session=True)
    deadline = time.monotonic() + PATIENCE_S
    while not (site / "lingers").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(timeout=PATIENCE_S) == 7


def test_ssh_to_a_vjob_that_does_not_run_says_why(site: Path, ssh: dict[str, str], engine: FakeEngine) -> None:
    engine.lay("/v1/jobs/12/access", {"state": "sleeping", "reason": "suspended by alice"})
    done = run(site, "ssh", "12", **ssh)
    assert done.returncode == 1
    assert done.stderr == "rmsplugin ssh: vjob 12 is sleeping (suspended by alice): no VM to log in to\n"


def test_ssh_to_a_vm_that_there_is_not(site: Path, ssh: dict[str, str]) -> None:
    done = run(site, "ssh", "12", "2", **ssh)
    assert done.returncode == 1
    assert done.stderr == "rmsplugin ssh: vjob 12 has no VM 2; it has vjob12-0, vjob12-1\n"


def test_without_openssh_one_line(site: Path, ssh: dict[str, str]) -> None:
    done = run(site, "ssh", "12", **(ssh | {"PATH": "/nowhere"}))
    assert done.returncode == 1
    assert "openssh-client" in done.stderr and done.stderr.count("\n") == 1


HELD = [
    {"vjob": "12", "what": "restart", "reason": "lost: vjob12-0 not running on n1 any more", "proved": True},
    {"vjob": "13_1", "what": "stop", "reason": "slurmctld does not know its job", "proved": False},
]


def test_confirm_lists_what_is_held_back_and_says_nothing_to_the_engine(site: Path, engine: FakeEngine) -> None:
    engine.lay("/v1/status", {"held": HELD})
    done = run(site, "confirm", "--parsable2", "--noheader")
    assert done.stdout.splitlines() == [
        "12|restart|many at once|lost: vjob12-0 not running on n1 any more",
        "13_1|stop|no proof|slurmctld does not know its job",
    ]
    assert {method for method, _, _ in engine.requests} == {"GET"}


@pytest.mark.parametrize(("words", "vjobs"), [("", ["12", "13_1"]), (" 13_1", ["13_1"])])
def test_confirm_yes_names_the_vjobs_that_were_listed(
    site: Path, engine: FakeEngine, words: str, vjobs: list[str]
) -> None:
    engine.lay("/v1/status", {"held": HELD})
    engine.lay("/v1/confirm", {"confirmed": vjobs})
    done = run(site, "confirm", "--yes", "--json", *words.split())
    assert [row["vjob"] for row in answer_of(done.stdout)["confirmed"]] == vjobs
    assert engine.requests[-1] == ("POST", "/v1/confirm", {"vjobs": vjobs})


def test_confirm_of_a_vjob_of_which_nothing_is_held_back_is_refused(site: Path, engine: FakeEngine) -> None:
    engine.lay("/v1/status", {"held": HELD})
    done = run(site, "confirm", "--yes", "99")
    assert (done.returncode, "nothing is held back of vjob 99" in done.stderr) == (1, True)
    assert {method for method, _, _ in engine.requests} == {"GET"}


def test_a_new_store_is_confirmed_by_yes_only(site: Path, engine: FakeEngine) -> None:
    engine.lay("/v1/new-store", {"ok": True})
    for words in (("confirm", "--new-store", "n1"), ("confirm", "--new-store", "n1", "--yes", "12")):
        assert run(site, *words).returncode == 2
    assert engine.requests == []
    assert "counts as a new one" in run(site, "confirm", "--new-store", "n1", "--yes").stdout
    assert engine.requests == [("POST", "/v1/new-store", {"store": "n1"})]


STATES = {
    "number": 7,
    "vjob": "12",
    "user": "alice",
    "time": 1000000000.0,
    "vms": 2,
    "states": 2,
    "bytes": 512 << 20,
    "nodes": ["n1", "n2"],
    "reason": "lost: the saved state of vjob12-1 on n2 is damaged",
}


def test_states_lists_what_was_put_aside(site: Path, engine: FakeEngine) -> None:
    engine.lay("/v1/states", {"states": [STATES]})
    done = run(site, "states", "--noheader", "--parsable2", "--format=number,vjob,vms,states,size,nodes,reason")
    assert done.stdout == "7|12|2|2|512M|n1,n2|lost: the saved state of vjob12-1 on n2 is damaged\n"
    assert answer_of(run(site, "states", "--json").stdout) == {"states": [STATES]}


def test_states_are_taken_back_and_the_end_is_waited_for(site: Path, engine: FakeEngine) -> None:
    engine.lay("/v1/states/7/take-back", {"operation": 3})
    engine.lay("/v1/operations/3", {"id": 3, "vjob": "12", "state": "done"})
    assert "rmsplugin resume 12" in run(site, "states", "--take-back", "7").stdout
    engine.lay("/v1/operations/3", {"id": 3, "vjob": "12", "state": "failed", "error": "n1 does not answer"})
    done = run(site, "states", "--take-back", "7")
    assert (done.returncode, done.stderr) == (1, "rmsplugin states: n1 does not answer\n")


def test_states_are_dropped(site: Path, engine: FakeEngine) -> None:
    engine.lay("/v1/states/7/drop", {"ok": True})
    assert run(site, "states", "--drop", "7").stdout == "dropped 7\n"
    assert [request[:2] for request in engine.requests] == [("POST", "/v1/states/7/drop")]
    assert run(site, "states", "--drop", "7", "--take-back", "7").returncode == 2


@pytest.mark.parametrize("what", ["gone", "fence"])
def test_a_node_is_gone_or_fenced_by_yes_only_and_it_is_said_what_would_become_of_which_vjobs(
    site: Path, engine: FakeEngine, what: str
) -> None:
    engine.lay(f"/v1/nodes/n3/{what}", {"begin_again": ["12"], "wait": ["13"]})
    done = run(site, "node", what, "n3")
    assert done.returncode == 2
    assert "begin again from the start: 12; vjobs that wait for their saved states there: 13; add --yes" in done.stderr
    assert engine.requests == [("POST", f"/v1/nodes/n3/{what}", {"preview": True})]


def test_what_the_engine_refuses_of_a_node_is_said_without_yes(site: Path, engine: FakeEngine) -> None:
    engine.answers["/v1/nodes/n3/gone"] = lambda *_: (409, {"error": "n3 is not gone: its libvirt answers"})
    done = run(site, "node", "gone", "n3")
    assert (done.returncode, done.stderr) == (1, "rmsplugin node: n3 is not gone: its libvirt answers\n")


@pytest.mark.parametrize("what", ["gone", "fence"])
def test_a_node_that_is_gone_is_said_to_the_engine(site: Path, engine: FakeEngine, what: str) -> None:
    engine.lay(f"/v1/nodes/n3/{what}", {"begin_again": ["12"], "wait": []})
    done = run(site, "node", what, "n3", "--yes")
    assert (done.returncode, done.stdout) == (
        0,
        "n3 is gone: vjobs that go on from a checkpoint, or begin again from the start: 12\n",
    )
    assert engine.requests[-1][:2] == ("POST", f"/v1/nodes/n3/{what}")


def test_a_node_is_back_without_yes(site: Path, engine: FakeEngine) -> None:
    engine.lay("/v1/nodes/n3/back", {"ok": True})
    done = run(site, "node", "back", "n3")
    assert (done.returncode, done.stdout) == (0, "n3 is back\n")


def test_a_node_is_not_told_anything_else(site: Path, engine: FakeEngine) -> None:
    for words in (("node", "dead", "n3"), ("node", "gone", "../n3"), ("node", "gone")):
        assert run(site, *words, "--yes").returncode == 2
    assert engine.requests == []
