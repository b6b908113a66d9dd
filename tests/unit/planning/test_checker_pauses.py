"""The checker on plans with pauses: what is right, and each thing that can be wrong with them."""

from __future__ import annotations

import pytest

from rmsplugin.model.action import Action, migrate, pause, resume, run, stop, suspend, unpause
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import (
    TERMINATED,
    VM,
    WAITING,
    Location,
    Node,
    NodeState,
    VJob,
    paused_on,
    running_on,
    sleeping_on,
)
from rmsplugin.model.resources import Resources
from rmsplugin.planning.checker import check_plan, recomputed_cost
from rmsplugin.planning.violations import Rule

A1, A2, B1, B2, C, D, E = (
    VM("a1", Resources(1, 512)),
    VM("a2", Resources(1, 512)),
    VM("b1", Resources(1, 512)),
    VM("b2", Resources(1, 512)),
    VM("c", Resources(1, 256)),
    VM("d", Resources(1, 256)),
    VM("e", Resources(1, 256)),
)
NODES = (
    Node("n1", Resources(1, 1024)),
    Node("n2", Resources(1, 1024)),
    Node("n3", Resources(1, 1024)),
    Node("leaves", Resources(1, 1024), NodeState.DRAINING),
)
#: Vjob a runs on n1 and n2 and b is paused there; c is paused on n3, d on a node that drains, e runs on n3.
QUEUE = (
    VJob("b", (B1, B2)),
    VJob("a", (A1, A2)),
    VJob("c", (C,)),
    VJob("d", (D,)),
    VJob("e", (E,), preemptible=False),
)
LOCATIONS = {
    "a1": running_on("n1"),
    "a2": running_on("n2"),
    "b1": paused_on("n1"),
    "b2": paused_on("n2"),
    "c": paused_on("n3"),
    "d": paused_on("leaves"),
    "e": running_on("n3"),
}
SOURCE = Configuration(NODES, QUEUE, LOCATIONS)

#: a and b change places; c is saved, d moves as it is.
TARGET = {
    "a1": paused_on("n1"),
    "a2": paused_on("n2"),
    "b1": running_on("n1"),
    "b2": running_on("n2"),
    "c": sleeping_on("n3"),
    "d": paused_on("n3"),
}
POOLS = [
    [pause(A1, "n1"), pause(A2, "n2")],
    [unpause(B1, "n1"), unpause(B2, "n2")],
    [suspend(C, "n3", paused=True), migrate(D, "leaves", "n3", paused=True)],
]
COST = 256 + 256

#: The target of nothing, with some VMs elsewhere.
Pools = list[list[Action]]


def rules(pools: Pools, changes: dict[str, Location], source: Configuration = SOURCE) -> set[Rule]:
    return {fault.rule for fault in check_plan(source, {**source.locations, **changes}, pools)}


def test_vjobs_change_places_for_nothing_and_others_are_saved_or_moved_as_they_are() -> None:
    assert check_plan(SOURCE, {**LOCATIONS, **TARGET}, POOLS, COST) == []
    assert recomputed_cost(SOURCE, POOLS) == COST


def test_pauses_and_unpauses_after_others_pay_for_those_before() -> None:
    assert recomputed_cost(SOURCE, [POOLS[2], POOLS[1]]) == COST + 2 * 256


WRONG: dict[str, tuple[Pools, dict[str, Location], Rule]] = {
    "one goes on while another computes there": (
        [[pause(A1, "n1"), pause(A2, "n2"), unpause(B1, "n1"), unpause(B2, "n2")]],
        {name: at for name, at in TARGET.items() if name[0] in "ab"},
        Rule.CPUS,
    ),
    "one is paused that is paused": ([[pause(C, "n3")]], {}, Rule.ILLEGAL),
    "one goes on that runs": ([[unpause(E, "n3")]], {}, Rule.ILLEGAL),
    "a paused one is moved as if it ran": ([[migrate(C, "n3", "n1")]], {"c": running_on("n1")}, Rule.ILLEGAL),
    "a running one is saved as if it were paused": (
        [[suspend(A1, "n1", paused=True), suspend(A2, "n2", paused=True)]],
        {"a1": sleeping_on("n1"), "a2": sleeping_on("n2")},
        Rule.ILLEGAL,
    ),
    "one goes on where nobody may come": ([[unpause(D, "leaves")]], {"d": running_on("leaves")}, Rule.DESTINATION),
    "half of a vjob is paused": ([[pause(A1, "n1")]], {"a1": paused_on("n1")}, Rule.MIXED),
    "a vjob is paused in two pools": (
        [[pause(A1, "n1")], [pause(A2, "n2")]],
        {"a1": paused_on("n1"), "a2": paused_on("n2")},
        Rule.SCATTERED,
    ),
    "a vjob goes on in two pools": (
        [[pause(A1, "n1"), pause(A2, "n2")], [unpause(B1, "n1")], [unpause(B2, "n2")]],
        {name: at for name, at in TARGET.items() if name[0] in "ab"},
        Rule.SCATTERED,
    ),
    "a pause that waits for others": (
        [[suspend(C, "n3", paused=True)], [pause(A1, "n1"), pause(A2, "n2")]],
        {"c": sleeping_on("n3"), "a1": paused_on("n1"), "a2": paused_on("n2")},
        Rule.LATE,
    ),
    "a save after a pool that costs": (
        [[migrate(D, "leaves", "n3", paused=True)], [suspend(C, "n3", paused=True)]],
        {"c": sleeping_on("n3"), "d": paused_on("n3")},
        Rule.LATE,
    ),
    "one is paused that may not be preempted": ([[pause(E, "n3")]], {"e": paused_on("n3")}, Rule.PREEMPTION),
    "one is paused only to go on": (
        [[pause(A1, "n1"), pause(A2, "n2")], [unpause(A1, "n1"), unpause(A2, "n2")]],
        {},
        Rule.BYPASS,
    ),
    "one goes on only to be saved": (
        [
            [pause(A1, "n1"), pause(A2, "n2")],
            [unpause(B1, "n1"), unpause(B2, "n2")],
            [suspend(B1, "n1"), suspend(B2, "n2")],
        ],
        {"a1": paused_on("n1"), "a2": paused_on("n2"), "b1": sleeping_on("n1"), "b2": sleeping_on("n2")},
        Rule.BYPASS,
    ),
    "memory of a paused one is given away": (
        [[pause(A1, "n1"), pause(A2, "n2")], [migrate(D, "leaves", "n1", paused=True)]],
        {"a1": paused_on("n1"), "a2": paused_on("n2"), "d": paused_on("n1")},
        Rule.MEMORY,
    ),
    "more compute on a node in the end than it has CPUs": (
        [[unpause(C, "n3")]],
        {"c": running_on("n3")},
        Rule.VIABILITY,
    ),
    "what a paused one has computed is thrown away": ([[stop(C, "n3", requeue=True)]], {"c": WAITING}, Rule.LOSS),
}


@pytest.mark.parametrize("name", WRONG)
def test_whatever_is_wrong_with_a_pause_is_found(name: str) -> None:
    pools, changes, rule = WRONG[name]
    assert rule in rules(pools, changes)


def test_a_paused_vjob_may_end_and_stops_may_come_before_what_costs() -> None:
    pools: Pools = [[stop(C, "n3"), pause(A1, "n1"), pause(A2, "n2")], [suspend(D, "leaves", paused=True)]]
    changes = {"c": TERMINATED, "a1": paused_on("n1"), "a2": paused_on("n2"), "d": sleeping_on("leaves")}
    assert rules(pools, changes) == set()


def test_one_that_may_not_be_preempted_and_is_paused_already_may_be_saved() -> None:
    held = SOURCE.with_locations({"e": paused_on("n3")})
    assert rules([[suspend(E, "n3", paused=True)]], {"e": sleeping_on("n3")}, held) == set()


def test_one_that_was_woken_only_to_move_is_paused_where_it_ends() -> None:
    nodes = (Node("n1", Resources(1, 512)), Node("n2", Resources(1, 512)))
    x, y = VM("x", Resources(1, 512)), VM("y", Resources(1, 512))
    source = Configuration(nodes, (VJob("x", (x,)), VJob("y", (y,))), {"x": paused_on("n1"), "y": running_on("n2")})
    pools: Pools = [
        [suspend(x, "n1", bypass=True, paused=True)],
        [migrate(y, "n2", "n1")],
        [resume(x, "n1", "n2", bypass=True)],
        [pause(x, "n2")],
    ]
    assert rules(pools, {"x": paused_on("n2"), "y": running_on("n1")}, source) == set()


def test_a_vm_that_starts_beside_a_paused_one_needs_the_memory_that_this_keeps() -> None:
    new = VM("new", Resources(1, 600))
    source = Configuration(NODES, (*QUEUE, VJob("new", (new,))), {**LOCATIONS, "new": WAITING})
    assert Rule.MEMORY in rules([[run(new, "n3")]], {"new": running_on("n3")}, source)
