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
from functools import cached_property
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


class Reservation(Generic[Item]):
    """The latest start of the head, and the room beside it then (its *extra*); looked for when it is first asked for.

    A head that never fits beside vjobs that never end has no shadow time (``math.inf``). Vjobs that end do not matter
    to it; those that never end must fit beside it on an empty cluster. If it does not even fit there, ``later`` is None
    and no vjob can delay it.
    """

    def __init__(self, head: Item, find: Callable[[], tuple[float, Room[Item] | None]]) -> None:
        """Reserve for a vjob; ``find`` is called once, and tells the shadow time and the room then."""
        self.head, self._find = head, find

    @cached_property
    def _found(self) -> tuple[float, Room[Item] | None]:
        return self._find()

    @property
    def shadow_s(self) -> float:
        """The shadow time, in seconds from now."""
        return self._found[0]

    @property
    def later(self) -> Room[Item] | None:
        """The room beside the head, at the shadow time and after."""
        return self._found[1]

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
    """Reserve for the head: the earliest end of a running vjob at which it fits beside those that run on.

    Who runs, and until when, is noted at once.
    """
    ends = [(item, end_s(item)) for item in running]
    times = sorted({end for _, end in ends if end < math.inf})
    by_halves = room.by_halves

    def later(time_s: float) -> Room[Item] | None:
        return room.later([item for item, end in ends if end > time_s], head)

    def find() -> tuple[float, Room[Item] | None]:
        found = (_by_halves if by_halves else _one_by_one)(times, later)
        return found if found is not None else (math.inf, room.later((), head))

    return Reservation(head, find)


def _one_by_one(times: Sequence[float], later: Callable[[float], Room[Item] | None]) -> tuple[float, Room[Item]] | None:
    """The first time at which the head fits, and the room then; None: there is none."""
    for time_s in times:
        room = later(time_s)
        if room is not None:
            return time_s, room
    return None


def _by_halves(times: Sequence[float], later: Callable[[float], Room[Item] | None]) -> tuple[float, Room[Item]] | None:
    """The same, if the head fits at all times that follow. The first ones are tried first, ever farther apart."""
    found, first, beyond, step = None, 0, len(times), 1
    while first < beyond:
        tried = (first + beyond) // 2 if found is not None else min(first + step, beyond) - 1
        room = later(times[tried])
        if room is None:
            first, step = tried + 1, 2 * step
        else:
            found, beyond = (times[tried], room), tried
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
