"""Ending: a vjob whose script has ended is expected, for a limited time, to give back its room by itself.

Its memory is booked until its VMs are gone. Its CPUs are free at once, for nothing computes in it any more.
"""

from __future__ import annotations

from rmsplugin.adapters.rms.base import JobState, RmsJob
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.rows import VJobRow
from rmsplugin.model.vjob import VJobState

#: Seconds. A wrapper repeats the report of its script's end for up to 60 s, until it is answered, and exits 2 s later;
#: Slurm notices the exit within seconds. If the job runs longer, its wrapper reported too early, or Slurm is slow. Its
#: vjob may then be suspended and moved like any other, which does no harm to a vjob whose script has ended.
_EXPECTED_S = 90.0

_RUNS_ON = f"its script was said to have ended, but its job runs on after {_EXPECTED_S:.0f} s: it counts as running"


def is_ending(vjob: VJobRow, now: float, unheard_until: float = 0.0) -> bool:
    """Whether the vjob's script ended so recently that its job is expected to end, too.

    Args:
        vjob: as the ledger has it.
        now: the engine's time.
        unheard_until: ends of jobs could not be heard of until then: Slurm did not answer.
    """
    return vjob.finished and now - max(vjob.finished_at, unheard_until) < _EXPECTED_S


def tell_of_end_that_does_not_come(ledger: Ledger, vjob: VJobRow, job: RmsJob | None, now: float) -> None:
    """Record that a vjob counts as running again, once."""
    if not vjob.finished:
        return
    runs_on = vjob.state is VJobState.RUNNING and job is not None and job.state is JobState.RUNNING
    if is_ending(vjob, now) or not runs_on or vjob.reason == _RUNS_ON:
        return
    with ledger.transaction():
        ledger.update_vjob(vjob.job_id, reason=_RUNS_ON)
        ledger.event("script-runs-on", _RUNS_ON, vjob=vjob.display_id)
