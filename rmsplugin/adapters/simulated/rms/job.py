"""A job of the simulated Slurm: its request, its course, and its appearance in Slurm."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rmsplugin.adapters.rms.base import JobState, RmsJob

REQUEUE_DELAY_S = 121
#: The seconds that a node takes to stop a suspended job.
_STOPS_IN_S = 2.0

_UNDER_WAY = (JobState.CONFIGURING, JobState.RUNNING, JobState.SUSPENDED)


class Hold(enum.StrEnum):
    """The author of a hold; the value is Slurm's reason."""

    USER = "JobHeldUser"
    ADMIN = "JobHeldAdmin"
    LAUNCH = "launch failed requeued held"  # Slurm itself


@dataclass(frozen=True, slots=True)
class Request:
    """The request at submission."""

    script: str = "#!/bin/sh\n"
    partition: str = "vjob"
    user: str = "alice"
    uid: int = 2001
    name: str = "job"
    cpus: int = 1  # on all its nodes together, as many on each
    memory_mib: int = 64  # likewise
    node_count: int = 1
    node: str = ""  # the node that it has to have
    features: str = ""
    exclude: tuple[str, ...] = ()  # nodes that it does not take
    begin: float = 0.0
    licenses: str = ""  # without the gate
    time_limit_s: float = math.inf
    time_min_s: float = math.inf  # infinite: it takes no less than its limit
    requeue: bool = True
    account: str = "users"
    mcs_label: str = ""  # empty: it has none
    mail_user: str = ""  # empty: its user
    mail_kinds: frozenset[str] = frozenset()

    @property
    def cpus_each(self) -> int:
        """The CPUs on each of its nodes."""
        return self.cpus // self.node_count

    @property
    def memory_mib_each(self) -> int:
        """The memory on each of its nodes."""
        return self.memory_mib // self.node_count


@dataclass
class SimulatedJob:
    """One job; methods get the clock's time as an argument."""

    display_id: str
    job_id: int
    request: Request
    submit_time: float
    priority: int = 1
    nice: int = 0
    by_hand: int = 0  # its priority, as an admin set it; 0: none did
    shown: int = 0  # its priority since its allocation began: Slurm computes it no more
    depends_on: list[tuple[str, int]] = field(default_factory=list)  # kind and job; fulfilled ones are taken off
    broken: bool = False  # a dependency can never be fulfilled
    hold: Hold | None = None
    gated: bool = False
    limit: str = ""  # the reason why Slurm will not start it

    state: JobState = JobState.PENDING
    detail: str = "PENDING"
    waits_for: str = "None"  # reason of the scheduler's last look
    since: float = 0.0  # the time of its last change
    accrues_from: float = 0.0  # its age counts from then on; 0: it does not yet
    cores: Mapping[str, int] = field(default_factory=dict)  # by its nodes, as bits: the cores that it was given
    booked: Mapping[str, int] = field(default_factory=dict)  # likewise: those of them that Slurm has as taken
    shares: bool = False  # whether another job had some of them, too, since this one began
    restarts: int = 0
    delayed_until: float = 0.0  # by Slurm itself, after a requeue
    completing_until: float = 0.0
    requeued: bool = False  # pending again once it is no more completing
    revoked: tuple[str, int] = ("", 0)  # its credentials: on that node, those made until that second
    limit_s: float = math.inf  # of this run
    started: float = 0.0
    ended: float = 0.0
    suspended_at: float = 0.0
    suspended_s: float = 0.0
    stopped: bool = False  # whether its batch script is stopped, on its node
    preempted: float = 0.0
    grace_s: float = 0.0

    @property
    def array_id(self) -> int:
        """Id of its array; its own if it belongs to none."""
        return int(self.display_id.partition("_")[0])

    @property
    def task(self) -> str:
        """Index in its array."""
        return self.display_id.partition("_")[2]

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of its allocation; none before it, and after a requeue."""
        return tuple(self.cores)

    @property
    def node(self) -> str:
        """The node of its batch script; empty while it has none."""
        return next(iter(self.cores), "")

    @property
    def under_way(self) -> bool:
        """Whether it has its allocation."""
        return self.state in _UNDER_WAY

    def completing(self, now: float) -> bool:
        """Whether the clean-up of its (last) run goes on."""
        return not self.under_way and now < self.completing_until

    def ends_at(self) -> float:
        """The time when Slurm ends it, if it goes on as it is; infinite for a suspended one."""
        if self.state is JobState.SUSPENDED or not self.under_way:
            return math.inf
        end = self.started + self.suspended_s + self.limit_s
        return min(end, self.preempted + self.grace_s) if self.preempted else end

    def begin(self, cores: Mapping[str, int], limit_s: float, now: float) -> None:
        """Begin its allocation; ``cores``: of each node, as bits."""
        self.cores, self.booked, self.shares = cores, cores, False
        self.state, self.detail, self.waits_for = JobState.CONFIGURING, "CONFIGURING", "None"
        self.limit_s, self.started, self.since = limit_s, now, now
        self.suspended_s = self.preempted = self.ended = self.delayed_until = 0.0
        self.stopped = False

    def run_script(self, now: float) -> None:
        """Start its script, or let it go on; its node carries out a resume within two seconds before the suspension."""
        if self.state is JobState.SUSPENDED:
            self.suspended_s += now - self.suspended_at
            self.stopped = now - self.suspended_at < _STOPS_IN_S
            self.booked = self.cores
        self.state, self.detail, self.since = JobState.RUNNING, "RUNNING", now

    def suspend(self, now: float) -> None:
        """Stop its script."""
        self.state, self.detail, self.since, self.suspended_at = JobState.SUSPENDED, "SUSPENDED", now, now
        self.stopped, self.booked = True, {}
        self.shown = self.by_hand = 0

    def end(self, detail: str, now: float, completing_s: float) -> None:
        """End it, for this reason."""
        if self.under_way:
            self.completing_until = now + completing_s
        self.state, self.detail, self.since, self.ended = JobState.ENDED, detail, now, now
        self.requeued, self.hold = False, None

    def back_to_queue(self, now: float, completing_s: float) -> None:
        """Requeue it, as Slurm does: one that was suspended ends up held."""
        if self.state is JobState.SUSPENDED:
            self.hold = Hold.ADMIN
        self.state, self.detail, self.since, self.waits_for = JobState.PENDING, "COMPLETING", now, "None"
        self.requeued, self.completing_until, self.preempted = True, now + completing_s, 0.0
        self.restarts += 1

    def clean(self, now: float) -> None:
        """End the clean-up after a requeue; the submit time becomes that of the clean-up's end, as in Slurm."""
        self.requeued, self.detail, self.submit_time = False, "PENDING", now
        self.delayed_until, self.revoked = now + REQUEUE_DELAY_S, (self.node, int(now))
        self.cores, self.booked = {}, {}
        self.since, self.started, self.accrues_from = now, 0.0, 0.0

    def accrue(self, now: float) -> None:
        """Count its age while nothing of its user's keeps it; after a release Slurm says so a moment later."""
        if self.state is not JobState.PENDING or self.requeued:
            return
        if self._kept_by(now):
            self.accrues_from = 0.0
        elif not self.accrues_from and (now > self.since or self.since == self.submit_time):
            self.accrues_from = now

    def reason(self, now: float) -> str:
        """Slurm's reason. Licences come last before nodes."""
        if self.state is not JobState.PENDING:
            return "None"
        return self._kept_by(now) or self.limit or ("Licenses" if self.gated else self.waits_for)

    def waits(self, now: float) -> bool:
        """Whether a hold, a dependency or a begin time of its user's keeps it."""
        return bool(self._kept_by(now)) and (self._kept_by(now) != "BeginTime" or self._begins_later(now))

    def _begins_later(self, now: float) -> bool:
        """Whether nothing keeps it but a begin time of its user's."""
        return self._kept_by(now) == "BeginTime" and now < self.request.begin

    def _kept_by(self, now: float) -> str:
        if self.hold:
            return self.hold
        if self.broken:
            return "DependencyNeverSatisfied"
        if self.depends_on:
            return "Dependency"
        return "BeginTime" if now < max(self.request.begin, self.delayed_until) else ""

    def startable(self, now: float, start_delay_s: float) -> bool:
        """Whether only nodes (and the limit of its array, and licences) keep it."""
        pending = self.state is JobState.PENDING and not self.requeued
        return pending and not self._kept_by(now) and not self.limit and now >= self.since + start_delay_s

    def seen(self, now: float, priority: int, *, split: bool) -> RmsJob:
        """The job as Slurm shows it; the limit of its array is not looked at."""
        request, pending = self.request, self.state is JobState.PENDING
        completing = self.completing(now)
        held = pending and self.hold is not None
        asked = (request.node,) if request.node and pending else ()
        end = self.ended if self.state is JobState.ENDED else self.ends_at()
        return RmsJob(
            display_id=self.display_id,
            job_id=self.job_id,
            partition=request.partition,
            user=request.user,
            uid=request.uid,
            name=request.name,
            state=self.state,
            detail="COMPLETING" if completing else self.detail,
            reason=self.reason(now),
            held=held,
            gated=self.gated,
            completing=completing,
            cpus=request.cpus,
            memory_mib=request.memory_mib,
            priority=0 if held else priority,
            nice=self.nice,
            account=request.account,
            accrue_time=int(self.accrues_from),
            submit_time=int(self.submit_time),
            eligible=pending and not self.waits(now),
            begin_time=math.ceil(request.begin) if pending and self._begins_later(now) else 0,
            nodes=self.nodes or asked,
            batch_host=self.node,
            restarts=self.restarts,
            split=split,
            licenses=request.licenses,
            time_limit_s=self.limit_s if self.under_way else request.time_limit_s,
            start_time=0 if pending else int(self.started or self.ended),
            end_time=0 if math.isinf(end) else int(end),
            preempt_time=int(self.preempted),
            mcs_label=request.mcs_label,
        )


def look_at_dependencies(jobs: Iterable[SimulatedJob]) -> None:
    """Take off fulfilled dependencies, and mark those that never can be fulfilled."""
    jobs = list(jobs)
    by_id = {each.job_id: each for each in jobs}
    for each in jobs:
        if each.state is not JobState.PENDING:
            continue
        left = []
        for kind, job_id in each.depends_on:
            other = by_id.get(job_id)
            if other is None:
                continue
            if other.state is not JobState.ENDED:
                left.append((kind, job_id))
            elif (kind == "afterok") != (other.detail == "COMPLETED") and kind != "afterany":
                each.broken = True
                left.append((kind, job_id))
        each.depends_on = left
