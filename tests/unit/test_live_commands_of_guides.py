"""The commands of the guides that ask an engine, run as they stand there: the real service on a simulated cluster.

Those that read files only are run in test_commands_of_guides.py. What starts a daemon, or needs more than one engine or
a real VM, is named here with the test that runs it.
"""

from __future__ import annotations

import re
import shlex
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from scenarios import world
from scenarios.world import World
from unit.cli.test_cli import SETTINGS
from unit.served import Served
from unit.shown_commands import GUIDES, commands_shown
from unit.test_commands_of_guides import SHOWN as OFFLINE
from unit.test_docs import complete_without_arguments

from rmsplugin.cli.live import drain, events, vjobs
from rmsplugin.cli.main import main
from rmsplugin.engine.ledger.rows import OperationKind
from rmsplugin.model.vjob import VJobState

TESTS = Path(__file__).resolve().parents[1]
NODES = ("n1", "n2", "n3", "n4", "n5")
#: By how a command begins: the test that runs it, and what stands there.
ELSEWHERE = {
    "check": ("e2e/test_check.py", 'plugin("check"'),
    "check --upgrade": ("e2e/upgrade/drill.py", '"check", "--upgrade"'),
    "engine": ("contract/engine_processes.py", 'COMMAND = "engine"'),
    "manager": ("contract/engine_processes.py", 'COMMAND = "manager"'),
    "handover": ("unit/cli/test_cli.py", '"handover"'),
    "node fence": ("unit/cli/test_cli.py", '["gone", "fence"]'),
    "setup": ("packaged/test_packages.py", "rmsplugin setup node --from"),
    "ssh": ("e2e/test_admission.py", 'plugin("ssh"'),
}
#: Named in a sentence. With options they are run in test_commands_of_guides.py.
NAMED = ("plan", "energy", "ledger query SQL")
#: They go on until they are interrupted.
ENDLESS = re.compile(r" (-i|--follow)\b")
#: Where those wait.
WAITING = {"events": events, "vjobs": vjobs}
#: Without --yes it says what would become of which vjobs, and that --yes is missing.
ASKS = re.compile(r"node gone \w+$")


def shown_commands() -> Iterator[str]:
    """Those that are complete, with a node of the site where a page has a word for any."""
    for page in GUIDES:
        for words in commands_shown(page.read_text()) if page.name != "CHANGELOG.md" else ():
            command = " ".join(words.split()).replace("NODE", "n3")
            whole = " " in command or command in complete_without_arguments()
            if whole and words not in OFFLINE and command not in NAMED:
                yield command


def elsewhere(words: str) -> list[str]:
    """How this command begins, in the table of those that other tests run."""
    return [begin for begin in ELSEWHERE if words == begin or words.startswith(f"{begin} ")]


SHOWN = sorted(set(shown_commands()))
HERE = [words for words in SHOWN if not elsewhere(words)]


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """An engine of the nodes that the guides name, with large ones; nothing was submitted yet."""
    monkeypatch.setattr(world, "NODES", NODES)
    monkeypatch.setattr(world, "CPUS", 16)
    monkeypatch.setattr(world, "MEMORY_MIB", 16384)
    monkeypatch.setitem(world._SETTINGS, "partition", {"vjob": {"hosts": "vmhosts", "memory": "observed"}})
    served = Served(tmp_path)
    served.world.time = time.time() - 600  # "within the last hour" is of the real clock
    path = tmp_path / "rmsplugin.toml"
    places = f'[engine]\nstate_dir = "{tmp_path}"\n', f'[slurm]\nbin_dir = "{tmp_path}"\n'
    text = SETTINGS.format(socket=served.socket)
    path.write_text(text.replace("[engine]\n", places[0]).replace("[slurm]\n", places[1]))
    (tmp_path / "scontrol").write_text("#!/bin/sh\n")
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("RMSPLUGIN_CONFIG", str(path))
    yield served
    served.close()


def submit(site: World, *, array: bool) -> None:
    """A vjob of each number that the guides name; 12 is an array, or alone with two CPUs."""
    alone = {"cpus": 2, "memory_mib": 4096, "name": "solver", "account": "physics"}
    for number, options in {
        12: {"array": range(4)} if array else alone,
        13: {"array": range(4)},
        15: {"user": "bob"},
        20: {"array": range(1, 4)},
        4711: {},
    }.items():
        site.rms._last_id = number - 1
        assert site.submit(**{"vms": 1, "user": "alice", "memory_mib": 256, **options}) == number
    for _ in range(10):
        site.tick()
    assert {vjob.state for vjob in site.context.ledger.vjobs()} == {VJobState.RUNNING}


def sleeps(site: World) -> None:
    site.ask(12, OperationKind.SUSPEND)
    site.until(12, VJobState.SLEEPING)


def dies(site: World) -> None:
    site.kill_node("n3")
    for _ in range(5):
        site.tick()


def is_given_up(site: World) -> None:
    dies(site)
    assert main(["node", "gone", "n3", "--yes"]) == 0
    site.revive_node("n3")


def is_held_back(site: World) -> None:
    for vjob in site.context.ledger.vjobs():
        site.rms.forget(vjob.job_id)
        site.rms._recorded[vjob.job_id] = "CANCELLED"
    for _ in range(8):
        site.tick()


def is_drained(site: World) -> None:
    site.rms.set_node("n1", draining=True, reason="repair")
    for _ in range(5):
        site.tick()


def has_a_marker(site: World) -> None:
    site.context.ledger.markers.set("n1", "f" * 32)


def switches_often(site: World) -> None:
    for _ in range(12):
        job = site.running()
        site.rms.finish(job)
        site.until(job, VJobState.TERMINATED)


def is_put_aside_as_7(site: World) -> None:
    """One of the two states of a vjob was damaged, so it began again; then it was mended, as from a backup."""
    job = site.sleeping(vms=2, user="alice")
    vm = site.context.ledger.vms(job)[1]
    path = f"/store/{vm.name}.state"
    intact = site.files.get(vm.image_node, path)
    site.files.damage(vm.image_node, path)
    with closing(sqlite3.connect(site._ledger_path)) as database, database:
        names = "id, job_id, display_id, user, uid, time, reason, complete, losses, private_key, public_key, vms"
        database.execute(f"insert into asides ({names}) values (6, 1, '1', 'bob', 1, 0, '', 1, 0, '', '', '[]')")
    site.ask(job, OperationKind.RESUME)
    site.until(job, VJobState.RUNNING)
    assert intact is not None
    site.files.put(vm.image_node, path.replace("/vjob", "/aside-7.vjob"), intact)


#: What has to have happened before, by how the command begins.
BEFORE: dict[str, Callable[[World], None]] = {
    "confirm --new-store": has_a_marker,
    "confirm --yes": is_held_back,
    "cycles 12": switches_often,
    "events --since 1h --user": sleeps,
    "node gone": dies,
    "node back": is_given_up,
    "resume": sleeps,
    "states --": is_put_aside_as_7,
    "undrain": is_drained,
}


def drains(site: World, draining: bool) -> Callable[[float], None]:
    """What passes while the command waits: Slurm drains the node or ends that, and the engine goes on."""

    def pass_time(_: float) -> None:
        site.rms.set_node("n1", draining=draining, reason="repair")
        for _ in range(5):
            site.tick()

    return pass_time


def is_interrupted(_: float) -> None:
    """What passes while the command waits: Ctrl-C, which a shell's background jobs ignore.

    It comes here and now: a later one would end the whole run of tests if the command had ended by itself.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def status_of(words: str, monkeypatch: pytest.MonkeyPatch) -> object:
    """Run a command; one that goes on is interrupted where it waits."""
    if ENDLESS.search(words):
        waits = {**vars(time), "sleep": is_interrupted}  # the engine's threads sleep on
        monkeypatch.setattr(WAITING[words.split()[0]], "time", SimpleNamespace(**waits))
    try:
        return main(shlex.split(words))
    except SystemExit as ended:
        return ended.code


@pytest.mark.parametrize("words", HERE)
def test_a_command_of_the_guides_does_what_it_is_shown_for(
    served: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    submit(served.world, array="'12_" in words)
    for begin, happens in BEFORE.items():
        if words.startswith(begin):
            happens(served.world)
    passes = drains(served.world, draining=not words.startswith("undrain"))
    monkeypatch.setattr(drain, "time", SimpleNamespace(sleep=passes, monotonic=time.monotonic))
    expected = 130 if ENDLESS.search(words) else 2 if ASKS.match(words) else 0
    status = status_of(words, monkeypatch)
    said = capsys.readouterr()
    assert status == expected, said.err


@pytest.mark.parametrize("words", ["events --follow", "events --follow --no-such-option"])
def test_a_command_that_ends_before_it_waits_is_not_interrupted_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.setenv("RMSPLUGIN_CONFIG", str(tmp_path / "none.toml"))
    assert status_of(words, monkeypatch) == 2
    left = [each for each in threading.enumerate() if isinstance(each, threading.Timer)]
    for each in left:
        each.cancel()
    assert left == []


@pytest.mark.parametrize("begin", ELSEWHERE)
def test_the_others_are_run_by_the_tests_that_are_named(begin: str) -> None:
    file, shown = ELSEWHERE[begin]
    assert shown in (TESTS / file).read_text()
    assert any(begin in elsewhere(words) for words in SHOWN), "no guide shows it any more"
