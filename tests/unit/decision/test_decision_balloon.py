"""What guests are asked to do with: never less than they need, and no more together than there is room."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rmsplugin.decision.balloon import STEP_MIB, Ballooned, targets

AMOUNTS = st.tuples(st.integers(64, 4096), st.integers(0, 4096)).map(lambda pair: (pair[0] + pair[1], pair[0]))
VMS = st.lists(AMOUNTS, min_size=1, max_size=6).map(
    lambda pairs: [Ballooned(f"vm{index}", size, needed) for index, (size, needed) in enumerate(pairs)]
)


def test_where_all_fit_with_what_they_asked_for_nothing_is_taken_back() -> None:
    assert targets(2000, [Ballooned("a", 1200, 300), Ballooned("b", 800, 100)]) == {"a": 1200, "b": 800}


def test_what_is_left_is_shared_by_what_each_would_like_to_have_besides() -> None:
    found = targets(1400, [Ballooned("a", 1200, 200), Ballooned("b", 900, 400)])
    assert found == {"a": 200 + 512, "b": 400 + 256}, "two thirds and one third of 800 MiB, in steps of 32"


def test_where_there_is_no_room_each_keeps_what_it_needs() -> None:
    assert targets(100, [Ballooned("a", 1200, 300), Ballooned("b", 500, 500)]) == {"a": 300, "b": 500}


@given(st.integers(0, 30000), VMS)
def test_nobody_has_less_than_it_needs_and_together_they_have_no_more_than_the_room(
    room_mib: int, vms: list[Ballooned]
) -> None:
    found = targets(room_mib, vms)
    assert all(vm.needed_mib <= found[vm.name] <= vm.size_mib for vm in vms)
    needed_mib = sum(vm.needed_mib for vm in vms)
    assert sum(found.values()) <= max(room_mib, needed_mib)
    if room_mib >= needed_mib:
        wish_mib = sum(vm.size_mib for vm in vms)
        assert sum(found.values()) > min(room_mib, wish_mib) - STEP_MIB * len(vms), "little is left over"
