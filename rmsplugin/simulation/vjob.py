"""A vjob in the replay: its state, its VMs' hosts, the progress of its work, and its history."""

from __future__ import annotations

from dataclasses import dataclass, field

from rmsplugin.assessment.back_off import pause_s
from rmsplugin.model.operation import OperationKind
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import VJobState, check_transition
from rmsplugin.simulation.observed import Monitor
from rmsplugin.simulation.outcome import Interval, JobRun, Move
from rmsplugin.workload.activity import Activity, cpu_s
from rmsplugin.workload.jobs import Job


@dataclass(slots=True)
class VMMemory:
    """Memory of each VM of a vjob where memory is observed; all VMs are alike.

    Attributes:
        needs_mib: the memory that a VM needs when it runs.
        expected_mib: the memory that it is expected to need before.
        most_mib: the most that can be planned for a VM: it then has a node to itself.
        seen: whether it has run, so that its need is known.
    """

    needs_mib: int
    expected_mib: int
    most_mib: int
    seen: bool = False

    @property
    def held_mib(self) -> int:
        """The memory of its node that a VM holds when it is there."""
        return self.needs_mib if self.seen else self.expected_mib

    @property
    def demanded_mib(self) -> int:
        """The memory that decisions count for a VM."""
        return min(self.held_mib, self.most_mib)


@dataclass(slots=True, eq=False)
class SimulatedVJob:
    """One vjob. Times are seconds as in the trace.

    Attributes:
        number: its place in the queue.
        names: the names of its VMs.
        requested: the resources requested for each VM.
        hosts: by VM name, where its VMs hold memory; of a migration under way, the sources.
        moving: destinations of a migration under way.
        images: the nodes of its saved states.
        work_left_s: the work left of its present phase, at full speed, as of ``counted_s``.
        rate: its speed since then, from 0 (does not compute) to 1.
        forecast: number of the latest forecast of the phase's end; older forecasts are void.
        run_s: the used part of its limit, without the present interval.
        failures: by kind of operation, the number of failures in a row, and the time before which it is not tried
            again.
        observed: its observed demand; None where its demand is what it requested.
        memory: the memory of each of its VMs, where memory is observed; None where it is what it requested.
    """

    number: int
    job: Job
    names: tuple[str, ...]
    requested: Resources
    activity: Activity
    state: VJobState = VJobState.WAITING
    since_s: float = 0.0
    hosts: dict[str, str] = field(default_factory=dict)
    moving: dict[str, str] = field(default_factory=dict)
    images: dict[str, str] = field(default_factory=dict)
    phase: int = 0
    work_left_s: float = 0.0
    counted_s: float = 0.0
    rate: float = 0.0
    forecast: int = 0
    end_s: float | None = None
    run_s: float = 0.0
    failures: dict[OperationKind, tuple[int, float]] = field(default_factory=dict)
    observed: Monitor | None = None
    memory: VMMemory | None = None
    intervals: list[Interval] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.work_left_s = self.activity[0].work_s

    @property
    def name(self) -> str:
        """Its name in decisions."""
        return str(self.job.job_id)

    @property
    def held_mib(self) -> int:
        """The memory of its node that each VM holds."""
        return self.requested.memory_mib if self.memory is None else self.memory.held_mib

    @property
    def computes(self) -> bool:
        """Whether its VMs work."""
        return self.state is VJobState.RUNNING and self.end_s is None

    def cpus(self, vm: int) -> float:
        """The CPUs that a VM uses now if nothing holds it up, by its index."""
        return self.activity[self.phase].of(vm)

    def become(self, state: VJobState, now: float, *, failed: bool = False) -> None:
        """Change to another state; ``failed``: the operation under way failed."""
        check_transition(self.name, self.state, state)
        nodes = tuple(self.hosts.values()) or tuple(self.images.values())
        self.intervals.append(Interval(self.state, self.since_s, now, nodes, failed))
        if self.state is VJobState.RUNNING:
            self.run_s += now - self.since_s
        self.state, self.since_s = state, now

    def count(self, now: float) -> None:
        """Bring the work that is left up to date."""
        elapsed_s = now - self.counted_s
        if elapsed_s and self.computes:
            self.work_left_s = max(0.0, self.work_left_s - elapsed_s * self.rate)
            if self.observed is not None:
                self.observed.count(elapsed_s, self.activity[self.phase])
        self.counted_s = now

    @property
    def phase_ends_s(self) -> float:
        """The end of the present phase at the present speed, which is above 0."""
        return self.counted_s + self.work_left_s / self.rate

    def rests(self, kind: OperationKind, now: float) -> bool:
        """Whether an operation of a kind failed so lately that it is not tried again yet."""
        return kind in self.failures and self.failures[kind][1] > now

    def failed(self, kind: OperationKind, now: float) -> float:
        """Record that an operation failed. Returns the time from which it is tried again."""
        count = self.failures[kind][0] + 1 if kind in self.failures else 1
        self.failures[kind] = (count, now + pause_s(count))
        return self.failures[kind][1]

    def told(self) -> JobRun:
        """Its course, once its VMs are stopped."""
        assert self.end_s is not None
        used = cpu_s(self.activity, len(self.names))
        moves, held_mib = tuple(self.moves), None if self.memory is None else self.held_mib
        return JobRun(self.job, len(self.names), used, self.end_s, tuple(self.intervals), moves, held_mib)
