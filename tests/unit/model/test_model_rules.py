"""Rules about the places of a vjob's VMs: the check, what a packing makes of them, and that all layers agree."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from random import Random

import pytest

from rmsplugin.model.action import run
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, WAITING, Node, VJob, running_on
from rmsplugin.model.resources import Resources
from rmsplugin.model.rules import (
    Ban,
    Fence,
    Held,
    Rule,
    Rules,
    admit,
    allowing,
    confined_to,
    fenced,
    in_the_way,
    kept_off,
    moved_to,
    unadmitted,
)
from rmsplugin.packing.ruled import mask
from rmsplugin.planning.checker import check_plan

NAMES = ("n0", "n1", "n2", "n3")


def some(chance: Random) -> frozenset[str]:
    return frozenset(chance.sample((*NAMES, "gone"), chance.randint(1, 4)))


@pytest.mark.parametrize("seed", range(40))
def test_admission_the_mask_of_a_packing_the_action_and_the_checker_agree(seed: int) -> None:
    """The checker asks ``broken``, the action ``allows``, a packing has masks: three ways to one answer."""
    chance = Random(seed)
    kinds = (Fence, Ban)
    rules: Rules = tuple(chance.choice(kinds)(some(chance)) for _ in range(chance.randint(0, 3)))
    sound = tuple(rule for rule in rules if not list(rule.faults(NAMES)))
    vm = VM("a", Resources(1, 1))
    nodes = tuple(Node(name, Resources(4, 4)) for name in NAMES)
    source = Configuration(nodes, (VJob("v", (vm,), rules=sound),), {"a": WAITING})
    by_mask = mask(sound, {name: number for number, name in enumerate(NAMES)})
    for number, name in enumerate(NAMES):
        plain = all((name in rule.nodes) is isinstance(rule, Fence) for rule in sound if isinstance(rule, kinds))
        assert admit(sound, name) is plain
        assert bool(by_mask[number]) is plain
        assert run(vm, name).is_feasible(source) is plain
        assert (check_plan(source, {"a": running_on(name)}, [[run(vm, name)]]) == []) is plain
    assert unadmitted(sound, NAMES) is not all(admit(sound, name) for name in NAMES)


def test_who_is_where_he_may_not_come_is_not_held_against_him() -> None:
    held = [("a", "n1"), ("b", "n2")]
    for rule in (Fence(frozenset({"n2"})), Ban(frozenset({"n1"}))):
        assert rule.broken(held, [("b", "n2")]) is None
        assert rule.broken(held, [("a", "n1")]) is not None


def test_a_broken_rule_says_who_where_and_among_how_many() -> None:
    came = [("a", "n1")]
    assert Fence(frozenset({"n2", "n3"})).broken(came, came) == (
        "a may not be on n1, which is none of the 2 nodes that it may use"
    )
    assert Ban(frozenset({"n1"})).broken(came, came) == (
        "a may not be on n1, which is one of the 1 nodes that it may not use"
    )


def test_equal_sets_of_nodes_have_one_object_of_rules() -> None:
    assert allowing(frozenset({"n1", "n2"})) is allowing(frozenset({"n2", "n1"}))
    assert allowing() == ()
    assert Fence(frozenset({"n1"})) != Ban(frozenset({"n1"}))


def test_a_discrete_rule_is_asked_at_the_end_alone() -> None:
    a, b = VM("a", Resources(1, 2)), VM("b", Resources(1, 2))
    nodes = tuple(Node(name, Resources(4, 4)) for name in NAMES)

    def found(discrete: bool) -> list[int | None]:
        rules = (Ban(frozenset({"n1"}), discrete),)
        source = Configuration(nodes, (VJob("v", (a, b), rules=rules),), {"a": WAITING, "b": WAITING})
        target = {"a": running_on("n1"), "b": running_on("n2")}
        return [each.pool for each in check_plan(source, target, [[run(a, "n1"), run(b, "n2")]])]

    assert (found(False), found(True)) == ([0], [None])


def test_rules_of_nodes_are_changed_and_others_stay() -> None:
    rules: Rules = (*allowing(frozenset({"n1", "n2"}), frozenset({"n3"})), Odd())
    only = frozenset({"n2"})
    assert set(fenced(rules, only)) == {Fence(only), Ban(frozenset({"n3"})), Odd()}
    assert set(moved_to(rules, only)) == {Fence(only), Odd()}
    assert kept_off(rules, frozenset({"n3"})) is rules
    more = kept_off(rules, frozenset({"n0"}))
    assert set(more) == {Fence(frozenset({"n1", "n2"})), Ban(frozenset({"n0", "n3"})), Odd()}
    assert confined_to((Fence(frozenset({"n1", "n2"})), Fence(only))) == only
    assert confined_to(allowing(exclude=only)) is None


def test_rules_stand_in_the_way_where_they_admit_no_node_that_is_up() -> None:
    assert in_the_way(allowing(frozenset({"n1"})), ["n2"]) == "no node that it may use takes VMs now"
    assert in_the_way(allowing(frozenset({"n1"})), ["n1", "n2"]) is None


@dataclass(frozen=True, slots=True)
class Odd(Rule):
    """A rule of a kind that no packing knows."""

    discrete: bool = False

    def admits(self, node: str) -> bool:
        return True

    def broken(self, held: Collection[Held], came: Collection[Held]) -> str | None:
        return None

    def faults(self, nodes: Collection[str]) -> Iterator[tuple[str, str]]:
        return iter(())

    def __str__(self) -> str:
        return "odd"


def test_a_rule_that_no_packing_knows_is_refused_and_not_passed_over() -> None:
    with pytest.raises(NotImplementedError, match="no packing knows the rule odd"):
        mask((Odd(),), {"n1": 0})
