"""Properties of FFD and of the decision which vjobs start, over generated clusters and queues."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rmsplugin.decision.starting import Candidate, decide_starts
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
        queue.append(Candidate(str(number), vms, allowed))
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
    verdicts = decide_starts(queue, room)
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
    whole = decide_starts(queue, room)
    for length in range(len(queue)):
        assert decide_starts(queue[:length], room) == {
            candidate.name: whole[candidate.name] for candidate in queue[:length]
        }


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
