"""Ruled trial: those that shall run after a decision, placed by capacity and by rules about VMs beside each other.

Those that must run come first, and paused ones last. There are several ways (``Way``); the next one is tried as long as
one leaves a vjob without a place.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from rmsplugin.decision.admission import where_it_is
from rmsplugin.decision.resident import is_resident
from rmsplugin.decision.result import Decision, ReasonCode
from rmsplugin.decision.room import Site
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import SHARED, VJob, VMState, held
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.budget import Budget
from rmsplugin.packing.item import Item, items_of_one
from rmsplugin.packing.ruled_fit import Obstacle, RuledFit, obeys
from rmsplugin.packing.ruled_program import Wish, is_small, nodes_without, solve
from rmsplugin.packing.ruled_sums import RuledSums
from rmsplugin.packing.search import Search

_HOLD_MEMORY = (VJobState.RUNNING, VJobState.PAUSED)


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
        suspends: bool,
    ) -> None:
        """``before``: that of the last decision; its way comes first. ``suspends``: whether the policy ever does."""
        self._configuration, self._decision = configuration, decision
        self._search, self._before, self._suspends = search, before, suspends
        self.way: Way = Way.RUNNING if before is None else before.way
        self._site = Site(configuration)
        self._homes = configuration.homes
        self._vjobs = [vjob for vjob in configuration.vjobs if decision.states[vjob.name] in _HOLD_MEMORY]
        self._pinned = {vjob.name: where_it_is(self._site, vjob) for vjob in self._vjobs if self._stays(vjob)}
        self._items = {vjob.name: self._items_of(vjob) for vjob in self._vjobs}
        self.placement: Mapping[str, str] = {}
        self._shown: _Shown | None = None

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
        if program is None and not best.rank[1]:
            self._shown = _Shown(self._who({vjob.name for vjob in best.out}), best.placement)
        return best.out if program is None else {}

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
        return fixed or self._decision.reasons[vjob.name].code is ReasonCode.RESERVED_IN_PLACE

    def _must(self, vjob: VJob) -> bool:
        """Whether a vjob runs on in any case: if no place is found for it, it stays where it is."""
        runs = self._configuration.state(vjob) is VJobState.RUNNING
        return runs and (not self._suspends or not vjob.preemptible or vjob.target is VJobState.RUNNING)

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
            self._configuration.concerning,
            self._homes,
            (item.vm for those in self._items.values() for item in those),
        )
        placement: dict[str, str] = {}
        for vjob in self._vjobs:
            for item in self._items[vjob.name] if vjob.name in pinned else ():
                placement[item.vm.name] = pinned[vjob.name][item.vm.name]
                fit.take(item.vm, placement[item.vm.name])
        out: dict[VJob, Obstacle] = {}
        for vjob in self._in_order(pinned, running_first):
            found = fit.place(self._items[vjob.name], prefer)
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

    def _items_of(self, vjob: VJob) -> list[Item]:
        """The VMs of a vjob with what they take: a paused one takes no CPUs."""
        if not self._is_paused(vjob):
            return items_of_one(vjob)
        return [replace(item, vm=replace(item.vm, demand=held(item.vm, VMState.PAUSED))) for item in items_of_one(vjob)]

    def _by_program(self) -> dict[str, str] | None:
        """A place for all at once, if a solver finds one."""
        configuration = self._configuration
        fixed = {vm: node for places in self._pinned.values() for vm, node in places.items()}
        items = [item for vjob in self._vjobs if vjob.name not in self._pinned for item in self._items[vjob.name]]
        nodes = nodes_without(configuration.nodes, fixed, configuration.vm_by_name)
        if self._search is None or not is_small(items, nodes):
            return None
        sums = RuledSums(configuration.nodes, configuration.joint, self._homes)
        if sums.refuse(item.vm for those in self._items.values() for item in those):
            return None
        found = solve(
            items, nodes, configuration.joint, self._homes, fixed, Wish(hint=self._present()), Budget(self._search)
        )
        return None if found is None or found.hosts is None else {**fixed, **found.hosts}
