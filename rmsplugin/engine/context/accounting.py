"""Accounting: asks the RMS's accounting how jobs have ended; while it does not answer, it is asked less and less often.

slurmdbd may be down for days, or let every question hang until its time limit: no cycle may wait for that each time.
Beside cycles it is looked at now and then, so that an outage is known before somebody needs an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress

from rmsplugin.adapters.rms.base import Rms
from rmsplugin.engine.context.rest import Rest
from rmsplugin.errors import RefusedError, UnavailableError

_FIRST_S = 30.0
_MOST_S = 300.0
#: Seconds from one look to the next while it answers.
_LOOK_S = 300.0
#: The job that a look asks about; whether there is such a job is all the same.
_ANY_JOB = 1


class Accounting:
    """Remembers the failures of the accounting; used by the thread of the cycle, and by one that looks beside it."""

    def __init__(self, rms: Rms, clock: Callable[[], float]) -> None:
        """``clock``: seconds."""
        self._rms = rms
        self._rest = Rest(clock, _FIRST_S, _MOST_S)
        self._clock = clock
        self._why, self._asked = "", clock()

    @property
    def silent(self) -> str:
        """Why the accounting does not answer; empty: it did when last asked."""
        return self._why if self._rest.has_failed else ""

    @property
    def is_due(self) -> bool:
        """Whether it is to be looked at."""
        return self._rest.is_over and (self._rest.has_failed or self._clock() - self._asked >= _LOOK_S)

    def look_at_it(self) -> None:
        """Look whether it answers; a site without any has no outage of it. It may take as long as a command may."""
        with suppress(UnavailableError, RefusedError):
            self.ended([_ANY_JOB])

    def ended(self, job_ids: Collection[int]) -> dict[int, str]:
        """See ``Rms.ended``. While the accounting rests, raises UnavailableError without asking it."""
        if not self._rest.is_over:
            raise UnavailableError(f"{self._why}; it is asked again soon")
        try:
            found = self._rms.ended(job_ids)
        except UnavailableError as error:
            self._why = str(error)
            self._rest.begin()
            raise
        finally:
            if job_ids:
                self._asked = self._clock()
        if job_ids:
            self._rest.end()
        return found
