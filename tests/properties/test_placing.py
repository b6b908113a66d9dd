"""Properties of FFD and of the decision which vjobs start, over generated clusters and queues."""

from __future__ import annotations

import math
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from rmsplugin.decision.starting import Candidate, decide_starts, nodes_wanted
from rmsplugin.model.elements import VM
from rmsplugin.model.resources import Resources
from rmsplugin.packing.ffd import first_fit_decreasing

resources = st.builds(Resources, st.integers(0, 400).map(lambda n: n / 100), st.integers(0, 4096))
rooms = st.lists(resources, min_size=1, max_size=6).map(lambda each: {f"n{i}": free for i, free in enumerate(each)})


@st.composite
def queues(draw: st.DrawFn, names: list[str]) -> list[Candidate]:
    queue = []
    for number in range(draw(st.integers(0, 6))):
        demands = draw(st.lists(resources, min_size=1, max_size=4))
        vms = tuple(VM(f"vjob{number}-{i}", demand) for i, demand in enumerate(demands))
        allowed = frozenset(draw(st.sets(st.sampled_from(names), min_size=1)))
        end_s = draw(st.sampled_from([60.0, 600.0, 3600.0, math.inf]))
        queue.append(Candidate(str(number), vms, allowed, end_s))
    return queue


Instance = tuple[dict[str, Resources], list[Candidate]]


@st.composite
def instances(draw: st.DrawFn) -> Instance:
    room = draw(rooms)
    return room, draw(queues([*room, "down"]))


@given(instances())
def test_what_starts_overloads_no_node_and_stays_where_it_may_be(instance: Instance) -> None:
    room, queue = instance
    left = dict(room)
    verdicts = decide_starts(queue, [], room)
    assert list(verdicts) == [candidate.name for candidate in queue]
    for candidate in queue:
        placement = verdicts[candidate.name].placement
        assert verdicts[candidate.name].reason
        if placement is not None:
            assert set(placement) == {vm.name for vm in candidate.vms}, "all VMs, or none (I4)"
            assert set(placement.values()) <= candidate.nodes & room.keys()
            for vm in candidate.vms:
                assert left[placement[vm.name]].holds(vm.demand)
                left[placement[vm.name]] -= vm.demand


@given(instances())
def test_whoever_is_ahead_in_the_queue_is_not_harmed_by_those_behind(instance: Instance) -> None:
    room, queue = instance
    whole = decide_starts(queue, [], room)
    for length in range(len(queue)):
        assert decide_starts(queue[:length], [], room) == {
            candidate.name: whole[candidate.name] for candidate in queue[:length]
        }


def head_start(head: Candidate, there: Iterable[tuple[Candidate, dict[str, str]]], room: dict[str, Resources]) -> float:
    """When the head finds room by FFD if nobody else starts: at the end of one of those that are there."""
    there = list(there)
    for time in sorted({0.0, *(item.end_s for item, _ in there)}):
        left = dict(room)
        for item, placement in there:
            if item.end_s > time:
                for vm in item.vms:
                    left[placement[vm.name]] -= vm.demand
        free = {name: amount for name, amount in left.items() if name in head.nodes}
        if first_fit_decreasing(head.vms, free) is not None:
            return time
    return math.inf


@given(instances())
def test_nobody_who_passes_the_head_delays_it(instance: Instance) -> None:
    room, queue = instance
    verdicts = decide_starts(queue, [], room)
    first = next((number for number, item in enumerate(queue) if verdicts[item.name].placement is None), len(queue))
    started = [(item, verdicts[item.name].placement or {}) for item in queue if verdicts[item.name].placement]
    ahead = started[:first]
    if first < len(queue) and head_start(queue[first], ahead, room) < math.inf:
        assert head_start(queue[first], started, room) <= head_start(queue[first], ahead, room)


def test_a_short_job_passes_a_large_one_that_waits_and_a_long_one_does_not() -> None:
    room = {"n1": Resources(2, 4000), "n2": Resources(2, 4000)}
    one, both = Resources(1, 100), Resources(2, 100)
    every = frozenset(room)
    running = Candidate("running", (VM("r", both),), end_s=100, hosts={"r": "n1"})
    large = Candidate("large", (VM("l0", both), VM("l1", both)), every, 1000)
    long = Candidate("long", (VM("o", one),), every, 101)
    short = Candidate("short", (VM("s", one),), every, 99)
    verdicts = decide_starts([large, long, short], [running], room)
    assert [verdict.placement for verdict in verdicts.values()] == [None, None, {"s": "n2"}]
    assert verdicts["long"].reason == "would delay vjob large, which is ahead of it in the queue"


def test_nodes_are_wanted_for_those_that_find_no_room_and_no_more_of_them() -> None:
    queue = [
        Candidate(str(n), (VM(f"v{n}", Resources(2, 100)),), frozenset({"n1", "n2", "n3", "n4"})) for n in range(3)
    ]
    bound = Candidate("bound", (VM("b", Resources(1, 100)),), frozenset({"n4"}))
    node = Resources(2, 1000)
    others = {"n2": node, "n3": node, "n4": node}
    assert nodes_wanted(queue, {"n1": node}, others) == {"n2", "n3"}
    assert nodes_wanted([bound, *queue], {"n1": node}, others) == {"n2", "n3", "n4"}
    assert nodes_wanted([bound], {"n4": node}, {"n2": node}) == frozenset()


@given(st.lists(resources, min_size=1, max_size=6), rooms)
def test_ffd_does_not_depend_on_the_order_in_which_vms_are_named(
    demands: list[Resources], free: dict[str, Resources]
) -> None:
    vms = [VM(f"vm{i}", demand) for i, demand in enumerate(demands)]
    assert first_fit_decreasing(vms, free) == first_fit_decreasing(reversed(vms), free)


def test_ffd_sorts_by_memory_then_cpu_then_name_and_takes_the_first_node_with_room() -> None:
    free = {"n1": Resources(2, 1000), "n2": Resources(2, 2000)}
    vms = [VM("a", Resources(1, 500)), VM("b", Resources(2, 500)), VM("c", Resources(1, 1500))]
    # c (most memory) fits only n2; b before a, for it has more CPUs: b fills n1's CPUs, and a goes beside c.
    assert first_fit_decreasing(vms, free) == {"c": "n2", "b": "n1", "a": "n2"}


def test_a_preferred_node_is_tried_first_and_another_when_it_is_full() -> None:
    free = {"n1": Resources(4, 4000), "n2": Resources(1, 600)}
    vms = [VM("a", Resources(1, 500)), VM("b", Resources(1, 400))]
    assert first_fit_decreasing(vms, free, {"a": "n2", "b": "n2"}) == {"a": "n2", "b": "n1"}
