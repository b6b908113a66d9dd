"""With ``cpu_in_plan`` a VM comes to a node only when it has its CPUs there; the papers' examples with and without."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from rmsplugin.model.action import Action, ActionKind, migrate, run, suspend
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, WAITING, Location, Node, VJob, VMState, running_on, sleeping_on
from rmsplugin.model.resources import Resources
from rmsplugin.planning.checker import check_plan
from rmsplugin.planning.order.builder import build_plan
from rmsplugin.planning.order.dependencies import dependency_order
from rmsplugin.planning.order.with_cpus import plan_with_cpus
from rmsplugin.planning.order_checker import check_order
from rmsplugin.planning.plan import Plan
from rmsplugin.planning.violations import Rule
from rmsplugin.proposing.check import check
from rmsplugin.proposing.fingerprint import fingerprint
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.proposal import Proposal
from rmsplugin.proposing.propose import propose


def cluster(*cpus: float, memory_mib: int = 4096) -> tuple[Node, ...]:
    return tuple(Node(f"n{i}", Resources(each, memory_mib)) for i, each in enumerate(cpus, start=1))


def configuration(nodes: tuple[Node, ...], **vms: tuple[float, int, Location]) -> Configuration:
    """A configuration with a vjob for each VM: its CPUs, its MiB, and its location."""
    vjobs = tuple(VJob(name, (VM(name, Resources(cpus, mib)),)) for name, (cpus, mib, _) in vms.items())
    return Configuration(nodes, vjobs, {name: at for name, (_, _, at) in vms.items()})


def counted(source: Configuration, target: dict[str, Location]) -> Plan:
    """The plan with CPUs, right by both checkers."""
    plain = build_plan(source, target)
    assert isinstance(plain, Plan)
    plan = plan_with_cpus(source, target, plain)
    assert isinstance(plan, Plan)
    assert check_plan(source, target, plan.pools, plan.cost, cpu_in_plan=True) == []
    order = dependency_order(source, plan, cpus=True)
    assert check_order(source, order.actions, order.needs, cpu_in_plan=True) == []
    return plan


def kinds(plan: Plan) -> list[list[str]]:
    return [[f"{action.kind} {action.vm.name}" for action in pool] for pool in plan.pools]


def test_rr6929_figure_6_the_new_vjob_runs_when_those_that_make_way_have_gone() -> None:
    """Vjob 2 is suspended for vjob 3; nodes have one CPU each, and memory for more."""
    source = configuration(
        cluster(1, 1, 1),
        vm1=(1, 512, running_on("n1")),
        vm3=(1, 512, running_on("n2")),
        vm4=(1, 512, running_on("n3")),
        vm5=(1, 512, WAITING),
    )
    target = {**source.locations, "vm3": sleeping_on("n2"), "vm4": sleeping_on("n3"), "vm5": running_on("n2")}
    plain = build_plan(source, target)
    assert isinstance(plain, Plan)
    assert kinds(plain) == [["suspend vm3", "suspend vm4", "run vm5"]], "beside vm3, on one CPU"
    assert check_plan(source, target, plain.pools, plain.cost) == []
    [fault] = check_plan(source, target, plain.pools, plain.cost, cpu_in_plan=True)
    assert (fault.rule, fault.pool) == (Rule.CPUS, 0)
    plan = counted(source, target)
    assert kinds(plan) == [["suspend vm3", "suspend vm4"], ["run vm5"]]
    assert (plain.cost, plan.cost) == (1024, 1536), "who comes later pays what is before"


def test_a_sequence_by_cpus_is_as_one_by_memory() -> None:
    source = configuration(cluster(1, 1, 1), a=(1, 512, running_on("n1")), b=(1, 512, running_on("n2")))
    target = {"a": running_on("n2"), "b": running_on("n3")}
    plain = build_plan(source, target)
    assert isinstance(plain, Plan)
    assert kinds(plain) == [["migrate a", "migrate b"]]
    assert kinds(counted(source, target)) == [["migrate b"], ["migrate a"]]


def test_a_cycle_by_cpus_is_broken_over_a_pivot_with_cpus() -> None:
    """n3 has memory and no CPU, n4 has both."""
    source = configuration(
        cluster(1, 1, 1, 1),
        a=(1, 512, running_on("n1")),
        b=(1, 256, running_on("n2")),
        c=(1, 512, running_on("n3")),
    )
    target = {"a": running_on("n2"), "b": running_on("n1")}
    plan = counted(source, target)
    assert kinds(plan) == [["migrate b"], ["migrate a"], ["migrate b"]]
    first = plan.pools[0][0]
    assert (first.destination, first.bypass) == ("n4", True)


def test_without_a_pivot_one_is_saved_on_the_way_the_preemptible_one() -> None:
    source = configuration(cluster(1, 1), a=(1, 512, running_on("n1")), b=(1, 256, running_on("n2")))
    firm = tuple(replace(vjob, preemptible=vjob.name == "a") for vjob in source.vjobs)
    source = Configuration(source.nodes, firm, source.locations)
    plan = counted(source, {"a": running_on("n2"), "b": running_on("n1")})
    assert kinds(plan) == [["suspend a"], ["migrate b"], ["resume a"]]


def test_vms_that_demand_nothing_wait_for_no_cpus() -> None:
    source = configuration(cluster(1, 1), a=(1, 512, running_on("n1")), b=(0, 256, running_on("n2")), c=(0, 1, WAITING))
    target = {"b": running_on("n1"), "c": running_on("n1")}
    plain = build_plan(source, target)
    assert plan_with_cpus(source, target, plain) is plain  # type: ignore[arg-type]
    assert counted(source, target).pools[0]


def test_of_those_that_come_to_a_short_node_only_those_wait_that_demand_cpus() -> None:
    source = configuration(cluster(1), a=(1, 512, running_on("n1")), b=(1, 512, WAITING), c=(0, 1, WAITING))
    a, b, c = (source.vm_by_name[name] for name in "abc")
    plan = Plan(((suspend(a, "n1"),), (run(b, "n1"), run(c, "n1"))))
    assert dependency_order(source, plan, cpus=True).needs == ((), (0,), ())


def test_a_plan_that_obeys_is_kept() -> None:
    """By memory b waits for a already; and c, which demands nothing, comes to a node that is overloaded still."""
    source = configuration(
        cluster(1, 1, 3, memory_mib=1024),
        a=(1, 1024, running_on("n1")),
        b=(1, 1024, running_on("n2")),
    )
    target = {"a": running_on("n3"), "b": running_on("n1")}
    plain = build_plan(source, target)
    assert isinstance(plain, Plan)
    assert kinds(plain) == [["migrate a"], ["migrate b"]]
    assert plan_with_cpus(source, target, plain) is plain
    source = configuration(
        cluster(1, 1),
        a=(1, 512, running_on("n1")),
        b=(1, 512, running_on("n1")),
        c=(0, 512, WAITING),
    )
    target = {"b": running_on("n2"), "c": running_on("n1")}
    plain = build_plan(source, target)
    assert isinstance(plain, Plan)
    assert plan_with_cpus(source, target, plain) is plain


def test_the_check_of_a_proposal_looks_at_its_order() -> None:
    source = configuration(
        cluster(1, 2), a=(1, 512, running_on("n1")), b=(1, 512, WAITING), c=(1, 512, running_on("n2"))
    )
    target = {"a": running_on("n2"), "b": running_on("n1"), "c": source.locations["c"]}
    plan = counted(source, target)
    found = propose(source, ProposalParameters("rjsp", cpu_in_plan=True))
    assert isinstance(found, Proposal)
    order = dependency_order(source, plan, cpus=True)
    made = replace(found, target=target, plan=plan, order=order, fingerprint=fingerprint(source, plan))
    assert check(source, made, cpu_in_plan=True) == []
    loose = replace(made, order=dependency_order(source, plan))
    assert check(source, loose) == []
    [fault] = check(source, loose, cpu_in_plan=True)
    assert "has not the CPUs" in fault


def test_a_node_that_is_overloaded_gives_cpus_only_when_enough_have_left() -> None:
    source = configuration(
        cluster(1, 2, 1),
        a=(1, 512, running_on("n1")),
        b=(1, 512, running_on("n1")),
        c=(1, 256, running_on("n3")),
    )
    target = {"a": running_on("n2"), "b": running_on("n2"), "c": running_on("n1")}
    assert kinds(counted(source, target)) == [["migrate a", "migrate b"], ["migrate c"]]


def test_a_later_departure_does_not_serve_an_arrival_by_order_either() -> None:
    source = configuration(cluster(1, 1, 1), a=(1, 512, running_on("n1")), b=(1, 512, running_on("n2")))
    a, b = (source.vm_by_name[name] for name in "ab")
    actions: list[Action] = [migrate(b, "n2", "n3"), migrate(a, "n1", "n2")]
    assert check_order(source, actions, [(), ()]) == []
    [fault] = check_order(source, actions, [(), ()], cpu_in_plan=True)
    assert fault.rule is Rule.CPUS
    assert check_order(source, actions, [(), (0,)], cpu_in_plan=True) == []


def test_what_is_resumed_on_the_way_gives_its_cpus_back_too() -> None:
    """The VM b goes over n3, where c waits for its CPU."""
    source = configuration(cluster(1, 1, 1), b=(1, 512, running_on("n1")), c=(1, 256, WAITING))
    b, c = (source.vm_by_name[name] for name in "bc")
    plan = Plan(((migrate(b, "n1", "n3", bypass=True),), (migrate(b, "n3", "n2"),), (run(c, "n3"),)))
    order = dependency_order(source, plan, cpus=True)
    assert order.needs == ((), (0,), (1,))
    assert check_order(source, order.actions, order.needs, cpu_in_plan=True) == []
    assert dependency_order(source, plan).needs[2] == ()


def test_a_suspend_of_who_was_there_frees_cpus() -> None:
    source = configuration(cluster(1), a=(1, 512, running_on("n1")), b=(1, 512, WAITING))
    a, b = (source.vm_by_name[name] for name in "ab")
    plan = Plan(((suspend(a, "n1"),), (run(b, "n1"),)))
    assert dependency_order(source, plan, cpus=True).needs == ((), (0,))


@pytest.mark.parametrize("seed", range(40))
def test_random_targets_are_reached_and_no_step_lacks_cpus(seed: int) -> None:
    chance = random.Random(seed)
    nodes = cluster(*[chance.choice((1, 2, 3)) for _ in range(5)], memory_mib=2048)
    vms = {f"v{i}": (chance.choice((0, 0.5, 1)), chance.choice((256, 512))) for i in range(10)}
    before, after = ({}, {})  # type: dict[str, Location], dict[str, Location]
    for places in (before, after):
        free = {node.name: node.capacity for node in nodes}
        for name, (cpus, mib) in vms.items():
            able = [node for node, left in free.items() if left.holds(Resources(cpus, mib))]
            if not able or chance.random() < 0.2:
                slept = before.get(name, WAITING)
                at = sleeping_on(slept.node) if slept.state is VMState.RUNNING and slept.node else slept
                places[name] = at if places is after else WAITING
                continue
            places[name] = running_on(chance.choice(able))
            free[places[name].node or ""] -= Resources(cpus, mib)
    source = configuration(nodes, **{name: (*vms[name], before[name]) for name in vms})
    plan = counted(source, after)
    plain = build_plan(source, after)
    assert isinstance(plain, Plan)
    assert all(action.kind is not ActionKind.STOP for action in plan.actions())


@pytest.mark.parametrize("cpu_in_plan", [False, True])
def test_a_proposal_obeys_where_it_is_asked_to(cpu_in_plan: bool) -> None:
    source = configuration(
        cluster(1, 1),
        first=(1, 512, sleeping_on("n1")),
        second=(1, 512, running_on("n1")),
        third=(1, 256, running_on("n2")),
    )
    found = propose(source, ProposalParameters("rjsp", cpu_in_plan=cpu_in_plan))
    assert isinstance(found, Proposal)
    assert check(source, found, cpu_in_plan=cpu_in_plan) == []
    assert bool(check(source, found, cpu_in_plan=True)) is not cpu_in_plan
