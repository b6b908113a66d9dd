"""Reattach: the RMS requeued the job while its VMs run on; a new wrapper is started, which attaches to them.

If the requeue was on purpose, a script that had ended before belongs to the requeued run: it begins anew (decision
0051). A script that ended while its front was lost is not run twice: the new wrapper delivers its end.
"""

from __future__ import annotations

from rmsplugin.engine.execute.operations.allocation import await_allocation, current_job
from rmsplugin.engine.execute.task import Task
from rmsplugin.errors import RmspluginError

#: Slurm keeps a requeued job back while it still completes on its old batch host.
_TIMEOUT_S = 300.0
_LOOK_S = 20.0


def reattach(task: Task) -> None:
    """Get an allocation for the job of a running vjob again. The vjob stays *running* throughout."""
    context, vjob = task.context, task.vjob()
    if 0 <= vjob.requeue_of < current_job(task).restarts:
        if _has_ended(task):
            context.ledger.update_vjob(task.job_id, begins_anew=True)  # the next cycle restarts it
            task.event("ended-before", "its script had ended when its requeued job was about to run: it begins anew")
            return
        context.ledger.update_vjob(task.job_id, requeue_of=-1)  # from here on the script's end is the new run's
    job = current_job(task)
    if job.held and not job.held_for_launch:
        return  # the next cycle finds out who holds it
    # On any front: the wrapper reaches its VMs from every front, and the old front may have failed.
    await_allocation(task, _TIMEOUT_S, run=task.vjob().restarts, ran=True)
    job = current_job(task)
    context.ledger.update_vjob(task.job_id, restarts=job.restarts, wrapper_seen=context.clock.now())
    task.event("reattached", f"its job was requeued and runs again on {job.batch_host}; its VMs ran on")


def _has_ended(task: Task) -> bool:
    """Whether the script is known to have ended; if its guest does not say, the new wrapper attaches."""
    if task.vjob().finished:
        return True
    first = task.vms()[0]
    try:
        return task.context.guests.script_ended(first.address, first.host_key_public, timeout_s=_LOOK_S)
    except RmspluginError as error:
        task.event("script-unknown", f"whether its script has ended is not known: {error}", vm=first.name)
        return False
