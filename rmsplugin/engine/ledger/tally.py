"""Tally: what this process has recorded and answered, counted in memory; it begins anew with the process.

Nothing is counted by names of jobs, users, VMs or nodes. Its lock is held for a few additions, never for a question.
"""

from __future__ import annotations

import copy
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TypeVar

from rmsplugin.model.vjob import VJobState

K = TypeVar("K", bound=Hashable)

#: Upper bounds of the buckets of durations, in seconds; a last one has all that took longer.
BOUNDS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)
#: The kinds of actions on a VM; an action of another kind is counted as ``other``.
ACTION_KINDS = ("run", "stop", "suspend", "resume", "migrate", "pause", "unpause", "checkpoint", "copy", "other")
#: Events that tell of the requeue of a job, with its cause.
REQUEUES = {"requeue": "engine", "requeue-asked": "script", "requeue-exit": "exit-code", "reattached": "others"}


@dataclass(slots=True)
class Durations:
    """How long things took."""

    total_s: float = 0.0
    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))  # by bucket

    def add(self, seconds: float) -> None:
        """Count one; a clock that was set back makes it none shorter than 0."""
        seconds = max(0.0, seconds)
        self.total_s += seconds
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1


@dataclass(slots=True)
class Counts:
    """The numbers at one instant.

    Attributes:
        entered: by partition and state, how often a vjob came into the state.
        lost: by partition, how often the state of a vjob was lost.
        requeues: by cause.
        actions: by kind, and whether they failed.
        operations: likewise.
        under_way: by id, the kind of each action that has begun and not ended.
        moved_bytes: by kind of action, the bytes that ended actions have moved.
        answers: by route and status.
    """

    entered: Counter[tuple[str, VJobState]] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    requeues: Counter[str] = field(default_factory=Counter)
    actions: dict[tuple[str, bool], Durations] = field(default_factory=dict)
    operations: dict[tuple[str, bool], Durations] = field(default_factory=dict)
    under_way: dict[int, str] = field(default_factory=dict)
    moved_bytes: Counter[str] = field(default_factory=Counter)
    answers: Counter[tuple[str, int]] = field(default_factory=Counter)


class Tally:
    """Counts. Several threads may call."""

    def __init__(self) -> None:
        """Nothing was counted yet."""
        self._lock = threading.Lock()
        self._counts = Counts()

    def now(self) -> Counts:
        """The numbers as they are; the caller may keep them."""
        with self._lock:
            return copy.deepcopy(self._counts)

    def entered(self, partition: str, state: VJobState) -> None:
        """A vjob has come into a state."""
        self._add(self._counts.entered, (partition, state))

    def lost(self, partition: str) -> None:
        """The state of a vjob was lost."""
        self._add(self._counts.lost, partition)

    def happened(self, kind: str) -> None:
        """An event was recorded."""
        if kind in REQUEUES:
            self._add(self._counts.requeues, REQUEUES[kind])

    def requeued(self) -> None:
        """The engine has had a job queued again, of which no event tells."""
        self._add(self._counts.requeues, REQUEUES["requeue"])

    def answered(self, route: str, status: int) -> None:
        """A request was answered."""
        self._add(self._counts.answers, (route, status))

    def action_began(self, number: int, kind: str) -> None:
        """An action on a VM has begun."""
        with self._lock:
            self._counts.under_way[number] = _known(kind)

    def action_ended(self, number: int, kind: str, failed: bool, took_s: float, moved_bytes: int) -> None:
        """An action on a VM has ended."""
        kind = _known(kind)
        with self._lock:
            self._counts.under_way.pop(number, None)
            self._counts.actions.setdefault((kind, failed), Durations()).add(took_s)
            self._counts.moved_bytes[kind] += moved_bytes

    def operation_ended(self, kind: str, failed: bool, took_s: float) -> None:
        """An operation on a vjob has ended."""
        with self._lock:
            self._counts.operations.setdefault((str(kind), failed), Durations()).add(took_s)

    def _add(self, counter: Counter[K], key: K) -> None:
        with self._lock:
            counter[key] += 1


def _known(kind: str) -> str:
    return kind if kind in ACTION_KINDS else "other"
