"""Simulated RMS: a Slurm in memory, as the real one was measured to be, on an injected clock, failing on command.

What is like Slurm 22.05: a released job starts a moment later and is CONFIGURING while its prolog runs; a suspended job
that is requeued ends up held, a running one starts again by itself after two minutes; a requeued job is COMPLETING
first, and fails if it starts again within the second in which that ends, on the same node; the dependencies of a held
job are not looked at until ``hold`` has gated it; elements of an array share a job id until they are split off.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from rmsplugin.adapters.rms.base import HELD_DEPENDENCY, JobState, RmsJob, RmsNode, RmsPartition, RmsSnapshot
from rmsplugin.adapters.rms.slurm_text import JobRow, within_array_limits
from rmsplugin.errors import NotFoundError, RefusedError

REQUEUE_DELAY_S = 121

_UNDER_WAY = (JobState.CONFIGURING, JobState.RUNNING, JobState.SUSPENDED)


@dataclass
class _Job:
    job: RmsJob
    script: str
    depends_on: tuple[int, ...] = ()
    begin: float = 0
    gated: bool = False
    node: str = ""  # where it is to start
    since: float = 0  # in its state, or released
    completing_until: float = 0
    requeued: bool = False  # pending again once it is no more completing
    revoked: tuple[str, int] = ("", 0)  # its credentials: on that node, those made until that second
    limit: str = ""  # the reason why Slurm will not start it

    @property
    def under_way(self) -> bool:
        return self.job.state in _UNDER_WAY

    def set(self, now: float, state: JobState, **changes: object) -> None:
        self.job = replace(self.job, state=state, detail=str(changes.pop("detail", state.value)), **changes)  # type: ignore[arg-type]
        self.since = now


class SimulatedRms:
    """See ``Rms`` for the calls of the engine; the other methods are for tests: users, operators, and the cluster.

    Args:
        clock: seconds since the epoch; jobs move on when it does.
        nodes: those of the cluster.
        partitions: those of the cluster.
        start_delay_s: from the release of a job to its start.
        configuring_s: how long a started job's prolog takes; None: until ``prolog_ended``.
        completing_s: how long the clean-up of a job takes.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        nodes: Iterable[RmsNode],
        partitions: Iterable[RmsPartition],
        *,
        start_delay_s: float = 0.1,
        configuring_s: float | None = None,
        completing_s: float = 1.0,
    ) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.partitions = {partition.name: partition for partition in partitions}
        self.preempt_type = "preempt/none"
        self.preempt_mode = "OFF"
        self.calls: list[tuple[str, int | str]] = []
        self._clock = clock
        self._start_delay_s = start_delay_s
        self._configuring_s = configuring_s
        self._completing_s = completing_s
        self._jobs: dict[str, _Job] = {}  # by display id
        self._array_limits: dict[int, int] = {}
        self._last_id = 0
        self._failures: dict[str, list[Exception]] = {}
        self._lock = threading.RLock()

    # --- the Rms ---

    def snapshot(self) -> RmsSnapshot:
        """See ``Rms.snapshot``."""
        with self._lock:
            self._called("snapshot", "")
            return RmsSnapshot(
                jobs=tuple(row.job for row in self._rows()),
                nodes=dict(self.nodes),
                partitions=dict(self.partitions),
                preempt_type=self.preempt_type,
                preempt_mode=self.preempt_mode,
                version="22.05.8",
            )

    def job(self, job_id: int) -> RmsJob:
        """See ``Rms.job``."""
        with self._lock:
            self._called("job", job_id)
            display_id = self._find(job_id).job.display_id
            return next(row.job for row in self._rows() if row.job.display_id == display_id)

    def batch_script(self, job_id: int) -> str:
        """See ``Rms.batch_script``."""
        with self._lock:
            self._called("batch_script", job_id)
            return self._find(job_id).script

    def split(self, display_id: str) -> int:
        """See ``Rms.split``."""
        with self._lock:
            self._called("split", display_id)
            if display_id not in self._jobs:
                raise NotFoundError(f"Invalid job id specified: {display_id}")
            each = self._jobs[display_id]
            if not self._is_split(each):
                each.job = replace(each.job, job_id=self._new_id(), priority=0, held=True, reason="JobHeldAdmin")
            return each.job.job_id

    def hold(self, job_id: int) -> None:
        """See ``Rms.hold``."""
        with self._lock:
            self._called("hold", job_id)
            first = self._find(job_id)
            if first.job.state is JobState.ENDED:
                raise RefusedError(f"Job has already finished for job {job_id}")
            for each in self._jobs.values():
                if each.job.job_id == job_id and each.job.state is JobState.PENDING:
                    gated = bool(self._unmet(each)) and not each.requeued
                    each.gated = gated
                    reason, priority = ("Dependency", 1) if gated else ("JobHeldAdmin", 0)
                    each.job = replace(each.job, held=True, reason=reason, priority=priority)

    def start(self, job_id: int, node: str) -> None:
        """See ``Rms.start``."""
        with self._lock:
            self._called("start", job_id)
            each = self._find(job_id)
            if each.under_way:
                return
            if self._completing(each) or each.job.state is JobState.ENDED:
                raise RefusedError(f"job {job_id} cannot start: it is {each.job.detail}")
            if node and node not in self.nodes:
                raise RefusedError(f"Invalid node name specified for job {job_id}")
            each.node, each.begin, each.gated, each.since = node, 0, False, self._clock()
            each.job = replace(each.job, held=False, reason=each.limit or "None", priority=1)

    def suspend(self, job_id: int) -> None:
        """See ``Rms.suspend``."""
        with self._lock:
            self._called("suspend", job_id)
            each = self._find(job_id)
            if each.job.state is JobState.RUNNING:
                each.set(self._clock(), JobState.SUSPENDED, priority=0)
            elif each.job.state is not JobState.SUSPENDED:
                raise RefusedError(f"job {job_id} is {each.job.detail} and cannot be suspended")

    def resume(self, job_id: int) -> None:
        """See ``Rms.resume``."""
        with self._lock:
            self._called("resume", job_id)
            each = self._find(job_id)
            if each.job.state is JobState.SUSPENDED:
                each.set(self._clock(), JobState.RUNNING, priority=1)
            elif each.job.state is not JobState.RUNNING:
                raise RefusedError(f"job {job_id} is {each.job.detail} and cannot be resumed")

    def requeue(self, job_id: int, *, hold: bool) -> None:
        """See ``Rms.requeue``."""
        with self._lock:
            self._called("requeue", job_id)
            each = self._find(job_id)
            if each.job.state is JobState.ENDED:
                raise RefusedError(f"Job/step already completing or completed for job {job_id}")
            if each.under_way:
                self._requeue(each, held=each.job.state is JobState.SUSPENDED)
            if hold:
                each.job = replace(each.job, held=True, reason="JobHeldAdmin", priority=0)

    def cancel(self, job_id: int) -> None:
        """See ``Rms.cancel``."""
        with self._lock:
            self._called("cancel", job_id)
            each = self._find(job_id)
            if each.job.state is not JobState.ENDED:
                self._end(each, "CANCELLED")

    # --- users, operators, the cluster ---

    def submit(
        self,
        script: str = "#!/bin/sh\n",
        *,
        partition: str = "vjob",
        user: str = "alice",
        uid: int = 2001,
        name: str = "job",
        cpus: int = 1,
        memory_mib: int = 64,
        held: bool = True,
        depends_on: Iterable[int] = (),
        begin: float = 0,
        array: Iterable[int] = (),
        array_limit: int = 0,
    ) -> int:
        """Submit a job, as job_submit.lua leaves it unless ``held`` is False.

        With ``array``, the indices of an array; ``array_limit`` of its elements may run at the same time.
        """
        with self._lock:
            job_id, now = self._new_id(), self._clock()
            if array_limit:
                self._array_limits[job_id] = array_limit
            for display_id in [f"{job_id}_{index}" for index in array] or [str(job_id)]:
                job = RmsJob(
                    *(display_id, job_id, partition, user, uid, name, JobState.PENDING, "PENDING"),
                    reason="JobHeldUser" if held else "None",
                    held=held,
                    completing=False,
                    cpus=cpus,
                    memory_mib=memory_mib,
                    priority=0 if held else 1,
                    submit_time=int(now),
                    eligible=False,
                    nodes=(),
                    batch_host="",
                    restarts=0,
                )
                self._jobs[display_id] = _Job(job, script, tuple(depends_on), begin, since=now)
            return job_id

    def prolog_ended(self, job_id: int) -> None:
        """PrologSlurmctld has come back: the wrapper starts."""
        with self._lock:
            each = self._find(job_id)
            if each.job.state is not JobState.CONFIGURING:
                raise RefusedError(f"job {job_id} is {each.job.detail}")
            each.set(self._clock(), JobState.RUNNING)

    def finish(self, job_id: int, detail: str = "COMPLETED") -> None:
        """The batch script has ended, or its node failed, or its time is up: ``detail`` is Slurm's word for it."""
        with self._lock:
            each = self._find(job_id)
            if not each.under_way:
                raise RefusedError(f"job {job_id} is {each.job.detail}")
            self._end(each, detail)

    def forget(self, job_id: int) -> None:
        """MinJobAge is over."""
        with self._lock:
            del self._jobs[self._find(job_id).job.display_id]

    def limit(self, job_id: int, reason: str) -> None:
        """Have the job not start although it is released, for example "AssocGrpCpuLimit"; "" lifts it."""
        with self._lock:
            self._find(job_id).limit = reason

    def set_node(self, name: str, **changes: bool | str) -> None:
        """Change what Slurm says of a node (up, draining, state)."""
        with self._lock:
            self.nodes[name] = replace(self.nodes[name], **changes)  # type: ignore[arg-type]

    def fail_next(self, method: str, error: Exception) -> None:
        """Have the next call of ``method`` raise ``error`` and do nothing."""
        with self._lock:
            self._failures.setdefault(method, []).append(error)

    # --- inside ---

    def _called(self, method: str, argument: int | str) -> None:
        self.calls.append((method, argument))
        if self._failures.get(method):
            raise self._failures[method].pop(0)
        self._move_on()

    def _move_on(self) -> None:
        now = self._clock()
        for each in self._jobs.values():
            job = each.job
            if each.requeued and now >= each.completing_until:
                each.requeued = False
                each.begin, each.revoked = now + REQUEUE_DELAY_S, (job.batch_host, int(now))
                # The submit time becomes that of the requeue's end, as in Slurm.
                reason = job.reason if job.held else "BeginTime"
                each.job = replace(job, detail="PENDING", submit_time=int(now), nodes=(), batch_host="", reason=reason)
            elif job.state is JobState.PENDING and not job.held and not each.requeued:
                start = max(each.since + self._start_delay_s, each.begin)
                ready = now >= start and not self._unmet(each)
                if self._at_array_limit(each):
                    each.job = replace(job, reason="JobArrayTaskLimit")
                elif ready and not each.limit:
                    node = each.node or next(iter(self.nodes))
                    if node == each.revoked[0] and int(start) <= each.revoked[1]:
                        self._end(each, "FAILED")
                        continue
                    each.set(now, JobState.CONFIGURING, nodes=(node,), batch_host=node, reason="None")
                elif each.limit:
                    each.job = replace(job, reason=each.limit)
            if (
                each.job.state is JobState.CONFIGURING
                and self._configuring_s is not None
                and now >= each.since + self._configuring_s
            ):
                each.set(now, JobState.RUNNING)

    def _requeue(self, each: _Job, *, held: bool) -> None:
        now = self._clock()
        each.set(
            now,
            JobState.PENDING,
            detail="COMPLETING",
            restarts=each.job.restarts + 1,
            held=held,
            reason="JobHeldAdmin" if held else "None",
            priority=0 if held else 1,
        )
        each.requeued, each.node, each.completing_until = True, "", now + self._completing_s

    def _end(self, each: _Job, detail: str) -> None:
        now = self._clock()
        if each.under_way:
            each.completing_until = now + self._completing_s
        each.requeued = False
        each.set(now, JobState.ENDED, detail=detail, held=False)

    def _rows(self) -> list[JobRow]:
        rows = []
        for display_id, each in self._jobs.items():
            array_id, _, task = display_id.partition("_")
            rows.append(JobRow(self._seen(each), int(array_id), task, dependency="", begin=0))
        return within_array_limits(rows, self._array_limits)

    def _seen(self, each: _Job) -> RmsJob:
        """The job as Slurm shows it now."""
        completing = self._completing(each)
        pending = each.job.state is JobState.PENDING
        unmet = self._unmet(each) if pending else ()
        reason = each.job.reason
        if pending and unmet:
            reason = "Dependency" if each.gated or not each.job.held else HELD_DEPENDENCY
        elif pending and each.gated:
            reason = "BeginTime"
        delayed = each.begin > self._clock() and not each.job.restarts
        return replace(
            each.job,
            reason=reason,
            detail="COMPLETING" if completing else each.job.detail,
            completing=completing,
            eligible=pending and not unmet and not delayed,
            split=self._is_split(each),
        )

    def _completing(self, each: _Job) -> bool:
        return not each.under_way and self._clock() < each.completing_until

    def _at_array_limit(self, each: _Job) -> bool:
        array_id = int(each.job.display_id.partition("_")[0])
        under_way = [
            display_id
            for display_id, other in self._jobs.items()
            if other.under_way and display_id.startswith(f"{array_id}_")
        ]
        return 0 < self._array_limits.get(array_id, 0) <= len(under_way)

    def _unmet(self, each: _Job) -> tuple[int, ...]:
        by_id: Mapping[int, JobState] = {other.job.job_id: other.job.state for other in self._jobs.values()}
        return tuple(job_id for job_id in each.depends_on if by_id.get(job_id, JobState.ENDED) is not JobState.ENDED)

    def _is_split(self, each: _Job) -> bool:
        shared = [other for other in self._jobs.values() if other.job.job_id == each.job.job_id]
        return len(shared) == 1

    def _find(self, job_id: int) -> _Job:
        for each in self._jobs.values():
            if each.job.job_id == job_id:
                return each
        raise NotFoundError(f"Invalid job id specified: {job_id}")

    def _new_id(self) -> int:
        self._last_id += 1
        return self._last_id
