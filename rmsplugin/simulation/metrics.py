"""Metrics: the worth of a schedule: wait, completion, bounded slowdown, makespan, utilisation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmsplugin.workload.jobs import Job

#: A shorter job counts as one of 10 s in the bounded slowdown: else a second of waiting would weigh too much.
SLOWDOWN_THRESHOLD_S = 10.0


@dataclass(frozen=True, slots=True)
class Distribution:
    """A value of all jobs: its mean, and its percentiles (interpolated between the two nearest jobs)."""

    mean: float
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class Metrics:
    """The worth of a schedule.

    Attributes:
        jobs: the number of jobs.
        makespan_s: from the first submission to the last end, in seconds.
        utilisation: of all CPUs over the makespan, from 0 to 1; 1 where the makespan is 0.
        wait_s: from submission to start, in seconds.
        completion_s: from submission to end (turnaround), in seconds.
        bounded_slowdown: completion to run time, of which at least 10 s are counted; at least 1.
    """

    jobs: int
    makespan_s: float
    utilisation: float
    wait_s: Distribution
    completion_s: Distribution
    bounded_slowdown: Distribution


def measure(
    jobs: Sequence[Job],
    started: Sequence[float],
    cpus: int,
    ended: Sequence[float] | None = None,
    cpu_s: float | None = None,
) -> Metrics:
    """Measure a schedule.

    Args:
        jobs: at least one.
        started: the start of each job, in seconds as in the trace.
        cpus: the CPUs of the cluster.
        ended: the end of each job's work; None: each has run without a break.
        cpu_s: the CPU seconds of all jobs; None: each has used its processors while it ran.
    """
    submit_s = np.array([job.submit_s for job in jobs], dtype=np.float64)
    run_s = np.array([job.run_s for job in jobs], dtype=np.float64)
    processors = np.array([job.processors for job in jobs], dtype=np.float64)
    start_s = np.asarray(started, dtype=np.float64)
    end_s = start_s + run_s if ended is None else np.asarray(ended, dtype=np.float64)
    completion_s = end_s - submit_s
    makespan_s = float(end_s.max() - submit_s.min())
    used_s = float((run_s * processors).sum()) if cpu_s is None else cpu_s
    slowdown = np.maximum(completion_s / np.maximum(run_s, SLOWDOWN_THRESHOLD_S), 1.0)
    return Metrics(
        jobs=len(jobs),
        makespan_s=makespan_s,
        utilisation=used_s / (cpus * makespan_s) if makespan_s else 1.0,
        wait_s=_distribution(start_s - submit_s),
        completion_s=_distribution(completion_s),
        bounded_slowdown=_distribution(slowdown),
    )


def _distribution(values: NDArray[Any]) -> Distribution:
    p50, p95, p99 = (float(value) for value in np.percentile(values, (50, 95, 99)))
    return Distribution(float(values.mean()), p50, p95, p99)
