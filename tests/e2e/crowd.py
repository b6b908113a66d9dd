"""A crowd: vjobs on nodes that have no room for one of them when it grows: nodes are reserved for it then."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from e2e.cluster import Cluster
from e2e.conftest import minicluster
from e2e.engine_settings import BY_QUEUE, configured
from e2e.holding import hold, next_phase, wait_counting, wait_demand
from e2e.queued import wait_rooms
from e2e.rooms import explain, host_of, ledger

#: Four nodes: with three, a vjob without a place finds one after a migration or two.
OPTIONS = ("--observed-memory", "--nodes", "4", "--cpus", "8", "--demand-window-s", "10")
#: What the large one needs when it has grown, at least, and when it has not, at most; MiB.
GROWN_MIB, SMALL_MIB = 800, 300
#: PreemptExemptTime of the minicluster.
EXEMPT_S = 10


def crowded_cluster(*options: str) -> Iterator[Cluster]:
    """A cluster with room for a crowd, once the engine has all its nodes; options come after those of all crowds.

    Who makes way is the last in the queue.
    """
    for cluster in minicluster("hold", *OPTIONS, *options):
        with configured(cluster, *BY_QUEUE):
            wait_rooms(cluster)
            yield cluster


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


def reserved(cluster: Cluster) -> dict[str, Any] | None:
    """What ``rmsplugin nodes --json`` says of the node that is reserved."""
    nodes = (cluster.ask("/v1/nodes") or {"nodes": []})["nodes"]
    return next((each for each in nodes if each["reserved_for"]), None)


def events(cluster: Cluster, kind: str, since: float = 0.0) -> list[str]:
    """Messages of the events of a kind since then."""
    sql = "select message from events where kind = ? and time > ? order by id"
    return [message for (message,) in ledger(cluster, sql, kind, since)]


def slept_s(cluster: Cluster, since: float) -> dict[str, float]:
    """The vjobs suspended since then, and for how long."""
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
