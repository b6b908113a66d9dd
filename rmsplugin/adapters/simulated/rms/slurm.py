"""Simulated RMS: a Slurm in memory, as the real one was measured to be, on an injected clock, failing on command.

These facts are as in Slurm 22.05. A gated job is pending with all other facts of Slurm about it. An opened one starts a
moment later, if a node of its partition has room, and is CONFIGURING while its prolog runs. A requeued job is
COMPLETING first, then delayed by two minutes, starts again by itself unless it is gated, and fails if that is on the
same node within the second in which the clean-up ended. A suspended job that Slurm requeues ends up held. A resume
right after a suspend is carried out before it on the node. A slurmctld that is started with a state from before it
started a job starts that job again once it hears of its nodes; soon after that it has the first run ended, which drains
a node that has the same job twice. Elements of an array share a job id until they are split
off. A suspended job frees its CPUs and not its memory, and has its CPUs again when it is resumed, whoever has them by
then. A job of a higher tier preempts jobs of partitions with PreemptMode=CANCEL, which last for their grace time. No
job asked of Slurm overlaps a reservation, but a limit may be changed so that it does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from rmsplugin.adapters.rms.base import ROOM_NAME, JobState, MailWish, Overseers, RmsJob, RmsSnapshot
from rmsplugin.adapters.rms.slurm_records import needs_repair
from rmsplugin.adapters.simulated.rms.cluster import SimulatedCluster
from rmsplugin.adapters.simulated.rms.job import Hold
from rmsplugin.adapters.simulated.rms.nodes import leave, share
from rmsplugin.errors import NotFoundError, RefusedError
from rmsplugin.model.constraints import Constraints
from rmsplugin.model.vjob import Geometry

_ROOM_SCRIPT = "#!/bin/sh\n/bin/sleep infinity\n"


class SimulatedRms(SimulatedCluster):
    """The engine's calls, see ``Rms``; all else is in ``SimulatedCluster``."""

    def snapshot(self) -> RmsSnapshot:
        """See ``Rms.snapshot``."""
        with self._lock:
            self._called("snapshot", "")
            cluster = self._cluster()
            return RmsSnapshot(
                jobs=tuple(row.job for row in self._rows()),
                nodes={name: cluster.seen(name) for name in self.nodes},
                partitions=dict(self.partitions),
                reservations=dict(self.reservations),
                licenses=dict(self.licenses),
                preempt_type=self.preempt_type,
                preempt_mode=self.preempt_mode,
                preempt_exempt_s=self.preempt_exempt_s,
                kill_wait_s=self.kill_wait_s,
                requeue_exits=self.requeue_exits,
                spool_dir=self.spool_dir,
                daemon_port=6818,
                state_dir=self.state_dir,
                version="22.05.8",
                priorities=self.priorities.said(self._jobs.values(), self._clock()),
                power_saving=self.powering.saving,
                private=self.private,
                mail_program=self.mail_program,
            )

    def leaf_switches(self) -> tuple[tuple[str, ...], ...]:
        """See ``Rms.leaf_switches``."""
        with self._lock:
            self._called("leaf_switches", "")
            return self.switches

    def pulse(self, partitions: Iterable[str]) -> str:
        """See ``Rms.pulse``."""
        with self._lock:
            self._called("pulse", "")
            wanted = set(partitions)
            jobs = [row.job for row in self._rows() if row.job.partition in wanted]
            return "\n".join(f"{job.display_id} {job.state} {job.preempt_time} {job.held}" for job in jobs)

    def job(self, job_id: int) -> RmsJob:
        """See ``Rms.job``."""
        with self._lock:
            self._called("job", job_id)
            display_id = self._find(job_id).display_id
            return next(row.job for row in self._rows() if row.job.display_id == display_id)

    def jobs(self, job_ids: Collection[int]) -> dict[int, RmsJob]:
        """See ``Rms.jobs``."""
        with self._lock:
            self._called("jobs", "")
            return {row.job.job_id: row.job for row in self._rows() if row.job.job_id in job_ids}

    def unheard(self, partition: str) -> tuple[str, ...]:
        """See ``Rms.unheard``."""
        with self._lock:
            self._called("unheard", partition)
            known = self.partitions.get(partition)
            return tuple(name for name in known.nodes if name in self._unheard) if known is not None else ()

    def ended(self, job_ids: Collection[int]) -> dict[int, str]:
        """See ``Rms.ended``."""
        with self._lock:
            self._called("ended", "")
            if not self.accounting:
                raise RefusedError("Slurm accounting storage is disabled")
            return {job_id: self._recorded[job_id] for job_id in job_ids if job_id in self._recorded}

    def mail_wish(self, job_id: int) -> MailWish | None:
        """See ``Rms.mail_wish``."""
        with self._lock:
            self._called("mail_wish", job_id)
            asked = self._find(job_id).request
            return MailWish(asked.uid, asked.mail_user or asked.user, asked.mail_kinds) if asked.mail_kinds else None

    def overseers(self) -> Overseers:
        """See ``Rms.overseers``."""
        with self._lock:
            self._called("overseers", "")
            if not self.accounting:
                raise RefusedError("Slurm accounting storage is disabled")
            return self.known_overseers

    def batch_script(self, job_id: int) -> str:
        """See ``Rms.batch_script``."""
        with self._lock:
            self._called("batch_script", job_id)
            return self._find(job_id).request.script

    def geometry(self, job_id: int) -> Geometry:
        """See ``Rms.geometry``."""
        with self._lock:
            self._called("geometry", job_id)
            asked = self._find(job_id).request
            said = Constraints.parse(features=asked.features, nodes=asked.node, exclude=",".join(asked.exclude))
            return Geometry(asked.node_count, asked.cpus_each, asked.memory_mib_each, asked.cpus, constraints=said)

    def reserve_gate(self) -> None:
        """See ``Rms.reserve_gate``."""
        with self._lock:
            self._called("reserve_gate", self._gate_reservation)
            if not self.licenses.get(self._gate):
                raise RefusedError(f"slurm.conf has no licence {self._gate}: add Licenses={self._gate}:1")
            self._reserve()

    def split(self, display_id: str) -> int:
        """See ``Rms.split``."""
        with self._lock:
            self._called("split", display_id)
            if display_id not in self._jobs:
                raise NotFoundError(f"Invalid job id specified: {display_id}")
            each = self._jobs[display_id]
            if not self._is_split(each):
                each.job_id, each.gated = self._new_id(), True
            return each.job_id

    def open_gate(self, job_id: int) -> None:
        """See ``Rms.open_gate``."""
        with self._lock:
            self._called("open_gate", job_id)
            each = self._find(job_id)
            if each.under_way:
                return
            if each.completing(self._clock()) or each.state is JobState.ENDED:
                raise RefusedError(f"job {job_id} cannot start: it is {each.detail}")
            if not self._is_split(each):
                raise RefusedError(f"job {job_id} stands for several elements of an array that are not split off")
            if each.gated or each.delayed_until:
                each.gated, each.delayed_until, each.since = False, 0.0, self._clock()

    def close_gate(self, job_id: int) -> None:
        """See ``Rms.close_gate``."""
        with self._lock:
            self._called("close_gate", job_id)
            self._close(self._alive(job_id))

    def hold(self, job_id: int) -> None:
        """See ``Rms.hold``."""
        with self._lock:
            self._called("hold", job_id)
            for each in self._alive(job_id):
                if each.state is JobState.PENDING:
                    each.hold = Hold.ADMIN

    def comment(self, job_id: int, text: str) -> None:
        """See ``Rms.comment``."""
        with self._lock:
            self._called("comment", job_id)
            each = self._find(job_id)
            if each.state is JobState.ENDED:
                raise RefusedError(f"job {job_id} has ended ({each.detail})")
            self.comments[job_id] = text

    def suspend(self, job_id: int) -> None:
        """See ``Rms.suspend``."""
        with self._lock:
            self._called("suspend", job_id)
            each = self._find(job_id)
            if each.state is JobState.RUNNING:
                leave(each, self._jobs.values())
                each.suspend(self._clock())
            elif each.state is not JobState.SUSPENDED:
                raise RefusedError(f"job {job_id} is {each.detail} and cannot be suspended")

    def resume(self, job_id: int) -> None:
        """See ``Rms.resume``."""
        with self._lock:
            self._called("resume", job_id)
            each = self._find(job_id)
            if each.state is JobState.SUSPENDED:
                each.run_script(self._clock())
                for name in each.nodes:
                    share(each, name, self._cluster().on(name))
                if self.resumes_lost:
                    self.resumes_lost, each.stopped = self.resumes_lost - 1, True
                self.priorities.compute(each, self._clock())
            elif each.state is not JobState.RUNNING:
                raise RefusedError(f"job {job_id} is {each.detail} and cannot be resumed")

    def requeue(self, job_id: int) -> None:
        """See ``Rms.requeue``."""
        with self._lock:
            self._called("requeue", job_id)
            (each, *_) = self._alive(job_id)
            if each.state is JobState.PENDING:
                if each.restarts and not each.gated and each.hold in (Hold.ADMIN, Hold.LAUNCH):
                    each.hold = None
                self._close(self._alive(job_id))
            else:
                self._requeue(each)
                each.gated, each.hold = True, None

    def cancel(self, job_id: int) -> None:
        """See ``Rms.cancel``."""
        with self._lock:
            self._called("cancel", job_id)
            each = self._find(job_id)
            if each.state is not JobState.ENDED:
                self._end(each, "CANCELLED")

    def tell_end(self, job_id: int, restarts: int, exit_code: int, signal: int) -> None:
        """See ``Rms.tell_end``."""
        with self._lock:
            self._called("tell_end", job_id)
            each = self._find(job_id)
            if each.state is JobState.ENDED:
                return
            if each.state is not JobState.RUNNING:
                raise RefusedError(f"job {job_id} is {each.detail}, not running")
            if each.restarts != restarts:
                raise RefusedError(f"job {job_id} was requeued and runs again, and that run has not ended")
            self._end(each, "FAILED" if exit_code or signal else "COMPLETED")

    def request_room(self, node: str, partition: str, *, time_limit_s: float, time_min_s: float) -> int:
        """See ``Rms.request_room``."""
        with self._lock:
            self._called("request_room", node)
            if partition not in self.partitions or node not in self.partitions[partition].nodes:
                raise RefusedError("Requested node configuration is not available")
            return self.submit(
                _ROOM_SCRIPT,
                partition=partition,
                user=self._user,
                uid=64030,
                name=ROOM_NAME,
                node=node,
                cpus=self.nodes[node].cpus,
                memory_mib=self.nodes[node].memory_mib,
                time_limit_s=time_limit_s,
                time_min_s=time_min_s,
                requeue=False,
            )

    def extend_room(self, job_id: int, time_limit_s: float) -> None:
        """See ``Rms.extend_room``."""
        with self._lock:
            self._called("extend_room", job_id)
            (each, *_) = self._alive(job_id)
            if each.preempted:
                raise RefusedError(f"job {job_id} is being preempted")
            if each.under_way:
                each.limit_s = time_limit_s
            each.request = replace(each.request, time_limit_s=time_limit_s)

    def power_down(self, node: str, reason: str) -> None:
        """See ``Rms.power_down``."""
        with self._lock:
            self._called("power_down", node)
            self._require(node)
            self.powering.power_down(node)
            self.set_node(node, reason=reason)
            self._move_on()

    def power_up(self, node: str) -> None:
        """See ``Rms.power_up``."""
        with self._lock:
            self._called("power_up", node)
            self._require(node)
            self.powering.power_up(node)

    def repair_node(self, node: str) -> None:
        """See ``Rms.repair_node``."""
        with self._lock:
            self._called("repair_node", node)
            self._require(node)
            if needs_repair(self.nodes[node]):
                self.set_node(node, up=True, state="IDLE", reason="")
                self.powering.repair(node)

    def _require(self, node: str) -> None:
        if node not in self.nodes:
            raise NotFoundError(f"Slurm has no node {node}")
