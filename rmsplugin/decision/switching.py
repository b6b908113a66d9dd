"""Switching: one round of the mixed policy, from the running vjobs to those that shall run.

A running vjob is kept unless something speaks against it. The ready vjobs are walked in queue order; each starts if it
fits beside those kept, or if those behind it may be suspended for it. The first that does not start is the head of the
queue: it gets a reservation, and those behind it may not delay it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rmsplugin.decision import worth
from rmsplugin.decision.admission import Draft
from rmsplugin.decision.easy import Reservation, Verdict, reserve
from rmsplugin.decision.fcfs import backfilled, remaining_s, would_delay
from rmsplugin.decision.later import is_barred_now
from rmsplugin.decision.near import loose, near, price_mib
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.reasons import cpu_seconds, fits, names, no_room, seconds, starts_within
from rmsplugin.decision.result import Numbers, Reason, ReasonCode
from rmsplugin.decision.room import NodeRoom
from rmsplugin.model.elements import VJob
from rmsplugin.model.vjob import VJobState

#: Where its VMs share the storage of a node, a switch takes longer: a vjob runs for so many times that, too (0153).
SHARED_SWITCHES = 8.0


def exempt_for_s(vjob: VJob, parameters: Parameters) -> float:
    """The seconds for which a running vjob is still exempt from suspension; 0 if it is not."""
    if vjob.state_s is None:
        return 0.0
    exempt_s = parameters.exempt_s
    if parameters.exempt_switches and vjob.priority >= parameters.exempt_tier and vjob.name not in parameters.pressed:
        durations = parameters.durations
        away_s = durations.away_s(vjob)
        least_s = durations.least_away_s(vjob) if vjob.together_mib else away_s
        exempt_s = max(exempt_s, parameters.exempt_switches * least_s, SHARED_SWITCHES * away_s)
    return max(0.0, exempt_s - vjob.state_s)


def patient_for_s(vjob: VJob, parameters: Parameters) -> float:
    """The seconds that a ready vjob still has to wait until it preempts by queue order alone."""
    return 0.0 if vjob.state_s is None else max(0.0, parameters.patience_s - vjob.state_s)


@dataclass
class Round:
    """One walk over the ready vjobs; ``room`` holds the vjobs that run after it."""

    draft: Draft
    room: NodeRoom
    parameters: Parameters
    worth_mib: int  # the most memory that may move for those that run and start so far
    near_only: bool = False  # a vjob starts only beside the running ones, most of them where they are
    reservation: Reservation[VJob] | None = None
    protected: frozenset[str] = field(init=False)
    permits: dict[str, Reason] = field(default_factory=dict)  # of vjobs that start at the expense of others
    made_way: dict[str, VJob] = field(default_factory=dict)  # by a suspended vjob's name, the one it made way for

    def __post_init__(self) -> None:
        self.protected = frozenset(vjob.name for vjob in self.draft.musts)

    def walk(self) -> None:
        """Decide every vjob that was left to the policy and does not run in ``room`` yet, head first."""
        settled = self.room.names
        settled |= {name for name, why in self.draft.reasons.items() if why.code is ReasonCode.DOES_NOT_PAY}
        effort = self.room.site.effort
        for vjob in self.draft.others:
            if vjob.name in self.made_way:
                self._spare(vjob)
            if vjob.name in settled:
                continue
            if effort.is_spent and vjob.name not in self.draft.reasons:
                words = "is not considered in this cycle, which has tried as many packings as it may"
                self.draft.stays_out(vjob, Reason(ReasonCode.POSTPONED, words))
            elif not effort.is_spent:
                self._consider(vjob)

    def _consider(self, vjob: VJob) -> None:
        behind = self.room.behind(vjob)
        candidates = [each for each in behind if each.preemptible and each.name not in self.protected]
        fits_beside = self.room.append(vjob) if self.near_only else not candidates and self.room.add(vjob)
        if fits_beside or not candidates:
            if fits_beside:
                permit = self._beside_head(vjob)
                if permit.code in _STARTS:
                    self.worth_mib += price_mib([vjob])
                    self.draft.runs(vjob, permit)
                else:
                    self.room.discard(vjob)
                    self.draft.stays_out(vjob, permit)
                return
            refusal = self._no_room(vjob, candidates, behind)
        else:
            found = self._place(vjob, candidates)
            answer = self._start(vjob, *found) if found else self._no_room(vjob, candidates, behind)
            if answer is None:
                return
            refusal = answer
        if self.reservation is None:
            if self._starts_near(vjob):
                return
            refusal = self._become_head(vjob, refusal)
        self.draft.stays_out(vjob, refusal)

    def _starts_near(self, vjob: VJob) -> bool:
        """Start a vjob beside all that run, if few migrations make room for it."""
        if not self._take_near(vjob):
            return False
        self.draft.runs(vjob, fits(vjob, how="which fit beside those that run, after few migrations"))
        return True

    def _take_near(self, vjob: VJob, gone: Sequence[VJob] = ()) -> bool:
        """Find room for one more vjob by migrations, if they are worth it; ``gone`` makes way."""
        if self.room.site.effort.is_spent:
            return False
        worth_mib = self.worth_mib + price_mib([vjob])
        found = near(loose(self.room.site), [*(each for each in self.room.members if each not in gone), vjob])
        if found is None or found.moved_mib > worth_mib:
            return False
        self.room, self.worth_mib = found.room, worth_mib
        return True

    def placement(self) -> Mapping[str, str] | None:
        """The places of all running vjobs, near where they are; None if none are found, or too much would move."""
        state = self.draft.configuration.state
        if not any(state(vjob) is VJobState.RUNNING for vjob in self.room.packed):
            return self.room.placement  # running vjobs are pinned near where they are
        found = near(loose(self.room.site), self.room.members)
        return found.room.placement if found is not None and found.moved_mib <= self.worth_mib else None

    # -- the head of the queue, and those behind it --------------------------------------------------------------------

    def _become_head(self, vjob: VJob, refusal: Reason) -> Reason:
        self.reservation = reserve(vjob, self.room.members, self.room, lambda member: self._gone_s(member, vjob))
        if not self.parameters.explains or self.reservation.shadow_s == math.inf:
            return refusal
        shadow_s = self.reservation.shadow_s
        code = ReasonCode.RESERVED if refusal.code is ReasonCode.NO_ROOM else refusal.code
        words = f"{refusal.sentence}; {starts_within(shadow_s)}"
        return Reason(code, words, {**refusal.numbers, "shadow_s": shadow_s})

    def _gone_s(self, member: VJob, head: VJob) -> float:
        """The time when a running vjob makes way for the head: its end, or the moment when the head may suspend it."""
        end_s = remaining_s(member)
        if is_barred_now(head):
            return end_s  # nobody makes way for a rule
        position = self.room.site.position
        fixed = member.name in self.protected and self.draft.reasons[member.name].code is not ReasonCode.EXEMPT
        if fixed or not member.preemptible or position[member.name] < position[head.name]:
            return end_s
        by_right = not head.preemptible or head.priority > member.priority
        return min(
            end_s,
            max(
                exempt_for_s(member, self.parameters),
                0.0 if by_right else patient_for_s(head, self.parameters),
            ),
        )

    def _beside_head(self, vjob: VJob) -> Reason:
        """Whether a vjob that fits now may start as far as the head is concerned."""
        head = self.reservation
        if head is None:
            return fits(vjob)
        if head.ends_in_time(remaining_s(vjob)):
            return backfilled(vjob, Verdict.ENDS_IN_TIME, head)
        if head.takes_beside(vjob):
            return backfilled(vjob, Verdict.FITS_EXTRA, head)
        return self._hole(vjob, head) if vjob.preemptible else would_delay(vjob, head)

    def _hole(self, vjob: VJob, head: Reservation[VJob]) -> Reason:
        """Whether a vjob that must be suspended when the head starts is worth starting (RR-6929 fig. 1c)."""
        hole_s, exempt_s = head.shadow_s, self.parameters.exempt_s
        if hole_s == math.inf:
            words = f"fills a hole until {head.head.name} fits, at a time that nobody knows"
            return Reason(ReasonCode.FILLS_HOLE, words, {"head": head.head.name})
        value = worth.of_hole(vjob, self.draft.configuration.state(vjob), hole_s, self.parameters)
        gain, cost = value.gain, value.cost
        numbers: Numbers = {"head": head.head.name, "hole_s": hole_s, "gain_cpu_s": gain, "cost_cpu_s": cost}
        its = f"its hole of {seconds(hole_s)}"
        worthwhile = f"is worth {cpu_seconds(gain)}, the switch costs {cost:.0f}"
        if gain <= cost:
            return Reason(ReasonCode.HOLE_TOO_SMALL, f"{its} {worthwhile}", numbers)
        if exempt_s > hole_s:
            words = f"{its} {worthwhile}, but once started it is exempt for {seconds(exempt_s)}"
            return Reason(ReasonCode.HOLE_TOO_SMALL, f"{words} and would delay {head.head.name}", numbers)
        return Reason(ReasonCode.FILLS_HOLE, f"{its} before {head.head.name} starts {worthwhile}", numbers)

    # -- suspending those behind ---------------------------------------------------------------------------------------

    def _start(self, vjob: VJob, room: NodeRoom, victims: list[VJob]) -> Reason | None:
        """Start a vjob in ``room``, without its victims, if that is allowed and worth it; else give the reason."""
        refusal = self._unjustified(vjob, victims) if victims else None
        permit = refusal or self._beside_head(vjob)
        if permit.code not in _STARTS:
            return permit
        if self.near_only:
            if not self._take_near(vjob, victims):
                return no_room(vjob, self.room, "free unless more memory migrates than it is worth")
        else:
            self.room = room
            self.worth_mib += price_mib([vjob])
        self.permits[vjob.name] = permit
        for victim in victims:
            if not self._take_near(victim):
                self.made_way[victim.name] = vjob
                words = f"its room is needed by {vjob.name}, which is ahead of it"
                self.draft.stays_out(victim, Reason(ReasonCode.PREEMPTED, words, {"by": vjob.name}))
        self._runs_instead(vjob)
        return None

    def _runs_instead(self, vjob: VJob) -> None:
        """Record that a vjob runs, and at whose expense."""
        permit = self.permits[vjob.name]
        victims = [each for each in self.draft.others if self.made_way.get(each.name) is vjob]
        if victims:
            whom = names(victims)
            permit = Reason(ReasonCode.PREEMPTS, f"takes the room of {whom} behind it", {"victims": whom})
        self.draft.runs(vjob, permit)

    def _spare(self, victim: VJob) -> None:
        """Let a vjob that made way run on if there is room now with all ahead of it placed: before any behind it."""
        if self._take_near(victim):
            self.draft.runs(victim, KEPT)
            self._runs_instead(self.made_way.pop(victim.name))
            if self.reservation is not None:
                self.reservation.takes_beside(victim)

    def _place(self, vjob: VJob, candidates: list[VJob]) -> tuple[NodeRoom, list[VJob]] | None:
        """Find room for a vjob, and those behind it that then find none: in queue order, so that the last give way."""
        found = self.room.insert(vjob, {each.name for each in candidates})
        if found is not None or not self.room.fits_behind(vjob):
            return found
        # Spared ones block a vjob that must run behind them: take candidates away from the end instead.
        room = self._without(candidates, vjob)
        return None if room is None else self._fewest(vjob, self.room.site.in_order(candidates), room)

    def _without(self, victims: Sequence[VJob], vjob: VJob) -> NodeRoom | None:
        gone = {victim.name for victim in victims}
        return self.room.anew([*(each for each in self.room.members if each.name not in gone), vjob])

    def _fewest(self, vjob: VJob, candidates: list[VJob], everything: NodeRoom) -> tuple[NodeRoom, list[VJob]]:
        """Choose victims from the end of the queue, as few as make room; then spare those that fit all the same."""
        room, count = everything, len(candidates)
        too_few = 0
        while count - too_few > 1:  # a search by halves: room for it hardly ever shrinks with one victim more
            middle = (too_few + count) // 2
            trial = self._without(candidates[len(candidates) - middle :], vjob)
            if trial is None:
                too_few = middle
            else:
                room, count = trial, middle
        return room, [victim for victim in candidates[len(candidates) - count :] if not room.add(victim)]

    def _unjustified(self, vjob: VJob, victims: Sequence[VJob]) -> Reason | None:
        """The reason why a vjob may not take the room of these; None if it may."""
        by_right = all(vjob.priority > victim.priority for victim in victims)
        its_turn = not vjob.preemptible and self.reservation is None
        if by_right or its_turn or patient_for_s(vjob, self.parameters) == 0:
            return None
        hole_s = self.reservation.shadow_s if self.reservation else math.inf
        value = worth.of_preemption(vjob, self.draft.configuration.state(vjob), victims, hole_s, self.parameters)
        if value.gain > value.cost:
            return None
        words = (
            f"would preempt {names(victims)}, which gains {cpu_seconds(value.gain)} in {seconds(value.over_s)} "
            f"and costs {value.cost:.0f}"
        )
        numbers: Numbers = {"victims": names(victims), "gain_cpu_s": value.gain, "cost_cpu_s": value.cost}
        return Reason(ReasonCode.DOES_NOT_PAY, words, numbers)

    def _no_room(self, vjob: VJob, candidates: Sequence[VJob], behind: Sequence[VJob]) -> Reason:
        if not self.room.fits_behind(vjob):
            return no_room(vjob, self.room.ahead_of(vjob))
        codes = self.draft.reasons
        exempt = [each for each in behind if each.name in codes and codes[each.name].code is ReasonCode.EXEMPT]
        if exempt and self._without([*candidates, *exempt], vjob) is not None:
            longest_s = max(exempt_for_s(each, self.parameters) for each in exempt)
            words = f"would preempt {names(exempt)}, exempt for {seconds(longest_s)} more"
            return Reason(ReasonCode.VICTIM_EXEMPT, words, {"victims": names(exempt), "exempt_s": longest_s})
        gone = {each.name for each in candidates}
        ahead = self.room.anew(each for each in self.room.members if each.name not in gone) if gone else None
        return no_room(vjob, ahead or self.room, "free beside those ahead of it and those that keep running")


#: Codes of the reasons of vjobs that run on.
KEPT = Reason(ReasonCode.KEPT, "runs, and nobody ahead of it may take its room")

#: Codes of reasons to start.
_STARTS = frozenset({ReasonCode.FITS, ReasonCode.BACKFILLED, ReasonCode.FILLS_HOLE})
