"""Who is in the way of a vjob that has no room: beside an exhaustive search, and when it pays that one goes."""

from __future__ import annotations

from collections.abc import Collection
from itertools import product
from typing import Any

import pytest
from examples import few
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.queues import Queue, nodes

from rmsplugin.decision.unburdening import MOST, in_the_way, pays
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import Node, NodeState, VJob
from rmsplugin.model.joint import Spread
from rmsplugin.model.resources import Resources
from rmsplugin.model.rules import allowing


def found(queue: Queue, waits: str = "w", stay: Collection[str] = ()) -> list[str]:
    configuration = queue.configuration
    by_name = {vjob.name: vjob for vjob in configuration.vjobs}
    return [vjob.name for vjob in in_the_way(configuration, by_name[waits], lambda vjob: vjob.name not in stay)]


def two_halves() -> Queue:
    """Two nodes of 2 CPUs, on each of which one is free."""
    return Queue(*nodes(2, cpus=2)).add("r1", "n1", memory_mib=512).add("r2", "n2", memory_mib=256)


def test_the_one_with_the_least_memory_without_which_it_has_room_comes_first() -> None:
    assert found(two_halves().add("w", cpus=2, memory_mib=256)) == ["r2", "r1"]


def test_one_that_may_not_go_does_not_run_or_has_something_under_way_is_not_named() -> None:
    assert found(two_halves().add("w", cpus=2), stay={"r2"}) == ["r1"]
    queue = Queue(*nodes(2, cpus=2)).add("r1", "n1", in_transit=True).add("r2", "n2").add("r3", "zz:n1")
    assert found(queue.add("w", cpus=2)) == ["r2"]


def test_one_whose_node_has_too_little_also_without_it_is_not_in_the_way() -> None:
    queue = Queue(*nodes(2, cpus=4)).add("r1", "n1", cpus=1).add("r2", "n1", cpus=2).add("r3", "n2", cpus=2)
    assert found(queue.add("w", cpus=3)) == ["r2", "r3"]


def test_a_vjob_of_several_vms_frees_all_its_nodes() -> None:
    queue = Queue(*nodes(2, cpus=2)).add("r1", "n1", "n2").add("r2", "n1")
    assert found(queue.add("w", cpus=2, vms=1)) == ["r1"]
    queue = Queue(*nodes(2, cpus=2)).add("r1", "n1", "n2", cpus=2)
    assert found(queue.add("w", cpus=2, vms=2)) == ["r1"]


def test_nodes_that_it_may_not_use_or_that_take_no_vms_are_no_help() -> None:
    assert found(two_halves().add("w", cpus=2, rules=allowing(frozenset({"n1"})))) == ["r1"]
    closed = [Node("n1", Resources(2, 4096)), Node("n2", Resources(2, 4096), NodeState.DRAINING)]
    queue = Queue(*closed).add("r1", "n1", memory_mib=512).add("r2", "n2", memory_mib=256)
    assert found(queue.add("w", cpus=2)) == ["r1"]


def test_rules_about_vms_beside_others_name_nobody() -> None:
    rule = (Spread(frozenset({"w-0", "r2-0"}), label="x"),)
    assert found(two_halves().add("w", cpus=2, rules=rule)) == []
    queue = Queue(*nodes(2, cpus=2)).add("r1", "n1", memory_mib=512).add("r2", "n2", memory_mib=256, rules=rule)
    assert found(queue.add("w", cpus=2)) == ["r1"]


def test_no_more_than_a_few_are_named() -> None:
    queue = Queue(*nodes(20, cpus=2))
    for number in range(1, 21):
        queue.add(f"r{number}", f"n{number}")
    assert len(found(queue.add("w", cpus=2))) == MOST


def fits_exhaustively(configuration: Configuration, waits: VJob, without: VJob) -> bool:
    """Whether any placement of its VMs fits beside all others."""
    free = {node.name: node.capacity for node in configuration.nodes}
    for vm, at in configuration.locations.items():
        if at.node is not None and configuration.vjob_by_vm[vm] is not without:
            free[at.node] -= configuration.vm_by_name[vm].demand
    for places in product(free, repeat=len(waits.vms)):
        left = dict(free)
        for vm, node in zip(waits.vms, places, strict=True):
            left[node] -= vm.demand
        if all(each.cpus >= 0 and each.memory_mib >= 0 for each in left.values()):
            return True
    return False


@given(st.data())
@settings(max_examples=few(300), deadline=None)
def test_all_that_an_exhaustive_search_finds_are_named_and_nobody_else(data: Any) -> None:
    queue = Queue(*nodes(3, cpus=4, memory_mib=4096))
    free = {f"n{number}": [4, 4096] for number in (1, 2, 3)}
    for number in range(data.draw(st.integers(1, 6))):
        cpus, memory_mib = data.draw(st.integers(1, 3)), data.draw(st.sampled_from([512, 1024, 2048]))
        where = data.draw(st.lists(st.sampled_from(sorted(free)), min_size=1, max_size=2))
        before = {name: list(left) for name, left in free.items()}
        for name in where:
            free[name] = [free[name][0] - cpus, free[name][1] - memory_mib]
        if min(min(left) for left in free.values()) < 0:
            free = before
            continue
        queue.add(f"r{number}", *where, cpus=cpus, memory_mib=memory_mib)
    queue.add("w", cpus=data.draw(st.integers(1, 4)), memory_mib=1024, vms=data.draw(st.integers(1, 3)))
    configuration = queue.configuration
    waits = configuration.vjobs[-1]
    runs = configuration.vjobs[:-1]
    expected = {vjob.name for vjob in runs if fits_exhaustively(configuration, waits, vjob)}
    if fits_exhaustively(configuration, waits, waits):
        return  # it has room: nobody asks who is in its way
    assert set(found(queue)) == expected  # its VMs are equal: First Fit finds what there is


def two(cpus: float = 1, **known: Any) -> tuple[VJob, VJob]:
    configuration = Queue(*nodes(1)).add("w", cpus=2).add("r", "n1", cpus=cpus, **known).configuration
    return configuration.vjobs[0], configuration.vjobs[1]


@pytest.mark.parametrize(("without_room_s", "does"), [(29, False), (30, True), (1e6, True)])
def test_it_pays_once_the_wait_has_cost_as_much_as_the_move(without_room_s: float, does: bool) -> None:
    waits, goes = two()
    assert pays(waits, without_room_s, goes, standstill_s=60) is does


def test_it_does_not_pay_for_a_vjob_that_ends_soon_anyway_or_is_much_larger() -> None:
    waits, goes = two(time_limit_s=600, ran_s=571)
    assert not pays(waits, 1e6, goes, standstill_s=60)
    waits, goes = two(time_limit_s=600, ran_s=570)
    assert pays(waits, 1e6, goes, standstill_s=60)
    waits, goes = two(cpus=40)
    assert not pays(waits, 1000, goes, standstill_s=60)
