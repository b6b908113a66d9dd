"""Firm: one that may not be preempted does not take the room that the first of those that wait needs (EASY).

From those that may be, ``slowdown`` gets room when it is due. From the others nobody gets any before they end: one
narrow one after the other would pass a wide one for good (docs/decisions/0150).

- Among themselves those that may not be preempted have Slurm's order.
- Room is held for the first of all that finds none, and for the first of them; who may not be preempted, and is behind,
  starts if it is gone by then, or fits beside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rmsplugin.decision.easy import Reservation, Verdict, reserve
from rmsplugin.decision.fcfs import backfilled, remaining_s, would_delay
from rmsplugin.decision.reasons import seconds
from rmsplugin.decision.result import Reason, ReasonCode
from rmsplugin.decision.room import NodeRoom, Room
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VJob


def nobody_may_be_preempted(configuration: Configuration) -> bool:
    """Whether there is nobody who could be made to make way, now or once something under way has ended."""
    return not any(vjob.preemptible or vjob.yields_later for vjob in configuration.vjobs)


def in_slurms_order(ranked: Sequence[VJob], position: Mapping[str, int], group: Callable[[VJob], object]) -> list[VJob]:
    """The same ranking, in which those that may not be preempted have Slurm's order among themselves.

    Args:
        ranked: whoever goes first first.
        position: of each in Slurm's order, by name.
        group: those change places that have the same; None: it keeps its own.
    """
    places: dict[object, list[int]] = {}
    for place, vjob in enumerate(ranked):
        if not vjob.preemptible and (of := group(vjob)) is not None:
            places.setdefault(of, []).append(place)
    found = list(ranked)
    for taken in places.values():
        firm = sorted((ranked[place] for place in taken), key=lambda vjob: position[vjob.name])
        for place, vjob in zip(taken, firm, strict=True):
            found[place] = vjob
    return found


@dataclass
class Heads:
    """For whom room is held in one walk: the first that does not start, and the first that may not be preempted."""

    found: list[Reservation[VJob]] = field(default_factory=list)
    _beside: list[Room[VJob]] = field(default_factory=list)  # where the one that was asked for last is

    def want(self, vjob: VJob) -> bool:
        """Whether room is to be held for one that does not start."""
        return not self.found or not (vjob.preemptible or any(not each.head.preemptible for each in self.found))

    def hold(self, vjob: VJob, room: NodeRoom, gone_s: Callable[[VJob], float], refusal: Reason) -> Reason:
        """Hold room for one, and say of it when that is.

        Args:
            vjob: whom it is for.
            room: with all that run.
            gone_s: when one of these has ended, or makes way for it, in seconds from now.
            refusal: why it does not start now.
        """
        self.found.append(reserve(vjob, room.members, room, gone_s))
        shadow_s = self.found[-1].shadow_s
        if shadow_s == float("inf"):
            return refusal
        code = ReasonCode.RESERVED if refusal.code is ReasonCode.NO_ROOM else refusal.code
        words = f"{refusal.sentence}; room is held for it in {seconds(shadow_s)}"
        return Reason(code, words, {**refusal.numbers, "shadow_s": shadow_s})

    def permit(self, vjob: VJob) -> Reason:
        """Whether one that may not be preempted delays nobody for whom room is held; it has its room beside them."""
        self._beside = []
        verdict = Verdict.ENDS_IN_TIME
        for head in self.found:
            if head.ends_in_time(remaining_s(vjob)):
                continue
            verdict = Verdict.FITS_EXTRA
            if not head.takes_beside(vjob):
                self.give_back(vjob)
                return would_delay(vjob, head)
            if head.later is not None:
                self._beside.append(head.later)
        return backfilled(vjob, verdict, self.found[0])

    def give_back(self, vjob: VJob) -> None:
        """It does not start after all."""
        for room in self._beside:
            room.discard(vjob)
        self._beside = []
