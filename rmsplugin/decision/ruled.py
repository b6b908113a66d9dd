"""Ruled: decisions that obey the rules about VMs beside each other, whatever policy makes them.

A policy places vjob by vjob, and knows no such rule. So its decision is tried: those that shall run are placed by the
rules, too, in one of several ways (``Way``). Those that must run come first, and paused ones last. A vjob without a
place is fixed to stay out, with the rule as the reason. Then the policy decides once more, for the resources that are
left may suit another.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from rmsplugin.decision.admission import out_of, where_it_is
from rmsplugin.decision.later import NOT_NOW, is_barred_now
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.pausing import decide_with_pauses
from rmsplugin.decision.reasons import needs, sentence, starts_within
from rmsplugin.decision.resident import is_resident
from rmsplugin.decision.result import Decision, Infeasible, Reason, ReasonCode
from rmsplugin.decision.room import Site
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import SHARED, VJob, VMState, held
from rmsplugin.model.vjob import VJobState
from rmsplugin.model.wording import counted
from rmsplugin.packing.budget import Budget
from rmsplugin.packing.item import Item, items_of_one
from rmsplugin.packing.ruled_fit import Obstacle, RuledFit, obeys
from rmsplugin.packing.ruled_program import Wish, nodes_without, solve
from rmsplugin.packing.ruled_sums import RuledSums
from rmsplugin.packing.search import Search

#: The most decisions, one after the other. Those that find no place after the last one stay out, and none fills in.
_ROUNDS = 6

#: The policies that may reserve a start for a vjob that a rule keeps out.
_RESERVING = frozenset({"easy", "easy-preempt", "conservative", "mixed"})

_READY = (VJobState.WAITING, VJobState.SLEEPING)
_HOLD_MEMORY = (VJobState.RUNNING, VJobState.PAUSED)


def decide_by_rules(policy: str, configuration: Configuration, parameters: Parameters) -> Decision | Infeasible:
    """Decide the state of each vjob by a policy, so that all rules can be obeyed; see ``decide_with_pauses``.

    Raises:
        ValueError: there is no such policy.
    """
    if not configuration.joint:
        return decide_with_pauses(policy, configuration, parameters)
    stated, reasons, way = configuration, dict[str, Reason](), Way.RUNNING
    for left in reversed(range(_ROUNDS)):
        found = decide_with_pauses(policy, stated, parameters)
        if isinstance(found, Infeasible):
            return found
        trial = _Trial(stated, found, parameters.search_of_one_check if parameters.exact_checks else None, way)
        out, way = trial.out(), trial.way
        for vjob, obstacle in out.items():
            if vjob.target is VJobState.RUNNING:
                return Infeasible(f"vjob {vjob.name!r} cannot run, as its target demands: it {_words(vjob, obstacle)}")
            reasons[vjob.name] = Reason(ReasonCode.RULE, _words(vjob, obstacle), _numbers(vjob, obstacle))
        if not out or not left:
            return _told(configuration, found, trial.placement, out, reasons)
        stated = _kept_out(stated, {vjob.name for vjob in out}, policy)
    raise AssertionError("the last round is decided")


def _kept_out(configuration: Configuration, names: set[str], policy: str) -> Configuration:
    """The configuration in which these vjobs do not run: fixed to stay out, or without a node now."""

    def out(vjob: VJob) -> VJob:
        state = configuration.state(vjob)
        left_to_policy = vjob.target is None and vjob.preference is None
        if policy in _RESERVING and left_to_policy and state in _READY and not is_barred_now(vjob):
            return replace(vjob, rules=(*vjob.rules, NOT_NOW))
        return replace(vjob, target=out_of(state))

    vjobs = tuple(out(vjob) if vjob.name in names else vjob for vjob in configuration.vjobs)
    return Configuration(configuration.nodes, vjobs, configuration.locations, checked=True)


def _told(
    configuration: Configuration,
    decision: Decision,
    placement: Mapping[str, str],
    out: Mapping[VJob, Obstacle],
    reasons: Mapping[str, Reason],
) -> Decision:
    """The decision with the places and the reasons of the rules; ``out``: those that find no place, and run not."""
    states = dict(decision.states)
    for vjob in out:
        states[vjob.name] = out_of(configuration.state(vjob))
    told = {name: _with_its_time(reasons.get(name), reason) for name, reason in decision.reasons.items()}
    words = sentence(configuration, states, told)
    return replace(decision, states=states, reasons=told, placement=dict(placement), sentence=words)


def _with_its_time(ruled: Reason | None, decided: Reason) -> Reason:
    """The reason of a rule, if there is one, with the time for which the policy has reserved a start."""
    if ruled is None:
        return decided
    shadow_s = decided.numbers.get("shadow_s")
    if not isinstance(shadow_s, (int, float)) or "head" in decided.numbers:
        return ruled
    words = f"{ruled.sentence}; {starts_within(shadow_s)}"
    return Reason(ruled.code, words, {**ruled.numbers, "shadow_s": shadow_s})


class Way(enum.Enum):
    """A way to place all that shall run, one after the other."""

    RUNNING = enum.auto()  # near where they are, those that run first: nobody takes their places
    PRESENT = enum.auto()  # near where they are, in the order of the queue
    SAMPLE = enum.auto()  # where the policy has them, in the order of the queue


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The vjobs without a place, and the places of the others.

    ``rank``: of two attempts the one is better that first leaves out one farther behind in the queue; then the one in
    which fewer stay where they are against the rules.
    """

    out: dict[VJob, Obstacle]
    placement: dict[str, str]
    rank: tuple[tuple[float, ...], int]

    @property
    def is_whole(self) -> bool:
        """Whether all have a place that obeys the rules."""
        return not self.out and self.rank[1] == 0


class _Trial:
    """Places all that hold memory after a decision, by capacity and rules."""

    def __init__(self, configuration: Configuration, decision: Decision, search: Search | None, way: Way) -> None:
        """``way``: the one to begin with."""
        self._configuration, self._decision = configuration, decision
        self._search, self.way = search, way
        self._site = Site(configuration)
        self._homes = configuration.homes
        self._vjobs = [vjob for vjob in configuration.vjobs if decision.states[vjob.name] in _HOLD_MEMORY]
        self._pinned = {vjob.name: where_it_is(self._site, vjob) for vjob in self._vjobs if self._stays(vjob)}
        self.placement: Mapping[str, str] = {}

    def out(self) -> dict[VJob, Obstacle]:
        """The vjobs without a place, and why; ``placement`` has the places of the others."""
        sample = self._decision.placement
        if obeys(self._configuration.joint, self._homes, self._all_of(sample)):
            self.placement = sample
            return {}
        ways = {Way.RUNNING: self._present(), Way.PRESENT: self._present(), Way.SAMPLE: sample}
        best: _Attempt | None = None
        for way in sorted(Way, key=lambda each: each is not self.way):  # stable: the last one's way first
            attempt = self._placed(ways[way], way is Way.RUNNING, None if best is None else best.rank[0])
            if attempt is not None and (best is None or attempt.rank > best.rank):
                best, self.way = attempt, way
            if best is not None and best.is_whole:
                break
        assert best is not None, "there are ways"
        program = None if best.is_whole else self._by_program()
        self.placement = best.placement if program is None else program
        return best.out if program is None else {}

    def _all_of(self, sample: Mapping[str, str]) -> dict[str, str]:
        """The places of all that hold memory, by a sample or where they are paused."""
        return {
            vm.name: sample.get(vm.name) or self._homes[vm.name]
            for vjob in self._vjobs
            for vm in vjob.vms
            if vm.name in sample or vm.name in self._homes
        }

    def _present(self) -> dict[str, str]:
        """The nodes where VMs are, or their saved states."""
        locations = self._configuration.locations
        return {name: at.node for name, at in locations.items() if at.node is not None and at.node != SHARED}

    def _stays(self, vjob: VJob) -> bool:
        """Whether a vjob has to be where it is. The policy may lead one away in part, but asks no rule about that."""
        fixed = vjob.in_transit or vjob.target is VJobState.PAUSED or is_resident(self._configuration, vjob)
        return fixed or self._decision.reasons[vjob.name].code is ReasonCode.RESERVED_IN_PLACE

    def _must(self, vjob: VJob) -> bool:
        """Whether a vjob runs on in any case: if no place is found for it, it stays where it is."""
        runs = self._configuration.state(vjob) is VJobState.RUNNING
        return runs and (not vjob.preemptible or vjob.target is VJobState.RUNNING)

    def _placed(
        self, prefer: Mapping[str, str], running_first: bool, least: tuple[float, ...] | None
    ) -> _Attempt | None:
        """Place all; one that must run and finds no place is pinned where it is, and all begin again.

        None as soon as those that are left out rank below ``least``: whoever else is left out, the rank only sinks.
        """
        pinned = dict(self._pinned)
        while True:
            found = self._placed_around(pinned, prefer, running_first, least)
            if found is None:
                return None
            if not isinstance(found, VJob):
                out, placement = found
                return _Attempt(out, placement, (self._positions(out), len(self._pinned) - len(pinned)))
            pinned[found.name] = where_it_is(self._site, found)

    def _positions(self, out: Iterable[VJob]) -> tuple[float, ...]:
        """The places in the queue of vjobs that are left out: the greater, the better."""
        return tuple(sorted((*(float(self._site.position[vjob.name]) for vjob in out), math.inf)))

    def _placed_around(
        self,
        pinned: Mapping[str, Mapping[str, str]],
        prefer: Mapping[str, str],
        running_first: bool,
        least: tuple[float, ...] | None,
    ) -> tuple[dict[VJob, Obstacle], dict[str, str]] | VJob | None:
        """Place all that are not pinned; a vjob that must run and finds no place is returned instead."""
        fit = RuledFit(
            self._configuration.nodes,
            self._configuration.joint,
            self._homes,
            (item.vm for vjob in self._vjobs for item in self._items(vjob)),
        )
        placement: dict[str, str] = {}
        for vjob in self._vjobs:
            for item in self._items(vjob) if vjob.name in pinned else ():
                placement[item.vm.name] = pinned[vjob.name][item.vm.name]
                fit.take(item.vm, placement[item.vm.name])
        out: dict[VJob, Obstacle] = {}
        for vjob in self._in_order(pinned, running_first):
            found = fit.place(self._items(vjob), prefer)
            if not isinstance(found, Obstacle):
                placement |= found
            elif self._must(vjob):
                return vjob
            else:
                out[vjob] = found
                if least is not None and self._positions(out) < least:
                    return None
        return out, placement

    def _in_order(self, pinned: Collection[str], running_first: bool) -> list[VJob]:
        """Those that must run, the others in the order of the queue, and paused ones."""
        loose = [vjob for vjob in self._vjobs if vjob.name not in pinned]

        def rank(vjob: VJob) -> tuple[bool, bool, bool]:
            comes = running_first and self._configuration.state(vjob) is not VJobState.RUNNING
            return self._is_paused(vjob), not self._must(vjob), comes

        return sorted(loose, key=rank)

    def _is_paused(self, vjob: VJob) -> bool:
        return self._decision.states[vjob.name] is VJobState.PAUSED

    def _items(self, vjob: VJob) -> list[Item]:
        """The VMs of a vjob with what they take: a paused one takes no CPUs."""
        if not self._is_paused(vjob):
            return items_of_one(vjob)
        return [replace(item, vm=replace(item.vm, demand=held(item.vm, VMState.PAUSED))) for item in items_of_one(vjob)]

    def _by_program(self) -> dict[str, str] | None:
        """A place for all at once, if a solver finds one."""
        configuration = self._configuration
        sums = RuledSums(configuration.nodes, configuration.joint, self._homes)
        if self._search is None or sums.refuse(item.vm for vjob in self._vjobs for item in self._items(vjob)):
            return None
        fixed = {vm: node for places in self._pinned.values() for vm, node in places.items()}
        items = [item for vjob in self._vjobs if vjob.name not in self._pinned for item in self._items(vjob)]
        nodes = nodes_without(configuration.nodes, fixed, configuration.vm_by_name)
        found = solve(
            items, nodes, configuration.joint, self._homes, fixed, Wish(hint=self._present()), Budget(self._search)
        )
        return None if found is None or found.hosts is None else {**fixed, **found.hosts}


def _words(vjob: VJob, obstacle: Obstacle) -> str:
    if not obstacle.rooms:
        return f"needs {needs(vjob)}; no node has room for {obstacle.vm} beside those that rules keep apart or together"
    rooms = counted(obstacle.rooms, "node")
    barred = [f"{title} bars it from {number}" for title, number in obstacle.barred.items()]
    return f"needs {needs(vjob)}; {rooms} with room for {obstacle.vm}, but {' and '.join(barred)}"


def _numbers(vjob: VJob, obstacle: Obstacle) -> Mapping[str, float | int | str]:
    demand = vjob.demand
    return {
        "cpus": demand.cpus,
        "memory_mib": demand.memory_mib,
        "vms": len(vjob.vms),
        "vm": obstacle.vm,
        "nodes_with_room": obstacle.rooms,
        "barred": max(obstacle.barred.values(), default=0),
        "rule": ", ".join(obstacle.barred),
    }
