"""Hosts: the simulated nodes: which VMs hold memory there, which compute, and how fast, while actions are under way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from rmsplugin.simulation.vjob import SimulatedVJob


@dataclass(frozen=True, slots=True)
class Slowdown:
    """The slowdown of a computation beside an action on its node (RR-6929 section 2.3), and on a full node."""

    local: float = 1.3  # a suspend, or a local resume
    remote: float = 1.5  # an action that copies memory over the network: a remote resume, or a migration
    crowds: bool = True  # VMs that use more CPUs than their node has share these
    pages: float = 10.0  # where VMs need more memory than their node has; an assumption, not measured


#: For work that was measured on a cluster: its slowdown there is in the measurement.
NO_SLOWDOWN = Slowdown(1.0, 1.0, crowds=False)


@dataclass(slots=True)
class _Host:
    free_mib: int
    centi_cpus: int
    demanded: int = 0  # hundredths of a CPU, demanded by VMs that compute
    local: int = 0  # actions under way
    remote: int = 0
    crowded: int = 0  # VMs that compute here, if they demand more CPUs than there are
    vjobs: Counter[SimulatedVJob] = field(default_factory=Counter)  # by vjob, its VMs that compute here

    def speed(self, slowdown: Slowdown) -> float:
        """The speed of the VMs that compute here, at most 1."""
        beside = slowdown.remote if self.remote else slowdown.local if self.local else 1.0
        shares = slowdown.crowds and self.demanded > self.centi_cpus
        waits = slowdown.pages if self.free_mib < 0 else 1.0
        return (self.centi_cpus / self.demanded if shares else 1.0) / beside / waits


class OvercommittedError(AssertionError):
    """A node would hold more memory than it has (I3): a fault of this program."""


class Hosts:
    """All nodes, by name."""

    def __init__(self, names: Iterable[str], cpus: int, memory_mib: int, slowdown: Slowdown) -> None:
        self._memory_mib = memory_mib
        self._hosts = {name: _Host(memory_mib, 100 * cpus) for name in names}
        self._slowdown = slowdown
        self._touched: set[str] = set()  # nodes whose speed may have changed
        self._begun: set[SimulatedVJob] = set()  # vjobs that do something else than before
        self.crowded_vms = 0  # VMs that compute, and share CPUs with others, as of the last ``affected``

    def hold(self, nodes: Iterable[str], memory_mib: int) -> None:
        """Add VMs, one for each name: they hold memory from now on.

        Raises:
            OvercommittedError: the node has not so much memory.
        """
        for node in nodes:
            self._hosts[node].free_mib -= memory_mib
            if self._hosts[node].free_mib < 0:
                raise OvercommittedError(f"{node} holds {-self._hosts[node].free_mib} MiB more than it has")

    def have_room(self, nodes: Iterable[str], memory_mib: int) -> bool:
        """Whether so much memory is free for a VM on each of the names."""
        return all(self._hosts[node].free_mib >= count * memory_mib for node, count in Counter(nodes).items())

    def release(self, nodes: Iterable[str], memory_mib: int) -> None:
        """Remove VMs."""
        for node in nodes:
            if self._hosts[node].free_mib < 0:
                self._touched.add(node)
            self._hosts[node].free_mib += memory_mib

    def grow(self, nodes: Iterable[str], more_mib: int) -> None:
        """Change the memory of VMs that need more or less than expected: one for each name. A node may have less."""
        for node in nodes:
            self._hosts[node].free_mib -= more_mib
            self._touched.add(node)

    @property
    def are_idle(self) -> bool:
        """Whether no VM and no action is on any node."""
        idle = _Host(self._memory_mib, 0)
        return all(replace(host, centi_cpus=0) == idle for host in self._hosts.values())

    def compute(self, vjob: SimulatedVJob, sign: int) -> None:
        """Record that the VMs of a vjob begin to compute, by their activity now, or (``sign`` -1) that they stop."""
        if sign > 0:
            self._begun.add(vjob)
        for index, name in enumerate(vjob.names):
            centi_cpus = round(100 * vjob.cpus(index))
            if centi_cpus:
                host = self._hosts[vjob.hosts[name]]
                host.demanded += sign * centi_cpus
                host.vjobs[vjob] += sign
                if not host.vjobs[vjob]:
                    del host.vjobs[vjob]
                self._touched.add(vjob.hosts[name])

    def act(self, nodes: Iterable[str], *, remote: bool, sign: int) -> None:
        """Record that an action begins on nodes, or (``sign`` -1) that it ends."""
        for node in nodes:
            host = self._hosts[node]
            if remote:
                host.remote += sign
            else:
                host.local += sign
            self._touched.add(node)

    def affected(self) -> list[SimulatedVJob]:
        """The vjobs whose speed may have changed since the last call, in queue order."""
        found = {vjob for node in self._touched for vjob in self._hosts[node].vjobs}
        found |= {vjob for vjob in self._begun if vjob.computes}
        for node in self._touched:
            host = self._hosts[node]
            crowded = sum(host.vjobs.values()) if host.demanded > host.centi_cpus else 0
            self.crowded_vms += crowded - host.crowded
            host.crowded = crowded
        self._touched.clear()
        self._begun.clear()
        return sorted(found, key=lambda vjob: vjob.number)

    def rate(self, vjob: SimulatedVJob) -> float:
        """The speed of a vjob: that of the slowest of its VMs that compute, for they wait for each other."""
        busy = {node for index, (_, node) in enumerate(vjob.hosts.items()) if vjob.cpus(index) > 0}
        return min((self._hosts[node].speed(self._slowdown) for node in busy), default=1.0)
