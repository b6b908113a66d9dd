"""Cluster: the jobs and nodes behind the simulated RMS, the acts of users and operators, and the scheduler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from rmsplugin.adapters.rms.base import (
    ROOM_NAME,
    JobState,
    NodePower,
    Overseers,
    RmsJob,
    RmsNode,
    RmsPartition,
    RmsReservation,
)
from rmsplugin.adapters.rms.slurm_text import JobRow, within_array_limits
from rmsplugin.adapters.simulated.rms.job import Hold, Request, SimulatedJob, look_at_dependencies
from rmsplugin.adapters.simulated.rms.nodes import SimulatedNodes, leave
from rmsplugin.adapters.simulated.rms.powering import SimulatedPowering
from rmsplugin.adapters.simulated.rms.priorities import SimulatedPriorities
from rmsplugin.adapters.simulated.rms.put_off import PuttingOffLock
from rmsplugin.errors import NotFoundError, RefusedError

_YEAR_S = 365 * 86400
#: A slurmctld that has been started hears of its nodes after this time; its order to end a job arrives some time later.
_HEARS_S, _ENDS_S = 3.0, 2.0


class SimulatedCluster:
    """Acts of tests on a simulated Slurm that are not the engine's: as users, as operators, as the cluster.

    Public attributes may be changed by tests: nodes (``set_node``), partitions, reservations, licenses, preempt_type,
    preempt_mode, preempt_exempt_s, kill_wait_s, requeue_exits, spool_dir, state_dir, accounting (whether there is any),
    priorities, switches, powering, private, mail_program,
    known_overseers.

    Args:
        clock: seconds since the epoch; jobs move on when it does.
        nodes: the nodes of the cluster.
        partitions: the partitions of the cluster.
        start_delay_s: from the opening (or submission) of a job to its start.
        configuring_s: the duration of the prolog of a job in a vjob partition; None: until ``prolog_ended``.
        completing_s: the duration of a job's clean-up.
        boot_s: the time that the job of a room is CONFIGURING.
        vjob_partitions: the partitions in which job_submit.lua gates jobs.
        gate: name of the gate's licence.
        gate_reservation: name of the reservation that takes the licence away; it is there from the beginning.
        user: the engine's, owner of rooms.
        on_end: called with each job that ended or was requeued, in its state before, soon after that, and without the
            cluster's lock; for the nodes' epilogs.
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
        boot_s: float = 0.0,
        vjob_partitions: Iterable[str] = ("vjob",),
        gate: str = "vjobgate",
        gate_reservation: str = "rmsplugin_gate",
        user: str = "slurm",
        on_end: Callable[[RmsJob], None] = lambda job: None,
    ) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.partitions = {partition.name: partition for partition in partitions}
        self.reservations: dict[str, RmsReservation] = {}
        self.licenses = {gate: 1}
        self.preempt_type = "preempt/none"
        self.preempt_mode = "OFF"
        self.preempt_exempt_s: float | None = None
        self.switches: tuple[tuple[str, ...], ...] = ()
        self.kill_wait_s = 30
        self.private: frozenset[str] = frozenset()
        self.mail_program = "/bin/mail"
        self.known_overseers = Overseers()
        self.requeue_exits: frozenset[int] = frozenset()
        self.spool_dir = "/var/spool/slurmd"
        self.state_dir = "/var/spool/slurm/ctld"
        self.accounting = True
        self.comments: dict[int, str] = {}  # by job id
        self.resumes_lost = 0  # the number of resumes that slurmctld takes and that never reach their node
        self.priorities = SimulatedPriorities()
        self._lock = PuttingOffLock()
        self.powering = SimulatedPowering(clock, self._lock.put_off)
        self.calls: list[tuple[str, int | str]] = []
        self._clock = clock
        self._start_delay_s = start_delay_s
        self._configuring_s = configuring_s
        self._completing_s = completing_s
        self._boot_s = boot_s
        self._vjob_partitions = tuple(vjob_partitions)
        self._gate = gate
        self._gate_reservation = gate_reservation
        self._user = user
        self._on_end = on_end
        self._jobs: dict[str, SimulatedJob] = {}  # by display id
        self._recorded: dict[int, str] = {}  # in accounting: jobs that have ended, with the word for their end
        self._array_limits: dict[int, int] = {}
        self._last_id = 0
        self._failures: dict[str, list[Exception]] = {}
        self._unheard: dict[str, float] = {}  # the nodes whose jobs slurmctld does not know yet, and until when
        self._strays: dict[int, tuple[str, float]] = {}  # of jobs: a node with a run that it forgot, and until when
        self._reserve()

    # --- users, operators, the cluster ---

    def submit(
        self,
        script: str = "#!/bin/sh\n",
        *,
        partition: str = "vjob",
        gated: bool | None = None,
        held: bool = False,
        priority: int = 1,
        depends_on: Iterable[int] = (),
        dependency: str = "afterany",
        array: Iterable[int] = (),
        array_limit: int = 0,
        **request: Any,
    ) -> int:
        """Submit a job.

        Args:
            script: the script as job_submit.lua leaves it.
            partition: a native one, that of the rooms, or a vjob partition.
            gated: None: as job_submit.lua does, in vjob partitions only.
            held: whether submitted with ``--hold``.
            priority: the priority that Slurm computes.
            depends_on: ids of jobs.
            dependency: afterany, afterok or afternotok of these.
            array: the indices, if it is an array.
            array_limit: the number of its elements that may run at the same time; 0: all.
            request: the other fields of ``Request``.
        """
        with self._lock:
            job_id, now = self._new_id(), self._clock()
            asked = Request(script, partition, **request)
            if array_limit:
                self._array_limits[job_id] = array_limit
            for display_id in [f"{job_id}_{index}" for index in array] or [str(job_id)]:
                self._jobs[display_id] = SimulatedJob(
                    *(display_id, job_id, asked, now, priority),
                    depends_on=[(dependency, other) for other in depends_on],
                    hold=Hold.USER if held else None,
                    gated=partition in self._vjob_partitions if gated is None else gated,
                    since=now,
                )
            return job_id

    def user_hold(self, job_id: int) -> None:
        """As the job's owner: ``scontrol hold``. An admin's hold stays the admin's."""
        with self._lock:
            each = self._find(job_id)
            each.hold = each.hold or Hold.USER

    def release(self, job_id: int) -> None:
        """As an operator: ``scontrol release``."""
        with self._lock:
            each = self._find(job_id)
            each.hold, each.since = None, self._clock()
            if each.under_way and not each.shown:
                self.priorities.compute(each, self._clock())

    def user_release(self, job_id: int) -> None:
        """As the job's owner: ``scontrol release``."""
        with self._lock:
            if self._find(job_id).hold is Hold.ADMIN:
                raise RefusedError(f"Access/permission denied for job {job_id}")
            self.release(job_id)

    def set_priority(self, job_id: int, priority: int) -> None:
        """As an operator: ``scontrol update Priority=``. Slurm takes a suspended job for one that is held."""
        with self._lock:
            self.priorities.set_by_hand(self._find(job_id), priority)

    def set_nice(self, job_id: int, nice: int) -> None:
        """As an operator: ``scontrol update Nice=``."""
        with self._lock:
            self.priorities.set_nice(self._find(job_id), nice, self._clock())

    def ungate(self, job_id: int) -> None:
        """As an owner who found a way to take the gate off."""
        with self._lock:
            each = self._find(job_id)
            each.gated, each.since = False, self._clock()

    def requeue_by_admin(self, job_id: int) -> None:
        """``scontrol requeue``, which knows nothing of the gate."""
        with self._lock:
            (each, *_) = self._alive(job_id)
            if each.under_way:
                self._requeue(each)

    def requeue_held(self, job_id: int) -> None:
        """``scontrol requeuehold``."""
        with self._lock:
            self.requeue_by_admin(job_id)
            self._find(job_id).hold = Hold.USER

    def fail_launch(self, job_id: int) -> None:
        """The job's front could not launch it: Slurm requeues it, and holds it itself."""
        with self._lock:
            self.requeue_by_admin(job_id)
            self._find(job_id).hold = Hold.LAUNCH

    def begin_again(self) -> None:
        """Stop slurmctld, and start it with the state that it saved."""
        with self._lock:
            self._unheard = dict.fromkeys(self.nodes, self._clock() + _HEARS_S)

    def forget_start(self, job_id: int) -> None:
        """Kill slurmctld before it has saved the opening and the start of a job, and start it at once."""
        with self._lock:
            each, now = self._find(job_id), self._clock()
            self._strays[job_id] = (each.node, now + _HEARS_S + _ENDS_S)
            self.begin_again()
            leave(each, self._jobs.values())
            each.state, each.detail, each.gated, each.since = JobState.PENDING, "PENDING", True, now
            each.cores, each.booked = {}, {}

    def forget_end(self, job_id: int) -> None:
        """Kill slurmctld before it has saved the end of a job, and start it at once."""
        with self._lock:
            each = self._find(job_id)
            self.begin_again()
            self._recorded.pop(job_id, None)
            each.state, each.detail, each.since, each.booked = JobState.RUNNING, "RUNNING", self._clock(), each.cores
            each.ended = each.completing_until = 0.0

    def prolog_ended(self, job_id: int) -> None:
        """End PrologSlurmctld: the wrapper starts."""
        with self._lock:
            each = self._find(job_id)
            if each.state is not JobState.CONFIGURING:
                raise RefusedError(f"job {job_id} is {each.detail}")
            each.run_script(self._clock())

    def finish(self, job_id: int, detail: str = "COMPLETED") -> None:
        """End the batch script, or fail its node, or end its time: ``detail`` is Slurm's word for it."""
        with self._lock:
            each = self._find(job_id)
            if not each.under_way:
                raise RefusedError(f"job {job_id} is {each.detail}")
            self._end(each, detail)

    def end_script(self, job_id: int) -> bool:
        """End the batch script well; returns whether it ran. An unknown job has none."""
        with self._lock:
            for each in self._jobs.values():
                if each.job_id == job_id and each.state is JobState.RUNNING:
                    self._end(each, "COMPLETED")
                    return True
            return False

    def forget(self, job_id: int) -> None:
        """Let MinJobAge be over."""
        with self._lock:
            del self._jobs[self._find(job_id).display_id]

    def limit(self, job_id: int, reason: str) -> None:
        """Keep the job from starting although its gate is open, for example by "AssocGrpCpuLimit"; "" lifts it."""
        with self._lock:
            self._find(job_id).limit = reason

    def set_node(self, name: str, **changes: bool | str | tuple[str, ...]) -> None:
        """Change Slurm's facts about a node (up, draining, reason, features; state of one that is not up)."""
        with self._lock:
            self.nodes[name] = replace(self.nodes[name], **changes)  # type: ignore[arg-type]

    def reserve(
        self,
        name: str,
        start_time: int,
        end_time: int,
        nodes: tuple[str, ...] = (),
        licenses: Mapping[str, int] | None = None,
    ) -> str:
        """As an admin: a reservation for maintenance. Returns its name."""
        made = RmsReservation(name, start_time, end_time, nodes, licenses or {}, ("root",), ("MAINT",))
        with self._lock:
            self.reservations[name] = made
        return name

    def register(self, name: str, boot_time: float) -> None:
        """As the slurmd of a node, which says when the node booted; seconds since the epoch."""
        with self._lock:
            self._move_on()
            self.powering.register(name, boot_time)

    def is_stopped(self, job_id: int) -> bool:
        """Whether the job's batch script is stopped on its node, whatever Slurm's state of the job."""
        with self._lock:
            return self._find(job_id).stopped

    def lose_node(self, name: str, state: str = "DOWN", reason: str = "") -> None:
        """Let the node fail: its jobs are requeued, except those that do not want to be."""
        with self._lock:
            self.set_node(name, up=False, state=state, reason=reason)
            for each in list(self._jobs.values()):
                if name in each.nodes and each.under_way:
                    if each.request.requeue:
                        self._requeue(each, 0.0)
                    else:
                        self._end(each, "NODE_FAIL")

    def fail_next(self, method: str, error: Exception) -> None:
        """Let the next call of ``method`` raise ``error`` and do nothing."""
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
        self._unheard = {name: until for name, until in self._unheard.items() if now < until}
        self._strays = {job_id: stray for job_id, stray in self._strays.items() if now < stray[1]}
        for name in self.powering.move_on(lambda name: not self._cluster().on(name)):
            self.lose_node(name, "DOWN+POWERED_DOWN+NOT_RESPONDING", "ResumeTimeout reached")
        for each in list(self._jobs.values()):
            if each.requeued and now >= each.completing_until:
                each.clean(now)
            if now >= each.ends_at():
                self._end(each, "PREEMPTED" if each.preempted else "TIMEOUT")
            duration_s = self._duration_s(each)
            if each.state is JobState.CONFIGURING and duration_s is not None and now >= each.since + duration_s:
                each.run_script(now)
        look_at_dependencies(self._jobs.values())
        for each in self._jobs.values():
            each.accrue(now)
        self._start_jobs(now)

    def _duration_s(self, each: SimulatedJob) -> float | None:
        """The time that it is CONFIGURING; None: until ``prolog_ended``, or until its node is on."""
        if any(self.powering.of(name).power is not NodePower.ON for name in each.nodes):
            return None
        if each.request.partition in self._vjob_partitions:
            return self._configuring_s
        return self._boot_s if each.request.name == ROOM_NAME else 0.0

    def _start_jobs(self, now: float) -> None:
        def rank(each: SimulatedJob) -> tuple[int, int, int]:
            partition = self.partitions.get(each.request.partition)
            return (-(partition.priority_tier if partition else 0), -self.priorities.of(each, now), each.job_id)

        claimed: set[str] = set()
        cluster = self._cluster()
        for each in sorted(self._jobs.values(), key=rank):
            if not each.startable(now, self._start_delay_s) or self._is_shut(each):
                continue
            if self._at_array_limit(each):
                each.waits_for = "JobArrayTaskLimit"
                continue
            place = cluster.place(each)
            if place is None:
                each.waits_for = "Resources"
                if self.preempt_type == "preempt/partition_prio":
                    self._preempt(cluster, each, claimed)
            elif place.node == each.revoked[0] and int(now) <= each.revoked[1]:
                self._end(each, "FAILED")
            elif self._strays.get(each.job_id, ("", 0.0))[0] == place.node:
                self.set_node(place.node, draining=True, reason="Duplicate jobid")
                each.back_to_queue(now, self._completing_s)
                each.hold = Hold.LAUNCH
            else:
                each.shown = self.priorities.of(each, now)
                each.begin(place.cores, place.limit_s, now)
                for name in place.cores:
                    self.powering.power_up(name)
                cluster.arrived(each)
                if self._duration_s(each) == 0:
                    each.run_script(now)

    def _preempt(self, cluster: SimulatedNodes, each: SimulatedJob, claimed: set[str]) -> None:
        node, leaving = cluster.make_room(each, claimed)
        claimed.add(node)
        for other in leaving:
            other.preempted = self._clock()
            other.grace_s = self.partitions[other.request.partition].grace_time_s

    def _is_shut(self, each: SimulatedJob) -> bool:
        """Whether the gate keeps the job: what the reservation does not hold is a licence like any other."""
        if not each.gated:
            return False
        found = self.reservations.get(self._gate_reservation)
        reserved = found.licenses.get(self._gate, 0) if found else 0
        taken = sum(other.under_way and other.gated for other in self._jobs.values())
        return taken + reserved >= self.licenses.get(self._gate, 0)

    def _reserve(self) -> None:
        now, name = int(self._clock()), self._gate_reservation
        known = self.reservations.get(name)
        start = known.start_time if known else now
        licenses = {self._gate: self.licenses[self._gate]}
        self.reservations[name] = RmsReservation(
            name, start, now + _YEAR_S, (), licenses, users=(self._user,), flags=("ANY_NODES",)
        )

    def _close(self, jobs: Iterable[SimulatedJob]) -> None:
        for each in jobs:
            each.gated = each.gated or each.state is JobState.PENDING

    def _requeue(self, each: SimulatedJob, completing_s: float | None = None) -> None:
        if not each.request.requeue:
            raise RefusedError(f"Requested operation is presently disabled for job {each.job_id}")
        self._lock.put_off(partial(self._on_end, self._seen(each)))
        self._recorded.pop(each.job_id, None)
        leave(each, self._jobs.values())
        each.back_to_queue(self._clock(), self._completing_s if completing_s is None else completing_s)

    def _end(self, each: SimulatedJob, detail: str) -> None:
        self._lock.put_off(partial(self._on_end, self._seen(each)))
        leave(each, self._jobs.values())
        each.end(detail, self._clock(), self._completing_s)
        self._recorded[each.job_id] = detail

    def _cluster(self) -> SimulatedNodes:
        jobs, powered = self._jobs.values(), self.powering.of
        unheard = {name: replace(self.nodes[name], up=False, state="UNKNOWN") for name in self._unheard}
        nodes = {**self.nodes, **unheard}
        return SimulatedNodes(nodes, self.partitions, self.reservations, jobs, self._clock(), powered)

    def _rows(self) -> list[JobRow]:
        now, shared = self._clock(), Counter(each.job_id for each in self._jobs.values())
        rows = [
            JobRow(self._shown(each, now, split=shared[each.job_id] == 1), each.array_id, each.task)
            for each in self._jobs.values()
        ]
        return within_array_limits(rows, self._array_limits)

    def _seen(self, each: SimulatedJob) -> RmsJob:
        return self._shown(each, self._clock(), split=self._is_split(each))

    def _shown(self, each: SimulatedJob, now: float, *, split: bool) -> RmsJob:
        return each.seen(now, self.priorities.of(each, now), split=split)

    def _at_array_limit(self, each: SimulatedJob) -> bool:
        limit = self._array_limits.get(each.array_id, 0) if each.task else 0
        if limit == 0:
            return False
        return limit <= sum(other.under_way and other.array_id == each.array_id for other in self._jobs.values())

    def _is_split(self, each: SimulatedJob) -> bool:
        return sum(other.job_id == each.job_id for other in self._jobs.values()) == 1

    def _alive(self, job_id: int) -> list[SimulatedJob]:
        """All jobs of this id: several if they are elements of an array that are not split off."""
        first = self._find(job_id)
        if first.state is JobState.ENDED:
            raise RefusedError(f"Job has already finished for job {job_id}")
        return [each for each in self._jobs.values() if each.job_id == job_id]

    def _find(self, job_id: int) -> SimulatedJob:
        with self._lock:
            for each in self._jobs.values():
                if each.job_id == job_id:
                    return each
        raise NotFoundError(f"Invalid job id specified: {job_id}")

    def _new_id(self) -> int:
        self._last_id += 1
        return self._last_id
