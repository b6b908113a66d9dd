"""The checker: a plan with a bit of everything is accepted; costs, overloads, memory, and whom it trusts."""

from __future__ import annotations

import ast
from pathlib import Path
from types import ModuleType

import pytest
from unit.checked_plan import (
    COST,
    L1,
    L2,
    NODES,
    POOLS,
    SOURCE,
    TARGET,
    E,
    P,
    X,
    mutable,
    vm,
)

from rmsplugin.model.action import Action, migrate, resume, run, stop, suspend
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import (
    SHARED,
    WAITING,
    Location,
    Node,
    VJob,
    running_on,
    sleeping_on,
)
from rmsplugin.model.resources import Resources
from rmsplugin.planning import checker, violations, way_checker
from rmsplugin.planning.checker import check_plan, recomputed_cost
from rmsplugin.planning.violations import Rule, Violation


def test_a_plan_with_a_bit_of_everything_is_accepted() -> None:
    assert check_plan(SOURCE, TARGET, POOLS, COST) == []


def test_nothing_to_do_is_a_plan() -> None:
    settled = SOURCE.with_locations(TARGET)
    assert check_plan(settled, {}, [], 0) == []
    assert check_plan(settled, settled.locations, []) == []


def test_every_action_is_needed_and_the_target_alone_is_not_reached_by_doing_nothing() -> None:
    reached = {each.sentence.split()[0] for each in check_plan(SOURCE, TARGET, []) if each.rule is Rule.TARGET}
    assert reached == {action.vm.name for pool in POOLS for action in pool}


@pytest.mark.parametrize("stated", [0, COST - 1, COST + 1])
def test_a_cost_that_is_not_the_plans_is_found(stated: int) -> None:
    [found] = check_plan(SOURCE, TARGET, POOLS, stated)
    assert found == Violation(Rule.COST, None, None, f"it costs {COST}, and not {stated} as stated")
    assert str(found) == f"the plan: it costs {COST}, and not {stated} as stated"


def test_a_violation_says_what_is_wrong_and_with_which_numbers() -> None:
    pools = mutable()
    pools[0].append(pools[1].pop())
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


@pytest.mark.parametrize("part", [checker, way_checker, violations])
def test_the_checker_shares_nothing_with_the_planner_but_the_model(part: ModuleType) -> None:
    tree = ast.parse(Path(str(part.__file__)).read_text())
    modules = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    ours = {name for name in modules | names if name.split(".")[0] == "rmsplugin"}
    own = {"rmsplugin.planning.way_checker", "rmsplugin.planning.violations"}
    assert ours and all(name.startswith("rmsplugin.model.") for name in ours - own)
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not used & {"is_feasible", "is_applicable", "apply", "obstacle", "before", "after", "frees", "demands"}


def test_six_thousand_actions_on_thirty_thousand_vms_are_checked() -> None:
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
    assert [each.rule for each in check_plan(source, target, pools, 1)] == [Rule.COST]
