"""Interrupted plans: wherever a plan stops, planning again leads to the same target, and no VM is lost on the way.

An interruption leaves any configuration that lies between two steps: of the pools done so far all actions, of the next
one any subset. A failed action has no effect, and what depends on it is not carried out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import pytest
from examples import few
from hypothesis import event, given, settings
from hypothesis import strategies as st
from properties.generators import problems_of_planning, rotations, targets

from rmsplugin.model.action import Action, migrate, resume, suspend
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, WAITING, Location, Node, VJob, VMState, running_on, sleeping_on
from rmsplugin.model.resources import Resources
from rmsplugin.model.validation import problems
from rmsplugin.planning.checker import check_plan
from rmsplugin.planning.order.builder import build_plan
from rmsplugin.planning.order.improve import Tries
from rmsplugin.planning.plan import Plan

Problem = tuple[Configuration, Mapping[str, Location]]

PROBLEMS = st.one_of(
    problems_of_planning(max_nodes=4, max_vjobs=5),
    problems_of_planning(max_nodes=3, max_vjobs=6, all_up=True, restricted=False),
    rotations(),
    rotations(),
)

#: The plain greedy: how much a better order saves is none of this module's business.
TRIES = 0.0


def planned(source: Configuration, target: Mapping[str, Location], most: float = TRIES) -> Plan:
    """The plan, which must exist and be right."""
    plan = build_plan(source, target, tries=Tries(most))
    assert isinstance(plan, Plan), f"{plan}\nfrom {source.locations}\nto {target}"
    found = check_plan(source, target, plan.pools, plan.cost)
    assert not found, "\n".join(map(str, found)) + f"\nfrom {source.locations}\nto {target}\nplan {plan.pools}"
    return plan


def after(source: Configuration, done: Sequence[Action]) -> Configuration:
    """The configuration after some actions; each must be feasible when its turn comes."""
    for action in done:
        source = action.apply(source)
    return source


def with_failure(source: Configuration, pools: Sequence[Sequence[Action]], failed: Action) -> Configuration:
    """What an executor leaves that carries out everything still feasible, when one action has no effect."""
    for pool in pools:
        for action in pool:
            if action is not failed and action.is_feasible(source):
                source = action.apply(source)
    return source


def assert_nothing_is_lost(source: Configuration, now: Configuration, target: Mapping[str, Location]) -> None:
    """Every VM exists exactly once: what ran or slept still does, unless the target ends it (I1, I2)."""
    assert now.locations.keys() == source.locations.keys()
    assert list(problems(now.nodes, now.vjobs, now.locations)) == []
    alive = (VMState.RUNNING, VMState.SLEEPING)
    for name, location in source.locations.items():
        if location.state in alive and target.get(name, location).state in alive:
            assert now.locations[name].state in alive, f"{name} is {now.locations[name]}, and was {location}"


def assert_recovers(source: Configuration, now: Configuration, target: Mapping[str, Location]) -> None:
    """Planning again reaches the target: by the checker, and by carrying the new plan out."""
    assert_nothing_is_lost(source, now, target)
    again = planned(now, target)
    for pool in again.pools:
        for action in pool:
            assert action.is_feasible(now), f"{action}: {action.obstacle(now)}"
        now = now.with_locations({action.vm.name: action.after for action in pool})
        assert_nothing_is_lost(source, now, target)
    for name, wanted in target.items():
        assert now.locations[name] == wanted or (now.locations[name], wanted.state) == (WAITING, VMState.TERMINATED)
    assert build_plan(now, target, tries=Tries(TRIES)) == Plan(()), "what is reached needs nothing more"


def describe(plan: Plan) -> None:
    counts = Counter(f"{'bypass ' if action.bypass else ''}{action.kind}" for action in plan.actions())
    event(f"pools: {len(plan.pools)}")
    for kind in counts:
        event(f"has {kind}")


@settings(max_examples=few(300))
@given(PROBLEMS, st.sampled_from([TRIES, math.inf]))
def test_whatever_can_be_asked_for_can_be_planned(problem: Problem, most: float) -> None:
    describe(planned(*problem, most))


@settings(max_examples=few(300))
@given(PROBLEMS, st.data())
def test_a_plan_interrupted_anywhere_is_planned_again(problem: Problem, data: st.DataObject) -> None:
    source, target = problem
    plan = planned(source, target)
    now = source
    for pool in plan.pools:
        done = data.draw(st.lists(st.sampled_from(pool), unique_by=id), label="done of the next pool")
        assert_recovers(source, after(now, done), target)  # done in any order
        now = after(now, pool)
    assert_recovers(source, now, target)


@settings(max_examples=few(300))
@given(PROBLEMS)
def test_a_plan_of_which_one_action_failed_is_planned_again(problem: Problem) -> None:
    source, target = problem
    plan = planned(source, target)
    for failed in plan.actions():
        assert_recovers(source, with_failure(source, plan.pools, failed), target)


@settings(max_examples=few(200))
@given(PROBLEMS, st.data())
def test_interrupted_again_and_again_a_plan_still_arrives(problem: Problem, data: st.DataObject) -> None:
    """Each round does one action at least, and loses the rest of its plan; a round that does all of it is the last."""
    source, target = problem
    now = source
    for _ in range(4):
        plan = planned(now, target)
        if not plan.pools:
            break
        whole = data.draw(st.integers(0, len(plan.pools) - 1), label="whole pools done")
        for pool in plan.pools[:whole]:
            now = after(now, pool)
        some = st.lists(st.sampled_from(plan.pools[whole]), min_size=1, unique_by=id)
        now = after(now, data.draw(some, label="and of the next"))
        assert_nothing_is_lost(source, now, target)
    assert_recovers(source, now, target)


@settings(max_examples=few(300))
@given(PROBLEMS, st.data())
def test_an_interrupted_plan_may_be_followed_by_another_target(problem: Problem, data: st.DataObject) -> None:
    """The next cycle decides anew, from whatever the last one left: vjobs half asleep, half started, half ended."""
    source, target = problem
    actions = list(planned(source, target).actions())
    now = after(source, actions[: data.draw(st.integers(0, len(actions)), label="actions done")])
    event("mixed" if any(len({now.locations[vm.name].state for vm in v.vms}) > 1 for v in now.vjobs) else "uniform")
    other = data.draw(targets(now), label="new target")
    assert_recovers(now, now, other)


# -- by hand: every interruption of the two ways to break a cycle


def every_interruption(source: Configuration, plan: Plan) -> Iterator[Configuration]:
    """After each prefix of pools, every subset of the next."""
    now = source
    for pool in plan.pools:
        for chosen in range(2 ** len(pool)):
            yield after(now, [action for bit, action in enumerate(pool) if chosen >> bit & 1])
        now = after(now, pool)
    yield now


A, B = VM("a", Resources(1, 1024)), VM("b", Resources(1, 1024))
CYCLE_TARGET = {"a": running_on("n2"), "b": running_on("n1")}


def cycle(nodes: int) -> Configuration:
    cluster = tuple(Node(f"n{i}", Resources(2, 1024)) for i in range(1, nodes + 1))
    return Configuration(cluster, (VJob("v", (A, B)),), {"a": running_on("n1"), "b": running_on("n2")})


@pytest.mark.parametrize(
    ("nodes", "plan"),
    [
        (
            3,
            Plan(
                (
                    (migrate(A, "n1", "n3", bypass=True),),
                    (migrate(B, "n2", "n1"),),
                    (migrate(A, "n3", "n2"),),
                )
            ),
        ),
        (
            2,
            Plan(
                (
                    (suspend(A, "n1", bypass=True),),
                    (migrate(B, "n2", "n1"),),
                    (resume(A, "n1", "n2", bypass=True),),
                )
            ),
        ),
    ],
    ids=["by a pivot", "by suspend and resume"],
)
def test_rr6929_figure_8_interrupted_everywhere(nodes: int, plan: Plan) -> None:
    source = cycle(nodes)
    assert check_plan(source, CYCLE_TARGET, plan.pools) == []
    for now in every_interruption(source, plan):
        assert_recovers(source, now, CYCLE_TARGET)
    for failed in plan.actions():
        assert_recovers(source, with_failure(source, plan.pools, failed), CYCLE_TARGET)


def test_a_vjob_half_asleep_is_put_to_sleep_and_one_half_awake_is_woken() -> None:
    nodes = (Node("n1", Resources(2, 1024)), Node("n2", Resources(2, 1024)))
    half = Configuration(nodes, (VJob("v", (A, B)),), {"a": sleeping_on("n1"), "b": running_on("n2")})
    asleep = {"a": sleeping_on("n1"), "b": sleeping_on("n2")}
    awake = {"a": running_on("n1"), "b": running_on("n2")}
    assert planned(half, asleep).pools == ((suspend(B, "n2"),),)
    assert planned(half, awake).pools == ((resume(A, "n1", "n1"),),)


def test_the_simulated_executor_leaves_what_depends_on_a_failure_undone() -> None:
    source = cycle(3)
    plan = planned(source, CYCLE_TARGET)
    first = plan.pools[0][0]
    assert with_failure(source, plan.pools, first) == source, "nothing else of a cycle is feasible then"
    assert with_failure(source, plan.pools, plan.pools[-1][0]) == after(source, list(plan.actions())[:-1])
