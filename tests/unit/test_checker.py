"""The checker: a plan with a bit of everything is accepted, and whatever is changed in it is found."""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from properties.generators import rotations

from rmsplugin.model.action import Action, ActionKind, migrate, resume, run, stop, suspend
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import (
    SHARED,
    TERMINATED,
    VM,
    WAITING,
    Location,
    Node,
    NodeState,
    VJob,
    running_on,
    sleeping_on,
)
from rmsplugin.model.resources import Resources
from rmsplugin.planning import checker
from rmsplugin.planning.checker import Rule, Violation, check_plan, recomputed_cost

Pools = list[list[Action]]
Target = dict[str, Location]


def vm(name: str, memory_mib: int = 1024, cpus: float = 1) -> VM:
    return VM(name, Resources(cpus, memory_mib))


E, S1, S2, W1, W2 = vm("e", 512), vm("s1", 512), vm("s2"), vm("w1"), vm("w2", 768)
X, Y, P, Q, R = vm("x"), vm("y"), vm("p"), vm("q", 768), vm("r", 256)
L1, L2, F1, F2, K, D = vm("l1", 512), vm("l2", 512), vm("f1", 700, 2), vm("f2", 700, 2), vm("k"), vm("d")

NODES = (
    *(Node(f"n{i}", Resources(2, 1024)) for i in range(1, 10)),
    Node("leaving", Resources(2, 1024), NodeState.DRAINING),
    Node("gone", Resources(2, 1024), NodeState.DOWN),
)
QUEUE = (
    VJob("ends", (E,)),
    VJob("sleepy", (S1, S2)),
    VJob("wakes", (W1, W2)),
    VJob("cycle", (X, Y)),
    VJob("tight", (P, Q)),
    VJob("new", (R,), nodes=frozenset({"n2", "n7", "n8", "n9", "leaving", "gone"}), exclude=frozenset({"n7"})),
    VJob("lost", (L1, L2), lost=True),
    VJob("fixed", (F1, F2), preemptible=False),  # n9 has neither the memory nor the CPUs for both, and they stay
    VJob("cancelled", (K,)),
    VJob("dormant", (D,)),
)
SOURCE = Configuration(
    NODES,
    QUEUE,
    {
        "e": running_on("n1"),
        "s1": running_on("n1"),
        "s2": running_on("n2"),
        "w1": sleeping_on("n1"),
        "w2": sleeping_on(SHARED),
        "x": running_on("n3"),
        "y": running_on("n4"),
        "p": running_on("n6"),
        "q": running_on("n7"),
        "r": WAITING,
        "l1": running_on("n8"),
        "l2": sleeping_on("n8"),
        "f1": running_on("n9"),
        "f2": running_on("n9"),
        "k": WAITING,
        "d": sleeping_on("leaving"),
    },
)
TARGET: Target = {
    "e": TERMINATED,
    "s1": sleeping_on("n1"),
    "s2": sleeping_on(SHARED),
    "w1": running_on("n1"),
    "w2": running_on("n2"),
    "x": running_on("n4"),
    "y": running_on("n3"),
    "p": running_on("n7"),
    "q": running_on("n6"),
    "r": running_on("n2"),
    "l1": WAITING,
    "l2": WAITING,
    "k": TERMINATED,  # nothing of it exists: no action
}
POOLS: Pools = [
    [
        stop(E, "n1"),
        suspend(S1, "n1"),
        suspend(S2, "n2", SHARED),
        migrate(X, "n3", "n5", bypass=True),
        suspend(P, "n6", bypass=True),
        stop(L1, "n8", requeue=True),
        stop(L2, "n8", requeue=True),
    ],
    [
        resume(W1, "n1", "n1"),
        resume(W2, SHARED, "n2"),
        migrate(Y, "n4", "n3"),
        migrate(Q, "n7", "n6"),
        run(R, "n2"),
    ],
    [migrate(X, "n5", "n4"), resume(P, "n6", "n7", bypass=True)],
]
# pool 0: 512 + 1024 + 1024 + 1024; pool 1: 1024 + 768 + 1024 + 768 and 5 x 1024; pool 2: 1024 + 2048 and 2 x 2048
COST = 3584 + 3584 + 5120 + 3072 + 4096


def mutable(pools: Sequence[Sequence[Action]] = POOLS) -> Pools:
    return [list(pool) for pool in pools]


def test_a_plan_with_a_bit_of_everything_is_accepted() -> None:
    assert check_plan(SOURCE, TARGET, POOLS, COST) == []


def test_nothing_to_do_is_a_plan() -> None:
    settled = SOURCE.with_locations(TARGET)
    assert check_plan(settled, {}, [], 0) == []
    assert check_plan(settled, settled.locations, []) == []


def test_every_action_is_needed_and_the_target_alone_is_not_reached_by_doing_nothing() -> None:
    reached = {each.sentence.split()[0] for each in check_plan(SOURCE, TARGET, []) if each.rule is Rule.TARGET}
    assert reached == {action.vm.name for pool in POOLS for action in pool}


# -- the plan, changed: each a function of its pools and its target

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
        {(Rule.BYPASS, 2, "w1")},
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


@pytest.mark.parametrize("stated", [0, COST - 1, COST + 1])
def test_a_cost_that_is_not_the_plans_is_found(stated: int) -> None:
    [found] = check_plan(SOURCE, TARGET, POOLS, stated)
    assert found == Violation(Rule.COST, None, None, f"it costs {COST}, and not {stated} as stated")
    assert str(found) == f"the plan: it costs {COST}, and not {stated} as stated"


def test_a_violation_says_what_is_wrong_and_with_which_numbers() -> None:
    pools = mutable()
    move("r", 1, 0)(pools, {})
    assert [str(each) for each in check_plan(SOURCE, TARGET, pools)] == [
        "pool 0, run r to n2: n2 has 1024 MiB of memory, 1024 are in use while the pool begins, and r need 256 there"
    ]


def test_vee09_figure_6_step_ii_costs_512_migrating_vm2_768_and_the_plan_4224() -> None:
    """The sizes are those in the drawing.

    With the migrations that the paper's text names, its equations 6 to 8 give 3456, and not the 4224 that it states.
    The difference is exactly what one more VM of 512 MiB in step II costs (512 and 256 for step I); VM6 is missing from
    text and drawing. With it all three numbers of the paper come out.
    """
    sizes = {1: 256, 2: 512, 3: 256, 4: 256, 5: 256, 6: 512, 7: 384}
    vms = {number: vm(f"VM{number}", memory) for number, memory in sizes.items()}
    nodes = tuple(Node(f"N{i}", Resources(9, 4096)) for i in range(1, 6))
    source = Configuration(
        nodes, tuple(VJob(each.name, (each,)) for each in vms.values()), {f"VM{i}": running_on("N1") for i in vms}
    )
    first = [migrate(vms[i], "N1", "N2", bypass=i == 5) for i in (1, 3, 4, 5)]
    second = [migrate(vms[i], "N1", "N4") for i in (2, 6, 7)]
    third = [migrate(vms[5], "N2", "N3")]
    assert recomputed_cost(source, [first, second, third]) == 4224
    named = [action for action in second if action.vm.name != "VM6"]
    assert recomputed_cost(source, [first, named, third]) == 3456
    assert recomputed_cost(source, [first, second]) - recomputed_cost(source, [first, second[1:]]) == 768, "VM2"
    one_more = [first, second, [*third, migrate(vms[1], "N2", "N3")]]
    assert recomputed_cost(source, one_more) - 4224 == 256 + 256 + 512, "its own, step I, step II"


@pytest.mark.parametrize(
    ("action", "location", "cost"),
    [
        (run(X, "n8"), WAITING, 0),
        (stop(X, "n8"), running_on("n8"), 0),
        (migrate(X, "n8", "n1"), running_on("n8"), 1024),
        (suspend(X, "n8"), running_on("n8"), 1024),
        (suspend(X, "n8", SHARED), running_on("n8"), 1024),
        (resume(X, "n8", "n8"), sleeping_on("n8"), 1024),
        (resume(X, "n8", "n1"), sleeping_on("n8"), 2048),
        (resume(X, SHARED, "n1"), sleeping_on(SHARED), 1024),
    ],
    ids=str,
)
def test_rr6929_table_1(action: Action, location: Location, cost: int) -> None:
    assert recomputed_cost(Configuration(NODES, (VJob("v", (X,)),), {"x": location}), [[action]]) == cost


def test_an_overload_may_stay_where_nothing_comes_but_not_get_company_nor_arise() -> None:
    """CPUs alone: fixed (2 + 2 of 2 CPUs) stays; a third VM beside them is too much, and so is another overload."""
    nodes = tuple(Node(f"n{i}", Resources(2, 8192)) for i in (1, 2))
    f1, f2, guest = vm("f1", 512, 2), vm("f2", 512, 2), vm("guest", 512, 0)
    vjobs = (VJob("fixed", (f1, f2), preemptible=False), VJob("v", (guest,)))
    source = Configuration(nodes, vjobs, {"f1": running_on("n1"), "f2": running_on("n1"), "guest": running_on("n2")})

    def rules(name: str, to: str) -> list[Rule]:
        own = source.vm_by_name[name]
        here = source.locations[name].node or ""
        return [each.rule for each in check_plan(source, {name: running_on(to)}, [[migrate(own, here, to)]])]

    assert check_plan(source, {}, []) == []
    assert rules("guest", "n1") == [Rule.VIABILITY]
    assert rules("f1", "n2") == []
    both_there = {"f1": running_on("n2"), "f2": running_on("n2")}
    moved = [[migrate(f1, "n1", "n2"), migrate(f2, "n1", "n2")]]
    assert [each.rule for each in check_plan(source, both_there, moved)] == [Rule.VIABILITY]


@pytest.mark.parametrize(("memory_mib", "rules"), [(512, []), (513, [Rule.MEMORY, Rule.VIABILITY])])
def test_memory_is_counted_to_the_last_mib(memory_mib: int, rules: list[Rule]) -> None:
    guest = vm("guest", memory_mib)
    vjobs = (VJob("ends", (E,)), VJob("v", (guest,)))
    source = Configuration(NODES, vjobs, {"e": running_on("n1"), "guest": WAITING})
    assert [each.rule for each in check_plan(source, {"guest": running_on("n1")}, [[run(guest, "n1")]])] == rules


def test_a_pivot_that_became_a_dead_end_is_left_by_a_bypass_suspend() -> None:
    pools = mutable()
    pools[2] = [suspend(X, "n5", bypass=True), resume(P, "n6", "n7", bypass=True)]
    pools.append([resume(X, "n5", "n4", bypass=True)])
    assert check_plan(SOURCE, TARGET, pools) == []
    pools.pop()
    assert {each.rule for each in check_plan(SOURCE, TARGET, pools)} == {Rule.BYPASS, Rule.TARGET, Rule.MIXED}


def test_an_interrupted_start_may_be_taken_back() -> None:
    """Some VMs run, some wait: what has begun is no older than the vjob's state, which is waiting."""
    source = Configuration(NODES, (VJob("v", (L1, L2)),), {"l1": running_on("n1"), "l2": WAITING})
    assert check_plan(source, {"l1": WAITING}, [[stop(L1, "n1", requeue=True)]]) == []


def test_the_checker_shares_nothing_with_the_planner_but_the_model() -> None:
    tree = ast.parse(Path(checker.__file__).read_text())
    modules = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    ours = {name for name in modules | names if name.split(".")[0] == "rmsplugin"}
    assert ours and all(name.startswith("rmsplugin.model.") for name in ours)
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not used & {"is_feasible", "is_applicable", "apply", "obstacle", "before", "after", "frees", "demands"}


def test_six_thousand_actions_on_thirty_thousand_vms_are_checked_within_a_second() -> None:
    nodes = tuple(Node(f"n{i}", Resources(16, 65536)) for i in range(5000))
    vjobs = tuple(VJob(f"v{j}", tuple(vm(f"v{j}-{k}", 512, 0.05) for k in range(10))) for j in range(3000))
    hosts = {each.name: (j * 10 + k) % 5000 for j, vjob in enumerate(vjobs) for k, each in enumerate(vjob.vms)}
    source = Configuration(nodes, vjobs, {name: running_on(f"n{host}") for name, host in hosts.items()})
    moved = [each for vjob in vjobs[:600] for each in vjob.vms]
    target = {each.name: running_on(f"n{(hosts[each.name] + 1) % 5000}") for each in moved}
    pools = [
        [migrate(each, f"n{hosts[each.name]}", target[each.name].node or "") for each in moved[i::20]]
        for i in range(20)
    ]
    began = time.process_time()
    found = check_plan(source, target, pools, 1)
    took = time.process_time() - began
    assert [each.rule for each in found] == [Rule.COST]
    assert took < 1.0


# -- random changes, against a simulation that knows only the model's own semantics of actions


def simulated(source: Configuration, target: Mapping[str, Location], pools: Pools) -> bool:
    """Whether a plan is right, by carrying it out action by action, in each pool in the orders that are worst."""
    configuration = source
    for number, pool in enumerate(pools):
        names = [action.vm.name for action in pool]
        if not pool or len(set(names)) < len(names):
            return False
        for node in source.nodes:
            ordered = sorted(pool, key=lambda action, first=node.name: action.demands != first)  # type: ignore[misc]
            after = configuration
            for action in ordered:
                if source.vm_by_name.get(action.vm.name) != action.vm or not action.is_feasible(after):
                    return False
                after = action.apply(after)
        configuration = after
        for action in pool:
            departs = action.kind is ActionKind.STOP or (action.kind is ActionKind.SUSPEND and not action.bypass)
            if departs and number > 0:
                return False
    expected = {**source.locations, **target}
    for name, location in configuration.locations.items():
        if location != expected[name] and (location, expected[name]) != (WAITING, TERMINATED):
            return False
    if any(len({expected[each.name].state for each in vjob.vms}) > 1 for vjob in source.vjobs):
        return False
    stayed_put = {name for name in source.locations if configuration.locations[name] == source.locations[name]}
    for name in configuration.overloaded():
        hosted = {each for each, location in configuration.locations.items() if location == running_on(name)}
        cpus, memory = configuration.free(name).centi_cpus < 0, configuration.free(name).memory_mib < 0
        had_cpus, had_memory = source.free(name).centi_cpus < 0, source.free(name).memory_mib < 0
        if not hosted <= stayed_put or (cpus and not had_cpus) or (memory and not had_memory):
            return False
    return grouped_and_marked(source, pools)


def grouped_and_marked(source: Configuration, pools: Pools) -> bool:
    """Whether resumes are together, detours are marked, and nothing is suspended or requeued that may not be."""
    flat = [(number, action) for number, pool in enumerate(pools) for action in pool]
    for vjob in source.vjobs:
        own = [(number, action) for number, action in flat if action.vm in vjob.vms]
        if len({number for number, action in own if action.kind is ActionKind.RESUME and not action.bypass}) > 1:
            return False
        begun = any(source.locations[each.name] == WAITING for each in vjob.vms)
        if not (vjob.lost or begun) and any(action.requeue for _, action in own):
            return False
        for each in vjob.vms:
            word = "".join(
                action.kind[0].upper() if action.bypass else f"{action.kind[0:3]}."
                for _, action in own
                if action.vm == each
            )
            # M: bypass migrate, S: bypass suspend, R: bypass resume; what is not marked comes last
            if not re.fullmatch(r"(M*S(R|(?=res)))*(M+(?=mig))?(run.|sto.|mig.|sus.|res.)?", word):
                return False
            if "sus." in word and not vjob.preemptible:
                return False
    return True


def change_at_random(draw: st.DrawFn, pools: Pools, target: Target) -> None:
    places = [(i, j) for i, pool in enumerate(pools) for j in range(len(pool))]
    if not places:
        return
    i, j = draw(st.sampled_from(places))
    action = pools[i][j]
    node = draw(st.sampled_from([each.name for each in NODES]))
    other = draw(st.integers(0, len(pools)))
    match draw(st.sampled_from(["drop", "move", "copy", "redirect", "both", "mark", "want"])):
        case "drop":
            pools[i].pop(j)
        case "move" | "copy" as how:
            if how == "move":
                pools[i].pop(j)
            if other == len(pools):
                pools.append([])
            pools[other].append(action)
        case "redirect" | "both" as how if action.demands:
            pools[i][j] = replace(action, destination=node)
            if how == "both":
                target[action.vm.name] = running_on(node)
        case "mark" if action.kind not in (ActionKind.RUN, ActionKind.STOP):
            pools[i][j] = replace(action, bypass=not action.bypass)
        case "want":
            target[action.vm.name] = draw(st.sampled_from([running_on(node), sleeping_on(node), WAITING, TERMINATED]))


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_a_plan_changed_at_random_is_rejected_unless_a_simulation_says_that_it_is_right(data: st.DataObject) -> None:
    pools, target = mutable(), dict(TARGET)
    for _ in range(data.draw(st.integers(1, 3))):
        data.draw(st.composite(lambda draw: change_at_random(draw, pools, target))())
    right = simulated(SOURCE, target, pools)
    event("right" if right else "wrong")
    found = check_plan(SOURCE, target, pools)
    assert (not found) is right, f"{pools}: {found}"


@settings(max_examples=400, deadline=None)
@given(rotations(), st.data())
def test_random_migrations_are_judged_as_a_simulation_judges_them(
    problem: tuple[Configuration, Mapping[str, Location]], data: st.DataObject
) -> None:
    source, _ = problem
    hosts = {name: location.node or "" for name, location in source.locations.items()}
    pools: Pools = []
    for _ in range(data.draw(st.integers(1, 3))):
        chosen = data.draw(st.sets(st.sampled_from(sorted(hosts)), min_size=1, max_size=2))
        pools.append([])
        for name in sorted(chosen):
            to = data.draw(st.sampled_from([node.name for node in source.nodes]))
            pools[-1].append(migrate(source.vm_by_name[name], hosts[name], to))
            hosts[name] = to
    final = {action.vm.name: number for number, pool in enumerate(pools) for action in pool}
    pools = [
        [replace(action, bypass=final[action.vm.name] != number) for action in pool]
        for number, pool in enumerate(pools)
    ]
    target = {name: running_on(host) for name, host in hosts.items()}
    right = simulated(source, target, pools)
    event("right" if right else "wrong")
    assert (not check_plan(source, target, pools)) is right
