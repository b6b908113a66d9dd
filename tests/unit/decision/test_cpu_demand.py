"""CPU demand by observation: what a VM demands after each sample of its counters."""

from __future__ import annotations

import pytest

from rmsplugin.decision.cpu_demand import CpuDemand, CpuSample, cpu_demand


def counters(*used: float, step_s: float = 30.0, delay: float = 0.0) -> list[CpuSample]:
    """Samples of a VM that used so many CPUs in each interval, of which a share was delay."""
    busy, samples = 0.0, [CpuSample(1000.0, 0, 0)]
    for number, cpus in enumerate(used, start=1):
        busy += cpus * step_s * 1e9
        samples.append(CpuSample(1000.0 + number * step_s, round(busy * (1 - delay)), round(busy * delay)))
    return samples


def demands(samples: list[CpuSample], vcpus: int = 2, window_s: float = 60.0) -> list[float]:
    """The demand after each sample."""
    return [cpu_demand(samples[: count + 1], vcpus, window_s) for count in range(len(samples))]


def test_without_two_samples_a_vm_demands_what_it_requested() -> None:
    assert cpu_demand([], 4) == 4
    assert cpu_demand([CpuSample(0, 10**9)], 4) == 4


def test_a_vm_that_idles_from_the_start_falls_after_the_window() -> None:
    assert demands(counters(0, 0, 0)) == [2, 2, 0, 0]


def test_a_rise_counts_at_the_second_sample_that_shows_it() -> None:
    assert demands(counters(0, 0, 1.5, 1.5))[2:] == [0, 0, 1.5]


def test_a_rise_goes_no_higher_than_both_samples_show() -> None:
    assert demands(counters(0, 0, 1, 2, 2))[2:] == [0, 0, 1, 2]


def test_a_spike_is_none_however_often_it_comes_back() -> None:
    assert demands(counters(0, 0, *(2, 0) * 5))[2:] == [0] * 11


def test_a_pause_gives_nothing_away() -> None:
    assert demands(counters(2, 2, 0, 2, 0, 2)) == [2] * 7


def test_a_fall_counts_after_the_window_and_goes_to_the_most_that_was_seen_in_it() -> None:
    assert demands(counters(2, 2, 1, 0.5, 0.5, 0.5)) == [2, 2, 2, 2, 1, 0.5, 0.5]


def test_a_longer_window_waits_longer() -> None:
    assert demands(counters(0, 0, 0, 0, 0), window_s=120) == [2, 2, 2, 2, 0, 0]


def test_samples_rarer_than_the_window_still_let_demand_fall() -> None:
    assert demands(counters(0, 0, 0, step_s=300)) == [2, 2, 0, 0]


def test_samples_that_come_early_do_not_shorten_the_window() -> None:
    assert demands(counters(*[0] * 7, step_s=10)) == [2, 2, 2, 2, 2, 2, 0, 0]


def test_time_that_a_vcpu_waits_for_a_cpu_is_demand() -> None:
    assert demands(counters(0, 0, 1, 1, delay=0.5))[-1] == 1


def test_demand_is_never_more_than_the_vcpus() -> None:
    assert demands(counters(0, 0, 7, 7))[-1] == 2


def test_a_bound_is_the_most_however_long_processes_wait() -> None:
    """The kernel counts a process that waits for the next period of its quota as one that waits for a CPU."""
    demand = CpuDemand.requested(4)
    for sample in counters(2, 2, 2, delay=0.5):
        demand = demand.after(sample, bound=1)
    assert demand.cpus == 1
    for sample in counters(0, 0, 0, 2, 2, 2, delay=0.5)[4:]:
        demand = demand.after(sample)
    assert demand.cpus == 2


def test_demand_has_two_decimals() -> None:
    assert demands(counters(0, 0, 1.23456, 1.23456))[-1] == 1.23


@pytest.mark.parametrize(("use", "demand"), [(1.09, 1.0), (0.91, 1.0), (1.1, 1.1), (0.9, 0.9)])
def test_a_change_below_a_tenth_of_a_cpu_is_none(use: float, demand: float) -> None:
    assert demands(counters(0, 0, 1, 1, use, use, use))[-1] == demand


def test_a_slow_drift_is_followed_in_steps() -> None:
    slow = [0.5 + 0.02 * step for step in range(20)]
    found = demands(counters(0, 0, 0.5, 0.5, *slow))
    assert found[-1] >= slow[-1] - 0.12
    assert len(set(found[4:])) < 6


def test_counters_that_begin_anew_keep_the_demand_and_say_nothing_of_the_interval() -> None:
    """A VM that migrated while it computed; its new hypervisor process counts from 0."""
    before = counters(1, 1, 0)
    moved = [CpuSample(each.time_s + 90.0, each.cpu_time_ns, 0) for each in counters(0.1, 0, 0)[1:]]
    assert demands([*before, *moved])[2:] == [1, 1, 1, 1, 0]


def test_one_wrong_reading_changes_nothing() -> None:
    for wrong in (0, 10**15):
        samples = counters(1, 1, 1, 1, 1, 1, 1)
        samples[4] = CpuSample(samples[4].time_s, wrong)
        assert demands(samples)[3:] == [1, 1, 1, 1, 1]


def test_one_reading_that_stands_still_gives_nothing_away() -> None:
    """The counter of a hypervisor that hung for a cycle."""
    samples = counters(1, 1, 1, 1, 1, 1)
    samples[4] = CpuSample(samples[4].time_s, samples[3].cpu_time_ns)
    assert demands(samples)[3:] == [1, 1, 1, 1]


@pytest.mark.parametrize("back_s", [0.0, 5.0])
def test_a_sample_that_is_no_later_says_nothing(back_s: float) -> None:
    samples = counters(1, 1, 1)
    again = CpuSample(samples[-1].time_s - back_s, samples[-1].cpu_time_ns + 10**12)
    assert cpu_demand([*samples, again], 2) == 1


def test_a_vm_has_a_vcpu() -> None:
    with pytest.raises(ValueError, match="at least 1 vCPU, not 0"):
        CpuDemand.requested(0)
