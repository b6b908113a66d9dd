"""The checker finds whatever is changed in a plan that is right: each change, and all that is wrong with it then."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from unit.checked_plan import (
    F1,
    F2,
    S1,
    SOURCE,
    TARGET,
    W1,
    W2,
    D,
    E,
    P,
    Pools,
    R,
    Target,
    X,
    Y,
    mutable,
    vm,
)

from rmsplugin.model.action import Action, migrate, resume, run, stop, suspend
from rmsplugin.model.elements import (
    SHARED,
    TERMINATED,
    WAITING,
    Location,
    running_on,
    sleeping_on,
)
from rmsplugin.planning.checker import check_plan
from rmsplugin.planning.violations import Rule

Change = Callable[[Pools, Target], object]


def drop(pool: int, name: str) -> Change:
    def change(pools: Pools, target: Target) -> None:
        pools[pool] = [action for action in pools[pool] if action.vm.name != name]

    return change


def swap(pool: int, name: str, *instead: Action) -> Change:
    def change(pools: Pools, target: Target) -> None:
        drop(pool, name)(pools, target)
        pools[pool].extend(instead)

    return change


def move(name: str, before: int, after: int) -> Change:
    def change(pools: Pools, target: Target) -> None:
        pools[after].append(next(action for action in pools[before] if action.vm.name == name))
        drop(before, name)(pools, target)

    return change


def add(pool: int, *actions: Action) -> Change:
    return lambda pools, target: pools[pool].extend(actions)


def last(*actions: Action) -> Change:
    return lambda pools, target: pools.append(list(actions))


def wanted(**locations: Location) -> Change:
    return lambda pools, target: target.update(locations)


def both(*changes: Change) -> Change:
    return lambda pools, target: [change(pools, target) for change in changes]


PLAN = None  # a violation of the plan as a whole

#: What is done to the plan -> every violation that must be found: rule, pool, VM of the action (if it is one).
MUTATIONS: dict[str, tuple[Change, set[tuple[Rule, int | None, str | None]]]] = {
    "a stop forgotten": (
        drop(0, "e"),
        # s1 still leaves, but e's 512 MiB are in w1's way
        {(Rule.TARGET, PLAN, None), (Rule.MEMORY, 1, "w1"), (Rule.VIABILITY, PLAN, None)},
    ),
    "a suspend forgotten": (
        drop(0, "s2"),
        {(Rule.TARGET, PLAN, None), (Rule.MIXED, PLAN, None), (Rule.MEMORY, 1, None), (Rule.VIABILITY, PLAN, None)},
    ),
    "a run forgotten": (drop(1, "r"), {(Rule.TARGET, PLAN, None)}),
    "a resume forgotten": (drop(1, "w2"), {(Rule.TARGET, PLAN, None), (Rule.MIXED, PLAN, None)}),
    "a migration forgotten": (
        drop(1, "y"),
        {(Rule.MEMORY, 2, "x"), (Rule.TARGET, PLAN, None), (Rule.VIABILITY, PLAN, None)},
    ),
    "a bypass migration that leads nowhere": (drop(2, "x"), {(Rule.BYPASS, 0, "x"), (Rule.TARGET, PLAN, None)}),
    "a bypass suspend that leads nowhere": (
        drop(2, "p"),
        {(Rule.BYPASS, 0, "p"), (Rule.TARGET, PLAN, None), (Rule.MIXED, PLAN, None)},
    ),
    "a bypass migration forgotten": (
        drop(0, "x"),
        {(Rule.MEMORY, 1, "y"), (Rule.ILLEGAL, 2, "x"), (Rule.TARGET, PLAN, None), (Rule.VIABILITY, PLAN, None)},
    ),
    "a bypass suspend forgotten": (
        drop(0, "p"),
        {
            (Rule.MEMORY, 1, "q"),
            (Rule.ILLEGAL, 2, "p"),
            (Rule.BYPASS, 2, "p"),
            (Rule.TARGET, PLAN, None),
            (Rule.VIABILITY, PLAN, None),
        },
    ),
    "a bypass not marked: migrate": (swap(0, "x", migrate(X, "n3", "n5")), {(Rule.BYPASS, 0, "x")}),
    "a bypass not marked: suspend": (swap(0, "p", suspend(P, "n6")), {(Rule.BYPASS, 0, "p"), (Rule.BYPASS, 2, "p")}),
    "a last migration marked as a bypass": (swap(1, "y", migrate(Y, "n4", "n3", bypass=True)), {(Rule.BYPASS, 1, "y")}),
    "a first suspend marked as a bypass": (swap(0, "s1", suspend(S1, "n1", bypass=True)), {(Rule.BYPASS, 0, "s1")}),
    "a resume marked as a bypass, to be apart from its vjob": (
        both(drop(1, "w1"), add(2, resume(W1, "n1", "n1", bypass=True))),
        {(Rule.BYPASS, 2, "w1"), (Rule.SCATTERED, 2, "w1")},
    ),
    "a late stop": (
        move("e", 0, 1),
        {(Rule.LATE, 1, "e"), (Rule.MEMORY, 1, "w1")},
    ),
    "a late suspend": (move("s2", 0, 1), {(Rule.LATE, 1, "s2"), (Rule.MEMORY, 1, None)}),
    "resumes of a vjob apart": (move("w1", 1, 2), {(Rule.SCATTERED, 2, "w1")}),
    "an arrival before there is room": (move("r", 1, 0), {(Rule.MEMORY, 0, "r")}),
    "a swap in one pool": (move("x", 2, 1), {(Rule.MEMORY, 1, "x")}),
    "an arrival at a node overcommitted from the start": (
        both(swap(1, "r", run(R, "n9")), wanted(r=running_on("n9"))),
        {(Rule.MEMORY, 1, "r"), (Rule.VIABILITY, PLAN, None)},  # the memory; the CPUs too
    ),
    "a VM acted on twice in a pool": (add(1, migrate(Y, "n4", "n8")), {(Rule.TWICE, 1, "y"), (Rule.BYPASS, 1, "y")}),
    "an action twice": (add(1, run(R, "n2")), {(Rule.TWICE, 1, "r"), (Rule.BYPASS, 1, "r")}),
    "a VM run twice": (last(run(R, "n8")), {(Rule.ILLEGAL, 3, "r"), (Rule.BYPASS, 1, "r")}),
    "a VM resumed from its state twice": (
        last(resume(W1, "n1", "n8")),
        {(Rule.ILLEGAL, 3, "w1"), (Rule.BYPASS, 1, "w1"), (Rule.SCATTERED, 3, "w1")},
    ),
    "a run of what sleeps": (
        both(swap(1, "w1", run(W1, "n1"))),
        {(Rule.ILLEGAL, 1, "w1"), (Rule.TARGET, PLAN, None), (Rule.MIXED, PLAN, None)},
    ),
    "a resume from where no state is": (
        swap(1, "w1", resume(W1, "n2", "n1")),
        {(Rule.ILLEGAL, 1, "w1"), (Rule.TARGET, PLAN, None), (Rule.MIXED, PLAN, None)},
    ),
    "a migration from where the VM is not": (
        swap(1, "r", run(R, "n2"), migrate(F1, "n3", "n8")),
        {(Rule.ILLEGAL, 1, "f1")},
    ),
    "a stop of where the VM is not": (
        swap(0, "e", stop(E, "n2")),
        {(Rule.ILLEGAL, 0, "e"), (Rule.MEMORY, 1, "w1"), (Rule.TARGET, PLAN, None), (Rule.VIABILITY, PLAN, None)},
    ),
    "a migration to where the VM is": (
        add(1, migrate(F1, "n9", "n9")),
        {(Rule.DESTINATION, 1, "f1"), (Rule.MEMORY, 1, "f1")},
    ),
    "a destination that is draining": (
        both(swap(1, "r", run(R, "leaving")), wanted(r=running_on("leaving"))),
        {(Rule.DESTINATION, 1, "r")},
    ),
    "a destination that is down": (
        both(swap(1, "r", run(R, "gone")), wanted(r=running_on("gone"))),
        {(Rule.DESTINATION, 1, "r")},
    ),
    "a destination that does not exist": (
        both(swap(1, "r", run(R, "n99")), wanted(r=running_on("n99"))),
        {(Rule.DESTINATION, 1, "r")},
    ),
    "a pivot that is draining": (
        both(swap(0, "x", migrate(X, "n3", "leaving", bypass=True)), swap(2, "x", migrate(X, "leaving", "n4"))),
        {(Rule.DESTINATION, 0, "x")},
    ),
    "a destination that the vjob excludes": (
        both(
            drop(2, "p"),
            drop(0, "p"),
            drop(1, "q"),
            swap(1, "r", run(R, "n7")),
            wanted(r=running_on("n7"), p=running_on("n6"), q=running_on("n7")),
        ),
        {(Rule.DESTINATION, 1, "r")},
    ),
    "a destination that the vjob does not name": (
        both(drop(1, "r"), last(run(R, "n5")), wanted(r=running_on("n5"))),
        {(Rule.DESTINATION, 3, "r")},
    ),
    "another destination than the target's": (swap(1, "r", run(R, "n8")), {(Rule.TARGET, PLAN, None)}),
    "a state saved on another node": (
        both(swap(0, "s1", suspend(S1, "n1", "n8")), wanted(s1=sleeping_on("n8"))),
        {(Rule.DESTINATION, 0, "s1")},
    ),
    "a state saved elsewhere than the target says": (
        swap(0, "s1", suspend(S1, "n1", SHARED)),
        {(Rule.TARGET, PLAN, None)},
    ),
    "a vjob suspended that may not be": (
        both(add(0, suspend(F1, "n9"), suspend(F2, "n9")), wanted(f1=sleeping_on("n9"), f2=sleeping_on("n9"))),
        {(Rule.PREEMPTION, 0, "f1"), (Rule.PREEMPTION, 0, "f2")},
    ),
    "a running VM requeued that is not lost": (
        both(swap(0, "e", stop(E, "n1", requeue=True)), wanted(e=WAITING)),
        {(Rule.LOSS, 0, "e")},
    ),
    "a saved state thrown away": (
        both(add(0, stop(D, "leaving", requeue=True)), wanted(d=WAITING)),
        {(Rule.LOSS, 0, "d")},
    ),
    "a saved state stopped that shall stay": (add(0, stop(D, "leaving")), {(Rule.TARGET, PLAN, None)}),
    "a saved state forgotten": (wanted(d=TERMINATED), {(Rule.TARGET, PLAN, None)}),
    "a vjob that nobody asked for moved": (
        add(1, migrate(F1, "n9", "n8")),
        {(Rule.TARGET, PLAN, None)},
    ),
    "a target that leaves a vjob in two states": (
        both(drop(0, "s1"), wanted(s1=running_on("n1")), drop(1, "w1"), wanted(w1=sleeping_on("n1"))),
        {(Rule.MIXED, PLAN, None)},
    ),
    "a target beyond a node's CPUs": (
        both(
            swap(1, "w2", resume(W2, SHARED, "n8")),
            wanted(w2=running_on("n8")),
            add(1, migrate(F1, "n9", "n2")),
            wanted(f1=running_on("n2")),
        ),
        {(Rule.VIABILITY, PLAN, None)},
    ),
    "a target for a VM that does not exist": (wanted(ghost=WAITING), {(Rule.UNKNOWN_VM, PLAN, None)}),
    "an action on a VM that does not exist": (add(1, run(vm("ghost"), "n8")), {(Rule.UNKNOWN_VM, 1, "ghost")}),
    "an action planned for another demand": (
        swap(1, "r", run(vm("r", 128), "n2")),
        {(Rule.STALE, 1, "r"), (Rule.TARGET, PLAN, None)},
    ),
    "an empty pool": (last(), {(Rule.EMPTY_POOL, 3, None)}),
    "the first two pools in one": (
        lambda pools, target: pools.__setitem__(slice(0, 2), [pools[0] + pools[1]]),
        {(Rule.MEMORY, 0, "w1"), (Rule.MEMORY, 0, None), (Rule.MEMORY, 0, "y"), (Rule.MEMORY, 0, "q")},
    ),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_whatever_is_wrong_is_found(name: str) -> None:
    change, expected = MUTATIONS[name]
    pools, target = mutable(), dict(TARGET)
    change(pools, target)
    found = check_plan(SOURCE, target, pools)
    assert {(each.rule, each.pool, each.action.vm.name if each.action else None) for each in found} == expected
