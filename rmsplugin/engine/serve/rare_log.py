"""Rare log: events that anybody on the network can cause are logged now and then, with their number meanwhile."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

#: The least time, in seconds, between two lines of one kind.
PERIOD_S = 60.0


class RareLog:
    """Warnings of a few kinds. Used in one thread."""

    def __init__(self, log: logging.Logger, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._monotonic = monotonic
        self._kinds: dict[str, tuple[float, int]] = {}  # by kind: time of the last line, and lines left out since

    def warning(self, kind: str, *arguments: object) -> None:
        """Write a line, or count it. ``kind``: the format, of which there are few; never text that a caller sent."""
        last, left_out = self._kinds.get(kind, (-PERIOD_S, 0))
        now = self._monotonic()
        if now - last < PERIOD_S:
            self._kinds[kind] = (last, left_out + 1)
            return
        self._kinds[kind] = (now, 0)
        more = f" (and {left_out} more like this in the last {now - last:.0f} s)" if left_out else ""
        self._log.warning(kind + "%s", *arguments, more)
