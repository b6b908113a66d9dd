"""The campaign of faults with managers: what is struck, what must be there again, and the journal of several groups."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from e2e.live import faults, history, well
from e2e.live.acts import Row
from e2e.live.dice import KILL, STOP, Throw
from e2e.live.history import History
from e2e.live.site import Decision, Keeper, Site
from minicluster_lib import cli
from minicluster_lib.layout import Cluster as Layout
from minicluster_lib.layout import RefusedError
from patience import PATIENCE_S

from rmsplugin.engine.ledger.shared_files import ledgers_in

LEADS = "2026-11-30 11:54:07,883 INFO rmsplugin.engine.daemon: {}this {} leads, with epoch {} of the ensemble\n"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A minicluster with managers, of which nothing runs."""
    Layout(tmp_path, fronts=2, controllers=2, managers=True).save()
    (tmp_path / "shared/home/controllers/site").mkdir(parents=True)
    monkeypatch.setattr(history, "Machine", lambda site: SimpleNamespace(guests=list))
    return Site(tmp_path)


def say(site: Site, host: str, *lines: str) -> None:
    path = site.directory / "log" / host / "manager.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines))


def throw(kind: str, way: str = KILL, which: float = 0.0) -> Throw:
    return Throw(kind, way, 3.0, which, "", 0.0, False)


# --- whom it asks ---


def test_its_deciders_are_managers_of_two_groups(site: Site) -> None:
    assert (site.decider, site.groups) == ("manager", {"left": ("n1",), "right": ("n2", "n3")})


def test_it_believes_who_knows_the_newest_leader(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, Any] = {"head": {"host": "head", "epoch": 5}, "front2": {"host": "front2", "epoch": 9}}
    monkeypatch.setattr(Site, "ask_on", lambda self, host, path, group="": told[host])
    assert site.leader() == "front2"
    told["front2"] = None
    assert site.leader() == "head"
    told["head"] = None
    assert site.leader() == ""


def test_decisions_are_those_of_each_group_s_engine_wherever_it_answers(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: dict[tuple[str, str], Any] = {
        ("head", "left"): {"epoch": 5, "last_cycle": {"time": 100}},
        ("front2", "left"): {"epoch": 7, "last_cycle": {"time": 103}},
        ("front2", "right"): {"epoch": 6, "last_cycle": None},
    }
    monkeypatch.setattr(Site, "ask_on", lambda self, host, path, group="": told.get((host, group)))
    assert site.decisions() == [Decision("left", 5, "head", 100.0), Decision("left", 7, "front2", 103.0)]


def test_its_ledgers_are_the_newest_one_of_each_group_once_there_are_any(site: Site) -> None:
    groups = site.directory / "shared/home/controllers/groups"
    assert site.ledgers() == [site.host_path("head", "/var/lib/rmsplugin/ledger.sqlite")]
    for name in ("all/ledger-3", "left/ledger-5", "left/ledger-12", "right/ledger-6", ".before-9-left/ledger-4"):
        (groups / name).parent.mkdir(parents=True, exist_ok=True)
        (groups / f"{name}.sqlite").touch()
    assert site.ledgers() == [ledgers_in(groups / name)[-1] for name in ("left", "right")]
    assert [path.name for path in site.ledgers()] == ["ledger-12.sqlite", "ledger-6.sqlite"]


# --- what fails ---


class Struck:
    """Two sleeping processes, as manager and engine of the head."""

    def __init__(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        self.processes = [subprocess.Popen(["sleep", "600"]) for _ in range(2)]
        self.manager, self.engine = (process.pid for process in self.processes)
        engines = {("head", ""): [self.engine], ("head", "left"): [self.engine]}
        monkeypatch.setattr(Site, "engines", lambda self, host, group="": engines.get((host, group), []))
        monkeypatch.setattr(Site, "decider_pid", lambda _, host: self.manager if host == "head" else 0)

    def await_stopped(self, *pids: int) -> None:
        """Wait until these stand still, and no others."""
        states = {each.pid: Path(f"/proc/{each.pid}/stat") for each in self.processes if each.returncode is None}
        deadline = time.monotonic() + PATIENCE_S
        while {pid for pid, path in states.items() if path.read_text().split(") ")[1][0] == "T"} != {*pids}:
            assert time.monotonic() < deadline, f"others than {pids} stand still"
            time.sleep(0.01)


@pytest.fixture
def struck(site: Site, monkeypatch: pytest.MonkeyPatch) -> Any:
    made = Struck(site, monkeypatch)
    yield made
    for process in made.processes:
        process.kill()
        process.wait()


def test_a_manager_and_all_its_engines_stand_still_and_go_on(site: Site, struck: Struck) -> None:
    halted = throw("halted", STOP)
    assert faults.places(site, halted) == ["head"] and faults.places(site, throw("halted", STOP, 0.9)) == ["front2"]
    with faults.under(site, Keeper(site), halted, ["head"]):
        struck.await_stopped(struck.manager, struck.engine)
    struck.await_stopped()


def test_the_engine_of_a_group_is_struck_where_it_runs_and_nothing_else(site: Site, struck: Struck) -> None:
    assert faults.places(site, throw("engine")) == ["head"]
    assert faults.places(site, throw("engine", which=0.9)) == [], "the other group has none now"
    with faults.under(site, Keeper(site), throw("engine", STOP), ["head"]):
        struck.await_stopped(struck.engine)
    struck.await_stopped()
    with faults.under(site, Keeper(site), throw("engine", KILL), ["head"]):
        struck.processes[1].wait(60)
        assert struck.processes[1].returncode == -signal.SIGKILL and struck.processes[0].poll() is None


def test_what_was_struck_may_have_ended_meanwhile(site: Site, struck: Struck) -> None:
    with faults.under(site, Keeper(site), throw("halted", STOP), ["head"]):
        os.kill(struck.engine, signal.SIGKILL)
        struck.processes[1].wait(60)
    struck.await_stopped()
    assert struck.processes[0].poll() is None


def test_a_manager_that_leads_is_the_daemon_of_its_host(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[str, str, str]] = []
    monkeypatch.setattr(Site, "leader", lambda self: "front2")
    for act in ("kill", "start"):
        monkeypatch.setattr(Site, act, lambda self, host, daemon, act=act: done.append((act, host, daemon)))
    hosts = faults.places(site, throw("leader"))
    with faults.under(site, keeper := Keeper(site), throw("leader"), hosts):
        assert keeper.held == {"front2"}
    assert done == [("kill", "front2", "manager"), ("start", "front2", "manager")] and not keeper.held


# --- what must be there again ---


def group(name: str, host: str, *, answers: bool = True) -> dict[str, Any]:
    return {"name": name, "host": host, "answers": answers, "problem": "" if answers else "Connection refused"}


def test_each_group_has_an_engine_and_each_manager_a_group(site: Site) -> None:
    def missing(*told: dict[str, Any]) -> list[str]:
        return well._missing_of_groups(site, told)

    assert missing(group("left", "head"), group("right", "front2")) == []
    assert missing(group("left", "head"), group("right", "head")) == ["the manager on front2 has no group"]
    assert missing(group("left", "head"), group("right", "front2", answers=False)) == [
        "the engine of group right does not answer: Connection refused"
    ]
    assert missing(group("left", "head")) == ["group right is not told of", "the manager on front2 has no group"]


# --- the journal ---


@pytest.fixture
def journal(site: Site) -> Callable[[dict[str, list[tuple[int, float, list[Row]]]]], list[str]]:
    """Judges ledgers: by group the epoch, when its turn began, and the rows."""
    found = History(site)

    def judged(ledgers: dict[str, list[tuple[int, float, list[Row]]]]) -> list[str]:
        for name, each in ledgers.items():
            for epoch, began, rows in each:
                found._acts[name].read(epoch, began, rows)
        return found.breaches()

    return judged


def row(number: int, vm: str, node: str, created: float, ended: float) -> Row:
    return Row(number, vm, "boot", node, node, "done", created, ended)


def began(second: int) -> str:
    return f"2026-11-30 11:54:{second:02},000 INFO rmsplugin.engine.daemon: "


def at(second: int) -> float:
    """The same, by the clock."""
    return 1000.0 + second


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("e2e.live.acts.time.mktime", lambda moment: at(moment.tm_sec))


@pytest.mark.usefixtures("clock")
def test_a_group_has_one_owner_at_a_time_and_epochs_of_two_groups_are_not_compared(
    site: Site, journal: Callable[..., list[str]]
) -> None:
    leads = "group {}: this engine leads, with epoch {} of the ensemble\n"
    say(site, "head", began(1) + leads.format("left", 9), began(2) + leads.format("right", 5))
    say(site, "front2", began(20) + leads.format("right", 12))
    first = row(1, "vjob7-0", "n1", at(3), at(4))
    assert (
        journal({"left": [(9, at(1), [first])], "right": [(5, at(2), [row(1, "vjob8-0", "n2", at(5), at(6))])]}) == []
    )
    late = row(2, "vjob8-0", "n2", at(25), at(26))
    breaches = journal({"right": [(5, at(2), [late]), (12, at(20), [row(3, "vjob9-0", "n3", at(21), at(22))])]})
    assert breaches == ["head (5) and front2 (12) may both act at 1020.0"]


@pytest.mark.usefixtures("clock")
def test_an_engine_that_decides_when_another_one_has_its_group_is_found(site: Site) -> None:
    leads = "group left: this engine leads, with epoch {} of the ensemble\n"
    say(site, "head", began(1) + leads.format(5))
    say(site, "front2", began(20) + leads.format(12))
    found = History(site)
    found.note([Decision("left", 5, "head", at(19)), Decision("left", 12, "front2", at(22))])
    assert found.breaches() == []
    found.note([Decision("left", 5, "head", at(21))])
    assert found.breaches() == ["head (5) and front2 (12) may both act at 1020.0"]


def test_two_engines_of_a_group_that_lead_in_one_epoch_are_found(site: Site) -> None:
    say(site, "head", LEADS.format("group left: ", "engine", 5), LEADS.format("group right: ", "engine", 9))
    assert History(site).breaches() == []
    say(site, "front2", LEADS.format("group left: ", "engine", 5).replace("54:07", "54:09"))
    assert History(site).breaches() == ["epoch 5 of front2 comes after epoch 5 of head"]


def test_two_managers_that_lead_in_one_epoch_are_found(site: Site) -> None:
    say(site, "head", LEADS.format("", "manager", 5))
    say(site, "front2", LEADS.format("", "manager", 9))
    assert History(site).breaches() == []
    say(site, "front2", LEADS.format("", "manager", 5).replace("54:07", "54:09"))
    assert History(site).breaches() == ["epoch 5 of front2 comes after epoch 5 of head"]


def test_a_text_that_a_leader_has_written_twice_is_found(site: Site) -> None:
    def write(vjobs: dict[str, str]) -> None:
        places = {job: {"group": group, "to": None} for job, group in vjobs.items()}
        path = site.directory / "shared/home/controllers/site/given-5.json"
        path.write_text(json.dumps({"epoch": 5, "serial": 3, "vjobs": places}))

    say(site, "head", LEADS.format("", "manager", 5))
    found = History(site)
    (site.directory / "shared/home/controllers/site/given-9.json").touch()  # this leader has begun, and not written
    write({"7": "left"})
    found.look(10.0)
    found.look(11.0)
    assert found.breaches() == []
    write({"7": "right"})
    found.look(12.0)
    assert found.breaches() == ["text 3 of epoch 5 is two texts"]


def test_a_vjob_whose_vms_are_in_two_groups_is_found(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    there: list[tuple[str, str]] = []
    guests = lambda: [SimpleNamespace(vm=vm, node=node) for vm, node in there]  # noqa: E731
    monkeypatch.setattr(history, "Machine", lambda site: SimpleNamespace(guests=guests))
    found = History(site)
    for now, places in enumerate(
        [[("vjob7-0", "n2")], [("vjob7-0", "n2"), ("vjob7-0", "n3")], [], [("vjob7-0", "n1")]]
    ):
        there[:] = places
        found.look(float(now))
    assert found.breaches() == [], "a migration within a group, and a vjob that went to another one"
    there += [("vjob7-1", "n3")]
    found.look(9.0)
    assert [said.partition(":")[0] for said in found.breaches()] == ["vjob 7 is two groups' at 9.0"]


# --- the minicluster ---


@pytest.mark.parametrize(("controllers", "nodes", "refused"), [(2, 2, False), (1, 3, True), (2, 1, True)])
def test_managers_need_two_controllers_and_a_node_for_each_group(controllers: int, nodes: int, refused: bool) -> None:
    arguments: Any = SimpleNamespace(controllers=controllers, nodes=nodes)
    with pytest.raises(RefusedError, match="--managers needs") if refused else contextlib.nullcontext():
        cli._check_managers(arguments)
