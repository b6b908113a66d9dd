"""Which further nodes waiting vjobs could use."""

from __future__ import annotations

from rmsplugin.decision.wanted import Candidate, nodes_wanted
from rmsplugin.model.elements import VM
from rmsplugin.model.resources import Resources


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
