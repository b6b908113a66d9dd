"""Requeues on purpose: wrappers tell of them, so that a script begins anew if it would do so natively.

A requeue by hand, or by the RMS, loses no work: the script goes on, and the next run attaches to it. A requeue that the
script itself asks for is an order to begin anew (decision 0051), and so is one by RequeueExit (decision 0071).
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable

from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.rows import VJobRow
from rmsplugin.model.vjob import VJobState

#: States of a vjob whose script may be under way.
_UNDER_WAY = frozenset(
    state for state in VJobState if state.is_live and state not in (VJobState.STARTING, VJobState.STOPPING)
)


class RequeuedBy(enum.StrEnum):
    """The author of a requeue."""

    SCRIPT = "script"  # the script of the job; the requeue is about to be carried out
    NOBODY = "nobody"  # the script asked for it, but Slurm refused
    OTHERS = "others"  # anybody else: the wrapper is told to end for it


class Requeue:
    """A wrapper's report of a requeue."""

    def __init__(self, by: RequeuedBy, restarts: int) -> None:
        """``restarts``: how often the job had been requeued before the reported run."""
        self.by, self.restarts = by, restarts


def record_requeue(ledger: Ledger, job_id: int, told: Requeue) -> bool:
    """Record a requeue, unless it is a former run's. Returns whether the script asked to begin anew."""
    with ledger.transaction():
        vjob = ledger.vjob(job_id)
        own = vjob.begins_anew and vjob.requeue_of == told.restarts
        if vjob.state not in _UNDER_WAY or told.restarts < vjob.restarts:
            return False
        match told.by:
            case RequeuedBy.SCRIPT if not own:
                ledger.update_vjob(job_id, requeue_of=told.restarts, begins_anew=True)
                ledger.event("requeue-asked", "its script asks for its requeue", vjob=vjob.display_id)
            case RequeuedBy.NOBODY if own:
                ledger.update_vjob(job_id, requeue_of=-1, begins_anew=False)
                ledger.event("requeue-refused", "Slurm refused the requeue", vjob=vjob.display_id)
            case RequeuedBy.OTHERS if vjob.requeue_of != told.restarts:
                ledger.update_vjob(job_id, requeue_of=told.restarts, begins_anew=False)
        return own or told.by is RequeuedBy.SCRIPT


def record_requeue_exits(ledger: Ledger, codes: Collection[int], vjobs: Iterable[VJobRow]) -> None:
    """For scripts that ended with a code for which Slurm requeues jobs, record that the next run begins anew.

    This holds whether Slurm's own requeue or the loss of the front comes first: to deliver that end again would only
    have the job requeued once more.
    """
    for vjob in vjobs:
        # To Slurm a script that was ended by a signal has exit code 0.
        ended = vjob.finished and (0 if vjob.exit_signal else vjob.exit_code) in codes
        if ended and vjob.state is VJobState.RUNNING and not vjob.begins_anew:
            ledger.update_vjob(vjob.job_id, requeue_of=vjob.restarts, begins_anew=True)
            why = f"its script has ended with exit code {vjob.exit_code}: if Slurm queues its job again, it begins anew"
            ledger.event("requeue-exit", why, vjob=vjob.display_id)


def why_not_attached(vjob: VJobRow, run: int) -> str:
    """Why the wrapper of a run has to wait, although the VMs run; empty if it may attach.

    Args:
        vjob: as the ledger has it.
        run: the number of requeues of its job before this run.
    """
    if run > vjob.restarts or 0 <= vjob.requeue_of < run:
        return "its job was requeued, and runs already: the engine looks first whether its script begins anew"
    return ""
