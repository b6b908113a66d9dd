"""The cluster of ICDCS'02 in virtual time: workstations, their jobs, and what becomes of them under a policy.

The speeds of jobs change only when one comes or goes, or when a demand grows; in between nothing is computed. A policy
is asked each second, as the paper's workstations exchange their load periodically, unless nothing has changed.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from experiments.icdcs02.workload import WORKSTATIONS, Group, Submission
from experiments.icdcs02.workstation import Paging, Speed, speeds
from rmsplugin.decision.load import Move, NodeLoad, VMLoad

REMOTE_S = 0.1
NETWORK_MB_PER_S = 10e6 / 8 / 2**20
_NEARLY = 1e-9


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What the paper does not say, and the experiment varies.

    Args:
        paging: the model of page faults.
        slots: the CPU threshold: so many jobs a workstation takes.
        system_mb: what the operating system has of a workstation's memory.
        start_share: of its most memory a program demands so much at first, where the paper gives only the most.
        growth: its demand grows in this first part of its lifetime.
        disk_mb_per_s: how fast a suspended job is written, and read again.
        cycle_s: between two looks at the load.
    """

    paging: Paging = field(default_factory=Paging)
    slots: int = 4
    system_mb: float = 16.0
    start_share: float = 0.1
    growth: float = 0.3
    disk_mb_per_s: float = 8.0
    cycle_s: float = 1.0

    def user_mb(self, group: Group) -> float:
        """The memory of a workstation that jobs may have."""
        return group.memory_mb - self.system_mb


class State(enum.Enum):
    """Of a job."""

    WAITING = "waiting"
    RUNNING = "running"
    ON_ITS_WAY = "on its way"
    SUSPENDED = "suspended"
    ENDED = "ended"


#: The demand of a program grows in so many steps.
_STEPS = 10

#: While a workstation is reserved the policy is asked each so many cycles even if nothing changes: time counts then.
_RESERVED_CYCLES = 10


@dataclass
class Job:
    """A job, how far it is, and where its time has gone (seconds)."""

    submission: Submission
    assumptions: Assumptions
    state: State = State.WAITING
    node: int | None = None
    done_s: float = 0.0
    paging_s: float = 0.0
    moving_s: float = 0.0
    started_s: float = math.nan
    end_s: float = math.nan
    asleep_s: float = math.nan  # when its state is written
    speed: Speed | None = None
    step: int = 0  # of its demand's growth

    @property
    def name(self) -> str:
        """For the policies."""
        return str(self.submission.job)

    @property
    def lifetime_s(self) -> float:
        """CPU seconds that it needs."""
        return self.submission.program.lifetime_s

    @property
    def demand_mb(self) -> float:
        """What it demands now."""
        program = self.submission.program
        share = self.assumptions.start_share
        least = program.most_mb * share if program.least_mb is None else program.least_mb
        return least + (program.most_mb - least) * self.step / _STEPS

    @property
    def next_change_s(self) -> float:
        """CPU seconds until its demand grows, or it ends."""
        grown_s = self.lifetime_s * self.assumptions.growth
        return (grown_s * (self.step + 1) / _STEPS if self.step < _STEPS else self.lifetime_s) - self.done_s

    def change(self) -> bool:
        """Grow, or end; whether it has ended."""
        if self.step < _STEPS:
            self.step += 1
            return False
        return True

    @property
    def wall_s(self) -> float:
        """From its submission to its end."""
        return self.end_s - self.submission.at_s

    @property
    def queue_s(self) -> float:
        """What is neither work, nor faults, nor moves: it waited for its start, or for the CPU."""
        return self.wall_s - self.done_s - self.paging_s - self.moving_s

    @property
    def slowdown(self) -> float:
        """Wall-clock time over CPU time."""
        return self.wall_s / self.lifetime_s


class Workstation:
    """One workstation: its running jobs, and those that are on their way to it."""

    def __init__(self, number: int, user_mb: float, paging: Paging) -> None:
        self.number, self.user_mb, self.paging = number, user_mb, paging
        self.running: list[Job] = []
        self.coming: list[tuple[float, Job]] = []
        self.now_s = 0.0
        self.next_s = math.inf  # when something changes here

    @property
    def jobs(self) -> list[Job]:
        """All that take memory here."""
        return self.running + [job for _, job in self.coming]

    @property
    def demand_mb(self) -> float:
        """Of all its jobs."""
        return sum(job.demand_mb for job in self.jobs)

    def run_until(self, until_s: float) -> list[Job]:
        """Let time pass; the jobs that have ended."""
        ended = []
        while self.next_s <= until_s:
            self._pass(self.next_s)
            for job in [job for job in self.running if job.next_change_s <= _NEARLY * job.lifetime_s]:
                if job.change():
                    job.state, job.end_s, job.node = State.ENDED, self.now_s, None
                    self.running.remove(job)
                    ended.append(job)
            for at_s, job in [each for each in self.coming if each[0] <= self.now_s]:
                job.state = State.RUNNING
                self.coming.remove((at_s, job))
                self.running.append(job)
            self._look()
        return ended

    def take(self, job: Job, now_s: float, arrives_s: float) -> None:
        """A job comes."""
        self._pass(now_s)
        job.state, job.node = State.ON_ITS_WAY, self.number
        job.moving_s += arrives_s - now_s
        self.coming.append((arrives_s, job))
        self._look()

    def give(self, job: Job, now_s: float) -> None:
        """A job goes."""
        self._pass(now_s)
        self.running.remove(job)
        job.node = None
        self._look()

    def _pass(self, now_s: float) -> None:
        seconds = now_s - self.now_s
        for job in self.running:
            assert job.speed is not None
            job.done_s += job.speed.work * seconds
            job.paging_s += job.speed.paging * seconds
        self.now_s = now_s

    def _look(self) -> None:
        """Compute speeds anew, and when the next change is."""
        # A job that is on its way has its memory here, but touches none of it.
        self.next_s = min((at_s for at_s, _ in self.coming), default=math.inf)
        coming_mb = sum(job.demand_mb for _, job in self.coming)
        found = speeds([job.demand_mb for job in self.running], max(1.0, self.user_mb - coming_mb), self.paging)
        for job, speed in zip(self.running, found, strict=True):
            job.speed = speed
            if speed.work > 0:
                self.next_s = min(self.next_s, self.now_s + max(0.0, job.next_change_s) / speed.work)


@dataclass(frozen=True)
class Orders:
    """What a policy wants done now; jobs by name, workstations by number."""

    starts: Mapping[str, str] = field(default_factory=dict)
    moves: Sequence[Move] = ()
    suspends: Sequence[str] = ()
    resumes: Mapping[str, str] = field(default_factory=dict)


class Policy(Protocol):
    """How jobs are shared out."""

    @property
    def reserved(self) -> frozenset[str]:
        """The workstations that take no arrivals."""
        ...

    def orders(self, now_s: float, nodes: Sequence[NodeLoad], waiting: Sequence[Job], asleep: Sequence[Job]) -> Orders:
        """What is to be done: ``waiting`` in order of submission, ``asleep`` likewise."""
        ...

    def ended(self, job: Job) -> None:
        """A job has ended."""
        ...


@dataclass
class Result:
    """What became of a trace.

    ``idle_mb`` and ``skew`` are means over time, from the first submission to the last end: the idle memory of all
    workstations together, and the standard deviation of the number of jobs on workstations that are not reserved.
    """

    jobs: list[Job]
    idle_mb: float
    skew: float
    reserved: float  # workstations, mean over time
    moves: int
    suspends: int

    @property
    def total_s(self) -> float:
        """The paper's total execution time."""
        return sum(job.wall_s for job in self.jobs)

    @property
    def queue_s(self) -> float:
        """The paper's total queuing time."""
        return sum(job.queue_s for job in self.jobs)

    @property
    def paging_s(self) -> float:
        """Of all jobs."""
        return sum(job.paging_s for job in self.jobs)

    @property
    def moving_s(self) -> float:
        """Remote submissions, migrations, suspends and resumes of all jobs."""
        return sum(job.moving_s for job in self.jobs)

    @property
    def slowdown(self) -> float:
        """Mean over the jobs."""
        return sum(job.slowdown for job in self.jobs) / len(self.jobs)

    @property
    def end_s(self) -> float:
        """When the last job ends."""
        return max(job.end_s for job in self.jobs)


class Simulation:
    """One trace under one policy."""

    def __init__(self, group: Group, submissions: Sequence[Submission], policy: Policy, given: Assumptions) -> None:
        self.given, self.policy = given, policy
        user_mb = given.user_mb(group)
        self.nodes = [Workstation(number, user_mb, given.paging) for number in range(WORKSTATIONS)]
        self.jobs = [Job(each, given) for each in submissions]
        self.by_name = {job.name: job for job in self.jobs}
        self.waiting: list[Job] = []  # in order of submission
        self.asleep: list[Job] = []
        self.counts = {"moves": 0, "suspends": 0}
        self._sums = {"idle": 0.0, "skew": 0.0, "reserved": 0.0, "time": 0.0}

    def run(self) -> Result:
        """Until all jobs have ended."""
        left, submitted, cycle = len(self.jobs), 0, 0
        changed = True
        while left:
            now_s = cycle * self.given.cycle_s
            for node in self.nodes:
                if node.next_s <= now_s:
                    changed = True
                    for job in node.run_until(now_s):
                        left -= 1
                        self.policy.ended(job)
            while submitted < len(self.jobs) and self.jobs[submitted].submission.at_s <= now_s:
                self.waiting.append(self.jobs[submitted])
                submitted, changed = submitted + 1, True
            if changed or (self.policy.reserved and cycle % _RESERVED_CYCLES == 0):
                changed = self._act(now_s)
                self._measure_now()
            self._measure()
            cycle += 1
        time_s = self._sums["time"]
        return Result(
            self.jobs,
            self._sums["idle"] / time_s,
            self._sums["skew"] / time_s,
            self._sums["reserved"] / time_s,
            self.counts["moves"],
            self.counts["suspends"],
        )

    def _act(self, now_s: float) -> bool:
        """Ask the policy, and do what it says; whether there was something to do."""
        loads = [self._load(node, now_s) for node in self.nodes]
        orders = self.policy.orders(now_s, loads, self.waiting, self.asleep)
        for name in orders.suspends:
            self._suspend(self.by_name[name], now_s)
        for move in orders.moves:
            job = self.by_name[move.vm]
            self.nodes[int(move.source)].give(job, now_s)
            self._send(job, now_s, int(move.destination))
            self.counts["moves"] += 1
        for name, node in orders.starts.items():
            job = self.by_name[name]
            self.waiting.remove(job)
            job.started_s = now_s
            remote = int(node) != job.submission.home
            self.nodes[int(node)].take(job, now_s, now_s + (REMOTE_S if remote else 0.0))
        for name, node in orders.resumes.items():
            job = self.by_name[name]
            self.asleep.remove(job)
            # Its state is on the disk of the workstation that it left: read, and sent over the network as it is read.
            slowest = min(self.given.disk_mb_per_s, NETWORK_MB_PER_S)
            written_s = max(now_s, job.asleep_s) - now_s
            job.moving_s -= written_s  # it counts once
            self.nodes[int(node)].take(job, now_s, now_s + written_s + REMOTE_S + job.demand_mb / slowest)
        return bool(orders.suspends or orders.moves or orders.starts or orders.resumes)

    def _send(self, job: Job, now_s: float, node: int) -> None:
        """Migrate: r + D / B."""
        self.nodes[node].take(job, now_s, now_s + REMOTE_S + job.demand_mb / NETWORK_MB_PER_S)

    def _suspend(self, job: Job, now_s: float) -> None:
        assert job.node is not None
        self.nodes[job.node].give(job, now_s)
        job.state = State.SUSPENDED
        job.asleep_s = now_s + job.demand_mb / self.given.disk_mb_per_s
        job.moving_s += job.asleep_s - now_s
        self.asleep.append(job)
        self.counts["suspends"] += 1

    def _load(self, node: Workstation, now_s: float) -> NodeLoad:
        vms = []
        for job in node.running:
            speed = job.speed
            assert speed is not None
            age_s = now_s - job.started_s
            vms.append(
                VMLoad(
                    job.name, job.name, mib(job.demand_mb), speed.faults_per_s, speed.stalled, age_s, job.submission.job
                )
            )
        vms += [VMLoad(job.name, job.name, mib(job.demand_mb), fixed=True) for _, job in node.coming]
        return NodeLoad(str(node.number), math.floor(node.user_mb), self.given.slots, tuple(vms))

    def _measure_now(self) -> None:
        demands = [node.demand_mb for node in self.nodes]
        users = [node.user_mb for node in self.nodes]
        self._idle_mb = sum(max(0.0, user - demand) for user, demand in zip(users, demands, strict=True))
        reserved = self.policy.reserved
        counts = [len(node.jobs) for node in self.nodes if str(node.number) not in reserved]
        mean = sum(counts) / max(1, len(counts))
        self._skew = math.sqrt(sum((count - mean) ** 2 for count in counts) / max(1, len(counts)))
        self._reserved = len(reserved)

    def _measure(self) -> None:
        self._sums["idle"] += self._idle_mb
        self._sums["skew"] += self._skew
        self._sums["reserved"] += self._reserved
        self._sums["time"] += 1


def mib(demand_mb: float) -> int:
    """As policies count: whole MiB, rounded up."""
    return math.ceil(demand_mb - _NEARLY)
