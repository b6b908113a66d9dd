"""VJob cache: the owners of running vjobs, in memory, so that a sign of life reads no database.

An entry always agrees with the ledger: it is dropped as soon as the ledger tells that its vjob has changed.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from rmsplugin.engine.ledger.ledger import Ledger, Subject
from rmsplugin.model.vjob import VJobState


@dataclass(frozen=True, slots=True)
class Entry:
    """The facts about a vjob that a call of its wrapper needs."""

    job_id: int
    uid: int
    user: str
    state: VJobState
    returns: int  # how often the vjob went back to a checkpoint


class VJobCache:
    """Entries by display id, each read when it is first asked for. Several threads may call."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._lock = threading.Lock()
        self._entries: dict[str, Entry] = {}
        self._names: dict[int, set[str]] = {}
        self._changes = 0
        ledger.subscribe(self._changed)

    def known(self, display_id: str) -> Entry | None:
        """The entry, if it is in memory; waits for nothing."""
        return self._entries.get(display_id)

    def look_up(self, display_id: str) -> Entry:
        """The entry, from the ledger if need be. Raises NotFoundError."""
        entry = self._entries.get(display_id)
        if entry is not None:
            return entry
        before = self._changes
        vjob = self._ledger.find_vjob(display_id)
        entry = Entry(vjob.job_id, vjob.uid, vjob.user, vjob.state, vjob.returns)
        with self._lock:
            # If anything changed since the vjob was read, it may be this vjob: then the entry is not kept.
            if self._changes == before and entry.state is VJobState.RUNNING:
                self._entries[display_id] = entry
                self._names.setdefault(entry.job_id, set()).add(display_id)
        return entry

    def _changed(self, subjects: frozenset[Subject]) -> None:
        with self._lock:
            self._changes += 1
            for _, job_id in (subject for subject in subjects if subject[0] == "vjob"):
                for name in self._names.pop(job_id, ()):
                    del self._entries[name]
