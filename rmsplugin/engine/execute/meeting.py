"""Meeting: the threads that act on the VMs of one vjob wait for each other, so that all act at the same instant."""

from __future__ import annotations

import threading
from collections.abc import Iterable


class Meeting:
    """All VMs meet; if fewer can be acted on at a time, groups of that size meet, one after the other."""

    def __init__(self, names: Iterable[str], at_a_time: int) -> None:
        """Await the VMs with these names."""
        self._awaited = set(names)
        self._at_a_time = at_a_time
        self._here: set[str] = set()
        self._changed = threading.Condition()

    def wait(self, name: str, timeout_s: float) -> None:
        """Wait for the others of the group. A VM that has waited ``timeout_s`` in vain is not awaited any more."""
        with self._changed:
            if name not in self._awaited:
                return
            self._here.add(name)
            self._begin()
            if not self._changed.wait_for(lambda: name not in self._awaited, timeout_s):
                self._drop(name)

    def drop(self, name: str) -> None:
        """Do not await this VM any more: it has been here, or has failed before."""
        with self._changed:
            self._drop(name)

    def _drop(self, name: str) -> None:
        self._here.discard(name)
        self._awaited.discard(name)
        self._begin()

    def _begin(self) -> None:
        if self._here and len(self._here) >= min(len(self._awaited), self._at_a_time):
            self._awaited -= self._here
            self._here.clear()
            self._changed.notify_all()
