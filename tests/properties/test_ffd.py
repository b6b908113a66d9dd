"""First Fit Decreasing over generated VMs and nodes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rmsplugin.model.elements import VM
from rmsplugin.model.resources import Resources
from rmsplugin.packing.ffd import first_fit_decreasing

resources = st.builds(Resources, st.integers(0, 400).map(lambda n: n / 100), st.integers(0, 4096))
rooms = st.lists(resources, min_size=1, max_size=6).map(lambda each: {f"n{i}": free for i, free in enumerate(each)})


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
