"""Small plans are the cheapest: the exact search, and placement by it, against brute force."""

from __future__ import annotations

from collections.abc import Mapping

from examples import few
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st
from properties.brute_force import TooLargeError, cheapest_cost
from properties.generators import problems_of_planning, rotations
from properties.test_placement import Instance, every_target, instances

from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import Location, VMState
from rmsplugin.packing.search import Search
from rmsplugin.planning.checker import check_plan, recomputed_cost
from rmsplugin.planning.order.builder import build_plan
from rmsplugin.planning.order.ends import Ends
from rmsplugin.planning.order.exact import Found, cheapest
from rmsplugin.planning.order.moves import Moves, moves_between
from rmsplugin.planning.order.remaining import Remaining
from rmsplugin.planning.order.small import best_order, switch_to
from rmsplugin.planning.order.switch import NEVER, UNIT, Switch
from rmsplugin.planning.plan import Plan
from rmsplugin.planning.target.placement import Placed, place
from rmsplugin.planning.violations import Rule

Problem = tuple[Configuration, Mapping[str, Location]]

PROBLEMS = st.one_of(
    problems_of_planning(max_nodes=3, max_vjobs=3, all_up=True),
    problems_of_planning(max_nodes=3, max_vjobs=2),
    rotations(max_nodes=3),
)

#: Pools that brute force tries: some tenths of a second.
_MOST = 15_000


def brute(source: Configuration, target: Mapping[str, Location], sleeps: bool = True) -> float:
    """What the cheapest plan to a target costs; instances that take long are not looked at."""
    departs = {
        name: location
        for name, location in target.items()
        if location.state is not VMState.RUNNING and location != source.locations[name]
    }
    runs = frozenset(name for name, location in target.items() if location.state is VMState.RUNNING)
    assume(len(runs) <= 5)

    def is_end(locations: Mapping[str, Location]) -> bool:
        return all(locations[name] == location for name, location in target.items())

    try:
        return cheapest_cost(source, is_end, departs, runs, sleeps=sleeps, most=_MOST)
    except TooLargeError:
        assume(False)
        raise


def moves_of(problem: Problem) -> Moves:
    moves = moves_between(*problem)
    assert isinstance(moves, Moves), moves
    assume(moves.actions)
    return moves


def search(switch: Switch, most: int = 100_000) -> Found:
    left = most

    def work(looked_at: int) -> bool:
        nonlocal left
        left -= looked_at
        return left > 0

    return cheapest(switch, NEVER - 1, work)


@settings(max_examples=few(80))
@given(PROBLEMS)
def test_the_cheapest_order_costs_what_brute_force_says(problem: Problem) -> None:
    source, target = problem
    switch = switch_to(moves_of(problem))
    assert switch is not None
    cost = brute(source, target)
    found = search(switch)
    assert found.pools is not None
    pools, _ = switch.pools(found.pools)
    event(f"pools: {len(pools)}, bypasses: {sum(action.bypass for pool in pools for action in pool)}")
    assert found.bound // UNIT == recomputed_cost(source, pools) == cost
    # who may be suspended is for the caller to say; what the drawn target mixes up is not the plan's fault
    faults = {fault.rule for fault in check_plan(source, target, pools)} - {Rule.MIXED, Rule.VIABILITY, Rule.PREEMPTION}
    assert not faults


@settings(max_examples=few(100))
@given(PROBLEMS, st.integers(1, 300))
def test_an_interrupted_search_has_a_bound_that_no_plan_is_below(problem: Problem, most: int) -> None:
    switch = switch_to(moves_of(problem))
    assert switch is not None
    whole, part = search(switch), search(switch, most)
    assert Remaining(switch).start() <= part.bound <= whole.bound
    assert switch.departures_cost + Ends(switch).of(switch.start, 0) <= part.bound
    assert part.pools is None or part.bound == whole.bound


@settings(max_examples=few(100))
@given(PROBLEMS)
def test_a_small_plan_is_the_cheapest_of_those_that_suspend_nobody(problem: Problem) -> None:
    source, target = problem
    moves = moves_of(problem)
    greedy = build_plan(source, target)
    assert isinstance(greedy, Plan)
    left = iter(range(400))
    plan = best_order(moves, greedy, (0, 0), lambda _: next(left, None) is not None)
    assert plan.cost <= brute(source, target, sleeps=False)


@settings(max_examples=few(100))
@given(instances())
def test_a_small_placement_costs_what_brute_force_says(instance: Instance) -> None:
    source, states, sample = instance
    placed = place(source, states, sample, search=Search(deterministic_limit=1))
    assert isinstance(placed, Placed)
    ends = [{name: target[name] for name in sample} for target in every_target(instance)]
    departs = {
        name: location
        for name, location in placed.target.items()
        if name not in sample and location != source.locations[name]
    }
    assume(len(sample) <= 4)

    def is_end(locations: Mapping[str, Location]) -> bool:
        gone = all(locations[name] == location for name, location in departs.items())
        return gone and {name: locations[name] for name in sample} in ends

    try:
        cost, awake = (
            cheapest_cost(source, is_end, departs, frozenset(sample), sleeps=sleeps, most=_MOST)
            for sleeps in (True, False)
        )
    except TooLargeError:
        assume(False)
        return
    event(f"as cheap as brute force: {placed.plan.cost == cost}")
    assert placed.lower_bound == cost
    assert placed.plan.cost <= awake, "a plan is dearer than the bound only because it suspends nobody needlessly"
