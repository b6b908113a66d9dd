"""Stages: how long each part of something took, one after the other, for a line of the engine's log."""

from __future__ import annotations

from collections.abc import Callable


class Stages:
    """Begins with the first stage."""

    def __init__(self, now: Callable[[], float]) -> None:
        """``now``: tells the time."""
        self._now = now
        self._since = now()
        self._told: list[str] = []

    def ended(self, what: str) -> None:
        """The stage has ended, and the next one begins."""
        now = self._now()
        self._told.append(f"{what} {now - self._since:.2f} s")
        self._since = now

    def __str__(self) -> str:
        return ", ".join(self._told)
