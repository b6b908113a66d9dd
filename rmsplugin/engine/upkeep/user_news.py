"""User news: what the engine has done to vjobs, as their users are told it: suspended, resumed, moved, lost.

News name no other job, user or reason: whoever may know of the job may read them.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass

from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.rows import Event, VJobRow
from rmsplugin.errors import NotFoundError
from rmsplugin.model.vjob import VJobState

_SAID = {
    "vjob-sleeping": "suspended; its time limit stands still",
    "vjob-paused": "paused; its time limit stands still",
    "went-back": "lost its VMs, and went back to a checkpoint",
}
_RESTS = (VJobState.PAUSED, VJobState.UNPAUSING, VJobState.SLEEPING, VJobState.RESUMING)
_KINDS = (*_SAID, "vjob-running", "vjob-waiting", "migrated")


@dataclass(frozen=True, slots=True)
class News:
    """What was done to one vjob."""

    vjob: VJobRow
    said: str
    time: float  # seconds since the epoch

    @property
    def moment(self) -> str:
        """The time, as Slurm writes it."""
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(self.time))


class UserNews:
    """Makes news of events; used by one thread, that of the cycle."""

    def __init__(self, ledger: Ledger) -> None:
        """What happened before is not told again. ``ledger``: has the events."""
        self._ledger = ledger
        newest = ledger.events(limit=1)
        self._last = newest[-1].id if newest else 0
        vjobs = ledger.vjobs()
        self._losses = {vjob.job_id: vjob.losses for vjob in vjobs if vjob.losses}
        self._resting = {vjob.job_id for vjob in vjobs if vjob.state in _RESTS}

    def collect(self) -> list[News]:
        """What has happened since the last time, in its order."""
        found = []
        for event in self._ledger.events(since=self._last, kinds=_KINDS):
            self._last = max(self._last, event.id)
            with suppress(NotFoundError):
                vjob = self._ledger.find_vjob(event.vjob)
                if said := self._said(event, vjob):
                    found.append(News(vjob, said, event.time))
        return found

    def _said(self, event: Event, vjob: VJobRow) -> str:
        """What its user is told of an event; empty: nothing."""
        if event.kind == "migrated":
            return f"moved to {event.node}"
        if event.kind in _SAID:
            self._resting.add(vjob.job_id)
            return _SAID[event.kind]
        was_resting = vjob.job_id in self._resting
        self._resting.discard(vjob.job_id)
        if event.kind == "vjob-running":
            return "resumed" if was_resting else ""
        known, self._losses[vjob.job_id] = self._losses.get(vjob.job_id, 0), vjob.losses
        return "lost its VMs, and begins again from its start" if vjob.losses > known else ""
