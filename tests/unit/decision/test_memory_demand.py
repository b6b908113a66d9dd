"""How much memory a VM is taken to need, sample by sample."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmsplugin.decision.memory_demand import FLOOR_MIB, MARGIN, STEP_MIB, MemoryDemand, MemorySample

SIZE_MIB = 4096
WINDOW_S = 60.0


def after(*working_sets: int, step_s: float = 30.0) -> list[int]:
    """The demand after each of these samples, in MiB."""
    demand, found = MemoryDemand.requested(SIZE_MIB), []
    for at, working_set_mib in enumerate(working_sets):
        demand = demand.after(MemorySample(at * step_s, working_set_mib), WINDOW_S)
        found.append(demand.mib)
    return found


def test_a_vm_of_which_nothing_is_known_demands_what_was_requested() -> None:
    assert MemoryDemand.requested(SIZE_MIB).mib == SIZE_MIB


def test_demand_falls_when_nothing_more_was_seen_in_a_whole_window() -> None:
    assert after(1000, 1000, 1000) == [SIZE_MIB, SIZE_MIB, 1104]


def test_demand_falls_to_the_most_that_was_seen_in_the_window() -> None:
    assert after(1000, 1400, 1000)[-1] == 1552
    assert after(1000, 1400, 1000, 1000, 1000)[-1] == 1104


def test_a_rise_counts_at_once() -> None:
    assert after(1000, 1000, 1000, 2000)[-1] == 2208


def test_a_vm_that_was_not_seen_for_a_while_keeps_its_demand_for_a_window() -> None:
    demand = MemoryDemand.requested(SIZE_MIB)
    for time_s in (0, 30, 60):
        demand = demand.after(MemorySample(time_s, 1000), WINDOW_S)
    demand = demand.anew()
    for time_s in (300, 330):
        demand = demand.after(MemorySample(time_s, 500), WINDOW_S)
        assert demand.mib == 1104
    assert demand.after(MemorySample(360, 500), WINDOW_S).mib == 560


def test_where_samples_are_rarer_than_the_window_is_long_the_last_two_count() -> None:
    assert after(1000, 500, 500, step_s=100.0) == [SIZE_MIB, 1104, 560]


def test_an_old_sample_says_nothing_new() -> None:
    demand = MemoryDemand.requested(SIZE_MIB).after(MemorySample(10, 1000), WINDOW_S)
    assert demand.after(MemorySample(10, 3000), WINDOW_S) == demand


def test_a_vm_without_memory_is_none() -> None:
    with pytest.raises(ValueError, match="at least 1 MiB, not 0"):
        MemoryDemand.requested(0)


@given(st.lists(st.tuples(st.integers(1, 90), st.integers(0, 6000)), min_size=1, max_size=40))
def test_demand_is_between_the_working_set_and_the_size(samples: list[tuple[int, int]]) -> None:
    demand, time_s = MemoryDemand.requested(SIZE_MIB), 0.0
    for step_s, working_set_mib in samples:
        time_s += step_s
        demand = demand.after(MemorySample(time_s, working_set_mib), WINDOW_S)
        assert min(SIZE_MIB, max(FLOOR_MIB, working_set_mib * (1 + MARGIN))) <= demand.mib <= SIZE_MIB
        assert demand.mib % STEP_MIB == 0
        assert len(demand.recent) <= WINDOW_S + 2


@given(st.integers(0, 6000), st.integers(1, 60))
def test_with_a_constant_working_set_demand_changes_once_at_most(working_set_mib: int, step_s: int) -> None:
    found = [SIZE_MIB, *after(*[working_set_mib] * 130, step_s=step_s)]
    assert sum(before != now for before, now in pairwise(found)) <= 1
