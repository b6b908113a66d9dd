"""NAS Grid Benchmarks: the activity of a job's VMs that run one of the benchmarks' task graphs.

A benchmark is a graph of tasks (VEE'09 fig. 13). Each task is a computation on a VM of its own. It begins once the
tasks from which it takes data have ended, so that some VMs compute while others wait. The papers do not tell the tasks'
durations: here all tasks of a graph take the same time, and handing on data takes none.

- ED, embarrassingly distributed: no task waits for another;
- HC, helical chain: one task after the other;
- VP, visualisation pipe: a flow solver, a smoother and a renderer for each frame; each stage works on one frame after
  the other, so that three frames are in the pipe;
- MB, mixed bag: three layers, and a task takes data from those of the layer above up to its own place.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from rmsplugin.errors import WorkloadError
from rmsplugin.workload.activity import Activity, Phase

#: Stages of VP and layers of MB.
_STAGES = 3


class Benchmark(enum.StrEnum):
    """The benchmarks; each has a graph of its own."""

    ED = "ED"
    HC = "HC"
    VP = "VP"
    MB = "MB"


def needs_of(benchmark: Benchmark, tasks: int) -> list[tuple[int, ...]]:
    """For each task, in their order, the tasks that it waits for, all before it.

    Raises:
        WorkloadError: fewer than one task.
    """
    if tasks < 1:
        raise WorkloadError(f"{benchmark} has at least 1 task, not {tasks}")
    match benchmark:
        case Benchmark.ED:
            return [() for _ in range(tasks)]
        case Benchmark.HC:
            return [(task - 1,) if task else () for task in range(tasks)]
        case Benchmark.VP:
            return [_frame_needs(task) for task in range(tasks)]
        case Benchmark.MB:
            return [_layer_needs(task, width=-(-tasks // _STAGES)) for task in range(tasks)]


def _frame_needs(task: int) -> tuple[int, ...]:
    """The stage before for the same frame, and the same stage for the frame before."""
    frame, stage = divmod(task, _STAGES)
    return (*((task - _STAGES,) if frame else ()), *((task - 1,) if stage else ()))


def _layer_needs(task: int, width: int) -> tuple[int, ...]:
    """The tasks of the layer above, from the first one to the one of the same place."""
    return tuple(range(task - task % width - width, task - width + 1)) if task >= width else ()


def depth_of(benchmark: Benchmark, tasks: int) -> int:
    """The length of its longest chain of tasks: a job with a VM for each task runs for so many times of a task.

    Raises:
        WorkloadError: fewer than one task.
    """
    return max(_begins(needs_of(benchmark, tasks))) + 1


def nas_grid(benchmark: Benchmark, vms: int, task_s: float, idle_cpus: float = 0.0) -> Activity:
    """The activity of so many VMs, each with one task.

    Args:
        benchmark: the benchmark.
        vms: at least 1.
        task_s: the duration of a task at full speed, in seconds, above 0.
        idle_cpus: what a VM demands while its task does not compute; less than a whole CPU.

    Raises:
        WorkloadError: fewer than one VM, or a task that takes no time.
    """
    if not task_s > 0:
        raise WorkloadError(f"a task takes more than 0 s, not {task_s}")
    begins = _begins(needs_of(benchmark, vms))
    return tuple(
        Phase(task_s, tuple(1.0 if begin == step else idle_cpus for begin in begins)) for step in range(max(begins) + 1)
    )


def _begins(needs: Sequence[tuple[int, ...]]) -> list[int]:
    """The beginning of each task, in times of a task."""
    begins: list[int] = []
    for each in needs:
        begins.append(max((begins[need] + 1 for need in each), default=0))
    return begins
