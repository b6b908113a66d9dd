"""Stages: the time that each part of an action took, one after the other, for a line of the engine's log."""

from __future__ import annotations

from collections.abc import Callable


class Stages:
    """The stages of one action; the first begins with the object."""

    def __init__(self, now: Callable[[], float]) -> None:
        """``now``: tells the time."""
        self._now = now
        self._since = now()
        self._told: list[str] = []

    def ended(self, what: str) -> None:
        """End the stage, named ``what``, and begin the next one."""
        now = self._now()
        self._told.append(f"{what} {now - self._since:.2f} s")
        self._since = now

    def __str__(self) -> str:
        return ", ".join(self._told)
