"""Simulated faults: failures and hooks that a test has ordered for the next call of a method."""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable


class Point(enum.StrEnum):
    """The point in an action where a hook is called."""

    BEFORE = "before"  # nothing has happened yet
    DURING = "during"  # half of it is done; if the hook raises, it stays so until ``settle``
    HANDED_OVER = "handed over"  # nothing aborts the migration any more: post-copy
    AFTER = "after"  # all has happened, but the caller does not know it yet


class SimulatedFaults:
    """Failures and hooks, each of which happens once, in the order in which they were ordered."""

    def __init__(self) -> None:
        self.failures: list[tuple[str, str | None, Exception]] = []
        self.hooks: list[tuple[str, Point, str | None, Callable[[], None]]] = []
        self._lock = threading.RLock()

    def raise_failure(self, method: str, vm: str | None) -> None:
        """Raise the failure ordered for this method and VM; without effect if there is none."""
        with self._lock:
            for failure in self.failures:
                if failure[0] == method and failure[1] in (None, vm):
                    self.failures.remove(failure)
                    raise failure[2]

    def call_hook(self, method: str, point: Point, vm: str | None) -> None:
        """Call the hook ordered for this point, if there is one; its errors are raised."""
        with self._lock:
            found = next((h for h in self.hooks if h[:2] == (method, point) and h[2] in (None, vm)), None)
            if found is None:
                return
            self.hooks.remove(found)
        found[3]()
