"""The contract of ``adapters.coordination.base.Coordination``, one suite for each kind; and real ZooKeeper's faults.

``test_election.py`` has the faults that a simulated ensemble shows at once. Engines that are killed or stopped here are
processes of their own, which write down when they could act, by the clock of the host.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from contract.coordinations import KINDS, Engines, OnEnsemble, OnOneHost, OnZooKeeper, campaign_in_vain
from contract.engine_processes import CODE, EngineProcess, answers, write_settings
from contract.newer_release import VERSION, newer_release
from contract.zookeeper_ensemble import JAR, Ensemble, Proxy, running_ensemble
from journal.check import check
from journal.journal import Journal
from patience import PATIENCE_S

import rmsplugin
from rmsplugin.adapters.coordination.assignments import Assignment, Assignments
from rmsplugin.adapters.coordination.base import NEVER, Coordination
from rmsplugin.adapters.coordination.servers import ask_servers
from rmsplugin.adapters.coordination.tree import ChangedError, MissingError, Tree, make_folder
from rmsplugin.adapters.coordination.turns import Seen, Watch
from rmsplugin.adapters.coordination.zookeeper import ZooKeeperTree
from rmsplugin.adapters.lease.clocked import steady_s
from rmsplugin.api.binding import Engine
from rmsplugin.cli.main import main
from rmsplugin.engine.ledger import ledger_care
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.ledger_file import LEDGER_NAME
from rmsplugin.engine.ledger.shared_files import epoch_of, ledgers_in
from rmsplugin.errors import RefusedError, UnavailableError
from rmsplugin.model.epochs import FIRST_EPOCH

ENGINE = Path(__file__).parent / "engine_on_zookeeper.py"
#: Sessions: short, for takeovers; of whole engines, which must not lose their turn on a loaded machine; and long, for
#: what must not end by itself.
SHORT_S, ENGINE_S, LONG_S = 2.0, 4.0, 8.0


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    if not JAR.exists() or shutil.which("java") is None:
        pytest.skip("needs Debian's libzookeeper-java and a Java that runs it")
    with running_ensemble(tmp_path_factory.mktemp("zookeeper")) as ensemble:
        yield ensemble


@pytest.fixture
def folder(request: pytest.FixtureRequest) -> str:
    """A part of the ensemble's tree for each test."""
    return "/test/" + "".join(each if each.isalnum() else "_" for each in request.node.name)


@pytest.fixture(params=[*sorted(KINDS), "zookeeper"])
def engines(request: pytest.FixtureRequest, tmp_path: Path, folder: str) -> Iterator[Engines]:
    if request.param != "zookeeper":
        yield KINDS[request.param](tmp_path)
        return
    kind = OnZooKeeper(request.getfixturevalue("ensemble").addresses, folder, LONG_S)
    yield kind
    kind.close()


def campaign_until_leading(one: Coordination) -> None:
    """What an engine sees of an ensemble may be old for a moment."""

    def leads() -> bool:
        with contextlib.suppress(UnavailableError):
            one.campaign()
        return one.valid_until() > NEVER

    wait_until(leads, "it leads")


def renewed(one: Coordination) -> float:
    """Until when it leads, after another campaign."""
    with contextlib.suppress(UnavailableError):
        one.campaign()
    return one.valid_until()


# -- every kind ----------------------------------------------------------------------------------------------------


def test_the_first_leads_and_a_second_does_not_until_the_first_has_resigned(engines: Engines) -> None:
    first, second = engines.coordination(), engines.coordination()
    first.campaign()
    leads = [engines.lease(each) for each in (first, second)]
    assert campaign_in_vain(second)
    assert [each.held() for each in leads] == [True, False]
    assert (second.valid_until(), len(first.members()) > 0) == (NEVER, True)
    epoch = first.epoch
    first.resign(at_rest=True)
    campaign_until_leading(second)
    assert [each.held() for each in leads] == [False, True]
    assert second.epoch == FIRST_EPOCH if engines.one_host else second.epoch > epoch


def test_one_who_does_not_lead_has_no_epoch(engines: Engines) -> None:
    first, second = engines.coordination(), engines.coordination()
    first.campaign()
    assert campaign_in_vain(second)
    with pytest.raises(UnavailableError):
        second.epoch  # noqa: B018
    first.resign(at_rest=True)
    with pytest.raises(UnavailableError):
        first.epoch  # noqa: B018


def test_to_campaign_again_keeps_the_lead_and_its_epoch(engines: Engines) -> None:
    one = engines.coordination()
    one.campaign()
    lease, epoch = engines.lease(one), one.epoch
    for _ in range(20):
        engines.pass_time(1.0)
        lease.renew()
    assert lease.held() and one.epoch == epoch


def test_to_resign_twice_or_without_leading_is_nothing(engines: Engines) -> None:
    first, second = engines.coordination(), engines.coordination()
    second.resign(at_rest=True)
    first.campaign()
    first.resign(at_rest=False)
    first.resign(at_rest=True)
    assert first.valid_until() == NEVER


def test_a_lock_is_held_without_a_bound(tmp_path: Path) -> None:
    one = OnOneHost(tmp_path).coordination()
    one.campaign()
    assert one.valid_until() == float("inf")


# -- real servers --------------------------------------------------------------------------------------------------


class Running:
    """An engine in a process of its own."""

    def __init__(self, name: str, folder: str, servers: tuple[str, ...], directory: Path) -> None:
        self.name = name
        self._journal, self.said = directory / f"{name}.acts", directory / f"{name}.log"
        with self._journal.open("w") as acts, self.said.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, ENGINE, name, folder, str(SHORT_S), "0.2", *servers],
                stdin=subprocess.DEVNULL,
                stdout=acts,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(Path(rmsplugin.__file__).parents[1])},
            )

    def acts(self) -> list[tuple[float, int]]:
        """When it could act, and under which epoch."""
        whole = self._journal.read_text().rpartition("\n")[0]
        return [(float(time), int(epoch)) for time, epoch in map(str.split, whole.splitlines())]

    def wait_to_act(self, *, after: int = 0) -> int:
        """Wait until it has acted under an epoch above that one; return it."""
        self._wait_until(lambda: any(epoch > after for _, epoch in self.acts()), "acts")
        return self.acts()[-1][1]

    def wait_to_say(self, words: str) -> None:
        self._wait_until(lambda: words in self.said.read_text(), f"says {words}")

    def _wait_until(self, reached: Callable[[], bool], what: str) -> None:
        def reached_or_ended() -> bool:
            assert self.process.poll() is None, f"{self.name} has ended: {self.said.read_text()}"
            return reached()

        wait_until(reached_or_ended, f"{self.name} {what}")


def wait_until(reached: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}"
        time.sleep(0.02)


@contextmanager
def running(folder: str, directory: Path, **servers: tuple[str, ...]) -> Iterator[list[Running]]:
    """Engines by name, the first of which leads and the others stand by; then no two of them have acted by turns."""
    engines: list[Running] = []
    try:
        for name, addresses in servers.items():
            engines.append(Running(name, folder, addresses, directory))
            if len(engines) == 1:
                engines[0].wait_to_act()
            else:
                engines[-1].wait_to_say("leads; ")
        yield engines
    finally:
        for engine in engines:
            engine.process.kill()
            engine.process.wait()
    journal = Journal(steady_s)
    for engine in engines:
        for moment, epoch in engine.acts():
            journal.lead(engine.name, epoch, moment, begin=moment)
    found = check(journal.lines())
    assert found.turns and found.breaches == [], "a deposed engine knows by its own clock before the next one leads"


def test_a_killed_leader_is_followed_by_one_of_a_higher_epoch(ensemble: Ensemble, folder: str, tmp_path: Path) -> None:
    with running(folder, tmp_path, one=ensemble.addresses, two=ensemble.addresses) as (one, two):
        epoch = one.wait_to_act()
        one.process.kill()
        assert two.wait_to_act() > epoch


def test_a_stopped_leader_acts_no_more_when_it_goes_on(ensemble: Ensemble, folder: str, tmp_path: Path) -> None:
    with running(folder, tmp_path, one=ensemble.addresses, two=ensemble.addresses) as (one, two):
        one.process.send_signal(signal.SIGSTOP)
        two.wait_to_act()
        one.process.send_signal(signal.SIGCONT)
        one.wait_to_say("two leads; one stands by")


def test_a_leader_that_is_cut_off_has_ended_before_the_next_one_leads(
    ensemble: Ensemble, folder: str, tmp_path: Path
) -> None:
    proxies = [Proxy(server.port) for server in ensemble.servers]
    try:
        ways = tuple(proxy.address for proxy in proxies)
        with running(folder, tmp_path, one=ways, two=ensemble.addresses) as (one, two):
            epoch = one.wait_to_act()
            for proxy in proxies:
                proxy.cut()
            two.wait_to_act(after=epoch)
            for proxy in proxies:
                proxy.mend()
            one.wait_to_say("two leads; one stands by")
    finally:
        for proxy in proxies:
            proxy.close()


def test_a_session_that_was_suspended_for_a_moment_goes_on_with_its_turn(ensemble: Ensemble, folder: str) -> None:
    proxies = [Proxy(server.port) for server in ensemble.servers]
    kind = OnZooKeeper(tuple(proxy.address for proxy in proxies), folder, LONG_S)
    try:
        one = kind.coordination()
        one.campaign()
        epoch = one.epoch
        for proxy in proxies:
            proxy.cut()
        campaign_in_vain(one)
        assert kind.lease(one).held()
        until = one.valid_until()
        for proxy in proxies:
            proxy.mend()
        wait_until(lambda: renewed(one) > until, "it leads for longer")
        assert one.epoch == epoch
    finally:
        kind.close()
        for proxy in proxies:
            proxy.close()


def test_without_a_quorum_nobody_acts_and_the_same_one_goes_on_and_epochs_are_raised(
    ensemble: Ensemble, folder: str, tmp_path: Path
) -> None:
    with running(folder, tmp_path, one=ensemble.addresses, two=ensemble.addresses) as (one, two):
        leader = ensemble.leader()
        killed = [leader, next(server for server in ensemble.servers if server is not leader)]
        for server in killed:
            server.kill()
        wait_until(lambda: max(one.acts() + two.acts())[0] < steady_s() - SHORT_S, "nobody acts")
        epoch = max(one.acts() + two.acts())[1]
        for server in killed:
            server.start()
        ensemble.wait_for(3)
        back = steady_s()
        wait_until(lambda: max(one.acts() + two.acts())[0] > back, "one of them acts again")
        assert {each for _, each in one.acts() + two.acts()} == {epoch}, "nobody else can have led"
    tree = ZooKeeperTree(ensemble.addresses, LONG_S, LONG_S)
    try:
        _, number = tree.make_of_session(f"{folder}/line/later-", b"", numbered=True)
        assert number >> 32 > epoch >> 32, "the way out that the ledger says of an ensemble that counts from low again"
    finally:
        tree.close()


def test_the_one_that_is_chosen_leads_next_and_all_say_the_time(ensemble: Ensemble, folder: str) -> None:
    kind = OnZooKeeper(ensemble.addresses, folder, LONG_S)
    try:
        first, second, third = (kind.coordination() for _ in range(3))
        first.campaign()
        for each in (second, third):
            campaign_in_vain(each)
        first.have_next(third.node)
        first.campaign()

        def made_way() -> bool:
            for each in (second, third):  # their servers may not have heard yet whom the leader has next
                assert "engine1 leads" in campaign_in_vain(each)
            return first.members() == ("engine1", "engine3", "engine2")

        wait_until(made_way, "the second one makes way")
        assert all(abs(each.ahead_s or 9.0) < 1 for each in first.standing())
        epoch = first.epoch
        first.resign(at_rest=True)
        campaign_until_leading(third)
        assert third.epoch > epoch and "engine3 leads" in campaign_in_vain(second)
        epoch = third.epoch
        third.resign(at_rest=True)
        campaign_until_leading(second)
        assert second.epoch > epoch, "epochs go on growing along the line"
    finally:
        kind.close()


def test_each_server_says_its_version_and_its_part(ensemble: Ensemble) -> None:
    found = ask_servers(ensemble.addresses)
    assert sorted(each.mode for each in found) == ["follower", "follower", "leader"]
    assert all(each.version.startswith("3.") and not each.problem for each in found)


def test_an_ensemble_that_is_not_there_is_said(folder: str) -> None:
    kind = OnZooKeeper(("127.0.0.1:1",), folder, 1.0)
    try:
        assert "no server of ZooKeeper answers: 127.0.0.1:1" in campaign_in_vain(kind.coordination())
    finally:
        kind.close()


# -- rmsplugin engine ----------------------------------------------------------------------------------------------


@pytest.fixture
def start_engine(ensemble: Ensemble, folder: str, tmp_path: Path) -> Iterator[Callable[[str], EngineProcess]]:
    servers = ", ".join(f'"{each}"' for each in ensemble.addresses)
    lines = f'coordination = "zookeeper"\nservers = [{servers}]\nsession_s = {ENGINE_S}\npath = "{folder}"'
    settings = write_settings(tmp_path, lines)
    started: list[EngineProcess] = []

    def start(name: str) -> EngineProcess:
        started.append(EngineProcess(name, settings))
        return started[-1]

    yield start
    for engine in started:
        engine.end()


def test_an_engine_stands_by_takes_over_from_a_killed_one_and_hands_over_at_once(
    start_engine: Callable[[str], EngineProcess], tmp_path: Path
) -> None:
    one = start_engine("one")
    wait_until(lambda: one.has_said("is up") and answers(tmp_path), "the first one leads")
    first = epoch_in(tmp_path)
    two = start_engine("two")
    wait_until(lambda: two.has_said("stands by") and proposers_of(two), "the second one stands by, with its solvers")
    proposers = proposers_of(two)
    one.end()
    wait_until(lambda: two.has_said("is up") and answers(tmp_path), "the second one leads")
    assert proposers_of(two) == proposers, "they were not loaded again"
    assert epoch_in(tmp_path) > first > FIRST_EPOCH
    three = start_engine("three")
    wait_until(lambda: three.has_said("stands by"), "the third one stands by")
    two.process.terminate()
    assert two.process.wait(PATIENCE_S) == 0
    wait_until(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in proposers), "nothing of it is left")
    wait_until(lambda: three.has_said("is up"), "the third one leads")
    assert " waits " not in three.said(), "nobody waits for one that has ended with nothing under way"


def proposers_of(engine: EngineProcess) -> set[int]:
    """The processes of an engine in which it proposes."""
    found = set()
    for children in Path(f"/proc/{engine.process.pid}/task").glob("*/children"):
        for pid in map(int, children.read_text().split()):
            with contextlib.suppress(OSError):
                if b"rmsplugin.proposer.child" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.add(pid)
    return found


def test_a_stopped_engine_that_has_lost_ends_and_until_then_no_other_acts(
    start_engine: Callable[[str], EngineProcess], tmp_path: Path
) -> None:
    one = start_engine("one")
    wait_until(lambda: one.has_said("is up"), "the first one leads")
    two = start_engine("two")
    wait_until(lambda: two.has_said("stands by"), "the second one stands by")
    one.process.send_signal(signal.SIGSTOP)
    wait_until(lambda: two.has_said("another engine runs on"), "the second one is next, and waits for the directory")
    assert "is up" not in two.said()
    one.process.send_signal(signal.SIGCONT)
    assert one.process.wait(PATIENCE_S) == 1
    assert "this engine has lost its lease, and ends" in one.said()
    wait_until(lambda: two.has_said("is up"), "the second one leads")


# -- engines on several hosts --------------------------------------------------------------------------------------


@pytest.fixture
def start_controller(ensemble: Ensemble, folder: str, tmp_path: Path) -> Iterator[Callable[..., EngineProcess]]:
    """Starts an engine with a state directory of its own, as on a host of its own, and a shared directory."""
    servers = ", ".join(f'"{each}"' for each in ensemble.addresses)
    lines = f'coordination = "zookeeper"\nservers = [{servers}]\nsession_s = {ENGINE_S}\npath = "{folder}"'
    started: list[EngineProcess] = []

    def start(name: str, shared: str = "shared", code: Path = CODE) -> EngineProcess:
        for directory in (tmp_path / name, tmp_path / shared):
            directory.mkdir(mode=0o700, exist_ok=True)
        settings = write_settings(tmp_path / name, f'{lines}\nshared_dir = "{tmp_path / shared}"')
        started.append(EngineProcess(name, settings, code))
        return started[-1]

    yield start
    for engine in started:
        engine.end()


def test_an_engine_on_another_host_takes_over_the_ledger_of_a_killed_one(
    start_controller: Callable[[str], EngineProcess], tmp_path: Path
) -> None:
    one = start_controller("one")
    wait_until(lambda: one.has_said("is up") and answers(tmp_path / "one"), "the first one leads")
    two = start_controller("two")
    wait_until(lambda: two.has_said("stands by"), "the second one stands by")
    assert not answers(tmp_path / "two")
    keys = (tmp_path / "shared" / "guest_root_key").read_text()
    one.end()
    wait_until(lambda: two.has_said("is up") and answers(tmp_path / "two"), "the second one leads")
    first, second = ledgers_in(tmp_path / "shared" / "groups" / "all")
    assert (epoch_of(second) or 0) > (epoch_of(first) or 0) > FIRST_EPOCH
    assert ledger_care.check(second).whole, "it can be read while its engine has it locked"
    assert (tmp_path / "shared" / "guest_root_key").read_text() == keys
    assert not list(tmp_path.glob("*/state/*.sqlite")) and not list(tmp_path.glob("*/state/guest_root_key"))


def test_the_lead_is_handed_over_at_once_and_back_and_the_process_stands_by(
    start_controller: Callable[[str], EngineProcess], tmp_path: Path
) -> None:
    for name in ("one", "two"):
        # An act is always under way: the engine asks again as soon as there is an answer. One squeue stays.
        (tmp_path / name).mkdir(mode=0o700)
        for command, does in (("scontrol", "sleep 0.3; exit 1"), ("squeue", "while echo; do sleep 0.2; done")):
            (tmp_path / name / command).write_text(f"#!/bin/sh\n{does}\n")
            (tmp_path / name / command).chmod(0o755)
    one = start_controller("one")
    wait_until(lambda: one.has_said("is up") and answers(tmp_path / "one"), "the first one leads")
    two = start_controller("two")
    wait_until(lambda: two.has_said("stands by"), "the second one stands by")
    for leader, other in ((one, two), (two, one)):
        assert engine_in(tmp_path / leader.name).handover()["version"] == rmsplugin.__version__
        wait_until(lambda other=other: answers(tmp_path / other.name), f"{other.name} leads")
        assert engine_in(tmp_path / other.name).events()[-1]["kind"] == "handed-over"
        wait_until(lambda leader=leader: "stands by" in leader.said().rpartition("begins anew")[2], "it stands by")
    assert one.process.poll() is None and two.process.poll() is None
    wait_until(lambda: not zombies_of(two.process.pid), "children of the program before are taken leave of")
    assert " waits " not in one.said() + two.said(), "nobody waits for one that has ended with nothing under way"
    two.process.terminate()
    assert two.process.wait(PATIENCE_S) == 0, "it has the signals of a program that was just started"
    with pytest.raises(RefusedError, match="no other engine stands by: nothing was done"):
        engine_in(tmp_path / "one").handover()
    assert answers(tmp_path / "one")


@pytest.mark.long
def test_controllers_are_upgraded_one_by_one(start_controller: Callable[..., EngineProcess], tmp_path: Path) -> None:
    code = newer_release(tmp_path)
    one = start_controller("one")
    wait_until(lambda: one.has_said("is up") and answers(tmp_path / "one"), "the first one leads")
    engine_in(tmp_path / "one").pause()
    two = start_controller("two", code=code)
    wait_until(lambda: two.has_said("stands by"), "the newer one stands by")
    assert engine_in(tmp_path / "one").handover()["version"] == VERSION
    wait_until(lambda: answers(tmp_path / "two"), "the newer one leads")
    leader = engine_in(tmp_path / "two")
    assert leader.status()["version"] == VERSION and leader.status()["paused"], "it has taken over the ledger"

    wait_until(lambda: "stands by" in one.said().rpartition("begins anew")[2], "the older one stands by")
    with pytest.raises(RefusedError, match=f"is of release {rmsplugin.__version__}, which cannot read this ledger"):
        leader.handover()
    one.process.terminate()
    assert one.process.wait(PATIENCE_S) == 0
    one = start_controller("one", code=code)
    wait_until(lambda: one.has_said("stands by"), "the other one is upgraded, too")
    assert leader.handover()["version"] == VERSION
    wait_until(lambda: answers(tmp_path / "one"), "the first one leads again")
    assert engine_in(tmp_path / "one").unpause()["changed"]
    wait_until(lambda: "stands by" in two.said().rpartition("begins anew")[2], "the second one stands by")


@pytest.mark.long
def test_one_engine_goes_on_alone_with_the_newest_shared_ledger(
    start_controller: Callable[..., EngineProcess], tmp_path: Path
) -> None:
    one = start_controller("one")
    wait_until(lambda: one.has_said("is up") and answers(tmp_path / "one"), "the first one leads")
    engine_in(tmp_path / "one").pause()
    with_others = (tmp_path / "one" / "rmsplugin.toml").read_text()
    epoch = epoch_of(ledgers_in(tmp_path / "shared" / "groups" / "all")[-1]) or 0
    one.process.terminate()
    assert one.process.wait(PATIENCE_S) == 0

    alone = write_settings(tmp_path / "one", "")
    refused = EngineProcess("refused", alone)
    assert refused.process.wait(PATIENCE_S) == 2
    assert "this host has shared its ledger" in refused.said() and "ledger.sqlite and guest_root_key" in refused.said()

    (tmp_path / "one" / "rmsplugin.toml").write_text(with_others)
    state = tmp_path / "one" / "state"
    assert main(["ledger", "backup", "--config", str(alone), str(state / LEDGER_NAME)]) == 0
    for name in ("guest_root_key", "guest_root_key.pub"):
        shutil.copy2(tmp_path / "shared" / name, state)
    one = EngineProcess("one", write_settings(tmp_path / "one", ""))
    try:
        wait_until(lambda: one.has_said("is up") and answers(tmp_path / "one"), "it leads alone")
        status = engine_in(tmp_path / "one").status()
        assert status["paused"] and status["cluster"] is None
        assert epoch_in(tmp_path / "one") > epoch, "nodes obey it, and none of those before"
    finally:
        one.end()


def test_a_leader_that_is_stopped_is_followed_and_ends_when_it_goes_on(
    start_controller: Callable[[str], EngineProcess], tmp_path: Path
) -> None:
    one = start_controller("one")
    wait_until(lambda: one.has_said("is up") and answers(tmp_path / "one"), "the first one leads")
    two = start_controller("two")
    wait_until(lambda: two.has_said("stands by"), "the second one stands by")
    one.process.send_signal(signal.SIGSTOP)
    with socket.socket(socket.AF_UNIX) as asked:
        asked.settimeout(PATIENCE_S)
        asked.connect(str(tmp_path / "one" / "engine.sock"))
        asked.sendall(b"GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_until(lambda: two.has_said("is up") and answers(tmp_path / "two"), "the second one leads")
        one.process.send_signal(signal.SIGCONT)
        with contextlib.suppress(ConnectionError):
            assert asked.recv(12) in (b"", b"HTTP/1.1 503"), "an answer can be an order: to a wrapper, to begin"
    assert one.process.wait(PATIENCE_S) == 1
    assert "this engine has lost its lease, and ends" in one.said()
    assert answers(tmp_path / "two")


def test_an_engine_stands_still_while_the_servers_have_no_leader_and_goes_on_with_its_epoch(
    start_controller: Callable[[str], EngineProcess], ensemble: Ensemble, tmp_path: Path
) -> None:
    """The servers end no session without a leader: nobody else can have led, and nobody waits."""
    one = start_controller("one")
    wait_until(lambda: one.has_said("is up") and answers(tmp_path / "one"), "the first one leads")
    two = start_controller("two")
    wait_until(lambda: two.has_said("stands by"), "the second one stands by")
    (ledger,) = ledgers_in(tmp_path / "shared" / "groups" / "all")
    stopped = ensemble.leader()
    stopped.stop()
    try:
        wait_until(lambda: one.has_said("this engine stands still"), "its lease runs out")
        assert not answers(tmp_path / "one")
        wait_until(lambda: one.has_said("this engine goes on, after"), "it goes on")
        assert answers(tmp_path / "one")
    finally:
        stopped.go_on()
        ensemble.wait_for(3)
    assert ledgers_in(tmp_path / "shared" / "groups" / "all") == [ledger] and "is up" not in two.said()
    assert one.process.poll() is None and two.process.poll() is None


def test_an_engine_whose_shared_directory_is_not_mounted_is_refused(
    start_controller: Callable[[str, str], EngineProcess],
) -> None:
    one = start_controller("one", "shared")
    wait_until(lambda: one.has_said("is up"), "the first one leads")
    two = start_controller("two", "not-mounted")
    assert two.process.wait(PATIENCE_S) == 2
    assert "engines on several hosts need one directory that they share (cluster.shared_dir)" in two.said()


def test_an_engine_refuses_an_ensemble_that_counts_from_low_again(
    start_engine: Callable[[str], EngineProcess], tmp_path: Path
) -> None:
    (tmp_path / "state").mkdir(mode=0o700)
    ledger = Ledger(tmp_path / "state" / LEDGER_NAME)
    ledger.epochs.begin_turn(10**15)
    ledger.close()
    one = start_engine("one")
    assert one.process.wait(PATIENCE_S) == 2
    assert "engines have led with epoch 1000000000000000 already" in one.said()


def test_one_engine_without_any_service_is_of_the_first_epoch_and_a_second_is_refused(tmp_path: Path) -> None:
    settings = write_settings(tmp_path, 'coordination = "local"')
    engines = [EngineProcess("one", settings)]
    try:
        wait_until(lambda: engines[0].has_said("is up") and answers(tmp_path), "the first one leads")
        assert epoch_in(tmp_path) == FIRST_EPOCH
        engines.append(EngineProcess("two", settings))
        assert engines[1].process.wait(PATIENCE_S) == 2
        assert f"another engine runs on {tmp_path}/state; stop it first" in engines[1].said()
        engines[0].process.terminate()
        assert engines[0].process.wait(PATIENCE_S) == 0
    finally:
        for engine in engines:
            engine.end()


def zombies_of(parent: int) -> list[str]:
    """The children of a process that have ended, and that it has not asked for."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, _, fields = path.read_text().rpartition(")")
            if fields.split()[:2] == ["Z", str(parent)]:
                found.append(name)
    return found


def engine_in(directory: Path) -> Engine:
    return Engine.here(str(directory / "engine.sock"))


def epoch_in(directory: Path) -> int:
    with contextlib.closing(sqlite3.connect(directory / "state" / LEDGER_NAME)) as db:
        return int(db.execute("select epoch from epoch").fetchone()[0])


# -- trees ---------------------------------------------------------------------------------------------------------


class Trees:
    """Sessions of one service, simulated or real."""

    def __init__(self, open_tree: Callable[[], Tree]) -> None:
        self._open_tree = open_tree
        self.opened: list[Tree] = []

    def open(self) -> Tree:
        self.opened.append(self._open_tree())
        return self.opened[-1]


@pytest.fixture(params=["simulated", "zookeeper"])
def trees(request: pytest.FixtureRequest, tmp_path: Path, folder: str) -> Iterator[Trees]:
    if request.param == "simulated":
        simulated = OnEnsemble(tmp_path).ensemble
        trees = Trees(lambda: simulated.open(LONG_S))
    else:
        servers = request.getfixturevalue("ensemble").addresses
        trees = Trees(lambda: ZooKeeperTree(servers, LONG_S, LONG_S))
    yield trees
    for each in trees.opened:
        each.close()


def test_a_node_is_written_only_where_it_is_what_was_read(trees: Trees, folder: str) -> None:
    tree = trees.open()
    make_folder(tree, folder)
    make_folder(tree, folder)
    path = f"{folder}/node"
    tree.make(path, b"one")
    with pytest.raises(ChangedError):
        tree.make(path, b"other")
    assert tree.write(path, b"two", version=0) == 1
    with pytest.raises(ChangedError):
        tree.write(path, b"three", version=0)
    assert tree.write(path, b"three") == 2
    stored = tree.read(path)
    assert (stored.data, stored.version) == (b"three", 2)
    assert (tree.children(folder), tree.children(path)) == (("node",), ())
    tree.remove(path)
    tree.remove(path)
    for ask in (tree.read, tree.children, lambda path: tree.write(path, b"")):
        with pytest.raises(MissingError):
            ask(path)


def test_who_has_read_a_node_is_told_once_of_its_next_change(trees: Trees, folder: str) -> None:
    one, other, told = trees.open(), trees.open(), list[str]()
    make_folder(one, folder)
    path = f"{folder}/node"
    one.make(path, b"")

    def changed() -> None:
        told.append("changed")

    def hears(times: int) -> None:
        def heard() -> bool:
            with contextlib.suppress(MissingError):
                one.read(path)  # lives
            return len(told) == times

        wait_until(heard, f"it is told {times} times")

    with pytest.raises(MissingError):
        one.read(f"{folder}/none", changed)
    for _ in range(3):
        one.read(path, changed)
    for _ in range(2):
        other.write(path, b"")
    hears(1)
    one.read(path, changed)
    other.remove(path)
    hears(2)


def test_the_last_turn_is_read_again_when_it_changes_and_no_more_by_one_that_has_its_own(
    trees: Trees, folder: str
) -> None:
    one, other = trees.open(), trees.open()
    make_folder(one, folder)
    path = f"{folder}/turn"
    one.make(path, b"")  # by another session it might not be seen yet
    watch = Watch(one, path, steady_s)
    watch.note_turn()

    def seen() -> Seen:
        one.children(folder)  # lives
        assert watch.seen is not None
        return watch.seen

    for _ in range(3):
        began = steady_s()
        version = other.write(path, b"")
        wait_until(lambda: seen().version == version, "it is seen")  # noqa: B023
        assert began < seen().at < steady_s()
    watch.rest(seen())
    other.write(path, b"")
    wait_until(lambda: one.read(path).version == 4, "it is written")
    assert seen().version == 3


def test_nodes_of_a_session_are_numbered_in_the_order_of_their_making_and_end_with_it(
    trees: Trees, folder: str
) -> None:
    one, other = trees.open(), trees.open()
    make_folder(one, folder)
    made = [one.make_of_session(f"{folder}/{name}-", b"", numbered=True) for name in "cba"]
    assert [path[-10:] for path, _ in made] == [f"{number:010d}" for number in range(3)]
    assert [one.read(path).made for path, _ in made] == [number for _, number in made] == sorted(n for _, n in made)
    with pytest.raises(MissingError):
        one.make_of_session(f"{folder}/none/x", b"")
    one.make_of_session(f"{folder}/plain", b"")
    with pytest.raises(ChangedError):
        other.make_of_session(f"{folder}/plain", b"")
    one.close()
    wait_until(lambda: other.children(folder) == (), "the session's nodes have ended with it")


def test_a_group_is_given_away_only_by_a_leader_that_has_seen_the_last_change(trees: Trees, folder: str) -> None:
    first, second = (Assignments(trees.open(), f"{folder}/groups") for _ in range(2))
    assert first.all() == {}
    made = first.write("rack1", Assignment(("n1", "n2"), "one"))
    with pytest.raises(ChangedError):
        second.write("rack1", Assignment(("n1", "n2"), "two"))
    moved = second.write("rack1", Assignment(made.hosts, "two", made.version))
    with pytest.raises(ChangedError):
        first.write("rack1", Assignment(made.hosts, "three", made.version))
    second.write("rack2", Assignment(("n3",), ""))
    assert second.all() == {"rack1": moved, "rack2": Assignment(("n3",), "", 0)}
    second.remove("rack1")
    with pytest.raises(ChangedError):
        second.write("rack1", moved)


def test_what_a_newer_release_says_of_a_group_is_there_after_an_older_one_has_written(
    trees: Trees, folder: str
) -> None:
    tree, groups = trees.open(), f"{folder}/groups"
    make_folder(tree, groups)
    newer: dict[str, object] = {"hosts": ["n1"], "wish": {"until": 7}}
    kept = {"to": "two", "by": "alice", "until": 8}
    tree.make(f"{groups}/rack1", json.dumps({**newer, "manager": "one", "kept": kept}).encode())
    older = trees.open()
    store = Assignments(older, groups)
    wait_until(lambda: "rack1" in store.all(), "it is seen")

    def written(assignment: Assignment) -> object:
        store.write("rack1", assignment)
        return json.loads(older.read(f"{groups}/rack1").data)

    newer["manager"] = "two"
    assert written(replace(store.all()["rack1"], manager="two")) == {**newer, "kept": kept}
    # Another word of an operator's has nothing of the one before.
    kept = {"to": "one", "by": "bob"}
    assert written(store.all()["rack1"].kept_at("one", "bob")) == {**newer, "kept": kept}
    assert written(store.all()["rack1"].kept_at("", "bob")) == newer


def test_a_node_that_holds_no_group_is_refused(trees: Trees, folder: str) -> None:
    tree = trees.open()
    make_folder(tree, folder)
    tree.make(f"{folder}/rack1", b"[]")
    with pytest.raises(RefusedError, match=f"{folder}/rack1 holds no group"):
        Assignments(tree, folder).all()
