"""EASY with preemption (RR-6929 fig. 1c): a vjob that fits starts at once, and is suspended at the head's turn.

It is EASY without its guesses: it needs no run time of a preemptible vjob, and no hole is too short for one.

- a running vjob goes on running if none ahead of it in the queue takes its room;
- from the head, ready vjobs start while they fit, or while those behind them make room for them. The last of the queue
  is suspended first, but none that was started or resumed just now;
- the first that does not start is the *head*. Vjobs behind it start where they fit, and suspend none. One that may
  not be preempted starts only if it does not delay the head, by its time limit as under EASY.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rmsplugin.decision.admission import Draft
from rmsplugin.decision.awaiting import keep_or_await
from rmsplugin.decision.easy import Reservation, Verdict, reserve
from rmsplugin.decision.fcfs import backfilled, remaining_s, reserved, would_delay
from rmsplugin.decision.later import is_barred_now
from rmsplugin.decision.near import around_apart
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.reasons import fits, names, no_room
from rmsplugin.decision.result import Decision, Infeasible, Reason, ReasonCode
from rmsplugin.decision.room import Effort, NodeRoom
from rmsplugin.decision.switching import KEPT, exempt_for_s
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VJob


def easy_preempt(configuration: Configuration, parameters: Parameters) -> Decision | Infeasible:
    """Decide: the head of the queue by right, all others where they fit."""
    effort = Effort.within(parameters)
    draft, kept = keep_or_await(configuration, parameters, effort)
    if isinstance(kept, Infeasible):
        return kept
    if kept.room.site.ruling is not None:
        kept.room.site.ruling.packs = True
    walk = _Walk(draft, kept.room, parameters)
    walk.walk()
    unchanged = kept.near is not None and walk.room.names == kept.near.names
    room = kept.near if unchanged and kept.near is not None else walk.room
    return draft.decision("easy-preempt", room.placement)


@dataclass
class _Walk:
    """One walk over the ready vjobs; ``room`` holds the vjobs that run after it."""

    draft: Draft
    room: NodeRoom
    parameters: Parameters
    head: Reservation[VJob] | None = None
    made_way: set[str] = field(default_factory=set)

    def walk(self) -> None:
        """Decide every vjob that was left to the policy."""
        protected = {vjob.name for vjob in self.draft.musts}
        kept = self.room.names
        for vjob in self.draft.others:
            if vjob.name in kept and vjob.name not in self.made_way:
                self.draft.runs(vjob, KEPT)
            elif vjob.name not in kept and vjob.name not in self.draft.reasons:
                self._consider(vjob, protected)

    def _consider(self, vjob: VJob, protected: set[str]) -> None:
        if self.room.add(vjob):
            self._started(vjob)
        elif self.head is None and (found := around_apart(self.room, vjob)) is not None:
            self.room = found
            self.draft.runs(vjob, fits(vjob))
        elif self.head is not None:
            self.draft.stays_out(vjob, no_room(vjob, self.room, "free beside those that run"))
        elif not self._preempts(vjob, protected):
            self.head = reserve(vjob, self.room.members, self.room, lambda member: self._gone_s(member, vjob))
            lack = no_room(self.head.head, self.room, "free beside those that run")
            self.draft.stays_out(vjob, reserved(self.head, lack, self.parameters))

    def _started(self, vjob: VJob) -> None:
        """Whether a vjob, which fits, may start as far as the head is concerned."""
        head = self.head
        if head is None:
            self.draft.runs(vjob, fits(vjob))
        elif vjob.preemptible:
            words = f"fills a hole until {head.head.name} fits, and is suspended then"
            self.draft.runs(vjob, Reason(ReasonCode.FILLS_HOLE, words, {"head": head.head.name}))
        elif head.ends_in_time(remaining_s(vjob)):
            self.draft.runs(vjob, backfilled(vjob, Verdict.ENDS_IN_TIME, head))
        elif head.takes_beside(vjob):
            self.draft.runs(vjob, backfilled(vjob, Verdict.FITS_EXTRA, head))
        else:
            self.room.discard(vjob)
            self.draft.stays_out(vjob, would_delay(vjob, head))

    def _preempts(self, vjob: VJob, protected: set[str]) -> bool:
        """Start a vjob at the expense of those behind it, the last first, if that makes room for it."""
        behind = [each for each in self.room.behind(vjob) if each.preemptible and each.name not in protected]
        found = self.room.insert(vjob, {each.name for each in behind}) if behind else None
        if found is None:
            return False
        self.room, victims = found
        words = f"its room is needed by {vjob.name}, which is ahead of it"
        for victim in victims:
            self.made_way.add(victim.name)
            self.draft.stays_out(victim, Reason(ReasonCode.PREEMPTED, words, {"by": vjob.name}))
        whom = names(victims)
        self.draft.runs(vjob, Reason(ReasonCode.PREEMPTS, f"takes the room of {whom} behind it", {"victims": whom}))
        return True

    def _gone_s(self, member: VJob, head: VJob) -> float:
        """When a running vjob makes way for the head: at its end, or at the moment from which it may be suspended."""
        position = self.room.site.position
        # Nobody makes way for a rule.
        fixed = is_barred_now(head) or not member.preemptible or position[member.name] < position[head.name]
        return remaining_s(member) if fixed else min(remaining_s(member), exempt_for_s(member, self.parameters))
