"""Native: the act that makes a vjob agree with its plain job again. Pure.

There is no wrapper and no VM: the RMS's state of the job alone says what is there. So nothing follows from a silence,
and a job that runs is never sent back, whoever has started it: the vjob follows it.
"""

from __future__ import annotations

import math

from rmsplugin.adapters.rms.base import JobState, RmsJob
from rmsplugin.engine.ledger.rows import OperationKind, VJobRow
from rmsplugin.engine.reconcile.reconcile import AGAIN, Directive, RmsAct, ended
from rmsplugin.model.vjob import VJobState


def reconcile_native(vjob: VJobRow, job: RmsJob | None) -> Directive | None:
    """Compare a vjob with its job.

    Args:
        vjob: as the ledger has it.
        job: as the RMS has it; None: it has ended, as accounting or an operator says.

    Returns:
        The act, or None if both agree.
    """
    if job is None or job.state is JobState.ENDED:
        return ended(vjob, job, math.inf)
    if vjob.state is VJobState.STOPPING:
        return Directive(OperationKind.RESTART, vjob.reason or "cleaning up")
    if vjob.state in AGAIN:
        return Directive(AGAIN[vjob.state], "taken up again")
    if vjob.state is VJobState.RUNNING:
        return _running(vjob, job)
    if vjob.state is VJobState.PAUSED:
        return _paused(vjob, job)
    return _waiting(vjob, job)


def _running(vjob: VJobRow, job: RmsJob) -> Directive | None:
    if job.state is JobState.PENDING:
        return Directive(OperationKind.RESTART, "its job was requeued, and begins anew when its turn comes")
    if job.restarts > vjob.restarts:
        return Directive(OperationKind.REATTACH, "its job was requeued and runs again")
    if job.state is JobState.SUSPENDED:
        words = "its job was suspended with scontrol; `rmsplugin resume` or `scontrol resume` lets it go on"
        return Directive(OperationKind.PAUSE, words)
    return None


def _paused(vjob: VJobRow, job: RmsJob) -> Directive | None:
    if job.state is JobState.PENDING:
        return Directive(OperationKind.RESTART, "its job was requeued, and begins anew when its turn comes")
    if job.restarts > vjob.restarts:
        return Directive(OperationKind.UNPAUSE, "its job was requeued and runs again")
    if job.state is not JobState.RUNNING:
        return None
    if vjob.wakes:
        # A slurmctld that is killed right after a suspension forgets it, while the job stands still.
        return Directive(OperationKind.PAUSE, "Slurm has it as running, while it waits for its turn")
    return Directive(OperationKind.UNPAUSE, "its job was resumed with scontrol")


def _waiting(vjob: VJobRow, job: RmsJob) -> Directive | None:
    if vjob.state is VJobState.TERMINATED:
        return Directive(RmsAct.RENEW, "its job is in the queue again")
    if job.state is JobState.PENDING:
        gated = job.gated or job.completing
        return None if gated else Directive(RmsAct.GATE, "waits for the engine")
    if job.state is JobState.CONFIGURING:
        return Directive(RmsAct.REQUEUE, "it was started by another hand than the engine's, and has not begun")
    return Directive(OperationKind.START, "its job was started by another hand than the engine's, and has begun")
