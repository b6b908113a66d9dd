"""Ending: a vjob whose script has ended gives back its room by itself; for how long that is expected of it.

Its memory is booked until its VMs are gone. Its CPUs are free at once, for nothing computes in it any more.
"""

from __future__ import annotations

from rmsplugin.adapters.rms.base import JobState, RmsJob
from rmsplugin.engine.context.context import Context
from rmsplugin.engine.ledger.rows import VJobRow
from rmsplugin.model.vjob import VJobState

#: A wrapper tells of the end of its script for up to 60 s, should the answer be lost, and goes 2 s later; Slurm hears
#: of that within seconds. Behind a job that runs on is a wrapper that said so too early, or a Slurm that is slow: its
#: vjob may be suspended and moved like any other, which does no harm to one whose script has ended.
_EXPECTED_S = 90.0

_RUNS_ON = f"its script was said to have ended, but its job runs on after {_EXPECTED_S:.0f} s: it counts as running"


def is_ending(vjob: VJobRow, now: float) -> bool:
    """Whether its script has ended so short a time ago that its job is expected to end, too."""
    return vjob.finished and now - vjob.finished_at < _EXPECTED_S


def tell_of_end_that_does_not_come(context: Context, vjob: VJobRow, job: RmsJob | None, now: float) -> None:
    """Record that a vjob counts as running again, once."""
    runs_on = vjob.state is VJobState.RUNNING and job is not None and job.state is JobState.RUNNING
    if not vjob.finished or is_ending(vjob, now) or not runs_on or vjob.reason == _RUNS_ON:
        return
    with context.ledger.transaction():
        context.ledger.update_vjob(vjob.job_id, reason=_RUNS_ON)
        context.ledger.event("script-runs-on", _RUNS_ON, vjob=vjob.display_id)
