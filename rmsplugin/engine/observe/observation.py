"""Observation: one reading of the RMS and of all hypervisors, on which a whole cycle is based."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from rmsplugin.adapters.platform.base import VMInfo, VMPower, VMStatistics
from rmsplugin.adapters.platform.native.platform import seen_in
from rmsplugin.adapters.power.base import PowerReading
from rmsplugin.adapters.rms.base import JobState, RmsJob, RmsSnapshot
from rmsplugin.engine.context.beside import each_beside
from rmsplugin.engine.context.context import Context
from rmsplugin.engine.context.steady_clock import of_the_rms
from rmsplugin.engine.ledger.rows import VMRow
from rmsplugin.engine.observe.others import of_others
from rmsplugin.engine.observe.rooms import Rooms, find_rooms, own_nodes, vm_hosts
from rmsplugin.engine.observe.switched import without_power
from rmsplugin.engine.observe.topology import NO_TOPOLOGY, Topology
from rmsplugin.errors import DeposedError, RmspluginError
from rmsplugin.model.constraints import Constraints
from rmsplugin.model.resources import Resources
from rmsplugin.model.vm_names import parse_vm_name

log = logging.getLogger(__name__)

_PARALLEL = 32

#: States in which a job has its nodes.
_HAVE_NODES = (JobState.CONFIGURING, JobState.RUNNING, JobState.SUSPENDED)


@dataclass(frozen=True, slots=True)
class Allowed:
    """VM hosts that may be used; and if there are none, why, in a sentence for the job's owner."""

    nodes: frozenset[str]
    objection: str


@dataclass(frozen=True, slots=True)
class Derived:
    """What follows from one look and is found once for all vjobs that ask for it.

    Attributes:
        allowed: by partition, constraints and names of the site's rules, the VM hosts that all of them allow.
        expected: by user, job name and request, the memory in MiB that a new VM is expected to need.
        most_mib: by partition, the most memory that a VM can have on one of its nodes.
        awake: by nodes, and nodes that rest, the ones that do not rest.
        wished: whether any vjob has a wish about VMs beside each other; empty until that is asked.
    """

    allowed: dict[tuple[str, Constraints, tuple[str, ...], int], Allowed] = field(default_factory=dict)
    expected: dict[tuple[str, str, int, str], int] = field(default_factory=dict)
    most_mib: dict[str, int] = field(default_factory=dict)
    awake: dict[tuple[frozenset[str], frozenset[str]], frozenset[str]] = field(default_factory=dict)
    wished: list[bool] = field(default_factory=list)


@dataclass(frozen=True)
class Observation:
    """One look at the cluster. ``taken`` is the time just before its first reading: a later change may be missing."""

    taken: float
    rms: RmsSnapshot
    rooms: Rooms
    vms: Mapping[str, Mapping[str, VMInfo]]  # by node, then VM name; only of nodes whose hypervisor answered
    unreachable: Mapping[str, str] = field(default_factory=dict)  # node -> why
    refusing: frozenset[str] = frozenset()  # those of them that obey an engine of a higher epoch
    faults: Mapping[str, str] = field(default_factory=dict)  # node -> what the prolog of its room says is wrong there
    statistics: Mapping[str, Mapping[str, VMStatistics]] = field(
        default_factory=dict
    )  # as ``vms``; lacks nodes without any
    sampled: Mapping[str, float] = field(default_factory=dict)  # node -> when its statistics came
    sensed: Mapping[str, PowerReading] = field(default_factory=dict)  # node -> what its BMC told last
    hot: Mapping[str, str] = field(default_factory=dict)  # node -> since when it is too hot for VMs, in a sentence
    capped: Mapping[str, str] = field(default_factory=dict)  # node -> why the bound on watts has it take no VM
    of_others: Mapping[str, Resources] = field(default_factory=dict)  # node -> what jobs that are no vjobs have there
    by_rms: bool = False  # ``vms`` are the RMS's own jobs: where they are seen there is no other truth
    over_cap: str = ""  # that nodes may take more than this bound already, in a sentence; empty: they do not
    #: Ids of jobs that the engine itself has requeued or gated since the look: what was seen of them is out of date.
    changed: frozenset[int] = field(default=frozenset(), repr=False, compare=False)
    derived: Derived = field(default_factory=Derived, repr=False, compare=False)
    topology: Topology = field(default=NO_TOPOLOGY, repr=False, compare=False)

    @cached_property
    def jobs(self) -> Mapping[int, RmsJob]:
        """The jobs of all partitions by id, without elements of arrays that have no id of their own yet."""
        return {job.job_id: job for job in self.rms.jobs if job.split}

    @cached_property
    def of_jobs(self) -> Mapping[int, Mapping[str, str]]:
        """By job id and VM name, a node on which the VM was seen. Only the engine's VMs."""
        found: dict[int, dict[str, str]] = {}
        for name, nodes in self._nodes_of.items():
            if parsed := parse_vm_name(name):
                found.setdefault(parsed[0], {})[name] = nodes[0]
        return found

    @cached_property
    def nodes_of_jobs(self) -> frozenset[str]:
        """The nodes that jobs have, of all partitions."""
        having = (job for job in self.rms.jobs if job.state in _HAVE_NODES or job.completing)
        return frozenset(name for job in having for name in job.nodes)

    @cached_property
    def _nodes_of(self) -> dict[str, list[str]]:
        nodes: dict[str, list[str]] = {}
        for node, vms in self.vms.items():
            for vm in vms:
                nodes.setdefault(vm, []).append(node)
        return nodes

    def may_take_vms(self, node: str) -> bool:
        """Whether neither heat nor the bound on watts has the node take no VM."""
        return node not in self.hot and node not in self.capped

    def after_changes(self, changed: frozenset[int]) -> Observation:
        """The same look, after the engine has requeued or gated these jobs; what was found in it is not found again."""
        found = replace(self, changed=changed)
        vars(found).update((name, value) for name, value in vars(self).items() if name in _INDEXES)
        return found

    def where(self, vm: str) -> Sequence[str]:
        """Nodes on which the VM was seen."""
        return self._nodes_of.get(vm) or []

    def only_node(self, vm: str) -> str | None:
        """The node on which the VM was seen; None: it was seen on none, or on several."""
        nodes = self._nodes_of.get(vm)
        return nodes[0] if nodes is not None and len(nodes) == 1 else None

    def running(self, vms: Iterable[VMRow]) -> frozenset[str]:
        """The names of those that were seen running on their hosts."""
        found = {vm.name: self.vms.get(vm.host, {}).get(vm.name) for vm in vms}
        return frozenset(name for name, info in found.items() if info and info.power is VMPower.RUNNING)


#: The properties of an observation that go through all jobs or VMs once.
_INDEXES = frozenset({"jobs", "of_jobs", "nodes_of_jobs", "_nodes_of"})


@dataclass(frozen=True, slots=True)
class _Node:
    """The part of a look that is of one node."""

    vms: dict[str, VMInfo]
    statistics: dict[str, VMStatistics] | None
    sampled: float


@dataclass(frozen=True, slots=True)
class _Silent:
    """Why there is no part of a node; ``refuses``: it obeys an engine of a higher epoch."""

    why: str
    refuses: bool = False


class Observer:
    """Looks at the cluster: Slurm, the VMs of each node, and the rooms."""

    def __init__(self, context: Context) -> None:
        """Take from ``context`` what is looked at and with."""
        self._settings = context.settings
        self._ledger = context.ledger
        self._clock = context.clock
        self._rms = context.rms
        self._hypervisor = context.hypervisor
        self._slurm = context.slurm
        self._bounds = context.bounds
        self._sensed = context.sensed
        # Not every platform's look asks the node whom it obeys.
        self._nodes = context.nodes if context.territory is not None else None
        self._obeying: set[str] = set()
        self._topology = Topology(context.rms.leaf_switches, context.clock.now)

    def observe(self) -> Observation:
        """Look at everything once. Raises UnavailableError if the RMS does not answer."""
        taken = self._clock.now()
        rms = of_the_rms(self._rms.snapshot(), self._clock.ahead_s())
        self._slurm.seen(rms)
        if self._settings.native:
            return self._native(taken, rms)
        # Nodes that are no VM hosts any more, by a change of the settings or of slurm.conf, may still have VMs.
        left = self._ledger.places_of_live_vms()
        names = list(dict.fromkeys([*vm_hosts(self._settings, rms), *sorted(left)]))
        off = without_power(self._ledger.power.switches(), rms.nodes)
        found = self._look_at_all([name for name in names if name not in off])
        answers = {name: each for name, each in found.items() if isinstance(each, _Node)}
        silent = {name: each for name, each in found.items() if isinstance(each, _Silent)}
        unreachable = {name: off.get(name) or silent[name].why for name in names if name in off or name in silent}
        rooms = find_rooms(self._settings, rms, taken)
        reports = self._ledger.room_reports.of(room.job_id for room in rooms.by_node.values())
        faults = {report.node: report.problem for report in reports if report.hook == "prolog" and report.problem}
        statistics = {name: each.statistics for name, each in answers.items() if each.statistics is not None}
        return Observation(
            taken=taken,
            rms=rms,
            rooms=rooms,
            vms={name: each.vms for name, each in answers.items()},
            unreachable=unreachable,
            refusing=frozenset(name for name, each in silent.items() if each.refuses),
            faults=faults,
            statistics=statistics,
            sampled={name: answers[name].sampled for name in statistics},
            sensed=self._sensed.latest(),
            hot={name: hot.sentence for name, hot in self._ledger.sensors.hot().items()},
            topology=self._topology,
        )

    def _native(self, taken: float, rms: RmsSnapshot) -> Observation:
        """The look where vjobs are plain jobs: the RMS's own reading shows all, and no node is asked anything."""
        vms = seen_in(rms, self._settings.slurm.partitions)
        silent = {
            node: f"Slurm says that it is {rms.nodes[node].state}" for node in rms.nodes if not rms.nodes[node].up
        }
        answering = {node: there for node, there in vms.items() if node not in silent}
        with_vms = self._ledger.live_vms_by_job()
        booked = {vjob.job_id: vjob.geometry for vjob in self._ledger.vjobs() if vjob.job_id in with_vms}
        others = of_others(rms, booked)
        return Observation(
            taken, rms, own_nodes(self._settings, rms), answering, unreachable=silent, of_others=others, by_rms=True
        )

    def _look_at_all(self, nodes: Sequence[str]) -> dict[str, _Node | _Silent]:
        """Read the nodes side by side: the part of each, or why there is none, by name and in this order."""
        return dict(zip(nodes, each_beside(nodes, self._look_at_or_why_not, _PARALLEL, "observe"), strict=True))

    def _look_at_or_why_not(self, node: str) -> _Node | _Silent:
        try:
            part = self._look_at(node)
            self._have_obey(node)
            return part
        except RmspluginError as error:
            return _Silent(str(error), isinstance(error, DeposedError))
        except Exception as bug:  # a fault at one node must not hide the others
            log.exception("looking at %s", node)
            return _Silent(f"internal error: {bug!r}")

    def _have_obey(self, node: str) -> None:
        """Have a host of this group obey this turn; it may have come from another one since. Raises DeposedError."""
        if self._nodes is None or node in self._obeying:
            return
        try:
            self._nodes.obey(node)
        except DeposedError:
            raise
        except RmspluginError:
            return  # it learns the epoch with the next look, or with the first act
        self._obeying.add(node)

    def _look_at(self, node: str) -> _Node:
        """Read one node. A node that lists its VMs, but gives no statistics of them, is seen without statistics.

        If a VM on the node waits for memory, no VM there is asked anything (``engine.context.bounds``).
        """
        vms = self._hypervisor.list_vms(node)
        statistics: dict[str, VMStatistics] | None = None
        if vms and not self._bounds.waits_on(node):
            try:
                statistics = self._hypervisor.statistics(node)
            except RmspluginError as error:
                log.warning("no statistics of %s: %s", node, error)
            except Exception:  # the VMs are seen without their counters
                log.exception("reading statistics of %s", node)
        return _Node(vms, statistics, self._clock.now())
