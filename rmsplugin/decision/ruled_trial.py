"""Ruled trial: those that shall run after a decision, placed by capacity and by rules about VMs beside each other.

Those that must run come first, and paused ones last. There are several ways (``Way``); the next one is tried as long as
one leaves a vjob without a place. Then a solver is asked, if the vjobs are few. Who is left out depends on whom the
policy suspends (``rmsplugin.decision.traits``).
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from rmsplugin.decision.admission import where_it_is
from rmsplugin.decision.resident import is_resident
from rmsplugin.decision.result import Decision, ReasonCode
from rmsplugin.decision.room import Site
from rmsplugin.decision.ruled_placing import Attempt, Begun, Placing
from rmsplugin.decision.traits import Suspends
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import SHARED, VJob, VMState, held
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.budget import Budget
from rmsplugin.packing.item import Item, items_of_one
from rmsplugin.packing.ruled_fit import Obstacle, obeys
from rmsplugin.packing.ruled_program import Wish, is_small, nodes_without, solve
from rmsplugin.packing.ruled_sums import RuledSums
from rmsplugin.packing.search import Search

_HOLD_MEMORY = (VJobState.RUNNING, VJobState.PAUSED)

#: The reasons by which a policy has said that a vjob runs on, whoever else would take its place.
_RUNS_ON = (ReasonCode.EXEMPT, ReasonCode.AWAITS, ReasonCode.OVERDUE, ReasonCode.PREFERRED)


class Way(enum.Enum):
    """A way to place all that shall run, one after the other."""

    RUNNING = enum.auto()  # near where they are, those that run first: nobody takes their places
    PRESENT = enum.auto()  # near where they are, in the order of the queue
    SAMPLE = enum.auto()  # where the policy has them, in the order of the queue
    CLAIMS = enum.auto()  # near where they are; first those that a target or an administrator has run


@dataclass(frozen=True, slots=True)
class _Shown:
    """Places that obey all rules: if the next decision is about these vjobs, they are its places, too."""

    who: Mapping[str, tuple[VJobState, bool]]  # by vjob, its state, and whether it is pinned
    placement: Mapping[str, str]


class Trial:
    """Places all that hold memory after a decision, by capacity and rules."""

    def __init__(
        self,
        configuration: Configuration,
        decision: Decision,
        search: Search | None,
        before: Trial | None,
        *,
        suspends: Suspends,
    ) -> None:
        """``before``: that of the last decision; its way comes first. ``suspends``: whom the policy suspends."""
        self._configuration, self._decision = configuration, decision
        self._search, self._before, self._suspends = search, before, suspends
        self.way: Way = Way.RUNNING if before is None else before.way
        self._site = Site(configuration)
        self._homes = configuration.homes
        self._vjobs = [vjob for vjob in configuration.vjobs if decision.states[vjob.name] in _HOLD_MEMORY]
        self.placement: Mapping[str, str] = {}
        self._shown: _Shown | None = None
        self._begun: Begun | None = None

    @cached_property
    def _pinned(self) -> Mapping[str, Mapping[str, str]]:
        return {vjob.name: where_it_is(self._site, vjob) for vjob in self._vjobs if self._stays(vjob)}

    @cached_property
    def _items(self) -> Mapping[str, Sequence[Item]]:
        return {vjob.name: self._items_of(vjob) for vjob in self._vjobs}

    @cached_property
    def _placing(self) -> Placing:
        musts = [vjob for vjob in self._vjobs if vjob.name not in self._pinned and self._must(vjob)]
        states, reasons = self._decision.states, self._decision.reasons
        running = [name for name, state in states.items() if state is VJobState.RUNNING]
        preferred = {name for name in running if reasons[name].code is ReasonCode.PREFERRED}
        by_queue = self._suspends is Suspends.BEHIND
        return Placing(self._site, self._items, self._pinned, musts, preferred, by_queue)

    @cached_property
    def _others(self) -> Sequence[VJob]:
        """Those that are left out if they find no place."""
        settled = {*self._pinned, *(vjob.name for vjob in self._placing.musts)}
        return [vjob for vjob in self._vjobs if vjob.name not in settled]

    @cached_property
    def _claims(self) -> Sequence[VJob]:
        return [vjob for vjob in self._others if self._placing.claim(vjob)]

    def out(self) -> dict[VJob, Obstacle]:
        """The vjobs without a place, and why; ``placement`` has the places of the others."""
        sample = self._decision.placement
        if obeys(self._configuration.concerning, self._homes, self._all_of(sample)):
            self.placement = sample
            return {}
        shown = None if self._before is None else self._before._shown
        if shown is not None and shown.who == self._who():
            self.placement = shown.placement
            return {}
        best = self._by_ways(sample)
        if not best.is_whole and (found := self._by_program(best)) is not None:
            best = Attempt({}, found)
        self.placement = best.placement
        if not best.stay_against_rules:
            self._shown = _Shown(self._who({vjob.name for vjob in best.out}), best.placement)
        return best.out

    def _by_ways(self, sample: Mapping[str, str]) -> Attempt:
        """The best of the ways; those behind one that places all are not tried."""
        ways = [way for way in Way if way is not Way.CLAIMS or self._claims]
        best: Attempt | None = None
        present = self._present()
        for way in sorted(ways, key=lambda each: each is not self.way):  # stable: the last one's way first
            near = sample if way is Way.SAMPLE else present
            begun = self._placing.begun(sample) if way is Way.SAMPLE else self._begun_where_all_are(present)
            attempt = self._placing.attempt(begun, near, self._in_order(way), None if best is None else best.rank)
            if attempt is not None and (best is None or attempt.rank > best.rank):
                best, self.way = attempt, way
            if best is not None and best.is_whole:
                break
        assert best is not None, "there are ways"
        return best

    def _begun_where_all_are(self, present: Mapping[str, str]) -> Begun:
        """Those that must run near where they are: in all ways but one, and mostly in all trials, they are the same."""
        before = self._before
        if self._begun is None and before is not None and self._placing.begins_as(before._placing):
            self._begun = before._begun
        if self._begun is None:
            self._begun = self._placing.begun(present)
        return self._begun

    def _who(self, out: Collection[str] = ()) -> Mapping[str, tuple[VJobState, bool]]:
        """The state of each vjob that is not left out, and whether it is pinned."""
        states, pinned = self._decision.states, self._pinned
        names = (vjob.name for vjob in self._vjobs if vjob.name not in out)
        return {name: (states[name], name in pinned) for name in names}

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
        code = self._decision.reasons[vjob.name].code
        shares = code is ReasonCode.AWAITS and not self._is_in_peace(vjob)
        return fixed or shares or code is ReasonCode.RESERVED_IN_PLACE

    def _must(self, vjob: VJob) -> bool:
        """Whether a vjob runs on in any case: if no place is found for it, it stays where it is."""
        if not self._runs(vjob) or self._is_paused(vjob):
            return False
        if not vjob.preemptible or vjob.target is VJobState.RUNNING or self._suspends is Suspends.NOBODY:
            return True
        if self._suspends is Suspends.WHERE_SHORT:
            return self._is_in_peace(vjob)
        return self._decision.reasons[vjob.name].code in _RUNS_ON and self._may_stay(vjob)

    def _runs(self, vjob: VJob) -> bool:
        return self._configuration.state(vjob) is VJobState.RUNNING

    def _is_in_peace(self, vjob: VJob) -> bool:
        """Whether all VMs of a vjob run on nodes that are not short, and where they may be."""
        short, locations = self._configuration.overloaded(), self._configuration.locations
        return self._may_stay(vjob) and all(locations[vm.name].node not in short for vm in vjob.vms)

    def _may_stay(self, vjob: VJob) -> bool:
        """Whether all VMs of a vjob run where they may be, on nodes that are up."""
        places = [self._configuration.locations[vm.name] for vm in vjob.vms]
        return all(
            at.state is VMState.RUNNING and at.node is not None and at.node in self._site.up and vjob.allows(at.node)
            for at in places
        )

    def _in_order(self, way: Way) -> list[VJob]:
        """Those that are left out if they find no place, in the order of a way; paused ones come last."""
        by_claim, running_first = way is Way.CLAIMS, way in (Way.RUNNING, Way.CLAIMS)

        def key(vjob: VJob) -> tuple[bool, int, bool]:
            claim = self._placing.claim(vjob) if by_claim else 0
            return self._is_paused(vjob), -claim, running_first and not self._runs(vjob)

        return sorted(self._others, key=key)

    def _is_paused(self, vjob: VJob) -> bool:
        return self._decision.states[vjob.name] is VJobState.PAUSED

    def _items_of(self, vjob: VJob) -> list[Item]:
        """The VMs of a vjob with what they take: a paused one takes no CPUs."""
        if not self._is_paused(vjob):
            return items_of_one(vjob)
        return [replace(item, vm=replace(item.vm, demand=held(item.vm, VMState.PAUSED))) for item in items_of_one(vjob)]

    def _by_program(self, best: Attempt) -> dict[str, str] | None:
        """A place for all at once, if a solver finds one; ``best``: the best attempt one after the other.

        It is not asked for those that wait alone under a policy that moves nobody for one that waits.
        """
        only_wait = not best.stay_against_rules and not any(map(self._runs, best.out))
        if self._suspends is Suspends.WHERE_SHORT and only_wait:
            return None
        configuration = self._configuration
        fixed = {vm: node for places in self._pinned.values() for vm, node in places.items()}
        items = [item for vjob in self._vjobs if vjob.name not in self._pinned for item in self._items[vjob.name]]
        nodes = nodes_without(configuration.nodes, fixed, configuration.vm_by_name)
        if self._search is None or not is_small(items, nodes):
            return None
        sums = RuledSums(configuration.nodes, configuration.joint, self._homes)
        if sums.refuse([item.vm for item in those] for those in self._items.values()):
            return None
        found = solve(
            items, nodes, configuration.joint, self._homes, fixed, Wish(hint=self._present()), Budget(self._search)
        )
        return None if found is None or found.hosts is None else {**fixed, **found.hosts}
