"""Reattach: the RMS requeued the job while its VMs run on; a new wrapper is started, which attaches to them."""

from __future__ import annotations

from rmsplugin.engine.operations.allocation import await_allocation, current_job
from rmsplugin.engine.task import Task

#: Slurm keeps a requeued job back while it still completes on its old batch host.
_TIMEOUT_S = 300.0


def reattach(task: Task) -> None:
    """Get the job of a running vjob an allocation again. The vjob stays *running* throughout."""
    context = task.context
    # On any front: the wrapper reaches its VMs from every one, and the old one may be what failed.
    await_allocation(task, _TIMEOUT_S)
    job = current_job(task)
    context.ledger.update_vjob(task.job_id, restarts=job.restarts, wrapper_seen=context.clock.now())
    task.event("reattached", f"its job was requeued and runs again on {job.batch_host}; its VMs ran on")
