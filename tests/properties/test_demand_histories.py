"""CPU demand by observation, for any history: what no history may do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rmsplugin.decision.cpu_demand import WINDOW_S, CpuDemand, CpuSample, cpu_demand
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, WAITING, Node, VJob
from rmsplugin.model.resources import Resources

VCPUS = st.integers(1, 4)

#: Seconds since the last sample, and the CPUs that were used meanwhile: by computing, and waiting for a CPU.
STEPS = st.lists(
    st.tuples(
        st.sampled_from([0.5, 5.0, 29.9, 30.0, 61.0, 600.0]),
        st.sampled_from([0.0, 0.04, 0.5, 1.0, 1.996, 3.0, 9.0]),
        st.sampled_from([0.0, 0.0, 0.3, 2.0]),
    ),
    max_size=25,
)

ANY = st.lists(
    st.builds(CpuSample, st.floats(0, 1e9), st.integers(0, 10**18), st.integers(0, 10**18)),
    max_size=20,
)


def samples(steps: list[tuple[float, float, float]]) -> list[CpuSample]:
    found = [CpuSample(0.0, 0, 0)]
    for seconds, run, delay in steps:
        last = found[-1]
        found.append(
            CpuSample(
                last.time_s + seconds,
                last.cpu_time_ns + round(run * seconds * 1e9),
                last.vcpu_delay_ns + round(delay * seconds * 1e9),
            )
        )
    return found


@given(history=ANY, vcpus=VCPUS)
def test_whatever_counters_say_demand_is_an_amount_that_a_configuration_takes(
    history: list[CpuSample], vcpus: int
) -> None:
    cpus = cpu_demand(history, vcpus)
    assert 0 <= cpus <= vcpus
    vjob = VJob("a", (VM("a-0", Resources(cpus, 1)),))
    Configuration((Node("n", Resources(1, 1)),), (vjob,), {"a-0": WAITING})  # refuses a third decimal


@given(steps=STEPS, vcpus=VCPUS)
def test_demand_rises_only_to_what_two_samples_in_a_row_show(
    steps: list[tuple[float, float, float]], vcpus: int
) -> None:
    demand, history = CpuDemand.requested(vcpus), samples(steps)
    used = [0.0, *(min(run + delay, vcpus) for _, run, delay in steps)]
    for number, sample in enumerate(history):
        before, demand = demand, demand.after(sample)
        if demand.cpus > before.cpus:
            assert number >= 2 and demand.cpus <= min(used[number - 1 : number + 1]) + 0.006


@given(steps=STEPS, vcpus=VCPUS)
def test_demand_falls_only_to_the_most_of_a_whole_window(steps: list[tuple[float, float, float]], vcpus: int) -> None:
    demand, history = CpuDemand.requested(vcpus), samples(steps)
    for number, sample in enumerate(history):
        before, demand = demand, demand.after(sample)
        if demand.cpus < before.cpus:
            assert number >= 2 and history[0].time_s <= sample.time_s - WINDOW_S
            within = [
                min(run + delay, vcpus)
                for (_, run, delay), end in zip(steps[:number], history[1 : number + 1], strict=True)
                if end.time_s > sample.time_s - WINDOW_S
            ]
            assert demand.cpus >= max(within) - 0.006


@given(steps=STEPS, vcpus=VCPUS, use=st.sampled_from([0.0, 0.37, 1.0, 1.996, 4.0]))
def test_after_three_windows_of_the_same_use_that_is_the_demand(
    steps: list[tuple[float, float, float]], vcpus: int, use: float
) -> None:
    assert abs(cpu_demand(samples([*steps, *[(30.0, use, 0.0)] * 6]), vcpus) - min(use, vcpus)) <= 0.105


@given(steps=STEPS, vcpus=VCPUS)
def test_what_is_kept_stays_small_and_a_change_is_never_small(
    steps: list[tuple[float, float, float]], vcpus: int
) -> None:
    demand = CpuDemand.requested(vcpus)
    for sample in samples(steps):
        before, demand = demand, demand.after(sample)
        assert demand.centi_cpus == before.centi_cpus or abs(demand.centi_cpus - before.centi_cpus) >= 10
        assert sum(each.end_s <= sample.time_s - WINDOW_S for each in demand.intervals) <= 1
