"""User notes: users are told beside their jobs, in Slurm, what the engine has done to them.

Notes are sent beside cycles, the newest of each job alone, and no operation waits for them. While Slurm does not
answer, they are sent less often.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rmsplugin.adapters.rms.base import Rms
from rmsplugin.engine.context.rest import Rest
from rmsplugin.engine.upkeep.user_news import News
from rmsplugin.errors import RmspluginError, UnavailableError

#: The most notes that are sent in a row.
_MOST = 20
#: Seconds after which notes are sent again that Slurm did not answer.
_FIRST_S, _MOST_S = 2.0, 300.0


class UserNotes:
    """Takes news once a cycle, and sends notes when it is asked to, in one thread at a time."""

    def __init__(self, rms: Rms, clock: Callable[[], float]) -> None:
        """``rms``: takes the notes; ``clock``: seconds."""
        self._rms = rms
        self._rest = Rest(clock, _FIRST_S, _MOST_S)
        self._notes: dict[int, str] = {}

    @property
    def is_due(self) -> bool:
        """Whether there are notes to be sent now."""
        return bool(self._notes) and self._rest.is_over

    def take(self, news: Iterable[News]) -> None:
        """Make notes of these news."""
        self._notes.update({each.vjob.job_id: f"rmsplugin: {each.said} ({each.moment})" for each in news})

    def send(self) -> None:
        """Send notes; the others, and those that Slurm did not answer, are sent later."""
        for job_id, note in [*self._notes.items()][:_MOST]:
            try:
                self._rms.comment(job_id, note)
            except UnavailableError:
                self._rest.begin()
                return
            except RmspluginError:
                pass  # the job has ended, or Slurm refuses: nobody misses the note
            self._rest.end()
            if self._notes.get(job_id) == note:  # else there is a newer one already
                del self._notes[job_id]
