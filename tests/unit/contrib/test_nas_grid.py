"""NAS Grid Benchmarks: who computes when."""

from __future__ import annotations

import pytest

from rmsplugin.errors import WorkloadError
from rmsplugin.workload.activity import cpu_s
from rmsplugin.workload.nas_grid import Benchmark, depth_of, nas_grid


def computing(benchmark: Benchmark, vms: int) -> list[list[int]]:
    """For each phase the VMs that compute."""
    return [[vm for vm in range(vms) if phase.of(vm)] for phase in nas_grid(benchmark, vms, 60)]


def test_all_vms_of_ed_compute_all_the_time() -> None:
    assert computing(Benchmark.ED, 4) == [[0, 1, 2, 3]]


def test_the_vms_of_hc_compute_one_after_the_other() -> None:
    assert computing(Benchmark.HC, 3) == [[0], [1], [2]]


def test_the_frames_of_vp_go_through_the_pipe_one_after_the_other() -> None:
    assert computing(Benchmark.VP, 9) == [[0], [1, 3], [2, 4, 6], [5, 7], [8]]


def test_the_layers_of_mb_compute_one_after_the_other() -> None:
    assert computing(Benchmark.MB, 9) == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


@pytest.mark.parametrize("benchmark", Benchmark)
@pytest.mark.parametrize("vms", [1, 2, 5, 9, 20])
def test_each_vm_has_one_task(benchmark: Benchmark, vms: int) -> None:
    activity = nas_grid(benchmark, vms, 30)
    assert len(activity) == depth_of(benchmark, vms)
    assert cpu_s(activity, vms) == 30 * vms
    assert all(sum(phase.of(vm) for phase in activity) == 1 for vm in range(vms))


def test_nothing_is_made_of_no_vms_or_no_time() -> None:
    with pytest.raises(WorkloadError, match="at least 1 task, not 0"):
        nas_grid(Benchmark.HC, 0, 30)
    with pytest.raises(WorkloadError, match="more than 0 s, not 0"):
        nas_grid(Benchmark.HC, 2, 0)


def test_a_vm_whose_task_does_not_compute_demands_what_is_said() -> None:
    assert {cpus for phase in nas_grid(Benchmark.HC, 3, 60, 0.05) for cpus in phase.cpus} == {1.0, 0.05}
    assert {cpus for phase in nas_grid(Benchmark.HC, 3, 60) for cpus in phase.cpus} == {1.0, 0.0}
