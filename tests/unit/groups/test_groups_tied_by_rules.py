"""Rules about VMs of several groups: these are decided about together where that matters, and apart elsewhere."""

from __future__ import annotations

from dataclasses import replace

import pytest
from unit.queues import Queue, nodes

from rmsplugin.groups.assignment import assign
from rmsplugin.groups.forming import Group
from rmsplugin.groups.splitting import split
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.given_rules import given_rules
from rmsplugin.model.joint import Capacity, Gather, Joint, Lonely, Online, Split, Spread, Within

GROUPS = (Group("left", ("n1", "n2")), Group("middle", ("n3",)), Group("right", ("n4",)))
BOTH = frozenset({"a-0", "b-0"})


def parts(rule: Joint) -> list[tuple[str, ...]]:
    """The parts of four nodes in three groups, with a vjob on n1 and one on n4."""
    queue = Queue(*nodes(4)).add("a", "n1").add("b", "n4").configuration
    vjobs = tuple(given_rules(queue.vjobs, [(rule, rule.names)]))
    whole = Configuration(queue.nodes, vjobs, queue.locations)
    return [part.groups for part in split(whole, GROUPS, assign(whole, GROUPS))]


@pytest.mark.parametrize(
    "rule",
    [
        Gather(BOTH),
        Within((frozenset({"n1"}),), BOTH, 1),
        Capacity(frozenset({"n1", "n2", "n4"}), BOTH, 1),
        Online(frozenset({"n2", "n4", "elsewhere"}), 1),
    ],
)
def test_groups_whose_vms_are_counted_or_gathered_together_are_one_part(rule: Joint) -> None:
    assert parts(rule) == [("left", "right"), ("middle",)]


@pytest.mark.parametrize(
    "rule",
    [
        Spread(BOTH),
        Lonely(BOTH),
        Split((frozenset({"a-0"}), frozenset({"b-0"}))),
        Capacity(frozenset({"n1", "n2"}), BOTH, 1),
        Online(frozenset({"n4"}), 1),
        Gather(frozenset({"a-0"})),
    ],
)
def test_groups_stay_apart_where_a_rule_needs_no_more(rule: Joint) -> None:
    assert parts(rule) == [("left",), ("middle",), ("right",)]


def test_the_label_of_a_rule_is_in_its_title() -> None:
    rule = Spread(BOTH)
    assert rule.title == "spread of 'a-0' 'b-0'"
    assert replace(rule, label="db").title == "rule db: spread of 'a-0' 'b-0'"


def test_the_title_of_a_split_is_short_however_many_groups_there_are() -> None:
    groups = tuple(frozenset({f"a{number}", f"b{number}"}) for number in range(50))
    assert Split(groups[:2]).title == "split of 'a0' 'b0' from 'a1' 'b1'"
    assert Split(groups).title == "split of 100 VMs in 50 groups"
