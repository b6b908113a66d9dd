"""Nodes reserved for VMs that have outgrown theirs, beside what happens without reservations (issue 11, 5)."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from e2e.cluster import Cluster
from e2e.conftest import minicluster
from e2e.holding import hold, next_phase, wait_counting, wait_demand
from e2e.queued import wait_rooms
from e2e.rooms import engine_killed, engine_pid, explain, finish, host_of, last_number, ledger
from e2e.test_world_fails import tell, wait_node

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]

#: What the large one needs when it has grown, at least, and when it has not, at most; MiB.
GROWN_MIB, SMALL_MIB = 800, 300
#: PreemptExemptTime of the minicluster.
EXEMPT_S = 10


class Crowd:
    """A vjob that grows and shrinks by turns, one beside it, and one alone on each other node of 1,433 MiB.

    Beside each other nobody finds room once the large one has grown: two of 880 and 640 MiB are more than a node has.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        alone = [("--nice=2000",), ("--nice=3000",), ("--nice=4000",)]
        self.others = [hold(cluster, 1504, 430, options=options) for options in alone]
        self.others.append(hold(cluster, 1024, 275, options=("--nice=1000",)))
        self.large = 0
        self.new_large()

    def new_large(self) -> None:
        """Submit a large one, and wait until all is as it is between tests."""
        self.large = hold(self.cluster, 1120, *(0, 600) * 10)
        self.calm()

    def grow(self) -> str:
        """The large one needs more than its node has; returns the node that is reserved for it."""
        next_phase(self.cluster, self.large)
        view = self.cluster.wait("a reserved node", lambda: reserved(self.cluster), 180, lambda: explain(self.cluster))
        home = host_of(self.cluster, self.large)
        here = {f"vjob{job}-0" for job in (*self.others, self.large) if host_of(self.cluster, job) == home}
        assert view["reserved_for"] in here, "the largest one there by then, which may go when there is room"
        assert view["name"] != home
        wait_demand(self.cluster, self.large, GROWN_MIB, 1120)
        return str(view["name"])

    def shrink(self) -> None:
        """The large one needs little again."""
        next_phase(self.cluster, self.large)
        self.calm()

    def calm(self) -> None:
        """Wait until all run and count, the large one needs little, and nobody is exempt from suspension."""
        jobs = (*self.others, self.large)
        for job in jobs:
            self.cluster.wait_vjob(job, "running", timeout_s=300)
        wait_counting(self.cluster, *jobs)
        wait_demand(self.cluster, self.large, 1, SMALL_MIB)
        self.cluster.wait("no reservation", lambda: not reserved(self.cluster), 60, lambda: explain(self.cluster))
        self.cluster.wait("the end of all exemptions", lambda: all(self._ran_s(job) > EXEMPT_S for job in jobs), 60)

    def _ran_s(self, job: int) -> float:
        return time.time() - (self.cluster.vjob(job) or {"state_since": time.time()})["state_since"]


@pytest.fixture(scope="module")
def crowd() -> Iterator[Crowd]:
    """On four nodes: with three, whoever finds no place does after a migration or two."""
    options = ("--observed-memory", "--nodes", "4", "--cpus", "8", "--demand-window-s", "10")
    for cluster in minicluster("hold", *options):
        wait_rooms(cluster)
        yield Crowd(cluster)
        cluster.run("scancel", "--user", "alice")


def reserved(cluster: Cluster) -> dict[str, Any] | None:
    """What ``rmsplugin nodes --json`` says of the node that is reserved."""
    nodes = (cluster.ask("/v1/nodes") or {"nodes": []})["nodes"]
    return next((each for each in nodes if each["reserved_for"]), None)


def events(cluster: Cluster, kind: str) -> list[str]:
    """Messages of the events of a kind."""
    return [message for (message,) in ledger(cluster, "select message from events where kind = ? order by id", kind)]


def slept_s(cluster: Cluster, since: float) -> dict[str, float]:
    """Who was suspended since then, and for how long."""
    sql = (
        "select vjob, kind, time from events where kind in ('vjob-suspending', 'vjob-running') and time > ? order by id"
    )
    found: dict[str, float] = {}
    for vjob, kind, when in ledger(cluster, sql, since):
        if kind == "vjob-suspending":
            found[vjob] = found.get(vjob, 0.0) - when
        elif vjob in found:
            found[vjob] += when
    return {vjob: slept if slept >= 0 else slept + time.time() for vjob, slept in found.items()}


@contextlib.contextmanager
def policy(cluster: Cluster, name: str) -> Iterator[None]:
    """The engine decides by another policy."""
    settings = cluster.host_path("head", "/etc/rmsplugin/rmsplugin.toml")
    before = settings.read_text()
    try:
        settings.write_text(before.replace("[decision]\n", f'[decision]\npolicy = "{name}"\n'))
        cluster.kill("head", "engine")
        cluster.restart_engine()
        yield
    finally:
        settings.write_text(before)
        cluster.kill("head", "engine")
        cluster.restart_engine()


def test_a_reservation_outlives_the_engine_and_ends_with_the_blocking(crowd: Crowd) -> None:
    cluster, victim = crowd.cluster, engine_pid(crowd.cluster)
    node = crowd.grow()
    before = reserved(cluster)
    told = cluster.plugin("nodes", "--json")
    assert told.code == 0, told.err
    [shown] = [each for each in json.loads(told.out)["nodes"] if each["name"] == node]
    assert (shown["reserved_for"], shown["reserved_since"]) == (before["reserved_for"], before["reserved_since"])
    assert "waits for room" in shown["reason"]
    with engine_killed(cluster, victim, "the engine to be killed", lambda: True):
        pass
    wait_counting(cluster, *crowd.others, more=5)
    after = reserved(cluster)
    assert after is not None and (after["name"], after["reserved_since"]) == (node, before["reserved_since"])
    crowd.shrink()
    assert any("nobody is blocked any more" in message for message in events(cluster, "node-released"))


def test_a_reservation_ends_when_the_node_is_lost(crowd: Crowd) -> None:
    cluster = crowd.cluster
    node = crowd.grow()
    tell(cluster, node, "STOP")
    try:
        wait_not_reserved(cluster, node)
    finally:
        tell(cluster, node, "CONT")
    wait_node(cluster, node, answers=True)
    cluster.wait_nodes()
    crowd.shrink()


def test_a_reservation_ends_when_the_node_is_drained(crowd: Crowd) -> None:
    cluster = crowd.cluster
    node = crowd.grow()
    cluster.ok("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=test")
    try:
        wait_not_reserved(cluster, node)
    finally:
        cluster.ok("scontrol", "update", f"NodeName={node}", "State=RESUME")
    cluster.wait_nodes()
    wait_rooms(cluster)
    crowd.shrink()


def wait_not_reserved(cluster: Cluster, node: str) -> None:
    """Wait until a node is reserved no more."""
    asked = "the reservation to end"
    cluster.wait(asked, lambda: node not in {row[0] for row in held(cluster)}, 120, lambda: explain(cluster))


def held(cluster: Cluster) -> list[tuple[Any, ...]]:
    """The nodes that the ledger has as reserved."""
    return ledger(cluster, "select node from reservations")


def test_without_reservations_somebody_is_suspended(crowd: Crowd) -> None:
    cluster, since = crowd.cluster, time.time()
    told = len(events(cluster, "node-reserved"))
    with policy(cluster, "rjsp"):
        crowd.calm()
        next_phase(cluster, crowd.large)
        jobs = (*crowd.others, crowd.large)
        cluster.wait("somebody to sleep", lambda: any(cluster.vjob(job)["state"] == "sleeping" for job in jobs), 240,
                     lambda: explain(cluster))  # fmt: skip
        assert reserved(cluster) is None
        crowd.shrink()
    assert len(events(cluster, "node-reserved")) == told
    print(f"rjsp: suspended, s: {slept_s(cluster, since)}")


def test_a_reservation_ends_when_the_vjob_is_cancelled(crowd: Crowd) -> None:
    cluster = crowd.cluster
    crowd.grow()
    cluster.ok("scancel", str(crowd.large), user="alice")
    cluster.wait("no reservation", lambda: not reserved(cluster), 60, lambda: explain(cluster))
    crowd.new_large()


def test_a_reserved_node_takes_who_has_outgrown_its_own_and_small_ones_flow_on_elsewhere(crowd: Crowd) -> None:
    cluster, since = crowd.cluster, time.time()
    node = crowd.grow()
    source = host_of(cluster, crowd.large)
    small = [hold(cluster, 400, 0) for _ in range(2)]
    wait_counting(cluster, *small)
    assert node not in {host_of(cluster, job) for job in small}, explain(cluster)
    there = next(job for job in crowd.others if host_of(cluster, job) == node)
    crowd.others.remove(there)
    finish(cluster, there)
    cluster.wait("the large one to come", lambda: host_of(cluster, crowd.large) == node, 180, lambda: explain(cluster))
    assert source != node
    wait_counting(cluster, crowd.large, *crowd.others, *small)
    shown = reserved(cluster)
    assert shown is not None and shown["guests"] == [f"vjob{crowd.large}-0"]
    print(f"mixed: suspended, s: {slept_s(cluster, since)}; reserved: {events(cluster, 'node-reserved')[-2:]}")
    assert not slept_s(cluster, since)
    finish(cluster, crowd.large)
    cluster.wait("the release", lambda: not reserved(cluster), 60, lambda: explain(cluster))
    assert events(cluster, "node-released")[-1].endswith("have ended")
    finish(cluster, *crowd.others, *small)
    assert all(last_number(cluster, job) > 0 for job in small)
