"""What is handed on, or counted of what a plan touches alone, is what all of it says anew."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from random import Random

from examples import few
from hypothesis import given, settings
from hypothesis import strategies as st
from properties.generators import configurations, problems_of_planning

from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import TERMINATED, WAITING, Location, VMState, running_on
from rmsplugin.model.vjob import VJobState
from rmsplugin.planning.order.builder import build_plan
from rmsplugin.planning.plan import Plan
from rmsplugin.proposing.fingerprint import facts, nodes_of

FIRST = (VMState.TERMINATED, VMState.WAITING, VMState.RUNNING, VMState.PAUSED, VMState.SLEEPING)


def require_same(found: Configuration) -> None:
    """Compare all that is derived with what is derived anew."""
    anew = Configuration(found.nodes, found.vjobs, found.locations)
    for vjob in found.vjobs:
        states = {found.locations[vm.name].state for vm in vjob.vms}
        assert found.state(vjob) is VJobState(next(state for state in FIRST if state in states))
        assert vjob.demand.memory_mib == sum(vm.demand.memory_mib for vm in vjob.vms)
        assert vjob.demand.centi_cpus == sum(vm.demand.centi_cpus for vm in vjob.vms)
        assert vjob.largest_mib == max(vm.demand.memory_mib for vm in vjob.vms)
    used = {name: (each.centi_cpus, each.memory_mib) for name, each in found.used.items()}  # sums of floats are rounded
    assert used == {name: (each.centi_cpus, each.memory_mib) for name, each in anew.used.items()}
    assert found.overloaded() == anew.overloaded()


@settings(max_examples=few(200))
@given(configurations(), st.booleans(), st.randoms(use_true_random=False))
def test_another_order_changes_nothing_else(source: Configuration, asked: bool, chance: Random) -> None:
    if asked:
        require_same(source)
    vjobs = sorted(source.vjobs, key=lambda _: chance.random())
    found = source.in_order(vjobs)
    assert found == Configuration(source.nodes, tuple(vjobs), source.locations)
    require_same(found)
    require_same(source)


@settings(max_examples=few(200))
@given(problems_of_planning(), st.booleans())
def test_who_moves_has_another_state(problem: tuple[Configuration, Mapping[str, Location]], asked: bool) -> None:
    source, target = problem
    if asked:
        require_same(source)
    found = source.with_locations(target)
    assert {**source.locations, **target} == found.locations
    require_same(found)
    require_same(source)


@settings(max_examples=few(200))
@given(problems_of_planning())
def test_the_facts_of_a_plan_are_those_of_all_vms(problem: tuple[Configuration, Mapping[str, Location]]) -> None:
    source, target = problem
    plan = build_plan(source, target)
    if not isinstance(plan, Plan):
        return  # there is no way
    nodes, moving = nodes_of(plan), {action.vm.name for action in plan.actions()}
    wanted = {f"node {name}" for name in nodes & source.node_by_name.keys()}
    for vjob in source.vjobs:
        touched = any(vm.name in moving for vm in vjob.vms)
        wanted |= {f"vjob {vjob.name}"} if touched else set()
        for vm in vjob.vms:
            at = source.locations[vm.name]
            if touched or (at.state.holds_memory and at.node in nodes):
                wanted.add(f"VM {vm.name}")
                assert facts(source, plan)[f"VM {vm.name}"].startswith(f"{at}, demands {vm.demand.centi_cpus} cCPU")
    assert facts(source, plan).keys() == wanted


@settings(max_examples=few(100))
@given(configurations())
def test_places_are_the_same_objects_in_another_process(source: Configuration) -> None:
    found = pickle.loads(pickle.dumps(source, protocol=pickle.HIGHEST_PROTOCOL))
    assert found.locations == source.locations
    for at in found.locations.values():
        if at == WAITING:
            assert at is WAITING
        elif at.state is VMState.RUNNING:
            assert at is running_on(at.node)
    assert pickle.loads(pickle.dumps(TERMINATED)) == TERMINATED
