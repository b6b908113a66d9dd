"""Whole managers with a real ensemble, and the engines of their groups; without Slurm, and without nodes."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from contract.engine_processes import ManagerProcess, write_settings
from contract.zookeeper_ensemble import JAR, Ensemble, free_ports, running_ensemble
from patience import PATIENCE_S

from rmsplugin.adapters.coordination.epoch_files import EpochFiles
from rmsplugin.api.answers import GroupLead
from rmsplugin.api.binding import Engine, pieces_of
from rmsplugin.client import EngineClient
from rmsplugin.errors import RmspluginError
from rmsplugin.groups.given import Given, text_of

SESSION_S = 4.0
GROUPS = {"g1": ("n1",), "g2": ("n2",)}


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    if not JAR.exists() or shutil.which("java") is None:
        pytest.skip("needs Debian's libzookeeper-java and a Java that runs it")
    with running_ensemble(tmp_path_factory.mktemp("zookeeper")) as ensemble:
        yield ensemble


_numbers = itertools.count()


@pytest.fixture
def start(ensemble: Ensemble, tmp_path: Path) -> Iterator[Callable[[str], ManagerProcess]]:
    """Starts a manager. There are two groups, which a leader has made before, for Slurm does not answer here."""
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o700)
    EpochFiles(shared / "site", "given").write(1, text_of(Given(1, 0, GROUPS)))
    servers = ", ".join(f'"{each}"' for each in ensemble.addresses)
    path = f"/managers{next(_numbers)}"
    ports = {name: free_ports(1)[0] for name in ("one", "two")}
    started: list[ManagerProcess] = []

    def start(name: str) -> ManagerProcess:
        (tmp_path / name).mkdir(exist_ok=True)
        cluster = (
            f'coordination = "zookeeper"\nservers = [{servers}]\nsession_s = {SESSION_S}\npath = "{path}"\n'
            f'shared_dir = "{shared}"'
        )
        address = f"127.0.0.1:{ports[name]}"
        settings = write_settings(tmp_path / name, cluster, listen=address, more=f'url = "http://{address}"\n')
        started.append(ManagerProcess(name, settings))
        return started[-1]

    yield start
    for each in started:
        each.end()


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.05)


def groups_at(directory: Path) -> dict[str, GroupLead]:
    """By name, the groups, as the manager there tells."""
    try:
        return {each["name"]: each for each in engine_at(directory).status().get("groups", [])}
    except RmspluginError:
        return {}


def engine_at(directory: Path) -> Engine:
    return Engine([EngineClient.unix(str(directory / "engine.sock"))])


def answering(directory: Path) -> set[str]:
    return {name for name, each in groups_at(directory).items() if each["answers"]}


def wait_until_deafness_is_told(directory: Path) -> None:
    """Wait until a manager and its engine tell that neither manager can hear: there is no munged here."""

    def names(said: list[str], before: str, after: str) -> int:
        return len({*re.findall(rf"{before}the manager (\S+) {after}", " ".join(said))})

    def both_are_told() -> bool:
        cluster = engine_at(directory).status()["cluster"]
        return names(cluster["degraded"] if cluster else [], "", "cannot hear: ") == 2

    wait_until(both_are_told, "the manager tells of both")
    (group,) = answering(directory)
    engine = Engine([EngineClient.unix(str(directory / "groups" / f"{group}.sock"))])
    told = "the engine counts their deafness as its own"
    wait_until(lambda: names(engine.status()["problems"], "wrappers that ask ", "are not heard: ") == 2, told)


def test_groups_are_shared_out_and_go_on_at_another_manager_when_theirs_is_killed(
    start: Callable[[str], ManagerProcess], tmp_path: Path
) -> None:
    one = start("one")
    wait_until(lambda: answering(tmp_path / "one") == {"g1", "g2"}, "the first manager has both groups")
    before = {name: each["epoch"] for name, each in groups_at(tmp_path / "one").items()}
    two = start("two")
    wait_until(lambda: len(answering(tmp_path / "two")) == 1, "the second manager has a group")
    wait_until(lambda: len(answering(tmp_path / "one")) == 1, "the first manager has a group")
    assert answering(tmp_path / "one") | answering(tmp_path / "two") == {"g1", "g2"}
    wait_until_deafness_is_told(tmp_path / "one")
    engines = one.engines()
    assert len(engines) == 1
    one.end()
    wait_until(lambda: answering(tmp_path / "two") == {"g1", "g2"}, "the second manager has both groups")
    assert not any(map(alive, engines)), "an engine does not outlive its manager"
    after = {name: each["epoch"] for name, each in groups_at(tmp_path / "two").items()}
    assert all((after[name] or 0) > (before[name] or 0) for name in GROUPS)
    assert engine_at(tmp_path / "two").pause()["changed"]
    two.process.send_signal(signal.SIGTERM)
    assert two.process.wait(PATIENCE_S) == 0
    assert "Traceback" not in one.said() + two.said()
    assert all(f"group {name}: rmsplugin" in two.said() for name in GROUPS), "each line of an engine names its group"


def test_a_group_is_handed_over_while_both_managers_serve_and_stays_there(
    start: Callable[[str], ManagerProcess], tmp_path: Path
) -> None:
    """Each manager tells of its own groups only: no munge proves one to the other here."""
    one, two = start("one"), start("two")
    here, there = tmp_path / "one", tmp_path / "two"
    wait_until(lambda: len(answering(here)) == len(answering(there)) == 1, "each manager has a group")
    (group,), (other,) = answering(here), answering(there)
    before, untouched = groups_at(here)[group], groups_at(there)[other]
    engine, engines = engine_at(there), two.engines()
    assert engine.handover(group=other, to=untouched["host"])["url"] == untouched["url"], "it is to stay where it is"
    answer = engine.handover(group=group)
    began = time.monotonic()
    assert (answer["url"], answer["group"]) == (untouched["url"], group)
    wait_until(lambda: answering(there) == {group, other}, "the group answers at the other manager")
    print(f"handed over in {time.monotonic() - began:.1f} s")
    told = groups_at(there)
    assert (told[group]["epoch"] or 0) > (before["epoch"] or 0)
    assert told[other]["epoch"] == untouched["epoch"] and engines[0] in two.engines(), "that engine was not touched"
    assert told[group]["kept_on"] == told[group]["host"] and told[group]["kept_by"]
    wait_until(lambda: not one.engines(), "the other one stays, by the order before: none goes in exchange")
    engine_at(here).handover(group=group, to="any")
    wait_until(lambda: answering(here) == {group}, "it goes back, where loads are even")
    assert not groups_at(here)[group]["kept_on"]
    assert "Traceback" not in one.said() + two.said()


@pytest.mark.long
def test_an_engine_that_is_killed_is_started_again_and_its_group_goes_on(
    start: Callable[[str], ManagerProcess], tmp_path: Path
) -> None:
    one = start("one")
    wait_until(lambda: answering(tmp_path / "one") == {"g1", "g2"}, "the manager has both groups")
    killed = one.engines()[0]
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: killed not in one.engines() and answering(tmp_path / "one") == {"g1", "g2"}, "both go on")
    assert "was ended by signal 9" in one.said() and "; it is started again in 1 s" in one.said()
    engine = engine_at(tmp_path / "one")
    text = "".join(pieces_of(engine, engine.begin_report({}), lambda _doing, _part: None))
    assert json.loads(text.splitlines()[0])["totals"]["all"] == [], "a report of both groups, which have no vjobs"


@pytest.mark.long
def test_why_the_engine_of_a_group_ends_is_told(start: Callable[[str], ManagerProcess], tmp_path: Path) -> None:
    (tmp_path / "shared" / "groups" / "g2").mkdir(parents=True)
    (tmp_path / "shared" / "groups" / "g2" / "ledger-1.sqlite").touch()
    start("one")
    wait_until(lambda: answering(tmp_path / "one") == {"g1"}, "the manager has a group that answers")
    wait_until(lambda: "is empty" in groups_at(tmp_path / "one")["g2"]["problem"], "the sentence of the other one")
    problem = groups_at(tmp_path / "one")["g2"]["problem"]
    assert problem.startswith("the engine of group g2 ended with status 2: ") and "ledger-1.sqlite is empty" in problem


@pytest.mark.long
def test_a_manager_that_ends_in_order_is_followed_without_a_wait(
    start: Callable[[str], ManagerProcess], tmp_path: Path
) -> None:
    one = start("one")
    wait_until(lambda: answering(tmp_path / "one") == {"g1", "g2"}, "the first manager has both groups")
    start("two")
    wait_until(lambda: len(answering(tmp_path / "two")) == 1, "the second manager has a group")
    one.process.send_signal(signal.SIGTERM)
    assert one.process.wait(PATIENCE_S) == 0
    wait_until(lambda: answering(tmp_path / "two") == {"g1", "g2"}, "the second manager has both groups")


@pytest.mark.long
def test_the_groups_of_a_manager_that_stands_still_go_on_at_another_one(
    start: Callable[[str], ManagerProcess], tmp_path: Path
) -> None:
    one = start("one")
    wait_until(lambda: answering(tmp_path / "one") == {"g1", "g2"}, "the first manager has both groups")
    two = start("two")
    wait_until(lambda: len(answering(tmp_path / "two")) == 1, "the second manager has a group")
    os.kill(one.process.pid, signal.SIGSTOP)
    try:
        wait_until(lambda: answering(tmp_path / "two") == {"g1", "g2"}, "the second manager has both groups")
    finally:
        os.kill(one.process.pid, signal.SIGCONT)
    wait_until(lambda: "the manager of this engine is silent: it ends" in one.said(), "its engine says why")
    wait_until(lambda: len(answering(tmp_path / "one")) == 1, "the first manager has a group again")
    assert len(two.engines()) == 1


@pytest.mark.long
def test_a_second_manager_on_a_state_directory_and_one_without_an_ensemble_are_refused(
    start: Callable[[str], ManagerProcess], tmp_path: Path
) -> None:
    start("one").wait_for("manages groups as")
    again = start("one")
    assert again.process.wait(PATIENCE_S) == 2
    assert "another engine runs on" in again.said()
    (tmp_path / "alone").mkdir()
    alone = ManagerProcess("alone", write_settings(tmp_path / "alone", ""))
    assert alone.process.wait(PATIENCE_S) == 2
    assert 'managers need cluster.coordination = "zookeeper"' in alone.said()


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
