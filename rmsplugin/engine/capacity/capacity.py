"""Capacity: the CPUs and memory of each VM host that VMs may take now, and the part that they have."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from rmsplugin.assessment.facts import vm_demand
from rmsplugin.engine.capacity.observed_memory import booked_mib, real_capacity
from rmsplugin.engine.context.clock import Clock
from rmsplugin.engine.context.demanded import Demanded
from rmsplugin.engine.context.machines import new_vm_mib
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.rows import VJobRow, VMRow
from rmsplugin.engine.observe import site
from rmsplugin.engine.observe.ending import is_ending
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.engine.observe.rooms import RoomState, vm_hosts
from rmsplugin.engine.observe.strays import stray_nodes
from rmsplugin.model.resources import NOTHING, Resources
from rmsplugin.model.vjob import Geometry, VJobState
from rmsplugin.settings import Settings

#: States in which a VM, if it goes on, continues where it was saved or paused.
_SAVED = (VJobState.PAUSED, VJobState.UNPAUSING, VJobState.SLEEPING, VJobState.RESUMING)


#: Demands that are worked out once.
_REMEMBERED = 1 << 16

#: The CPUs, and the memory in MiB, to be booked for a VM as it was observed; None: those that were requested.
Observed = tuple[float | None, int | None]


@dataclass(slots=True)
class HostCapacity:
    """One VM host."""

    capacity: Resources
    why_not: str  # why no VM may come now; empty if VMs may
    used: Resources = NOTHING
    parts: dict[str, Resources] = field(default_factory=dict)  # what each of its VMs has of it now, by VM name

    @property
    def free(self) -> Resources:
        """The resources left; negative if VMs use more than they should."""
        return self.capacity - self.used


def overbooking(settings: Settings, partition: str) -> float:
    """The ratio by which CPUs of VMs of a partition are overbooked; 1 if the settings do not have it any more."""
    found = settings.partition.get(partition)
    return found.cpu_overbooking if found is not None else 1.0


def demand_of_new(
    settings: Settings, partition: str, geometry: Geometry, index: int, observed_mib: int | None = None
) -> Resources:
    """The resources that this VM takes if it is booted now: as observed, or all; with the hypervisor's overhead."""
    size, ratio = (geometry.cpus_of(index), new_vm_mib(settings, geometry, index)), overbooking(settings, partition)
    return _demand(*size, settings.memory_overhead_mib, None, observed_mib, ratio)


def demand(
    settings: Settings,
    partition: str,
    geometry: Geometry,
    vm: VMRow,
    observed_cpus: float | None = None,
    observed_mib: int | None = None,
) -> Resources:
    """The resources that a VM takes: as observed, or else all it was booted with; with the hypervisor's overhead."""
    size, ratio = (geometry.cpus_of(vm.idx), vm.memory_mib), overbooking(settings, partition)
    return _demand(*size, settings.memory_overhead_mib, observed_cpus, observed_mib, ratio)


@lru_cache(_REMEMBERED, typed=True)
def _demand(
    cpus: int,
    memory_mib: int,
    overhead_mib: int,
    observed_cpus: float | None,
    observed_mib: int | None,
    ratio: float,
) -> Resources:
    """Thousands of VMs are of a few sizes, and demand what others do."""
    return vm_demand(Resources(cpus, memory_mib), overhead_mib, observed_cpus, observed_mib, ratio)


@dataclass(frozen=True, slots=True)
class _Terms:
    """What decides, besides the VM itself, the resources that are booked for a VM of a partition.

    Attributes:
        suspends: whether its vjobs may be suspended.
        ratio: by which its CPUs are overbooked.
        overhead_mib: of the hypervisor, for each VM.
    """

    suspends: bool
    ratio: float
    overhead_mib: int


@dataclass(frozen=True, slots=True)
class Capacities:
    """What VM hosts can give, and what is booked there. A value: whoever needs it puts it together."""

    settings: Settings
    ledger: Ledger
    clock: Clock
    demanded: Demanded  # of CPUs, as observed

    def observed_cpus(self, vjob: VJobRow, vm: VMRow) -> float | None:
        """The CPUs that a VM was seen to demand; None if nothing is known: then the requested CPUs count.

        A VM that sleeps, is paused, or is about to go on continues where it was: it demands the CPUs that it demanded
        then.
        """
        if vjob.state is VJobState.RUNNING:
            return self.demanded.cpus(vm.name)
        if vjob.state in _SAVED and vm.centi_cpus is not None:
            return min(vm.centi_cpus / 100, float(vjob.geometry.cpus_of(vm.idx)))
        return None

    def booked(self, seen: Observation, vjob: VJobRow, vm: VMRow) -> Resources:
        """The resources booked for a VM that runs, or that would be booked if it were resumed; decisions use these.

        Where nothing may be suspended, the requested CPUs are booked, overbooked as all.
        """
        return self._booked(seen, vjob, vm, self._terms(seen, vjob.partition))

    def _terms(self, seen: Observation, partition: str) -> _Terms:
        suspends, ratio = site.may_suspend(seen.rms, partition), overbooking(self.settings, partition)
        return _Terms(suspends, ratio, self.settings.memory_overhead_mib)

    def _booked(self, seen: Observation, vjob: VJobRow, vm: VMRow, terms: _Terms) -> Resources:
        observed = self._observed(seen, vjob, vm, terms.suspends)
        return _demand(vjob.geometry.cpus_of(vm.idx), vm.memory_mib, terms.overhead_mib, *observed, terms.ratio)

    def observed(self, seen: Observation, vjob: VJobRow, vms: Iterable[VMRow]) -> tuple[Observed, ...]:
        """What decides, besides the request and the settings, the resources that are ``booked`` for VMs of a vjob."""
        suspends = site.may_suspend(seen.rms, vjob.partition)
        return tuple([self._observed(seen, vjob, vm, suspends) for vm in vms])

    def _observed(self, seen: Observation, vjob: VJobRow, vm: VMRow, suspends: bool) -> Observed:
        """The same of one VM; ``suspends``: whether vjobs of its partition may be suspended."""
        return self.observed_cpus(vjob, vm) if suspends else None, booked_mib(self.settings, seen, vjob, vm)

    def hosts(self, seen: Observation, among: Collection[str] | None = None) -> dict[str, HostCapacity]:
        """The capacity of each VM host, by name, in the RMS's order; only of those ``among`` these, if they are given.

        A VM takes its part from the moment its start is intended until it is known to be gone. While it migrates, it
        takes its part on both nodes (I3).
        """
        found = {}
        unclean = {node for node, _ in self.ledger.nodes.left_behind()}
        strange = stray_nodes(self.ledger, seen, among)
        switches = self.ledger.power.switches()
        for name in vm_hosts(self.settings, seen.rms, among):
            why_not = switches[name].sentence if name in switches else _why_not(seen, name)
            why_not = why_not or ("VMs that were left behind there are removed first" * (name in unclean))
            why_not = why_not or (
                "VMs run there that the ledger does not know; see `rmsplugin confirm`" * (name in strange)
            )
            found[name] = HostCapacity(real_capacity(self.settings, seen, name), why_not)
        now = self.clock.now()
        there = self.ledger.live_vms_on(found)
        vjobs = self.ledger.vjobs_among({row.job_id for row in there})
        terms: dict[str, _Terms] = {}
        for row in there:
            vjob = vjobs[row.job_id]
            known = terms.get(vjob.partition) or terms.setdefault(vjob.partition, self._terms(seen, vjob.partition))
            part = held(vjob, self._booked(seen, vjob, row, known), now)
            for place in {row.host, row.destination} if row.destination else (row.host,):
                if place in found:
                    found[place].parts[row.name] = part
        for host in found.values():
            parts = host.parts.values()
            host.used = Resources(sum(part.cpus for part in parts), sum(part.memory_mib for part in parts))
        return found


def held(vjob: VJobRow, booked: Resources, now: float) -> Resources:
    """The part of its booked resources that a VM has now: a paused one, or one whose script ended, needs no CPUs."""
    needs_none = vjob.state is VJobState.PAUSED or is_ending(vjob, now)
    return Resources(0, booked.memory_mib) if needs_none else booked


def _why_not(seen: Observation, name: str) -> str:
    node, room = seen.rms.nodes[name], seen.rooms.by_node.get(name)
    if name in seen.unreachable:
        return seen.unreachable[name]
    if not node.up:
        return f"Slurm says that it is {node.state}{': ' + node.reason if node.reason else ''}"
    if node.draining:
        return f"it is being drained: {node.reason or 'no reason given'}"
    if name in seen.hot:
        return seen.hot[name]
    if name in seen.capped:
        return seen.capped[name]
    if room is None:
        return "the engine has no room there"
    if room.state in (RoomState.REQUESTED, RoomState.STARTING):
        return f"its room is {room.state}: {room.reason}"
    return room.reason or seen.faults.get(name, "")
