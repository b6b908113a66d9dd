"""What a node proves is not lost because the engine has something else to do, or does not run."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import PATIENCE_S
from unit.served import Served, until

from rmsplugin.engine.serve import orders

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root reports")

CLEAN = {"hook": "epilog", "node": "n1", "problem": "", "ended": []}


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.mark.parametrize("what", ["gone", "fence"])
def test_an_epilog_is_heard_while_nodes_are_said_to_be_gone(
    directory: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    served = Served(directory)
    served.world.cycle.run()
    hanging, over = [], threading.Event()

    def hang(*arguments: object) -> None:
        hanging.append(arguments)
        over.wait(60)

    monkeypatch.setattr(orders, "require_silent", hang)
    monkeypatch.setattr(served.world.cycle.fencing, "fence", lambda node, by: hang() or ([], []))
    with contextlib.ExitStack() as stack:
        stack.callback(served.close)
        stack.callback(over.set)
        for node in ("n1", "n2", "n3"):
            asked = len(hanging)
            stack.enter_context(served.send("POST", f"/v1/nodes/{node}/{what}"))
            until(lambda asked=asked: len(hanging) > asked, "the node is asked")  # type: ignore[misc]
        assert served.ask("POST", "/v1/rooms/7/report", CLEAN)[0] == 200
        assert served.ask("POST", "/v1/jobs/12/prolog")[0] == 200
        assert served.ask("POST", "/v1/jobs/12/epilog")[0] == 200
        assert served.ask("GET", "/v1/status")[0] == 200


_HOOK = """
import sys
from pathlib import Path
from rmsplugin import room_hook
from rmsplugin.client import EngineClient
from rmsplugin.errors import UnavailableError
try:
    room_hook.run("epilog", {}, "7", "n1", EngineClient.unix(sys.argv[1]), Path(sys.argv[2]))
except UnavailableError:
    print("not told")
"""


def test_an_epilog_that_the_engine_did_not_hear_is_told_when_it_is_back(directory: Path) -> None:
    (directory / "proc").mkdir()
    argv = [sys.executable, "-c", _HOOK, str(directory / "engine.sock"), str(directory / "proc")]
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=PATIENCE_S
    )  # its output is closed: Slurm goes on
    assert (done.stdout, done.stderr) == ("not told\n", "")
    served = Served(directory)
    try:
        clean = served.ledger.room_reports.clean_epilog
        until(lambda: clean("n1") > 0, "the report comes")
        now = served.context.clock.now()
        assert now - 60 < clean("n1") < now, "what is told late counts from when it was seen"
    finally:
        served.close()


def test_a_report_that_is_older_than_the_arrival_of_a_vm_proves_nothing_of_it(directory: Path) -> None:
    served = Served(directory)
    try:
        assert served.ask("POST", "/v1/rooms/7/report", {**CLEAN, "age_s": 100.5})[0] == 200
        assert served.ledger.room_reports.clean_epilog("n1") == served.context.clock.now() - 100.5
        for age in (-1, 1e9, "1", True, float("nan")):
            assert served.ask("POST", "/v1/rooms/7/report", {**CLEAN, "age_s": age})[0] == 400
    finally:
        served.close()
