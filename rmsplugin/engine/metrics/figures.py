"""Figures: what a cycle leaves to be told, summed up at its end; whoever reads them asks nobody and waits for nobody.

Only names of partitions and groups and values of closed enumerations are in them.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rmsplugin.engine.capacity.capacity import Capacities, HostCapacity
from rmsplugin.engine.capacity.traffic import NetworkBytes
from rmsplugin.engine.context.agents_told import AgentsTold
from rmsplugin.engine.cycle import Cycle
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.markers import SHARED
from rmsplugin.engine.ledger.rows import VJobRow
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.errors import RmspluginError
from rmsplugin.groups.summary import summaries
from rmsplugin.model.resources import NOTHING, Resources
from rmsplugin.model.vjob import VJobState

#: Stands for a partition that the settings do not have any more.
OTHER = "other"
#: States of nodes, as they are told.
NODE_STATES = ("usable", "unusable", "unreachable", "gone")
#: Those of node agents; an agent is unknown until the engine has asked it something.
AGENT_STATES = ("up", "silent", "unknown")
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Sums:
    """CPUs, and bytes of memory."""

    cpus: float = 0.0
    memory_bytes: float = 0.0

    @classmethod
    def of(cls, resources: Resources) -> Sums:
        """The same in the units that are told."""
        return cls(float(resources.cpus), float(resources.memory_mib) * _MIB)


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """A group of VM hosts: how many of its nodes take VMs, and what these have, and have free."""

    nodes_up: int
    size: Sums
    free: Sums


@dataclass(frozen=True, slots=True)
class Sensors:
    """How many nodes are hot, how many told anything, their watts, and the highest temperature; None: none told one."""

    hot: int = 0
    told: int = 0
    watts: float = 0.0
    celsius: float | None = None


@dataclass(frozen=True, slots=True)
class OnNodes:
    """What node agents told, of VM hosts as they are now.

    Attributes:
        agents: by state, how many there are.
        stores: how many have told their room.
        free_bytes: in these.
        templates: how many there are, and their bytes; None: no node was swept yet.
    """

    agents: Mapping[str, int] = field(default_factory=dict)
    stores: int = 0
    free_bytes: int = 0
    templates: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Figures:
    """The cluster at the end of a cycle. Times are seconds since the epoch, by the engine's clock.

    Attributes:
        cycle_ended: when the last cycle ended; 0: none has.
        cycle_s: how long it took.
        phases: seconds of its parts, by name.
        phases_total: of all cycles.
        cycles: by whether they failed, how many this process ran.
        proposed_total_s: seconds that proposals took, of all cycles.
        solver_total_s: seconds that solvers took for them.
        waits: by code of the reason, how many vjobs wait.
        partitions: the names that have figures even where they are 0.
        vjobs: by partition and state, how many there are.
        oldest_waiting: by partition, when the vjob was submitted that waits since longest.
        oldest_sleeping: by partition, since when the vjob sleeps that sleeps longest.
        nodes: by state, how many VM hosts there are.
        on_nodes: what the agents of VM hosts told.
        sensors: what the BMCs of VM hosts told.
        capacity: of all VM hosts.
        booked: for VMs on them.
        used: what VMs were last seen to demand of CPUs, and to have of memory.
        traffic: bytes that VMs have received and sent over the network since this engine began to lead.
        groups: by name.
        operations: by kind, how many are under way.
        saved_bytes: of saved states; the files of sleeping vjobs.
        checkpoint_bytes: of the newest checkpoint of each vjob.
        ledger_bytes: of the ledger and its log.
        plan: cost and bound of the last plan in bytes, and the seconds that it took to find; None: there is none.
        paused: whether an operator has paused context switches.
        problems: how many the last cycle told.
        late: the share by which vjobs are late because nodes were off; None: no nodes are switched.
        late_at_most: what may be of it; None: no bound is set.
        late_kept: how many idle nodes stay on for that.
    """

    cycle_ended: float = 0.0
    cycle_s: float = 0.0
    phases: Mapping[str, float] = field(default_factory=dict)
    phases_total: Mapping[str, float] = field(default_factory=dict)
    cycles: Mapping[bool, int] = field(default_factory=dict)
    proposed_total_s: float = 0.0
    solver_total_s: float = 0.0
    waits: Mapping[str, int] = field(default_factory=dict)
    partitions: tuple[str, ...] = ()
    vjobs: Mapping[tuple[str, VJobState], int] = field(default_factory=dict)
    oldest_waiting: Mapping[str, float] = field(default_factory=dict)
    oldest_sleeping: Mapping[str, float] = field(default_factory=dict)
    nodes: Mapping[str, int] = field(default_factory=dict)
    on_nodes: OnNodes = OnNodes()
    sensors: Sensors = Sensors()
    capacity: Sums = Sums()
    booked: Sums = Sums()
    used: Sums = Sums()
    traffic: NetworkBytes = field(default_factory=NetworkBytes)
    groups: Mapping[str, GroupFigures] = field(default_factory=dict)
    operations: Mapping[str, int] = field(default_factory=dict)
    saved_bytes: int = 0
    checkpoint_bytes: int = 0
    ledger_bytes: int = 0
    plan: tuple[float, float, float] | None = None
    paused: bool = False
    problems: int = 0
    late: float | None = None
    late_at_most: float | None = None
    late_kept: int = 0


class Accounts:
    """Makes the figures at the end of each cycle, in the thread of the cycle. ``newest`` is read by any thread."""

    def __init__(self, capacities: Capacities, cycle: Cycle, agents_told: AgentsTold) -> None:
        """No cycle has run yet."""
        self._capacities, self._cycle, self._ledger = capacities, cycle, capacities.ledger
        self._agents_told = agents_told
        self.newest = Figures(partitions=capacities.settings.slurm.partitions)

    def take(self) -> None:
        """Sum up what the cycle that has just ended has left.

        Raises:
            RmspluginError: the ledger cannot be read; the figures of the cycle itself are new all the same.
        """
        self.newest = self._after_cycle()
        self.newest = replace(self.newest, **_of_ledger(self._ledger, self.newest.partitions))
        if self._cycle.seen is not None:
            self.newest = replace(self.newest, **self._of_nodes(self._cycle.seen))

    def _after_cycle(self) -> Figures:
        before, report = self.newest, self._cycle.report
        phases = {str(phase): seconds for phase, seconds in report.phases.items()}
        lateness = self._cycle.powering.felt.lateness
        names = before.phases_total.keys() | phases.keys()
        return replace(
            before,
            cycle_ended=report.time + report.seconds,
            cycle_s=report.seconds,
            phases=phases,
            phases_total={name: before.phases_total.get(name, 0.0) + phases.get(name, 0.0) for name in names},
            cycles={**before.cycles, report.failed: before.cycles.get(report.failed, 0) + 1},
            proposed_total_s=before.proposed_total_s + report.proposed_s,
            solver_total_s=before.solver_total_s + report.solver_s,
            waits={str(code): count for code, count in report.waits.items()},
            problems=len(report.problems),
            late=lateness.share if lateness.sums.seen_s else None,
            late_at_most=lateness.at_most,
            late_kept=lateness.reserve,
        )

    def _of_nodes(self, seen: Observation) -> dict[str, Any]:
        hosts = self._capacities.hosts(seen)
        gone = self._ledger.nodes.gone()
        states = Counter(_node_state(name, host, seen, gone) for name, host in hosts.items())
        return {
            "nodes": {state: states[state] for state in NODE_STATES},
            "on_nodes": _on_nodes(hosts, self._agents_told, shares_store=self._capacities.settings.nodes.shared),
            "sensors": _sensors(seen),
            "capacity": Sums.of(sum((host.capacity for host in hosts.values()), NOTHING)),
            "booked": Sums.of(sum((host.used for host in hosts.values()), NOTHING)),
            "used": self._used(seen),
            "traffic": self._cycle.traffic.total,
            "groups": self._of_groups(),
        }

    def _used(self, seen: Observation) -> Sums:
        cpus, kib = 0.0, 0
        for statistics in seen.statistics.values():
            for name, each in statistics.items():
                cpus += self._capacities.demanded.cpus(name) or 0.0
                kib += each.memory_rss_kib or 0
        return Sums(cpus, kib * 1024.0)

    def _of_groups(self) -> dict[str, GroupFigures]:
        decided = self._cycle.deciding.groups
        if decided is None:
            return {}
        found = summaries(decided.configuration, decided.formed.groups)
        return {each.name: GroupFigures(each.up, Sums.of(each.size), Sums.of(each.free)) for each in found}


def _on_nodes(hosts: Collection[str], told: AgentsTold, *, shares_store: bool) -> OnNodes:
    answers, free_bytes, templates = told.answers, told.free_bytes, told.templates
    stores = [free_bytes[each] for each in ([SHARED] if shares_store else hosts) if each in free_bytes]
    swept = [templates[name] for name in hosts if name in templates]
    agents = Counter({True: "up", False: "silent", None: "unknown"}[answers.get(name)] for name in hosts)
    return OnNodes(
        {state: agents[state] for state in AGENT_STATES},
        len(stores),
        sum(stores),
        (sum(number for number, _ in swept), sum(size for _, size in swept)) if swept else None,
    )


def _sensors(seen: Observation) -> Sensors:
    told = [each for each in seen.sensed.values() if each.watts or each.temperature_c]
    return Sensors(
        len(seen.hot),
        len(told),
        sum(each.watts.value for each in told if each.watts),
        max((each.temperature_c.value for each in told if each.temperature_c), default=None),
    )


def _node_state(name: str, host: HostCapacity, seen: Observation, gone: Mapping[str, object]) -> str:
    if name in gone:
        return "gone"
    if name in seen.unreachable:
        return "unreachable"
    return "unusable" if host.why_not else "usable"


def _of_ledger(ledger: Ledger, partitions: tuple[str, ...]) -> dict[str, Any]:
    vjobs = ledger.vjobs()
    vjob_count = Counter((_named(vjob, partitions), vjob.state) for vjob in vjobs)
    plans = ledger.plans.plans(1)
    return {
        "vjobs": vjob_count,
        "oldest_waiting": _oldest(vjobs, VJobState.WAITING, partitions),
        "oldest_sleeping": _oldest(vjobs, VJobState.SLEEPING, partitions),
        "operations": Counter(str(each.kind) for each in ledger.running_operations()),
        "saved_bytes": sum(vm.image_bytes for vm in ledger.live_vms() if vm.phase.in_file),
        "checkpoint_bytes": sum(each.size_bytes for each in ledger.checkpoints.newest().values()),
        "ledger_bytes": _size(ledger),
        "plan": next(
            ((plan.cost_mib * float(_MIB), plan.lower_bound_mib * float(_MIB), plan.decided_s) for plan in plans), None
        ),
        "paused": ledger.plans.pause is not None,
    }


def _oldest(vjobs: Iterable[VJobRow], state: VJobState, partitions: tuple[str, ...]) -> dict[str, float]:
    found: dict[str, float] = {}
    for vjob in vjobs:
        if vjob.state is state:
            name = _named(vjob, partitions)
            since = vjob.submitted if state is VJobState.WAITING else vjob.state_since
            found[name] = min(since, found.get(name, since))
    return found


def _named(vjob: VJobRow, partitions: tuple[str, ...]) -> str:
    return vjob.partition if vjob.partition in partitions else OTHER


def _size(ledger: Ledger) -> int:
    size = 0
    for path in (ledger.path, ledger.path.with_name(f"{ledger.path.name}-wal")):
        with contextlib.suppress(OSError):
            size += path.stat().st_size
    return size


def take_quietly(accounts: Accounts) -> str:
    """Sum up a cycle. Returns why not, or nothing: a fault in what is only told never ends a cycle."""
    try:
        accounts.take()
    except RmspluginError as error:
        return str(error)
    return ""
