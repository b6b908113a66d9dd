"""Engines of groups as processes of their own, on real ZooKeeper servers: each has a line, a ledger and a socket."""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import socket
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from contract.engine_processes import EngineProcess, answers, write_settings
from contract.zookeeper_ensemble import JAR, Ensemble, running_ensemble
from patience import PATIENCE_S

from rmsplugin.adapters.coordination.epoch_files import EpochFiles
from rmsplugin.engine.ledger.shared_files import epoch_of, ledgers_in
from rmsplugin.groups.given import Given, text_of
from rmsplugin.groups.told import heard

SESSION_S = 4.0
GIVEN = Given(1, 0, {"left": ("n1", "n2"), "right": ("n3",)})


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    if not JAR.exists() or shutil.which("java") is None:
        pytest.skip("needs Debian's libzookeeper-java and a Java that runs it")
    with running_ensemble(tmp_path_factory.mktemp("zookeeper")) as ensemble:
        yield ensemble


class Site:
    """Controllers with a shared directory, and a leader's word."""

    def __init__(self, directory: Path, ensemble: Ensemble) -> None:
        self._directory, self._ensemble = directory, ensemble
        self.program = EngineProcess
        self._started: list[EngineProcess] = []
        self.shared = directory / "shared"
        self.shared.mkdir(mode=0o700)
        self.files = EpochFiles(self.shared / "site", "given")
        self.files.write(1, text_of(GIVEN))

    def start(self, controller: str, group: str = "") -> EngineProcess:
        servers = ", ".join(f'"{each}"' for each in self._ensemble.addresses)
        lines = (
            f'coordination = "zookeeper"\nservers = [{servers}]\nsession_s = {SESSION_S}\n'
            f'shared_dir = "{self.shared}"\npath = "/{self._directory.name}"'  # the ensemble still knows others
        )
        place = self._directory / controller
        place.mkdir(mode=0o700, exist_ok=True)
        self._started.append(self.program(controller, write_settings(place, lines), group=group))
        return self._started[-1]

    def answers(self, controller: str, group: str) -> bool:
        return answers(self._directory / controller, f"groups/{group}.sock")

    def summary(self, controller: str, group: str) -> dict[str, Any]:
        connection = http.client.HTTPConnection("localhost")
        with contextlib.closing(connection):
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.connect(str(self._directory / controller / "groups" / f"{group}.sock"))
            connection.request("GET", "/v1/summary")
            answer: dict[str, Any] = json.loads(connection.getresponse().read())
            return answer

    def close(self) -> None:
        for engine in self._started:
            engine.end()


@pytest.fixture
def site(tmp_path: Path, ensemble: Ensemble) -> Iterator[Site]:
    site = Site(tmp_path, ensemble)
    yield site
    site.close()


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"it did not come so that {what}"
        time.sleep(0.05)


def test_two_groups_have_engines_at_once_and_each_is_taken_over_alone(site: Site, tmp_path: Path) -> None:
    left, right = site.start("c1", "left"), site.start("c1", "right")
    wait_until(lambda: site.answers("c1", "left") and site.answers("c1", "right"), "both lead")
    assert stat.S_IMODE((tmp_path / "c1" / "groups").stat().st_mode) == 0o700
    assert not (tmp_path / "c1" / "engine.sock").exists()
    summaries = {group: site.summary("c1", group) for group in ("left", "right")}
    assert [summaries[group]["group"] for group in summaries] == ["left", "right"]
    assert {heard(summary)[1].summary.name for summary in summaries.values()} == {"left", "right"}
    assert summaries["left"]["epoch"] != summaries["right"]["epoch"]
    standby = site.start("c2", "left")
    wait_until(lambda: standby.has_said("stands by"), "another controller stands by for one group")
    left.end()
    wait_until(lambda: site.answers("c2", "left"), "the other controller has the group")
    assert site.summary("c2", "left")["epoch"] > summaries["left"]["epoch"]
    assert site.summary("c1", "right")["epoch"] == summaries["right"]["epoch"], "the other group has lost nothing"
    assert right.process.poll() is None
    epochs = [epoch_of(path) for path in ledgers_in(site.shared / "groups" / "left")]
    assert epochs == [summaries["left"]["epoch"], site.summary("c2", "left")["epoch"]]
    one = site.start("c3")
    assert one.process.wait(PATIENCE_S) == 2
    assert "a manager, or an engine of one group, is there" in one.said()
    assert "Traceback" not in one.said()


@pytest.mark.parametrize(("group", "said"), [("all", "cannot be the name of a group"), ("left", "without --group")])
def test_what_cannot_be_a_groups_engine_is_refused_in_a_sentence(tmp_path: Path, group: str, said: str) -> None:
    (tmp_path / "c1").mkdir()
    engine = EngineProcess("c1", write_settings(tmp_path / "c1", ""), group=group)
    assert engine.process.wait(PATIENCE_S) == 2
    assert said in engine.said() and "Traceback" not in engine.said()


def test_a_directory_of_sockets_that_others_may_enter_is_refused(site: Site, tmp_path: Path) -> None:
    (tmp_path / "c1" / "groups").mkdir(parents=True)
    (tmp_path / "c1" / "groups").chmod(0o755)
    engine = site.start("c1", "left")
    assert engine.process.wait(PATIENCE_S) == 2
    assert "is for the manager alone: chown it to" in engine.said() and "Traceback" not in engine.said()


class Refused(EngineProcess):
    """An engine whose first look finds that a host of its group obeys an engine of a higher epoch."""

    PROGRAM = """\
import os, sys
from types import SimpleNamespace
from rmsplugin.cli.main import main
from rmsplugin.engine.territory import begun_anew
from rmsplugin.engine.cycle import Cycle
begun_anew.LEAST_S = 0.0
run = Cycle.run
def refused(cycle):
    report = run(cycle)
    if "RMSPLUGIN_TEST_REFUSED" not in os.environ:
        os.environ["RMSPLUGIN_TEST_REFUSED"] = "1"
        cycle.seen = SimpleNamespace(refusing={"n3"}, rms=SimpleNamespace(jobs=()))
    return report
Cycle.run = refused
sys.exit(main())
"""


def test_a_groups_engine_that_its_own_host_refuses_leads_on_with_a_higher_epoch(site: Site) -> None:
    """The host comes from another group, whose epoch was higher."""
    site.program = Refused
    right = site.start("c1", "right")

    def leads_anew() -> bool:
        assert right.process.poll() is None, right.said()
        return right.said().count("is up; took up") == 2

    wait_until(leads_anew, "it leads anew")
    first, second = (epoch_of(path) for path in ledgers_in(site.shared / "groups" / "right"))
    assert first is not None and second is not None and second > first
    assert right.process.poll() is None
    wait_until(lambda: site.answers("c1", "right"), "it answers")
    assert site.summary("c1", "right")["epoch"] == second
    assert right.said().count("n3 obey an engine of a higher epoch") == 1
