"""Observed memory: the memory that VMs are expected to need before they run, and that they are seen to need later.

A trace tells the memory that was requested and, where one is lucky, the memory that was used. The request is the size
of a VM. A VM holds the used memory from its start on, and this is seen as soon as it runs. The next jobs of the same
kind are expected to use what earlier ones were seen to use.
"""

from __future__ import annotations

import math
from bisect import insort
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from rmsplugin.decision.reservation import ReservationLimits
from rmsplugin.decision.unblocking import Prices, estimate_mib
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import VJobState
from rmsplugin.simulation.capacity import Cluster
from rmsplugin.simulation.hosts import Hosts
from rmsplugin.simulation.vjob import SimulatedVJob, VMMemory
from rmsplugin.workload.jobs import Job

#: User, program, and memory requested for each VM: jobs that agree in these are expected to use the same memory.
_Kind = tuple[str, str, int]


@dataclass(frozen=True)
class MemoryParameters:
    """How memory is observed, and how nodes that are short of it are relieved.

    Attributes:
        threshold: share of a node's memory up to which VMs are planned there, above 0 to 1.
        unknown: share of its request that a VM is expected to need before a job of its kind was seen, above 0 to 1.
        percentile: a VM is expected to need the memory that sufficed for this share of the jobs of its kind.
        limits: the rules by which nodes are reserved for VMs that outgrow theirs.
        prices: the costs of moving memory.
    """

    threshold: float = 0.9
    unknown: float = 0.5
    percentile: float = 0.9
    limits: ReservationLimits = field(default_factory=ReservationLimits)
    prices: Prices = field(default_factory=Prices)

    def planned_mib(self, real_mib: int) -> int:
        """The part of a node's memory up to which VMs are planned."""
        return math.floor(self.threshold * real_mib)


class MemoryObserver:
    """Sees the memory that VMs need, and expects the same of others."""

    def __init__(
        self, parameters: MemoryParameters, cluster: Cluster, hosts: Hosts, changed: Callable[[SimulatedVJob], None]
    ) -> None:
        """Nothing is known yet.

        Args:
            parameters: how memory is observed.
            cluster: the cluster, with the real memory of its nodes.
            hosts: the nodes that hold the VMs' memory.
            changed: called with each vjob whose demand has changed.
        """
        self._parameters, self._cluster, self._hosts, self._changed = parameters, cluster, hosts, changed
        self._most_mib = parameters.planned_mib(cluster.memory_per_node_mib or 0)
        self._peaks: defaultdict[_Kind, list[int]] = defaultdict(list)  # ascending

    def of(self, job: Job) -> VMMemory:
        """The memory of each VM of a job that is submitted."""
        return VMMemory(self._cluster.vm_used_mib(job), self._expected_mib(job), self._most_mib)

    def _expected_mib(self, job: Job) -> int:
        size_mib = self._cluster.vm_memory_mib(job)
        unknown_mib = math.ceil(self._parameters.unknown * size_mib)
        return min(size_mib, estimate_mib(self._peaks[self._kind(job)], unknown_mib, self._parameters.percentile))

    def _kind(self, job: Job) -> _Kind:
        return job.user, job.program, self._cluster.vm_memory_mib(job)

    def see(self, vjob: SimulatedVJob, live: Iterable[SimulatedVJob]) -> None:
        """Record the memory of a vjob's VMs, which run for the first time; ``live`` has all vjobs that may wait."""
        memory, kind = vjob.memory, self._kind(vjob.job)
        assert memory is not None and not memory.seen
        self._hosts.grow(vjob.hosts.values(), memory.needs_mib - memory.expected_mib)
        memory.seen = True
        self._changed(vjob)
        before_mib = self._expected_mib(vjob.job)
        insort(self._peaks[kind], memory.needs_mib)
        expected_mib = self._expected_mib(vjob.job)
        if expected_mib == before_mib and len(self._peaks[kind]) > 1:
            return
        for other in live:
            if other.state is VJobState.WAITING and other.memory is not None and self._kind(other.job) == kind:
                other.memory.expected_mib = expected_mib
                self._changed(other)


@lru_cache(maxsize=4096)
def shared_demand(cpus: float, memory_mib: int) -> Resources:
    """One object for equal demands: packing counts VMs that share theirs."""
    return Resources(cpus, memory_mib)
