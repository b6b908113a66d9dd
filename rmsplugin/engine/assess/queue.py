"""Queue: the waiting vjobs in the order in which they may start, and where each may go."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rmsplugin.adapters.rms.base import RmsJob
from rmsplugin.decision.wanted import Candidate
from rmsplugin.engine.assess.site_rules import closing_rules, open_nodes, traits_of, traits_of_job
from rmsplugin.engine.capacity.capacity import Capacities, demand_of_new, overbooking
from rmsplugin.engine.capacity.observed_memory import expected_booked_mib, real_capacity
from rmsplugin.engine.context.machines import is_pinned
from rmsplugin.engine.ledger.failures import Resting
from rmsplugin.engine.ledger.rows import VJobRow, VMRow
from rmsplugin.engine.observe.observation import Allowed, Observation
from rmsplugin.engine.observe.rooms import hosts_of
from rmsplugin.model.elements import VM
from rmsplugin.model.made_at_once import made_at_once
from rmsplugin.model.resources import Resources
from rmsplugin.model.rules import allowing, confined_to
from rmsplugin.model.vjob import Geometry, VJobState
from rmsplugin.model.wording import counted
from rmsplugin.settings import Settings


@made_at_once
@dataclass(frozen=True, slots=True)
class Waiting:
    """A vjob that may run now: its job in the RMS, and facts from the ledger.

    Elements of a job array that the RMS has not split off yet have no row of their own: they differ only in their
    number.
    """

    job: RmsJob
    geometry: Geometry
    submitted: float
    priority: int
    sleeping: VJobRow | None = None  # its row, if it is to be resumed or go on after a pause, not started
    since: float = 0.0  # when it entered its state
    script: str = ""  # digest of the script, for a job without a row
    preferred: VJobState | None = None  # the state that an administrator prefers for it

    @property
    def rests(self) -> bool:
        """Whether it does not start, or go on, whatever room there is."""
        return self.preferred is VJobState.SLEEPING


#: See ``queue_key``.
QueueKey = tuple[int, int, float, int, int]


class _Named(Protocol):
    """A job, or the row of a vjob."""

    @property
    def job_id(self) -> int: ...

    @property
    def display_id(self) -> str: ...

    @property
    def partition(self) -> str: ...


def queue_key(seen: Observation, of: _Named, priority: int, submitted: float) -> QueueKey:
    """The sort key of the queue: PriorityTier, Slurm's priority, first submission, job id and array element."""
    name, partition = of.display_id, seen.rms.partitions.get(of.partition)
    tier = partition.priority_tier if partition else 0  # an admin may remove a partition while jobs wait in it
    element = int(name.partition("_")[2] or 0) if "_" in name else 0
    return (-tier, -priority, submitted, of.job_id, element)


@dataclass(frozen=True, slots=True)
class Order:
    """The order of the queue as of one look: what tells a vjob's position without a look at all others.

    Attributes:
        seen: the look.
        keys: of the waiting vjobs, head first.
    """

    seen: Observation
    keys: Sequence[QueueKey]

    def position(self, key: QueueKey) -> int:
        """The position, from 1 on, of the vjob with this key; where it would stand, if it was left out."""
        return bisect_left(self.keys, key) + 1


def in_order(seen: Observation, waiting: Sequence[Waiting]) -> tuple[list[Waiting], Order]:
    """The waiting vjobs in the order of the queue, head first, and the order itself."""
    keyed = [queue_key(seen, each.job, each.priority, each.submitted) for each in waiting]
    numbers = sorted(range(len(keyed)), key=keyed.__getitem__)
    return [waiting[number] for number in numbers], Order(seen, [keyed[number] for number in numbers])


def allowed_hosts(settings: Settings, seen: Observation, vjob: VJobRow) -> frozenset[str]:
    """The VM hosts of a vjob's partition that its job's -C, -w and -x, and the site's rules, allow."""
    closing = closing_rules(settings.rule, traits_of(seen, vjob)) if settings.rule else ()
    return _allowed(settings, seen, vjob.partition, vjob.geometry, closing).nodes


def allowed_waiting(settings: Settings, seen: Observation, waiting: Waiting) -> Allowed:
    """The VM hosts that a waiting vjob's job, and the site's rules, allow."""
    closing = closing_rules(settings.rule, traits_of_job(waiting.job, waiting.geometry)) if settings.rule else ()
    return _allowed(settings, seen, waiting.job.partition, waiting.geometry, closing)


def _allowed(
    settings: Settings, seen: Observation, partition: str, geometry: Geometry, closing: tuple[str, ...]
) -> Allowed:
    """The hosts by partition, options, and the rules of these names."""
    constraints, cpus = geometry.constraints, 0 if overbooking(settings, partition) == 1 else geometry.cpus_of(0)
    found = seen.derived.allowed.get((partition, constraints, closing, cpus))
    if found is None:
        hosts = hosts_of(settings, seen.rms, partition)
        known = {name: seen.rms.nodes[name].features for name in hosts if name in seen.rms.nodes}
        # The object that the rules about these nodes keep: of an equal one each vjob's is compared name by name.
        nodes = confined_to(allowing(constraints.allowed(known))) or frozenset()
        why = "" if nodes else constraints.objection(known)
        if closing:
            before, nodes = len(nodes), open_nodes(settings.rule, nodes, closing)
            why = why if nodes or why else _closed(before, closing)
        if cpus:
            nodes = wide_enough(settings, seen, nodes, cpus)
            why = why if nodes or why else f"no node that it may use has {counted(cpus, 'CPU')}, as one of its VMs has"
        found = seen.derived.allowed[partition, constraints, closing, cpus] = Allowed(nodes, why)
    return found


def wide_enough(settings: Settings, seen: Observation, nodes: frozenset[str], cpus: int) -> frozenset[str]:
    """The nodes that have as many CPUs for VMs: with fewer, a VM that is overbooked would share CPUs with itself."""
    return frozenset(name for name in nodes if real_capacity(settings, seen, name).cpus >= cpus)


def _closed(nodes: int, closing: Iterable[str]) -> str:
    """Why the site's rules leave none of so many nodes."""
    return f"may be on {counted(nodes, 'node')}, and the site's rules ({', '.join(closing)}) leave it none of them"


def without(seen: Observation, nodes: frozenset[str], rest: frozenset[str]) -> frozenset[str]:
    """The nodes that do not rest; most vjobs share one set, perhaps of thousands of nodes."""
    found = seen.derived.awake.get((nodes, rest))
    if found is None:
        found = seen.derived.awake[nodes, rest] = nodes - rest
    return found


def ready_vms(waiting: Waiting, rows: Iterable[VMRow]) -> dict[str, VMRow | None]:
    """The VMs of a waiting vjob, by name: its ``rows``; or VMs to be made, without a row, and without a final name."""
    if waiting.sleeping is None:
        return {f"{waiting.job.display_id}-{index}": None for index in range(waiting.geometry.vms)}
    return {vm.name: vm for vm in rows}


def ready_demands(
    capacities: Capacities, seen: Observation, waiting: Waiting, vms: Mapping[str, VMRow | None]
) -> dict[str, Resources]:
    """The resources that a waiting vjob's VMs will demand, by name; if it sleeps, as they did when they were saved."""
    row, geometry, settings = waiting.sleeping, waiting.geometry, capacities.settings
    partition = waiting.job.partition
    if row is not None:
        return {name: capacities.booked(seen, row, vm) for name, vm in vms.items() if vm is not None}
    large_mib, small_mib = new_booked_mib(capacities, seen, waiting)
    large = demand_of_new(settings, partition, geometry, 0, large_mib)
    small = demand_of_new(settings, partition, geometry, geometry.vms - 1, small_mib)
    return {name: large if index < geometry.large else small for index, name in enumerate(vms)}


def new_booked_mib(capacities: Capacities, seen: Observation, waiting: Waiting) -> tuple[int | None, int | None]:
    """The memory to be booked for the first and for the last VM of a vjob that has none; None: all that it requests."""
    job, geometry = waiting.job, waiting.geometry

    def booked_mib(index: int) -> int | None:
        return expected_booked_mib(capacities.settings, capacities.ledger, seen, job, job.name, geometry, index)

    first = booked_mib(0)
    return first, first if geometry.vms == 1 else booked_mib(geometry.vms - 1)


def ready_hosts(
    settings: Settings, seen: Observation, waiting: Waiting, vms: Iterable[VMRow | None], resting: Resting
) -> frozenset[str]:
    """The nodes where a waiting vjob's VMs may go: its user and its disks allow them, and they do not rest."""
    return ready_among(settings, seen, waiting, allowed_waiting(settings, seen, waiting).nodes, vms, resting)


def ready_among(
    settings: Settings,
    seen: Observation,
    waiting: Waiting,
    nodes: frozenset[str],
    vms: Iterable[VMRow | None],
    resting: Resting,
) -> frozenset[str]:
    """``ready_hosts`` of a vjob that may be on these ``nodes`` (``allowed_waiting``)."""
    if rest := resting.get("run" if waiting.sleeping is None else "resume"):
        nodes = without(seen, nodes, rest)
    if waiting.sleeping is not None and is_pinned(settings, waiting.sleeping):
        nodes &= {vm.booted_on for vm in vms if vm is not None}
    return nodes


def candidate(capacities: Capacities, seen: Observation, waiting: Waiting, resting: Resting) -> Candidate:
    """The vjob as the search for nodes to borrow sees it."""
    vms = ready_vms(waiting, capacities.ledger.vms(waiting.sleeping.job_id) if waiting.sleeping else ())
    needs = ready_demands(capacities, seen, waiting, vms)
    nodes = ready_hosts(capacities.settings, seen, waiting, vms.values(), resting)
    prefer = {name: vm.image_node or vm.host for name, vm in vms.items() if vm is not None}
    return Candidate(waiting.job.display_id, tuple(VM(name, need) for name, need in needs.items()), nodes, prefer)
