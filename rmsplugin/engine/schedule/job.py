"""Job of the schedule: something that is done at times of day."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rmsplugin.cron import Cron


@dataclass(frozen=True, slots=True)
class ScheduledJob:
    """One job.

    Attributes:
        name: as people know it, and the ledger.
        what: what it does, in a few words.
        expression: the cron expression of its times; empty: never.
        act: does it. Returns a sentence on what was done; raises RmspluginError with a sentence on why it was not.
        off: why it never runs, although there are times; empty: it does.
        cron: the same times, in the time zone of the schedule; None: it never runs.
    """

    name: str
    what: str
    expression: str
    act: Callable[[], str]
    off: str = ""
    cron: Cron | None = None
