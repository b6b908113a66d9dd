"""Preferring: an administrator's preference about one vjob (mustBeRunning and mustBeReady of RR-6929, section 4.2).

A vjob that should not run makes way, if it may be suspended. One that should run has its room before all that the
policy chooses, but not before those that must run: where these leave none, the policy decides about it as about any
other. It never makes a decision impossible, as a target does.
"""

from __future__ import annotations

from rmsplugin.decision.result import Reason, ReasonCode
from rmsplugin.model.elements import VJob
from rmsplugin.model.vjob import VJobState

_RUNS = Reason(ReasonCode.PREFERRED, "an administrator prefers that it runs")
_RESTS = Reason(ReasonCode.PREFERRED, "an administrator prefers that it does not run")
#: Follows the reason of a vjob that runs all the same.
_MAY_NOT = "an administrator prefers that it does not run, but it may not be suspended"


def to_run(vjob: VJob) -> Reason | None:
    """The reason why a vjob has its room before others; None if no administrator prefers that."""
    return _RUNS if vjob.preference is VJobState.RUNNING else None


def to_rest(vjob: VJob, now: VJobState) -> Reason | None:
    """The reason why a vjob makes way, or does not start; None if nobody prefers that, or it may not be suspended."""
    prefers = vjob.preference is VJobState.SLEEPING
    return _RESTS if prefers and (vjob.preemptible or now is not VJobState.RUNNING) else None


def note(vjob: VJob) -> str:
    """What is added to the reason of a vjob that runs though it should not; empty of any other."""
    return _MAY_NOT if vjob.preference is VJobState.SLEEPING else ""


#: Follows the reason of a vjob that waits all the same.
CROWDED_OUT = "an administrator prefers that it runs, and those that must run leave no room for that"
