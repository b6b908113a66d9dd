"""Properties of the search nearby: what it finds is a plan that holds, and no dearer than what there was."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bench import verify
from bench.families import MANY_SIZES, changed, running
from bench.perturbed import measured
from bench.samples import hosts
from hypothesis import given, settings
from hypothesis import strategies as st
from properties.test_placement import Instance, instances

from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VJob
from rmsplugin.packing.budget import Budget
from rmsplugin.packing.search import Search
from rmsplugin.planning.plan import Unreachable
from rmsplugin.planning.target import nearby
from rmsplugin.planning.target.counts import Named
from rmsplugin.planning.target.incumbent import Incumbent
from rmsplugin.planning.target.keep import keep
from rmsplugin.planning.target.nearby import improve_nearby, limited
from rmsplugin.planning.target.placement import place_sample
from rmsplugin.planning.target.replacement import replacement


def confined(instance: Instance) -> Instance:
    """The same with each vjob confined to the nodes where its VMs are now, and where the sample has them."""
    source, states, sample = instance

    def confine(vjob: VJob) -> VJob:
        now = {source.locations[vm.name].node for vm in vjob.vms} - {None}
        then = {sample[vm.name] for vm in vjob.vms if vm.name in sample}
        return replace(vjob, nodes=frozenset({*now, *then}) or None)  # type: ignore[arg-type]

    return Configuration(source.nodes, tuple(map(confine, source.vjobs)), source.locations), states, sample


@pytest.mark.parametrize("first_nodes", [1, 16])
@given(instances(least_nodes=3), st.booleans())
@settings(max_examples=30)
def test_the_answer_holds_and_is_no_dearer_than_before(first_nodes: int, instance: Instance, confine: bool) -> None:
    source, states, sample = confined(instance) if confine else instance
    start = place_sample(source, states, sample)
    assert not isinstance(start, Unreachable)
    problem = replacement(source, states, sample)
    kept = [keep(place, problem.classes, problem.wait_mib) for place in problem.places]
    incumbent = Incumbent(source)
    incumbent.offer(Named(dict(start.target), frozenset()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nearby, "_NODES", first_nodes)
        improve_nearby(problem, kept, incumbent, Budget(Search(deterministic_limit=0.5)))
    best = incumbent.best()
    verify.placement(source, states, hosts(best.target))
    verify.plan(source, best.target, best.plan)
    assert start.lower_bound <= best.plan.cost <= start.plan.cost


@given(instances(least_nodes=3))
@settings(max_examples=30)
def test_a_part_of_the_problem_has_the_same_vms_on_the_same_nodes(instance: Instance) -> None:
    source, states, sample = confined(instance)
    problem = replacement(source, states, sample)
    nodes = [2, 0]
    part = limited(problem, nodes)
    for at, i in enumerate(nodes):
        here, there = part.places[at], problem.places[i]
        for k, names in there.residents.items():
            assert names in here.residents.values()
            (inside,) = (each for each, some in here.residents.items() if some == names)
            takers = [problem.classes[k].may_go(node) for node in nodes]
            assert [part.classes[inside].may_go(node) for node in range(len(nodes))] == takers
    elsewhere = {name for names in problem.places[1].residents.values() for name in names}
    assert part.fixed.keys() == problem.fixed.keys() | elsewhere


def test_where_hardly_two_vms_are_equal_a_small_change_is_a_small_plan_as_well() -> None:
    """Beyond the size that one program takes; the least that must move costs 768 MiB with 640 moved (benchmark m)."""
    configuration = changed(running(200, 98, 0, MANY_SIZES), "more CPUs", 0)
    found = measured(configuration, Search(deterministic_limit=0.5), reference_work=0.0)
    assert (found["suspended"], found["cost"]) == (0, 768)
