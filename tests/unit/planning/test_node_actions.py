"""Actions of nodes beside those of VMs: what each waits for, what is refused, and what a person and an executor see."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

import pytest

from rmsplugin.model.action import Action, migrate, run, stop, suspend
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import TERMINATED, VM, WAITING, Location, Node, NodeState, VJob, running_on, sleeping_on
from rmsplugin.model.node_action import InfeasibleNodeActionError, NodeAction, power_off, power_on
from rmsplugin.model.resources import Resources
from rmsplugin.planning.node_checker import check_node_order, check_nodes
from rmsplugin.planning.order.dependencies import Order, dependency_order
from rmsplugin.planning.order.makespan import makespan
from rmsplugin.planning.order.powering import needed_nodes, needs_of_nodes, switched_on
from rmsplugin.planning.order.transfers import Duration, Durations
from rmsplugin.planning.plan import Plan
from rmsplugin.proposing.check import check
from rmsplugin.proposing.document import document
from rmsplugin.proposing.fingerprint import fingerprint
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.proposal import Proposal, sentence
from rmsplugin.proposing.propose import propose
from rmsplugin.proposing.steps import UnsuitableError, steps_of

A, B = VM("a", Resources(1, 1024)), VM("b", Resources(1, 1024))
NODES = (
    *(Node(f"n{number}", Resources(4, 4096)) for number in (1, 2)),
    Node("off", Resources(4, 4096), NodeState.DOWN),
)
VJOBS = (VJob("va", (A,)), VJob("vb", (B,)))


ON_N1 = running_on("n1")


def source(a: Location = ON_N1, b: Location = WAITING) -> Configuration:
    return Configuration(NODES, VJOBS, {"a": a, "b": b})


# -- one action ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "at", "why"),
    [
        (power_off("n2"), running_on("n1"), None),
        (power_off("n1"), running_on("n1"), "1 VMs or saved states are on n1, a among them"),
        (power_off("n1"), sleeping_on("n1"), "1 VMs or saved states are on n1, a among them"),
        (power_off("off"), running_on("n1"), "off is down already"),
        (power_on("off"), running_on("n1"), None),
        (power_on("n2"), running_on("n1"), "n2 is up already"),
        (power_on("n9"), running_on("n1"), "there is no node 'n9'"),
    ],
)
def test_an_action_on_a_node_says_why_it_cannot_begin(action: NodeAction, at: Location, why: str | None) -> None:
    here = source(at)
    assert action.obstacle(here) == why
    if why is None:
        states = {node.name: node.state for node in action.apply(here).nodes}
        assert (states[action.node] is NodeState.UP) is (action.kind.value == "power-on")
    else:
        with pytest.raises(InfeasibleNodeActionError, match=why.replace("'", ".")):
            action.apply(here)


# -- a plan ----------------------------------------------------------------------------------------------------------

#: Node n1 is emptied and switched off; b starts on a node that is switched on for it.
PLAN = Plan(((migrate(A, "n1", "n2"), run(B, "off")),), (power_off("n1"), power_on("off")))
TARGET = {"a": running_on("n2"), "b": running_on("off")}


def ordered(plan: Plan = PLAN, here: Configuration | None = None) -> Order:
    here = here or source()
    return dependency_order(switched_on(here, plan.nodes), plan)


def wrong(plan: Plan, order: Order) -> list[str]:
    found = check_node_order(order.actions, order.needs, plan.nodes, order.node_needs, order.needed)
    return [each.sentence for each in found]


def test_a_node_goes_off_after_the_last_vm_has_left_and_vms_come_after_it_is_on() -> None:
    order = ordered()
    assert order.node_needs == ((0,), ())
    assert order.needed == ((), (1,))
    assert wrong(PLAN, order) == []
    assert check_nodes(source(), TARGET, PLAN.nodes) == []


def test_a_plan_without_actions_of_nodes_has_the_order_that_it_had() -> None:
    order = ordered(Plan(PLAN.pools[:1]), switched_on(source(), PLAN.nodes))
    assert (order.node_needs, order.needed) == ((), ())


def test_an_order_that_does_not_wait_is_found() -> None:
    order = ordered()
    assert wrong(PLAN, replace(order, node_needs=((), ()))) == [
        "power-off n1 does not wait for migrate a from n1 to n2"
    ]
    assert wrong(PLAN, replace(order, needed=((), ()))) == ["run b to off does not wait for power-on off"]
    assert wrong(PLAN, replace(order, needed=())) == ["the dependency order is of other actions of nodes"]


@pytest.mark.parametrize(
    ("nodes", "target", "sentence"),
    [
        ((power_off("n2"),), {}, "power-off n2: 1 VMs or saved states are there in the end: a"),
        ((power_off("n9"),), {}, "power-off n9: there is no node 'n9'"),
        ((power_off("off"),), {}, "power-off off: the node is down already"),
        ((power_on("n1"),), {}, "power-on n1: the node is up already"),
        ((power_on("off"), power_on("off")), {}, "2 actions are on node off: one at most can be"),
    ],
)
def test_an_impossible_action_of_a_node_is_found(
    nodes: Sequence[NodeAction], target: dict[str, Location], sentence: str
) -> None:
    assert [each.sentence for each in check_nodes(source(running_on("n2")), target, nodes)] == [sentence]


def test_a_node_that_is_switched_off_keeps_no_saved_state() -> None:
    assert check_nodes(source(), {"a": sleeping_on("n1")}, [power_off("n1")]) != []
    assert check_nodes(source(), {"a": TERMINATED}, [power_off("n1")]) == []


def test_durations_of_nodes_make_a_plan_longer() -> None:
    durations = replace(Durations(), power_off=Duration(7.0), power_on=Duration(1000.0), run=Duration(5.0))
    plain = makespan(replace(PLAN, nodes=()), replace(ordered(), node_needs=(), needed=()), durations)
    with_nodes = makespan(PLAN, ordered(), durations)
    assert with_nodes.ends_s == (plain.ends_s[0], 1005.0)
    assert with_nodes.by_dependencies_s == 1005.0
    assert with_nodes.by_pools_s == pytest.approx(plain.by_pools_s + 1007.0)
    only_off = Plan(((migrate(A, "n1", "n2"),),), (power_off("n1"),))
    ends = makespan(only_off, ordered(only_off), durations)
    assert ends.by_dependencies_s == ends.ends_s[0] + 7.0


# -- a proposal --------------------------------------------------------------------------------------------------------


def proposed() -> tuple[Configuration, Proposal]:
    """What is proposed for two VMs, and that the node with none of them is switched off besides."""
    here = source(running_on("n1"), running_on("n1"))
    found = propose(here, ProposalParameters("rjsp"))
    assert isinstance(found, Proposal)
    plan = replace(found.plan, nodes=(power_off("n2"),))
    order = dependency_order(here, plan)
    return here, replace(found, plan=plan, order=order, fingerprint=fingerprint(here, plan))


def test_a_proposal_with_an_action_of_a_node_is_checked_and_shown() -> None:
    here, found = proposed()
    assert check(here, found) == []
    assert document(here, found, {})["plan"]["nodes"] == [{"action": "power-off", "node": "n2", "needs": []}]
    assert sentence(found.decision, found.plan).endswith("cost 0 MiB, 1 action of nodes.")
    assert fingerprint(here, found.plan) != fingerprint(here, replace(found.plan, nodes=()))
    plain = propose(here, ProposalParameters("rjsp"))
    assert isinstance(plain, Proposal)
    assert "nodes" not in document(here, plain, {})["plan"]
    faulty = replace(found.plan, nodes=(power_off("n1"),))
    assert any("power-off n1: 2 VMs" in fault for fault in check(here, replace(found, plan=faulty)))


def test_the_engine_refuses_a_plan_that_switches_a_node_and_ignores_none() -> None:
    here, found = proposed()
    with pytest.raises(UnsuitableError, match=r"power-off n2.*does not switch nodes"):
        steps_of(here, found)


# -- against all interleavings -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_no_interleaving_has_a_vm_on_a_node_that_is_off(seed: int) -> None:
    """Random plans, and orders from which a need was taken: the checker says so exactly where an interleaving does."""
    chance = Random(seed)
    vms = [VM(f"v{number}", Resources(0, 1)) for number in range(4)]
    names = ["n0", "n1", "n2", "n3"]
    off, on = "n0", "n1"
    actions = [_action(chance, vm, [n for n in names if n != off], [n for n in names if n != on]) for vm in vms]
    nodes = [power_off(off), power_on(on)]
    needs: list[tuple[int, ...]] = [tuple(x for x in range(i) if chance.random() < 0.2) for i in range(4)]
    node_needs, needed = [list(each) for each in needs_of_nodes(actions, nodes)], needed_nodes(actions, nodes)
    assert check_node_order(actions, needs, nodes, node_needs, needed) == []
    assert not list(_early(actions, needs, nodes, node_needs, needed))
    lists = [each for each in node_needs if each]
    if lists and chance.random() < 0.5:
        each = chance.choice(lists)
        each.remove(chance.choice(each))
    else:
        cut = chance.randrange(4)
        needed = tuple(() if number == cut else each for number, each in enumerate(needed))
    found = check_node_order(actions, needs, nodes, node_needs, needed)
    assert bool(found) is bool(list(_early(actions, needs, nodes, node_needs, needed)))


def _action(chance: Random, vm: VM, to: list[str], at: list[str]) -> Action:
    kind = chance.randrange(4)
    if kind == 0:
        return run(vm, chance.choice(to))
    here = chance.choice(at)
    if kind == 1:
        return stop(vm, here)
    return suspend(vm, here, "shared") if kind == 2 else migrate(vm, here, chance.choice([n for n in to if n != here]))


def _early(
    actions: Sequence[Action],
    needs: Sequence[Sequence[int]],
    nodes: Sequence[NodeAction],
    node_needs: Sequence[Sequence[int]],
    needed: Sequence[Sequence[int]],
) -> Iterator[tuple[str, str]]:
    """By carrying out all that can be done without one action: the actions that need it and begin nevertheless."""
    off, on = nodes
    for missing, action in enumerate(actions):
        if off.node in (action.source, action.destination):
            done = _closure(needs, needed, {missing}, set())
            if set(node_needs[0]) <= done:
                yield str(off), str(action)
    done = _closure(needs, needed, set(), {1})
    for index in done:
        if on.node in (actions[index].source, actions[index].destination):
            yield str(actions[index]), str(on)


def _closure(
    needs: Sequence[Sequence[int]], needed: Sequence[Sequence[int]], never: set[int], nodes_never: set[int]
) -> set[int]:
    """All VM actions that can be done while some, and some of nodes, are not."""
    done: set[int] = set()
    for index in range(len(needs)):
        if index not in never and set(needs[index]) <= done and not set(needed[index]) & nodes_never:
            done.add(index)
    return done
