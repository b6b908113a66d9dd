"""The simulator: the reference schedules job by job, metrics by hand, and memory counted in processors."""

from __future__ import annotations

import pytest
from unit.replayed import REFERENCES, by_id, needs_data, reference, trace

from rmsplugin.simulation.capacity import Cluster, fitting, interchangeable
from rmsplugin.simulation.metrics import Distribution, measure
from rmsplugin.simulation.releases import Releases
from rmsplugin.simulation.short_way import start_times
from rmsplugin.workload.faults import Faults
from rmsplugin.workload.jobs import Job


def job(job_id: int, submit_s: float, run_s: float, processors: int = 1, **more: float | None) -> Job:
    fields = {"estimate_s": run_s, "memory_mib": None, **more}
    return Job(job_id, submit_s, run_s, processors, line=job_id, **fields)  # type: ignore[arg-type]


@needs_data
@pytest.mark.parametrize(("name", "processors"), REFERENCES)
@pytest.mark.parametrize("policy", ["fcfs", "easy"])
def test_the_short_way_equals_the_reference_schedules_job_by_job(name: str, processors: int, policy: str) -> None:
    jobs = trace(name)
    assert by_id(jobs, start_times(jobs, processors, backfill=policy == "easy")) == reference(name, policy)


def test_backfill_up_to_the_shadow_time_and_into_the_extra() -> None:
    # 4 processors; job 1 has 2 until 100, job 2 needs 3 then: 1 is the extra.
    jobs = [job(1, 0, 100, 2), job(2, 1, 10, 3), job(3, 2, 98), job(4, 3, 500), job(5, 3, 500)]
    assert start_times(jobs, 4, backfill=True) == [0, 100, 2, 3, 110]
    assert start_times(jobs, 4, backfill=False) == [0, 100, 100, 110, 110]


def test_the_extra_is_used_up() -> None:
    # 6 processors; job 1 has 3 until 100, job 2 needs 4 then: 2 are the extra, and 3 are free now.
    jobs = [job(1, 0, 100, 3), job(2, 1, 10, 4), job(3, 2, 500), job(4, 2, 500), job(5, 2, 500)]
    assert start_times(jobs, 6, backfill=True) == [0, 100, 2, 2, 110]


def test_times_with_decimals_are_kept() -> None:
    assert start_times([job(1, 0.5, 0.25), job(2, 0.625, 1)], 1, backfill=True) == [0.5, 0.75]


def test_a_job_that_is_larger_than_the_cluster_is_refused() -> None:
    with pytest.raises(ValueError, match="larger than the cluster"):
        start_times([job(1, 0, 1, 5)], 4, backfill=True)
    assert start_times([], 4, backfill=True) == []


def test_progress_is_told_now_and_then() -> None:
    told: list[int] = []
    start_times([job(i, i, 1) for i in range(10_000)], 1, backfill=True, tell=told.append)
    assert len(told) > 1
    assert told == sorted(told)
    assert told[-1] <= 10_000


def test_more_processors_than_those_that_run_are_never_free() -> None:
    releases = Releases()
    releases.add(5, 1, 3)
    with pytest.raises(ValueError, match="1 processors more"):
        releases.shadow(4)


# -- metrics -------------------------------------------------------------------------------------------------------


def test_metrics_are_those_computed_by_hand() -> None:
    # Waits 0, 90, 30, 0; completions 100, 94, 50, 10.
    jobs = [job(1, 10, 100, 3), job(2, 20, 4, 2), job(3, 80, 20), job(4, 120, 10, 4)]
    found = measure(jobs, [10, 110, 110, 120], cpus=5)
    assert found.jobs == 4
    assert found.makespan_s == 130 - 10
    assert found.utilisation == pytest.approx((300 + 8 + 20 + 40) / (5 * 120))
    # Sorted waits 0, 0, 30, 90; the 95th percentile is at 2.85 of 0..3: 30 + 0.85 * 60.
    assert found.wait_s == Distribution(30, 15, pytest.approx(81), pytest.approx(88.2))
    # Sorted completions 10, 50, 94, 100.
    assert found.completion_s == Distribution(63.5, 72, pytest.approx(99.1), pytest.approx(99.82))
    # 100/100; 94/10, since 4 s count as 10; 50/20; 10/10: sorted 1, 1, 2.5, 9.4.
    expected = Distribution(pytest.approx(3.475), 1.75, pytest.approx(8.365), pytest.approx(9.193))
    assert found.bounded_slowdown == expected


def test_a_slowdown_is_at_least_1_and_short_jobs_count_as_10_seconds() -> None:
    found = measure([job(1, 0, 1), job(2, 0, 0)], [0, 1], cpus=1)
    assert found.bounded_slowdown.p99 == 1


def test_nothing_but_runs_of_0_seconds_has_a_utilisation() -> None:
    found = measure([job(1, 5, 0)], [5], cpus=2)
    assert (found.makespan_s, found.utilisation) == (0, 1)


# -- capacity ------------------------------------------------------------------------------------------------------


def fit(jobs: list[Job], **cluster: int) -> tuple[list[int], int | None, list[str]]:
    faults = Faults()
    size = Cluster(nodes=3, cpus_per_node=4, **cluster)
    fitted = fitting(jobs, size, faults)
    vms = interchangeable(fitted, size)
    return [each.job_id for each in fitted], vms, [fault.message for fault in faults]


def test_without_memory_of_nodes_memory_is_not_looked_at() -> None:
    assert fit([job(1, 0, 1, 12, memory_mib=10**9)]) == ([1], 12, [])


def test_larger_jobs_than_the_cluster_are_named() -> None:
    found = fit([job(1, 0, 1, 13), job(2, 0, 1, 12)])
    assert found == ([2], 12, ["job 1 needs 13 processors, and the cluster has 12 processors"])


def test_vms_of_no_known_memory_have_their_share_of_a_node() -> None:
    assert fit([job(1, 0, 1, 12)], memory_per_node_mib=4095) == ([1], 12, [])


def test_different_vms_with_at_most_their_share_are_never_short_of_memory() -> None:
    jobs = [job(1, 0, 1, 12, memory_mib=1024), job(2, 0, 1, memory_mib=512)]
    assert fit(jobs, memory_per_node_mib=4096) == ([1, 2], 12, [])


def test_equal_vms_with_more_than_their_share_are_counted() -> None:
    small, large = job(1, 0, 1, 6), job(2, 0, 1, 7)
    ids, vms, messages = fit([small, large], memory_per_node_mib=4096, memory_per_vm_mib=2000)
    assert (ids, vms) == ([1], 6)
    assert messages == ["job 2 needs 7 processors, and the cluster has room for 6 VMs with that much memory"]


def test_a_vm_that_no_node_can_host_is_named() -> None:
    ids, vms, messages = fit([job(1, 0, 1, memory_mib=4097), job(2, 0, 1, memory_mib=1024)], memory_per_node_mib=4096)
    assert (ids, vms) == ([2], 12)
    assert messages == ["a VM of job 1 needs 4097 MiB, and a node has 4096"]


def test_different_vms_of_which_some_have_more_than_their_share_are_not_counted() -> None:
    jobs = [job(1, 0, 1, memory_mib=1025), job(2, 0, 1, memory_mib=512)]
    assert fit(jobs, memory_per_node_mib=4096) == ([1, 2], None, [])
