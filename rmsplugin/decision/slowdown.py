"""Slowdown: the vjob that has waited longest for the time that it still needs goes first (docs/decisions/0080).

- Vjobs are ranked by ``rmsplugin.decision.expansion``. PriorityTier comes first, always.
- A ready vjob starts where it fits. Else vjobs make way whose expansion is a third of its own, the one that has run
  least first (0120): the longest jobs do not pay for all short ones. The loss of all by the switch counts as if the
  vjob for which it is made had to do that work itself: none is suspended for a vjob of 30 s if its memory takes an hour
  to save. Vjobs behind it that start by the same switch share the loss (0135).
- Where making way is a pause, which costs nothing, a vjob that has not begun need not wait for that, if its limit is a
  third of the time that the other one still needs, and it is not far behind it (0104).
- No vjob makes way that was started or resumed just now: for its own tier only after it has run for ten times the
  duration of a switch of its largest VM, and for eight times that of its own switch (0153). For a higher tier, and
  where its node is short of memory, it is exempt for as long as Slurm says, as under any policy (0151).
- If the site sets a share of users (0121), a vjob beyond its user's share comes last, and makes way for any vjob of
  others that has waited long enough.
- An overdue vjob goes first in its tier, and makes way for none of it. Only a small part of the cluster is protected in
  this way at a time. Where many are overdue, those far overdue are: in an overloaded cluster all would be, and
  the order of submission would be back.
- Vjobs that may not be preempted have EASY (``firm``, 0150); where none may be preempted, ``mixed`` decides.

No other reservation is needed: the expansion of a waiting vjob grows, and that of one that runs for long does not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice

from rmsplugin.decision.admission import Draft
from rmsplugin.decision.awaiting import keep_or_await
from rmsplugin.decision.expansion import (
    borne,
    bound_s,
    enough_after_s,
    lost_s,
    part_of,
    still_expected_s,
    switch_s,
)
from rmsplugin.decision.fcfs import remaining_s
from rmsplugin.decision.firm import Heads, nobody_may_be_preempted
from rmsplugin.decision.mixed import mixed
from rmsplugin.decision.near import loose, near, price_mib
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.ranks import Ranks, vjob_expansion, weight_of
from rmsplugin.decision.reasons import fits, names, no_room, seconds
from rmsplugin.decision.result import Barred, Decision, Infeasible, Numbers, Reason, ReasonCode
from rmsplugin.decision.room import Effort, NodeRoom
from rmsplugin.decision.rounds import in_rounds, nobody_starts
from rmsplugin.decision.switching import exempt_for_s
from rmsplugin.decision.together import with_what_lies_together
from rmsplugin.decision.worth import start_s
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VJob
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import VJobState
from rmsplugin.model.wording import counted

#: A vjob that may have others paused at once counts as if it had waited for so long, the least expected need of any
#: vjob: otherwise it would be behind all that have waited for a second.
_HEAD_START_S = 60.0


def slowdown(configuration: Configuration, parameters: Parameters) -> Decision | Infeasible:
    """Decide, round after round until nothing changes."""
    if nobody_may_be_preempted(configuration):
        decision = mixed(configuration, parameters)
        return decision if isinstance(decision, Infeasible) else replace(decision, policy="slowdown")
    configuration = with_what_lies_together(configuration)
    ranks = Ranks.of(configuration, parameters)
    parameters = replace(parameters, exempt_switches=parameters.slowdown.switches)
    parameters = replace(parameters, exempt_tier=_highest_unprotected(configuration, parameters))

    def once(now: Configuration, effort: Effort, start: bool) -> Decision | Infeasible:
        # The vjobs beyond their users' shares change when one makes way.
        then = Ranks.of(now, parameters) if parameters.slowdown.user_share < 1 else ranks
        return _once(now, replace(parameters, pressed=_pressed(now)), then, effort, start)

    found = in_rounds(configuration, parameters, once)
    if isinstance(found, Infeasible):
        return found
    queue = [vjob.name for vjob in configuration.vjobs]
    states = {name: found.states[name] for name in queue}
    return replace(found, states=states, reasons={name: found.reasons[name] for name in queue})


def _highest_unprotected(configuration: Configuration, parameters: Parameters) -> float:
    """The highest tier of ready vjobs, or of running ones that will be ready if not all of these fit any more."""
    ready = (VJobState.WAITING, VJobState.PAUSED, VJobState.SLEEPING)

    def may_be(vjob: VJob) -> bool:
        state = configuration.state(vjob)
        runs = state is VJobState.RUNNING and vjob.preemptible
        return state in ready or (runs and exempt_for_s(vjob, parameters) <= 0)

    highest = -math.inf
    for vjob in configuration.vjobs:
        if vjob.priority > highest and may_be(vjob):
            highest = vjob.priority
    return highest


def _pressed(configuration: Configuration) -> frozenset[str]:
    """The vjobs on nodes whose running VMs demand more memory than there is.

    Processes that share a CPU go on slowly; a VM that waits for memory stands still. Nobody is helped if all on the
    node are exempt.
    """
    short = {name for name in configuration.overloaded() if configuration.free(name).memory_mib < 0}
    if not short:
        return frozenset()
    locations, by_vm = configuration.locations, configuration.vjob_by_vm
    return frozenset(by_vm[vm].name for vm, location in locations.items() if location.node in short)


def _once(
    configuration: Configuration, parameters: Parameters, ranks: Ranks, effort: Effort, start: bool
) -> Decision | Infeasible:
    """Make one round: keep running vjobs as far as there is room; then let the ready ones start, if ``start``."""
    draft, kept = keep_or_await(ranks.ranked(configuration), parameters, effort)
    if isinstance(kept, Infeasible):
        return kept
    room = kept.near or kept.room
    running = room.names
    for vjob in draft.others:
        if vjob.name in running:
            draft.runs(vjob, ranks.why_kept(vjob))
    if not start:
        nobody_starts(draft, running, parameters)
        return draft.decision("slowdown", room.placement)
    walk = _Walk(draft, room, parameters, ranks, kept.moved_mib)
    walk.walk(running)
    return draft.decision("slowdown", walk.room.placement)


@dataclass
class _Walk:
    """One walk over the ready vjobs; ``room`` holds the vjobs that run after it."""

    draft: Draft
    room: NodeRoom
    parameters: Parameters
    ranks: Ranks
    worth_mib: int  # the most memory that may move for those that run and start so far
    candidates: dict[str, VJob] = field(init=False)  # running vjobs that may have to make way
    of_tier: Parameters = field(init=False)  # for vjobs of one tier
    exempt: list[VJob] = field(init=False)  # vjobs that would make way for a higher tier, were they not exempt
    smallest_cpus: float = 0.0  # of ready vjobs
    heads: Heads = field(default_factory=Heads)

    def __post_init__(self) -> None:
        """Find the running vjobs that nothing protects."""
        running = self.room.names
        self.of_tier = replace(self.parameters, exempt_tier=-math.inf, pressed=frozenset())
        ready = (vjob.priority for vjob in self.draft.others if vjob.name not in running)
        highest = max(ready, default=-math.inf)
        musts = [v for v in self.draft.musts if self.draft.reasons[v.name].code is ReasonCode.EXEMPT]
        self.exempt = [v for v in musts if v.preemptible and v.priority < highest]
        self.candidates = {v.name: v for v in self.draft.others if v.name in running and v.preemptible}

    def walk(self, running: set[str]) -> None:
        """Decide every vjob that was left to the policy and does not run, in the order of the ranking."""
        effort = self.room.site.effort
        ready = [v for v in self.draft.others if v.name not in running and v.name not in self.draft.reasons]
        self.smallest_cpus = min((vjob.demand.cpus for vjob in ready), default=0.0)
        last_firm = max((number for number, vjob in enumerate(ready) if not vjob.preemptible), default=-1)
        for number, vjob in enumerate(ready):
            if effort.is_spent:
                words = "is not considered in this cycle, which has tried as many packings as it may"
                self.draft.stays_out(vjob, Reason(ReasonCode.POSTPONED, words))
                continue
            behind = islice(ready, number + 1, None)
            if vjob.preemptible or not self.heads.found:
                self._consider(vjob, behind)
            else:
                self._consider_firm(vjob, behind)
            if number < last_firm and not self._starts(vjob) and self.heads.want(vjob):
                refusal = self.draft.reasons[vjob.name]
                self.draft.stays_out(vjob, self.heads.hold(vjob, self.room, partial(self._gone_s, vjob), refusal))

    def _starts(self, vjob: VJob) -> bool:
        return self.draft.states[vjob.name] is VJobState.RUNNING

    def _consider_firm(self, vjob: VJob, behind: Iterable[VJob]) -> None:
        """Consider a vjob that may not be preempted, behind those for which room is held: it may not delay them."""
        permit = self.heads.permit(vjob)
        if permit.code is ReasonCode.WOULD_DELAY_HEAD:
            fits_now = self.room.add(vjob)
            if fits_now:
                self.room.discard(vjob)
            self.draft.stays_out(vjob, permit if fits_now else self._refusal(vjob, []))
            return
        self._consider(vjob, behind)
        if not self._starts(vjob):
            self.heads.give_back(vjob)
        elif self.draft.reasons[vjob.name].code is ReasonCode.FITS:
            self.draft.runs(vjob, permit)

    def _gone_s(self, head: VJob, member: VJob) -> float:
        """The time when a running vjob has ended, or makes way for another one, as far as can be told, in seconds."""
        end_s = remaining_s(member)
        begins = not self.draft.is_running(member)
        exempt = self.draft.reasons[member.name].code is ReasonCode.EXEMPT
        stays = not (begins or exempt or member.name in self.candidates)
        if not member.preemptible or stays or member.priority > head.priority:
            return end_s
        since = replace(member, state_s=0.0) if begins and member.state_s is not None else member
        exempt_s = exempt_for_s(since, self.of_tier if member.priority == head.priority else self.parameters)
        return min(end_s, max(exempt_s, 0.0 if self._yields(member, head) else self._enough_after_s(member, head)))

    def _enough_after_s(self, member: VJob, head: VJob) -> float:
        """The time that a vjob has to wait until another one of its tier makes way for it, in seconds."""
        ahead = self.ranks.by_queue and self.ranks.position[member.name] < self.ranks.position[head.name]
        if member.name in self.ranks.due or head.name in self.ranks.beyond:
            return math.inf
        tunables = self.parameters.slowdown
        due_s = max(0.0, bound_s(head.time_limit_s, head.ran_s, tunables) - head.waited_s)
        if ahead:
            return due_s
        least = tunables.factor * self.ranks.expansions[member.name]
        needed_s = still_expected_s(head.time_limit_s, head.ran_s)
        return min(due_s, enough_after_s(head.waited_s, needed_s, weight_of(head, self.parameters), least))

    def _consider(self, vjob: VJob, behind: Iterable[VJob]) -> None:
        if self.room.add(vjob):
            self.worth_mib += price_mib([vjob])
            self.draft.runs(vjob, fits(vjob, how="which are free"))
        elif self._fits_after_migrations(vjob):
            self.draft.runs(vjob, fits(vjob, how="which are free after few migrations"))
        else:
            self._preempt(vjob, behind)

    def _fits_after_migrations(self, vjob: VJob) -> bool:
        """Start a vjob beside all that run if the room is there in pieces, and few migrations join them.

        Free resources on nodes that it may not use count, too: others may be there instead.
        """
        if not self.room.free.holds(vjob.demand):
            return False
        # Of many that wait most are alike: if one finds no room, none does until a vjob comes or goes.
        waits = self.draft.configuration.state(vjob) is VJobState.WAITING
        apart = vjob.name in self.draft.configuration.apart
        alike = (tuple((vm.demand, vm.only) for vm in vjob.vms), vjob.own_rules, apart) if waits else None
        if alike in self.room.nowhere_near:
            return False
        worth_mib = self.worth_mib + price_mib([vjob])
        found = near(loose(self.room.site), [*self.room.members, vjob])
        if found is None or found.moved_mib > worth_mib:
            if waits:
                self.room.nowhere_near.add(alike)
            return False
        self.room, self.worth_mib = found.room, worth_mib
        return True

    def _preempt(self, vjob: VJob, behind: Iterable[VJob]) -> None:
        """Start a vjob at the expense of vjobs that have waited less for their needs, if that pays."""
        yielding = [each for each in self.candidates.values() if self._yields(each, vjob)]
        found = self._make_room(vjob, yielding)
        if found is None:
            self.draft.stays_out(vjob, self._refusal(vjob, yielding))
            return
        room, victims = found
        refusal = self._does_not_pay(vjob, victims, room, behind)
        if refusal is not None:
            self.draft.stays_out(vjob, refusal)
            return
        self.room = room
        self.worth_mib += price_mib([vjob])
        for victim in victims:
            del self.candidates[victim.name]
            words = f"makes way for {vjob.name}: {self._against(vjob, victim)}"
            numbers: Numbers = {"by": vjob.name, "expansion": round(self.ranks.expansions[victim.name], 2)}
            self.draft.stays_out(victim, Reason(ReasonCode.PREEMPTED, words, numbers))
        if victims:
            words = f"{self._said(vjob)}; {names(victims)} {'makes' if len(victims) == 1 else 'make'} way"
            self.draft.runs(vjob, Reason(ReasonCode.PREEMPTS, words, {"victims": names(victims)}))
        else:
            self.draft.runs(vjob, fits(vjob, how="which are free after some have moved"))

    def _make_room(self, vjob: VJob, yielding: Sequence[VJob]) -> tuple[NodeRoom, list[VJob]] | None:
        """Find room for a vjob, and the vjobs of these that lose theirs, the last ones first: they have run least.

        As few are moved as the sums ask for; twice as many, and so on, if their room is in pieces.
        """
        count, free = 0, self.room.free_for(vjob)
        while not free.holds(vjob.demand):
            if count == len(yielding):
                return None
            count += 1
            free += yielding[-count].demand
        while True:
            found = self.room.insert(vjob, {each.name for each in yielding[len(yielding) - count :]})
            if found is not None or count == len(yielding):
                return found
            count = min(max(1, 2 * count), len(yielding))

    def _yields(self, member: VJob, vjob: VJob) -> bool:
        """Whether a running vjob makes way for another one, by the waits of both."""
        if member.priority != vjob.priority:
            return member.priority < vjob.priority
        if exempt_for_s(member, self.of_tier) > 0:
            return False
        beyond = self.ranks.beyond
        if vjob.name in beyond and (member.name not in beyond or member.user != vjob.user):
            return False
        if self._by_share(vjob, member):
            return True
        if member.name in self.ranks.due or vjob.name in self.ranks.due:
            return member.name not in self.ranks.due
        if self.ranks.by_queue and self.ranks.position[member.name] < self.ranks.position[vjob.name]:
            return False
        return self._has_waited_enough(vjob, member) or self._at_once(vjob, member)

    def _has_waited_enough(self, vjob: VJob, member: VJob, loss_s: float = 0.0) -> bool:
        """Whether the expansion of a vjob, with the loss of a switch for it, is far more than that of another."""
        expansions = self.ranks.expansions
        its = vjob_expansion(vjob, self.parameters, loss_s) if loss_s else expansions[vjob.name]
        return its >= self.parameters.slowdown.factor * expansions[member.name]

    def _at_once(self, vjob: VJob, member: VJob, loss_s: float = 0.0) -> bool:
        """Whether a vjob that has not begun may start without a long wait: the other is paused, and needs far more.

        Its limit counts, for the other one may stand still for so long: a vjob that asks for too much waits as ever.

        A vjob that has been paused for others does not go on in this way at the expense of another: the last to go on
        would be the one that needs most.
        """
        if not self.parameters.durations.pauses or self.draft.configuration.state(vjob) is not VJobState.WAITING:
            return False
        if vjob_expansion(vjob, self.parameters, head_start_s=_HEAD_START_S) < self.ranks.expansions[member.name]:
            return False
        needs_s = still_expected_s(member.time_limit_s, member.ran_s)
        asked_s = math.inf if vjob.time_limit_s is None else vjob.time_limit_s
        return needs_s >= self.parameters.slowdown.factor * (asked_s + loss_s)

    def _by_share(self, vjob: VJob, member: VJob) -> bool:
        """Whether a vjob gets another user's part beyond his share, whatever the waits of both."""
        beyond = self.ranks.beyond
        if member.name not in beyond or vjob.name in beyond or member.user == vjob.user:
            return False
        return vjob.waited_s >= self.parameters.slowdown.user_share_s

    def _does_not_pay(
        self, vjob: VJob, victims: Sequence[VJob], room: NodeRoom, behind: Iterable[VJob]
    ) -> Reason | None:
        """The reason why these do not make way: with that loss, those that would start by it have not waited enough."""
        own = self._part(vjob)
        if self._bears(vjob, victims, own):
            return None
        group, free, whole = [vjob], room.free, self.ranks.capacity
        at_most = own + part_of(Resources(free.cpus, 0), whole) + part_of(Resources(0, free.memory_mib), whole)
        least_s = 0.0  # unknown: it depends on the vjobs that share it
        if self._bears(vjob, victims, at_most):
            pays, group = borne(
                vjob,
                self._follow(behind, victims, room),
                self._part,
                lambda each, part: self._bears(each, victims, part),
            )
            if pays:
                return None
        else:
            least_s = self._loss_s(vjob, victims, at_most)
        self.draft.barred[vjob.name] = Barred(tuple(each.name for each in victims), least_s)
        loss_s = self._loss_s(vjob, victims, sum(map(self._part, group)))
        its = vjob_expansion(vjob, self.parameters, loss_s)
        most = max(self.ranks.expansions[each.name] for each in self._equal(vjob, victims))
        shared = f" and of {counted(len(group) - 1, 'other')} that would start by it" if len(group) > 1 else ""
        words = (
            f"{self._said(vjob)}; to have {names(victims)} make way loses {seconds(loss_s)} of its "
            f"CPUs{shared}; with this loss its expansion is {its:.1f}, and theirs at most {most:.1f}"
        )
        return Reason(ReasonCode.DOES_NOT_PAY, words, {"victims": names(victims), "lost_s": loss_s})

    def _follow(self, behind: Iterable[VJob], victims: Sequence[VJob], room: NodeRoom) -> Iterable[VJob]:
        """The next vjobs in order for which these make way, too, as far as they find room beside the first one."""
        trial = room.copied()
        for other in behind:
            full = trial.free.cpus < self.smallest_cpus or trial.site.effort.is_spent
            if full or not all(self._yields(victim, other) for victim in victims):
                return
            if trial.append(other):
                yield other

    def _bears(self, vjob: VJob, victims: Sequence[VJob], part: float) -> bool:
        """Whether a vjob has waited enough if so large a part of the cluster bears the loss of these by making way."""
        equal = self._equal(vjob, victims)
        if vjob.name in self.ranks.due or not equal:
            return True
        loss_s = self._loss_s(vjob, victims, part)
        return all(self._has_waited_enough(vjob, each, loss_s) or self._at_once(vjob, each, loss_s) for each in equal)

    def _equal(self, vjob: VJob, victims: Sequence[VJob]) -> list[VJob]:
        """The vjobs among them with which its wait is compared."""
        return [each for each in victims if each.priority == vjob.priority and not self._by_share(vjob, each)]

    def _loss_s(self, vjob: VJob, victims: Sequence[VJob], part: float) -> float:
        begins_s = start_s(vjob, self.draft.configuration.state(vjob), self.parameters)
        return lost_s(begins_s, part, [(self._part(each), switch_s(each, self.parameters)) for each in victims])

    def _part(self, vjob: VJob) -> float:
        return part_of(vjob.demand, self.ranks.capacity)

    def _refusal(self, vjob: VJob, yielding: Sequence[VJob]) -> Reason:
        where = "free, nobody has to make way for it" if not yielding else "free, and too few make way for it"
        lack = no_room(vjob, self.room, where)
        if vjob.name in self.ranks.beyond:
            part = f"{100 * self.parameters.slowdown.user_share:g} % of the cluster"
            words = f"{lack.sentence}; its user would have more than his share, {part}, and nobody makes way for that"
            return Reason(lack.code, words, lack.numbers)
        return Reason(lack.code, f"{lack.sentence}; {self._said(vjob)}{self._soon(vjob)}", lack.numbers)

    def _soon(self, vjob: VJob) -> str:
        """The vjobs of a lower tier that would make way if they were not exempt, and how long they are exempt."""
        exempt = [each for each in self.exempt if each.priority < vjob.priority]
        if not exempt:
            return ""
        left_s = max(exempt_for_s(each, self.parameters) for each in exempt)
        return f"; {names(exempt)} would make way, exempt for {seconds(left_s)} more"

    def _said(self, vjob: VJob) -> str:
        if vjob.name in self.ranks.due:
            return f"has waited {seconds(vjob.waited_s)} in all, longer than its bound, and goes first"
        needed_s = still_expected_s(vjob.time_limit_s, vjob.ran_s)
        said = f"is expected to need {seconds(needed_s)} more, has waited {seconds(vjob.waited_s)}"
        return f"{said}: expansion {self._weighed(vjob)}"

    def _weighed(self, vjob: VJob) -> str:
        """The expansion; and what its times alone make of it, where the site's weight makes another number of that."""
        found, weight = self.ranks.expansions[vjob.name], weight_of(vjob, self.parameters)
        shown = f"{found:.1f}"
        if weight <= 0 or f"{found / weight:.1f}" == shown:
            return shown
        return f"{shown} ({found / weight:.1f} by its times, weighed {weight:.1f} for its priority)"

    def _against(self, vjob: VJob, victim: VJob) -> str:
        if vjob.priority > victim.priority:
            return "that is of a higher tier"
        if self._by_share(vjob, victim):
            return f"that has waited {seconds(vjob.waited_s)}, and with this its user has more than his share"
        if vjob.name in self.ranks.due:
            return self._said(vjob).replace("has waited", "that has waited", 1)
        expansions = self.ranks.expansions
        if not self._has_waited_enough(vjob, victim):
            needs_s = still_expected_s(victim.time_limit_s, victim.ran_s)
            return f"that asks for {seconds(vjob.time_limit_s or 0.0)}, and this is expected to need {seconds(needs_s)}"
        return f"that has an expansion of {expansions[vjob.name]:.1f}, and this of {expansions[victim.name]:.1f}"
