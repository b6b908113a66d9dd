"""User notes: users are told beside their jobs what the engine has done to them: suspended, resumed, moved, lost.

A note names no other job, user or reason: Slurm tells it to whom it tells of the job. Notes are sent beside cycles,
the newest of each job alone, and no operation waits for them. While Slurm does not answer, they are sent less often.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from rmsplugin.adapters.rms.base import Rms
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.rows import Event, VJobRow
from rmsplugin.errors import NotFoundError, RmspluginError, UnavailableError

#: The most notes that are sent in a row.
_MOST = 20
#: After the first failure notes are sent again after so many seconds, then after twice as many, up to the most.
_FIRST_S, _MOST_S = 2.0, 300.0
_SAID = {
    "vjob-sleeping": "suspended; its time limit stands still",
    "vjob-paused": "paused; its time limit stands still",
    "went-back": "lost its VMs, and went back to a checkpoint",
}
_KINDS = (*_SAID, "vjob-running", "vjob-waiting", "migrated")


class UserNotes:
    """Collects notes once a cycle, and sends them when it is asked to, in one thread at a time."""

    def __init__(self, ledger: Ledger, rms: Rms, clock: Callable[[], float]) -> None:
        """What happened before is not told again.

        Args:
            ledger: has the events.
            rms: takes the notes.
            clock: seconds since the epoch.
        """
        self._ledger, self._rms, self._clock = ledger, rms, clock
        newest = ledger.events(limit=1)
        self._last = newest[-1].id if newest else 0
        self._losses = {vjob.job_id: vjob.losses for vjob in ledger.vjobs() if vjob.losses}
        self._notes: dict[int, str] = {}
        self._failures, self._not_before = 0, 0.0

    @property
    def is_due(self) -> bool:
        """Whether there are notes to be sent now."""
        return bool(self._notes) and self._clock() >= self._not_before

    def collect(self) -> None:
        """Make notes of what has happened since the last time."""
        events = self._ledger.events(since=self._last, kinds=_KINDS)
        for event in events:
            self._last = max(self._last, event.id)
            with suppress(NotFoundError):
                vjob = self._ledger.find_vjob(event.vjob)
                if said := self._said(event, vjob):
                    self._notes[vjob.job_id] = f"rmsplugin: {said} {_moment(event.time)}"

    def _said(self, event: Event, vjob: VJobRow) -> str:
        """What its user is told of an event; empty: nothing."""
        if event.kind == "vjob-running":
            return "resumed" if vjob.ran_s > 0 else ""
        if event.kind == "vjob-waiting":
            known, self._losses[vjob.job_id] = self._losses.get(vjob.job_id, 0), vjob.losses
            return "lost its VMs, and begins again from its start" if vjob.losses > known else ""
        if event.kind == "migrated":
            return f"moved to {event.node}"
        return _SAID[event.kind]

    def send(self) -> None:
        """Send notes; the others, and those that Slurm did not answer, are sent later."""
        for job_id, note in [*self._notes.items()][:_MOST]:
            try:
                self._rms.comment(job_id, note)
            except UnavailableError:
                self._failures += 1
                self._not_before = self._clock() + min(_MOST_S, _FIRST_S * 2 ** min(self._failures - 1, 30))
                return
            except RmspluginError:
                pass  # the job has ended, or Slurm refuses: nobody misses the note
            self._failures = 0
            if self._notes.get(job_id) == note:  # else there is a newer one already
                del self._notes[job_id]


def _moment(seconds: float) -> str:
    return time.strftime("(%Y-%m-%dT%H:%M:%S)", time.localtime(seconds))
