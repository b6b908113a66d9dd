"""Ruled placing: vjobs that shall run, placed one after the other by capacity and rules about VMs beside each other.

Those that must run come first. One of them that finds no place by the rules stays where it is, and the others are
placed around it. All that find none are found in one pass: a site may have hundreds of them when a rule is new.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rmsplugin.decision.admission import where_it_is
from rmsplugin.decision.room import Site
from rmsplugin.model.elements import VJob
from rmsplugin.model.joint import Gather
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.item import Item
from rmsplugin.packing.ruled_fit import Obstacle, RuledFit

#: The places in the queue of those that are left out, by class: those with a target to run, those that an administrator
#: prefers, those that run, and all; and, below 0, the number of those that stay against the rules. Of two attempts the
#: one of the higher rank is better: it first leaves out one farther behind, or leaves out nobody.
Rank = tuple[tuple[tuple[float, ...], ...], int]

_NOBODY = (math.inf,)

#: What gives a vjob its room before others that may be suspended: the greater, the earlier.
_TARGET, _PREFERRED, _NONE = 2, 1, 0


@dataclass(frozen=True, slots=True)
class Attempt:
    """The vjobs without a place, and the places of the others."""

    out: dict[VJob, Obstacle]
    placement: dict[str, str]
    rank: Rank = ((_NOBODY,) * 4, 0)

    @property
    def stay_against_rules(self) -> int:
        """The number of vjobs that stay where they are against the rules."""
        return -self.rank[1]

    @property
    def is_whole(self) -> bool:
        """Whether all have a place that obeys the rules."""
        return not self.out and not self.stay_against_rules


@dataclass(frozen=True, slots=True)
class Begun:
    """The nodes with those that must run, which must not be changed.

    Attributes:
        fit: the nodes with them.
        placement: their places.
        against: the number of them that stay against the rules.
    """

    fit: RuledFit
    placement: Mapping[str, str]
    against: int


@dataclass(frozen=True, slots=True)
class Placing:
    """All that is the same whichever way vjobs are placed.

    Attributes:
        site: the nodes, and the order of the queue.
        items: by vjob, its VMs with what they take.
        pinned: by vjob, the node of each VM: of vjobs that have to be where they are.
        musts: the vjobs that run on in any case: if no place is found for one, it stays where it is.
        preferred: the names of those that have their room before others by an administrator's preference.
        by_queue: whether the order of the queue alone decides who else is left out. Else nobody who runs is left out
            so that another one gets a place.
    """

    site: Site
    items: Mapping[str, Sequence[Item]]
    pinned: Mapping[str, Mapping[str, str]]
    musts: Sequence[VJob]
    preferred: Collection[str] = ()
    by_queue: bool = False

    def attempt(
        self, begun: Begun, prefer: Mapping[str, str], others: Iterable[VJob], least: Rank | None
    ) -> Attempt | None:
        """Place others beside those that must run.

        Args:
            begun: those that must run, placed by the same preferences.
            prefer: by VM, a node that is tried first.
            others: those that are left out if they find no place, in the order in which they are placed.
            least: None is returned as soon as the rank is below it: whoever else is left out, it only sinks.
        """
        fit, placement = begun.fit.copy(), dict(begun.placement)
        out: dict[VJob, Obstacle] = {}
        for vjob in others:
            found = fit.place(self.items[vjob.name], prefer)
            if not isinstance(found, Obstacle):
                placement |= found
                continue
            out[vjob] = found
            if least is not None and self._rank(out, 0) < (least[0], 0):
                return None
        return Attempt(out, placement, self._rank(out, begun.against))

    def claim(self, vjob: VJob) -> int:
        """How far a vjob has its room before others: 2 by its target, 1 by a preference, 0 not at all."""
        if vjob.target is VJobState.RUNNING:
            return _TARGET
        return _PREFERRED if vjob.name in self.preferred else _NONE

    def _rank(self, out: Collection[VJob], against: int) -> Rank:
        state = self.site.configuration.state
        run = () if self.by_queue else [vjob for vjob in out if state(vjob) is VJobState.RUNNING]
        target = [vjob for vjob in out if self.claim(vjob) == _TARGET]
        preferred = [vjob for vjob in out if self.claim(vjob) == _PREFERRED]
        return tuple(map(self._positions, (target, preferred, run, out))), -against

    def _positions(self, out: Iterable[VJob]) -> tuple[float, ...]:
        """The places in the queue of vjobs that are left out: the greater, the better."""
        return tuple(sorted((*(float(self.site.position[vjob.name]) for vjob in out), *_NOBODY)))

    def begins_as(self, other: Placing) -> bool:
        """Whether those that must run have the same places as in another one for the same VMs, by equal preferences."""
        here = [*self.pinned, *(vjob.name for vjob in self.musts)]
        return (
            self.pinned == other.pinned
            and list(map(id, self.musts)) == list(map(id, other.musts))
            and all(self.items[name] == other.items[name] for name in here)
            and self._gathered() == other._gathered()
        )

    def _gathered(self) -> Mapping[str, Resources]:
        """The VMs that rules have together, whoever they are: their first one begins where there is room for them."""
        gathers = (rule.vms for rule in self.site.configuration.joint if isinstance(rule, Gather))
        theirs = frozenset[str]().union(*gathers)
        return {item.vm.name: item.vm.demand for its in self.items.values() for item in its if item.vm.name in theirs}

    def begun(self, prefer: Mapping[str, str]) -> Begun:
        """Place those that must run; ``prefer``: by VM, a node that is tried first.

        All that find no place are pinned where they are, and the others are placed anew around them.
        """
        stuck: dict[str, VJob] = {}
        while True:
            fit, placement = self._around(stuck)
            loose = [vjob for vjob in self.musts if vjob.name not in stuck]
            failed = [vjob for vjob in loose if not self._finds_place(fit, vjob, placement, prefer)]
            if not failed:
                break
            stuck |= {vjob.name: vjob for vjob in failed}
        again = sum(self._leaves(fit, vjob, placement, prefer) for vjob in stuck.values())
        return Begun(fit, placement, len(stuck) - again)

    def _around(self, stuck: Mapping[str, VJob]) -> tuple[RuledFit, dict[str, str]]:
        """The nodes with those that stay where they are, and the places of these."""
        whole, items = self.site.configuration, self.items
        fit = RuledFit(whole.nodes, whole.concerning, whole.homes, (item.vm for its in items.values() for item in its))
        placement: dict[str, str] = {}
        here = {**self.pinned, **{name: where_it_is(self.site, vjob) for name, vjob in stuck.items()}}
        for name in sorted(here, key=self.site.position.__getitem__):
            for item in items[name]:
                placement[item.vm.name] = here[name][item.vm.name]
                fit.take(item.vm, placement[item.vm.name])
        return fit, placement

    def _finds_place(self, fit: RuledFit, vjob: VJob, placement: dict[str, str], prefer: Mapping[str, str]) -> bool:
        """Place one vjob, if there is a place."""
        found = fit.place(self.items[vjob.name], prefer)
        if isinstance(found, Obstacle):
            return False
        placement |= found
        return True

    def _leaves(self, fit: RuledFit, vjob: VJob, placement: dict[str, str], prefer: Mapping[str, str]) -> bool:
        """Whether one that is pinned where it is finds a place by the rules after all: others have moved meanwhile."""
        items = self.items[vjob.name]
        for item in items:
            fit.give_back(item.vm, placement[item.vm.name])
        if self._finds_place(fit, vjob, placement, prefer):
            return True
        for item in items:
            fit.take(item.vm, placement[item.vm.name])
        return False
