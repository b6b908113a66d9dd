"""Conservative backfilling: First Come First Serve, and none that waits is delayed by one behind it (RR-6929).

EASY reserves a start for the head of the queue only. Here each vjob that waits has one:

- in queue order, each vjob gets the earliest time from which it fits for as long as it may run, beside those that run
  and those ahead of it at their times; if that is now, it starts;
- a vjob that fits at no time, since vjobs without a time limit are in its way, has no time. Vjobs behind it that end do
  not matter to it; those that never end must fit beside it on empty nodes, as under EASY.

Everything is computed anew in each pass, so that all move forward when a vjob ends before its limit. Times are seconds
from now; ``math.inf`` is the end of a vjob that never ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic

from rmsplugin.decision.room import Item, Room


@dataclass
class Slot(Generic[Item]):
    """The vjobs that run together from a time on, until the next slot begins; the first one is this moment."""

    begin_s: float
    items: list[Item]
    room: Room[Item]


@dataclass
class Profile(Generic[Item]):
    """Which vjobs run when, by their estimated ends; and those that have no time at all."""

    slots: list[Slot[Item]]
    timeless: Room[Item] | None = None  # empty nodes with those on them
    fits_now: bool = False  # whether there is room at this moment for the vjob that was looked at last

    @classmethod
    def of(cls, running: Sequence[Item], room: Room[Item], end_s: Callable[[Item], float]) -> Profile[Item]:
        """The profile of running vjobs, which are in ``room``; those that start now are added to that room."""
        slots = [Slot(0.0, list(running), room)]
        for time_s in sorted({end for end in map(end_s, running) if end < math.inf}):
            left = [item for item in running if end_s(item) > time_s]
            later = room.later(left)
            if later is not None:
                slots.append(Slot(time_s, left, later))
        return cls(slots)

    def begin_s(self, item: Item, lasts_s: float) -> float | None:
        """Give a vjob the earliest time at which it fits; None: at once; ``math.inf``: there is no such time."""
        lasts, self.fits_now = lasts_s == math.inf, False
        if lasts and self.timeless is not None and not self.timeless.add(item):
            return math.inf
        first = 0
        while first < len(self.slots):
            begin_s = self.slots[first].begin_s
            full = self._takes(item, first, begin_s + lasts_s)
            if full is None:
                return begin_s if first else None
            first = full + 1  # to begin before it lasts until it, too
        if not lasts or self.timeless is None:
            self._has_no_time(item)
        return math.inf

    def _has_no_time(self, item: Item) -> None:
        if self.timeless is None:
            self.timeless = self.slots[0].room.later((), item)
        else:
            self.timeless.add(item)

    def _takes(self, item: Item, first: int, end_s: float) -> int | None:
        """Take a vjob from a slot on, for as long as it runs, if it always fits; else the first slot that is full."""
        last = first
        while last + 1 < len(self.slots) and self.slots[last + 1].begin_s < end_s:
            last += 1
        taken: list[Slot[Item]] = []
        for number, slot in enumerate(self.slots[first : last + 1], start=first):
            if not slot.room.add(item):
                for each in taken:
                    each.room.discard(item)
                return number
            taken.append(slot)
            self.fits_now |= first == 0
        self._split(last, end_s)
        for slot in taken:
            slot.items.append(item)
        return None

    def _split(self, last: int, end_s: float) -> None:
        """Let those of a slot run on without the vjob that has just come, from its end on."""
        following = self.slots[last + 1].begin_s if last + 1 < len(self.slots) else math.inf
        if end_s < following:
            items = list(self.slots[last].items)
            rest = self.slots[last].room.later(items)
            if rest is not None:
                self.slots.insert(last + 1, Slot(end_s, items, rest))
