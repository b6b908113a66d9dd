"""Sensed: what the BMCs of nodes told last, as the threads that ask them found it."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from rmsplugin.adapters.power.base import PowerReading


class Sensed:
    """By node. Written by several threads, and read by several."""

    def __init__(self) -> None:
        """Nothing was told yet."""
        self._lock = threading.Lock()
        self._latest: dict[str, PowerReading] = {}

    def tell(self, node: str, reading: PowerReading | None) -> None:
        """Replace what a node's BMC told; None: it was silent."""
        with self._lock:
            if reading is None:
                self._latest.pop(node, None)
            else:
                self._latest[node] = reading

    def latest(self) -> Mapping[str, PowerReading]:
        """The last readings of the BMCs that answered when they were asked last."""
        with self._lock:
            return dict(self._latest)
