"""Firm: a vjob that may not be preempted does not take the room that the first waiting vjob needs (EASY).

``slowdown`` gets room from preemptible vjobs when it is due. The others give none before they end: narrow ones, one
after the other, would pass a wide one for good (docs/decisions/0150).

- Among themselves, vjobs that may not be preempted have Slurm's order.
- Room is held for the first vjob of all that finds none, and for the first such one that may not be preempted. One that
  may not be preempted, and is behind, starts if it is gone by then, or fits beside.
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
    """Whether no vjob could be made to make way, now or after an operation under way."""
    return not any(vjob.preemptible or vjob.yields_later for vjob in configuration.vjobs)


def in_slurms_order(ranked: Sequence[VJob], position: Mapping[str, int], group: Callable[[VJob], object]) -> list[VJob]:
    """The same ranking, in which vjobs that may not be preempted have Slurm's order among themselves.

    Args:
        ranked: the vjobs in their ranking, first one first.
        position: the place of each in Slurm's order, by name.
        group: vjobs of the same group change places; None: the vjob keeps its own.
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
    """The vjobs for which one walk holds room: the first that does not start, and the first not preemptible one."""

    found: list[Reservation[VJob]] = field(default_factory=list)
    _beside: list[Room[VJob]] = field(default_factory=list)  # with the vjob that was asked about last

    def want(self, vjob: VJob) -> bool:
        """Whether room is to be held for a vjob that does not start."""
        return not self.found or not (vjob.preemptible or any(not each.head.preemptible for each in self.found))

    def hold(self, vjob: VJob, room: NodeRoom, gone_s: Callable[[VJob], float], refusal: Reason) -> Reason:
        """Hold room for a vjob, and give its reason with the time.

        Args:
            vjob: the vjob.
            room: the room with all that run.
            gone_s: the time when one of these has ended, or makes way for the vjob, in seconds from now.
            refusal: the reason why it does not start now.
        """
        self.found.append(reserve(vjob, room.members, room, gone_s))
        shadow_s = self.found[-1].shadow_s
        if shadow_s == float("inf"):
            return refusal
        code = ReasonCode.RESERVED if refusal.code is ReasonCode.NO_ROOM else refusal.code
        words = f"{refusal.sentence}; room is held for it in {seconds(shadow_s)}"
        return Reason(code, words, {**refusal.numbers, "shadow_s": shadow_s})

    def permit(self, vjob: VJob) -> Reason:
        """Whether a vjob that may not be preempted delays none for which room is held; it has its room beside them."""
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
        """Take back the last permit: the vjob does not start after all."""
        for room in self._beside:
            room.discard(vjob)
        self._beside = []
