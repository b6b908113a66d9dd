"""Forgotten: the RMS may have lost its memory of a job's start, while the job's wrapper runs on its front.

slurmctld saves a change within five seconds. When it is killed before that and started again, a job that it has started
is pending for it, and behind the gate. Some three seconds after its start it asks each node for its jobs, and until a
node has answered it starts none there. It has those ended that it does not know, by an order that waits in a queue. A
job that it starts again on its front before that order has arrived meets its first wrapper there: slurmd refuses it,
and Slurm drains the front ("Duplicate jobid"), or the order ends the job (22.05, measured).
"""

from __future__ import annotations

import math

from rmsplugin.adapters.rms.base import RmsJob
from rmsplugin.engine.execute.task import Task

#: By so long after all nodes have answered, the RMS has had ended what it does not know, prolog and epilog included.
_ENDED_S = 15.0


class Forgotten:
    """Says whether a pending job has to wait, because a wrapper of it may run that the RMS has forgotten."""

    def __init__(self, task: Task, run: int | None, *, ran: bool) -> None:
        """Ask nobody yet.

        Args:
            task: an operation that gets the job its allocation.
            run: the run that the RMS had leave to start, as it counts requeues; None: it had leave for none.
            ran: it has started that run, as the engine has seen.
        """
        self._task = task
        self._run, self._ran = run, ran
        self._told = False
        self._quiet_since = math.inf

    def opened(self, job: RmsJob) -> None:
        """Note that the job has the engine's leave to start."""
        self._run, self._ran, self._quiet_since = job.restarts, False, math.inf

    def waits(self, job: RmsJob) -> bool:
        """Whether the pending job must not start yet. One that has lost only its start is put behind the gate.

        Raises:
            UnavailableError: the RMS does not answer.
        """
        if job.restarts != self._run or not (self._ran or job.gated):
            return False
        context = self._task.context
        if not self._told:
            self._told = True
            what = "Slurm has forgotten that it had started the job: it may again when its first wrapper has been ended"
            self._task.event("start-forgotten", what)
        if not job.gated:
            context.rms.close_gate(job.job_id)
        unheard = context.rms.unheard(job.partition)
        now = context.clock.now()
        self._quiet_since = math.inf if unheard else min(self._quiet_since, now)
        return now - self._quiet_since < _ENDED_S
