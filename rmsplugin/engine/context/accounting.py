"""Accounting: asks the RMS's accounting how jobs have ended; while it does not answer, it is asked less and less often.

slurmdbd may be down for days, or let every question hang until its time limit: no cycle may wait for that each time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress

from rmsplugin.adapters.rms.base import Rms
from rmsplugin.errors import UnavailableError

_FIRST_S = 30.0
_MOST_S = 300.0


class Accounting:
    """Remembers the failures of the accounting; used by one thread, that of the cycle."""

    def __init__(self, rms: Rms, clock: Callable[[], float]) -> None:
        """``clock``: seconds."""
        self._rms = rms
        self._clock = clock
        self._failures = 0
        self._not_before = 0.0
        self._why = ""
        self._unanswered: tuple[int, ...] = ()

    def silent(self) -> str:
        """Why the accounting does not answer; empty: it did when last asked. It is asked again from time to time."""
        if self._failures and self._clock() >= self._not_before:
            with suppress(UnavailableError):
                self.ended(self._unanswered)
        return self._why if self._failures else ""

    def ended(self, job_ids: Collection[int]) -> dict[int, str]:
        """See ``Rms.ended``. While the accounting rests, raises UnavailableError without asking it."""
        if self._failures and self._clock() < self._not_before:
            raise UnavailableError(f"{self._why}; it is asked again soon")
        try:
            found = self._rms.ended(job_ids)
        except UnavailableError as error:
            self._failures, self._why, self._unanswered = self._failures + 1, str(error), tuple(job_ids)
            self._not_before = self._clock() + min(_MOST_S, _FIRST_S * 2 ** min(self._failures - 1, 30))
            raise
        self._failures = 0
        return found
