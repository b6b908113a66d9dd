"""Those that run and find no place by new rules: all are found in one pass, as if one was found after the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from examples import few
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st
from properties.generators import configurations
from properties.joint_rules import with_rules

from rmsplugin.decision.admission import where_it_is
from rmsplugin.decision.room import Site
from rmsplugin.decision.ruled_placing import Attempt, Begun, Placing
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.item import items_of_one
from rmsplugin.packing.ruled_fit import Obstacle, RuledFit


@dataclass(frozen=True, slots=True)
class OneByOne(Placing):
    """The same, where the first one that finds no place is pinned, and all others are placed anew."""

    def begun(self, prefer: Mapping[str, str]) -> Begun:
        pinned = dict(self.pinned)
        while True:
            fit, placement = self._around_those(pinned)
            for vjob in self.musts:
                found = fit.place(self.items[vjob.name], prefer) if vjob.name not in pinned else {}
                if isinstance(found, Obstacle):
                    pinned[vjob.name] = where_it_is(self.site, vjob)
                    break
                placement |= found
            else:
                return Begun(fit, placement, len(pinned) - len(self.pinned))

    def _around_those(self, pinned: Mapping[str, Mapping[str, str]]) -> tuple[RuledFit, dict[str, str]]:
        whole = self.site.configuration
        fit = RuledFit(whole.nodes, whole.concerning, whole.homes, whole.vm_by_name.values())
        placement: dict[str, str] = {}
        for vjob in whole.vjobs:
            for item in self.items[vjob.name] if vjob.name in pinned else ():
                placement[item.vm.name] = pinned[vjob.name][item.vm.name]
                fit.take(item.vm, placement[item.vm.name])
        return fit, placement


def attempt(kind: type[Placing], source: Configuration) -> Attempt:
    runs = [vjob for vjob in source.vjobs if source.state(vjob) is VJobState.RUNNING]
    others = [vjob for vjob in source.vjobs if source.state(vjob) is not VJobState.RUNNING]
    items = {vjob.name: items_of_one(vjob) for vjob in source.vjobs}
    placing = kind(Site(source), items, {}, runs)
    found = placing.attempt(placing.begun(source.homes), source.homes, others, None)
    assert found is not None
    return found


@given(source=st.integers(1, 6).flatmap(lambda most: configurations(4, 6, 3).flatmap(lambda c: with_rules(c, most))))
@settings(max_examples=few(2000), deadline=None)
def test_no_more_stay_against_the_rules_and_else_the_same_are_left_out(source: Configuration) -> None:
    """Fewer may stay: whoever was pinned too early is asked again, and may then take the place of one that waits."""
    assume(any(source.state(vjob) is VJobState.RUNNING for vjob in source.vjobs))
    at_once, one_by_one = attempt(Placing, source), attempt(OneByOne, source)
    event(f"{one_by_one.stay_against_rules} stay against the rules")
    assert at_once.stay_against_rules <= one_by_one.stay_against_rules
    if at_once.stay_against_rules == one_by_one.stay_against_rules:
        assert at_once.out == one_by_one.out and at_once.placement == one_by_one.placement
