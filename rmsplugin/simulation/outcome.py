"""Outcome: the course of each job of a workload, and of the cluster, and its context switches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rmsplugin.decision.reservation import Note
from rmsplugin.energy.account import OffTime
from rmsplugin.model.vjob import VJobState
from rmsplugin.workload.jobs import Job

#: States of a vjob that has begun and computes nothing.
_ASLEEP = (
    VJobState.PAUSING,
    VJobState.PAUSED,
    VJobState.UNPAUSING,
    VJobState.SUSPENDING,
    VJobState.SLEEPING,
    VJobState.RESUMING,
)


@dataclass(frozen=True, slots=True)
class Interval:
    """A time that a vjob spent in one state.

    Attributes:
        state: of its life cycle.
        begin_s: seconds, as in the trace.
        end_s: the same unit.
        nodes: for each VM its node at the end: where it is, or comes to (starting, resuming); while it sleeps, the node
            of its saved state. None while it waits, and where processors were only counted.
        failed: whether the operation under way (a start, suspend, resume, stop) failed in the end.
    """

    state: VJobState
    begin_s: float
    end_s: float
    nodes: tuple[str, ...] = ()
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Move:
    """Migrations of VMs of one vjob at a time: by VM index, source and destination."""

    begin_s: float
    end_s: float
    moves: Mapping[int, tuple[str, str]]
    failed: bool = False


@dataclass(frozen=True, slots=True)
class JobRun:
    """The course of one job.

    Attributes:
        job: the job of the workload.
        vms: the number of its VMs.
        cpu_s: CPU seconds that they have used together.
        end_s: the end of its work; its VMs are stopped after that.
        intervals: without a gap, from its submission on.
        moves: its migrations, in the order of their beginnings.
        held_mib: memory that each VM took of its node; None: the memory requested for it.
    """

    job: Job
    vms: int
    cpu_s: float
    end_s: float
    intervals: tuple[Interval, ...]
    moves: tuple[Move, ...] = ()
    held_mib: int | None = None

    @property
    def start_s(self) -> float:
        """The time when it began to run: its VMs were up for the first time."""
        return next(each.begin_s for each in self.intervals if each.state is VJobState.RUNNING)

    @property
    def asleep_s(self) -> float:
        """The seconds for which it was paused or suspended, from the beginning of that until it computed again."""
        return sum(each.end_s - each.begin_s for each in self.intervals if each.state in _ASLEEP)

    @property
    def suspends(self) -> int:
        """The number of its suspends and pauses; a vjob that is saved after a pause has made way once."""
        leaves = (VJobState.PAUSING, VJobState.SUSPENDING)
        count, before = 0, VJobState.WAITING
        for each in self.intervals:
            count += each.state in leaves and not each.failed and before is VJobState.RUNNING
            before = each.state
        return count


@dataclass(frozen=True, slots=True)
class SwitchRun:
    """A cluster-wide context switch.

    Attributes:
        begin_s: seconds, as in the trace.
        end_s: the end of its last step.
        cost_mib: the cost of its plan.
        expected_s: the expected duration of its plan.
        actions: on VMs, by kind: run, suspend, resume (local ones), remote_resume, migrate.
        steps: the number of steps, each of one vjob, by kind: start, suspend, resume, migrate.
        failed: the number of steps that failed, or were skipped because one that they wait for failed.
    """

    begin_s: float
    end_s: float
    cost_mib: int
    expected_s: float
    actions: Mapping[str, int]
    steps: Mapping[str, int]
    failed: int = 0

    @property
    def is_start_only(self) -> bool:
        """Whether it only starts waiting vjobs."""
        return set(self.actions) == {"run"}


@dataclass(frozen=True, slots=True)
class Usage:
    """CPUs used, and CPUs demanded by VMs that compute, from a time on until that of the next entry.

    ``crowded_vms`` compute on a node with fewer CPUs than they demand together ("unsatisfied", VEE'09 section 5.3).
    """

    time_s: float
    used_cpus: float
    demanded_cpus: float
    crowded_vms: int = 0


@dataclass(frozen=True, slots=True)
class NoteRun:
    """An event about a node that was short of memory, or about a reserved node, at a time."""

    time_s: float
    note: Note


@dataclass(frozen=True, slots=True)
class Powered:
    """What became of the nodes.

    Attributes:
        off_times: the times for which nodes were off.
        delays_s: how long each step that waited for nodes waited, in seconds.
        emptied: how often a node was emptied, so that it could be switched off.
    """

    off_times: Sequence[OffTime]
    delays_s: Sequence[float]
    emptied: int = 0


@dataclass(frozen=True)
class Outcome:
    """The outcome of a replay.

    Attributes:
        policy: the policy of the decisions.
        jobs: in the order of the queue.
        switches: in the order of their beginnings; none under policies that switch nothing.
        usage: over time.
        decisions: the number of decisions.
        faults: reasons why there was no proposal, or why the checker rejected one, with their numbers.
        notes: about nodes that were short of memory, in the order of time; none where memory is not observed.
        powered: what became of nodes that were switched; None where none is.
    """

    policy: str
    jobs: Sequence[JobRun]
    switches: Sequence[SwitchRun] = ()
    usage: Sequence[Usage] = ()
    decisions: int = 0
    faults: Mapping[str, int] = field(default_factory=dict)
    notes: Sequence[NoteRun] = ()
    powered: Powered | None = None

    def actions(self) -> dict[str, int]:
        """The number of actions on VMs that succeeded, by kind; a resume is local or remote."""
        found = dict.fromkeys(("run", "suspend", "resume", "remote_resume", "migrate", "pause", "unpause"), 0)
        kinds = {
            VJobState.STARTING: "run",
            VJobState.SUSPENDING: "suspend",
            VJobState.PAUSING: "pause",
            VJobState.UNPAUSING: "unpause",
        }
        for run in self.jobs:
            asleep: tuple[str, ...] = ()
            for each in run.intervals:
                if each.state is VJobState.SLEEPING:
                    asleep = each.nodes
                elif each.failed:
                    continue
                elif each.state in kinds:
                    found[kinds[each.state]] += run.vms
                elif each.state is VJobState.RESUMING:
                    local = sum(one == other for one, other in zip(asleep, each.nodes, strict=True))
                    found["resume"] += local
                    found["remote_resume"] += run.vms - local
            found["migrate"] += sum(len(move.moves) for move in run.moves if not move.failed)
        return found


def of_schedule(policy: str, jobs: Sequence[Job], started: Sequence[float]) -> Outcome:
    """The outcome of a schedule over counted processors: each job waits, then runs without a break, nodes unknown."""
    runs = []
    for job, start_s in zip(jobs, started, strict=True):
        end_s = start_s + job.run_s
        waits = Interval(VJobState.WAITING, job.submit_s, start_s)
        runs.append(
            JobRun(
                job,
                job.processors,
                job.run_s * job.processors,
                end_s,
                (waits, Interval(VJobState.RUNNING, start_s, end_s)),
            )
        )
    return Outcome(policy, runs, usage=usage_of(runs))


@dataclass(frozen=True, slots=True)
class Event:
    """A beginning or an end on a vjob at a time."""

    time_s: float
    event: str  # submit, start, run, pause, paused, unpause, suspend, sleep, resume, migrate, migrated, stop, end;
    # with -failed where it failed
    job_id: int
    nodes: tuple[str, ...] = ()


_EVENTS = {
    VJobState.WAITING: "wait",
    VJobState.STARTING: "start",
    VJobState.RUNNING: "run",
    VJobState.PAUSING: "pause",
    VJobState.PAUSED: "paused",
    VJobState.UNPAUSING: "unpause",
    VJobState.SUSPENDING: "suspend",
    VJobState.SLEEPING: "sleep",
    VJobState.RESUMING: "resume",
    VJobState.STOPPING: "stop",
}


def events_of(outcome: Outcome) -> Iterator[Event]:
    """All events in the order of time; those of one instant in the order of the queue."""
    found = [event for run in outcome.jobs for event in _events_of(run)]
    found.sort(key=lambda event: event.time_s)  # stable
    yield from found


def _events_of(run: JobRun) -> Iterator[Event]:
    own = [Event(run.job.submit_s, "submit", run.job.job_id)]
    for each in run.intervals:
        if each.begin_s > run.job.submit_s or each.state is not VJobState.WAITING:
            own.append(Event(each.begin_s, _EVENTS[each.state], run.job.job_id, each.nodes))
        if each.failed:
            own.append(Event(each.end_s, f"{_EVENTS[each.state]}-failed", run.job.job_id, each.nodes))
    for move in run.moves:
        ends = [tuple(pair[side] for _, pair in sorted(move.moves.items())) for side in (0, 1)]
        own.append(Event(move.begin_s, "migrate", run.job.job_id, ends[0]))
        own.append(Event(move.end_s, "migrate-failed" if move.failed else "migrated", run.job.job_id, ends[1]))
    own.append(Event(run.intervals[-1].end_s, "end", run.job.job_id))
    own.sort(key=lambda event: event.time_s)
    yield from own


def usage_of(jobs: Sequence[JobRun]) -> list[Usage]:
    """The CPUs used over time where each running job uses all its processors."""
    changes: dict[float, int] = {}
    for run in jobs:
        for each in run.intervals:
            if each.state is VJobState.RUNNING:
                changes[each.begin_s] = changes.get(each.begin_s, 0) + run.job.processors
                changes[each.end_s] = changes.get(each.end_s, 0) - run.job.processors
    used, found = 0, []
    for time_s in sorted(changes):
        used += changes[time_s]
        found.append(Usage(time_s, used, used))
    return found
