"""EASY: First Come First Serve with backfill that never delays the head of the queue.

The rules are those of ``data/README.md`` next to the reference schedules (three public simulators agree on them), with
"enough processors are free" generalised to "all of them pack together":

- from the head, vjobs start while they fit beside the running ones;
- the first one that does not fit is the *head*. Its *shadow time* is the earliest estimated end at which it fits beside
  those that run on. The room left beside them then is the *extra*;
- the rest is scanned once: a vjob that fits now starts if it ends by the shadow time, or if it fits into the extra as
  well, which it then consumes. Everything is computed anew in each pass.

Times are seconds from now; ``math.inf`` is the end of a vjob that never ends.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic

from rmsplugin.decision.room import Item, Room


class Verdict(enum.Enum):
    """The verdict of a pass on a ready vjob."""

    STARTS = enum.auto()  # in its turn
    HEAD = enum.auto()  # the first that does not fit
    BEHIND = enum.auto()  # behind the head, where no vjob may pass
    ENDS_IN_TIME = enum.auto()  # starts, and ends by the shadow time
    FITS_EXTRA = enum.auto()  # starts, and runs on beside the head
    WOULD_DELAY = enum.auto()  # fits now, and would be in the head's way at the shadow time
    NO_ROOM = enum.auto()


STARTING = frozenset({Verdict.STARTS, Verdict.ENDS_IN_TIME, Verdict.FITS_EXTRA})


@dataclass
class Reservation(Generic[Item]):
    """The latest start of the head, and the room beside it then (its *extra*).

    A head that never fits beside vjobs that never end has no shadow time (``math.inf``). Vjobs that end do not matter
    to it; those that never end must fit beside it on an empty cluster. If it does not even fit there, ``later`` is None
    and no vjob can delay it.
    """

    head: Item
    shadow_s: float
    later: Room[Item] | None

    def ends_in_time(self, end_s: float) -> bool:
        """Whether a vjob that ends then is gone when the head starts; one that never ends is not."""
        return end_s <= self.shadow_s and end_s < math.inf

    def takes_beside(self, item: Item) -> bool:
        """Whether a vjob fits beside the head, at the shadow time and after; it then consumes that room."""
        return self.later is None or self.later.add(item)


@dataclass
class Pass(Generic[Item]):
    """The verdict for each that was ready, in queue order; and the head's reservation, if there is a head."""

    verdicts: list[tuple[Item, Verdict]] = field(default_factory=list)
    reservation: Reservation[Item] | None = None


def reserve(head: Item, running: Iterable[Item], room: Room[Item], end_s: Callable[[Item], float]) -> Reservation[Item]:
    """Find the head's shadow time: the earliest end of a running vjob at which it fits beside those that run on."""
    left = list(running)
    times = sorted({end for end in map(end_s, left) if end < math.inf})
    if room.by_halves:
        return _by_halves(
            head, times, lambda time_s: room.later([item for item in left if end_s(item) > time_s], head)
        ) or (Reservation(head, math.inf, room.later((), head)))
    for shadow_s in times:
        left = [item for item in left if end_s(item) > shadow_s]
        later = room.later(left, head)
        if later is not None:
            return Reservation(head, shadow_s, later)
    return Reservation(head, math.inf, room.later((), head))


def _by_halves(
    head: Item, times: Sequence[float], later: Callable[[float], Room[Item] | None]
) -> Reservation[Item] | None:
    """The reservation for the first time at which the head fits, if it fits at all that follow; None: at none."""
    found, first, beyond = None, 0, len(times)
    while first < beyond:
        middle = (first + beyond) // 2
        room = later(times[middle])
        if room is None:
            first = middle + 1
        else:
            found, beyond = Reservation(head, times[middle], room), middle
    return found


def schedule(
    ready: Sequence[Item],
    running: Iterable[Item],
    room: Room[Item],
    end_s: Callable[[Item], float],
    backfill: bool = True,
) -> Pass[Item]:
    """Make one pass.

    Args:
        ready: the vjobs that could start, in the order of the queue.
        running: the vjobs that run, and run on.
        room: the room with the running vjobs in it; those that start are added to it.
        end_s: the estimated end of a vjob that runs or starts now, in seconds from now.
        backfill: False for plain First Come First Serve, under which no vjob passes the head.
    """
    result: Pass[Item] = Pass()
    started = list(running)
    for item in ready:
        if result.reservation is not None:
            verdict = _behind(item, result.reservation, room, end_s) if backfill else Verdict.BEHIND
        elif room.add(item):
            started.append(item)
            verdict = Verdict.STARTS
        else:
            result.reservation = reserve(item, started, room, end_s)
            verdict = Verdict.HEAD
        result.verdicts.append((item, verdict))
    return result


def _behind(item: Item, reservation: Reservation[Item], room: Room[Item], end_s: Callable[[Item], float]) -> Verdict:
    if not room.add(item):
        return Verdict.NO_ROOM
    if reservation.ends_in_time(end_s(item)):
        return Verdict.ENDS_IN_TIME
    if reservation.takes_beside(item):
        return Verdict.FITS_EXTRA
    room.discard(item)
    return Verdict.WOULD_DELAY
