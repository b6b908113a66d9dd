"""The workload of ICDCS'02: programs (tables 1 and 2), and traces of their submissions (section 3.3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

Arrivals = Literal["lognormal", "uniform"]


@dataclass(frozen=True, slots=True)
class Program:
    """A program as the paper measured it by itself.

    Args:
        name: of the program.
        most_mb: the most memory that it demands.
        lifetime_s: how long it takes; all of it is CPU time.
        least_mb: what it demands at first; None: the paper gives only the most.
    """

    name: str
    most_mb: float
    lifetime_s: float
    least_mb: float | None = None


@dataclass(frozen=True)
class Group:
    """A workload group, and the cluster on which it runs.

    Args:
        name: of its traces.
        programs: which are submitted, each as often as the others.
        memory_mb: of a workstation.
    """

    name: str
    programs: Sequence[Program]
    memory_mb: float


SPEC = Group(
    "SPEC",
    (
        Program("apsi", 196.0, 2619.0),
        Program("gcc", 145.0, 228.0),
        Program("gzip", 195.0, 249.0),
        Program("mcf", 80.0, 969.0),
        Program("vortex", 115.0, 345.0),
        Program("bzip", 200.0, 403.0),
    ),
    384.0,
)

#: Where the paper gives one number for the working set, it is what the program demands from its begin to its end.
APP = Group(
    "App",
    (
        Program("bit-r", 64.22, 192.26, 64.22),
        Program("m-sort", 64.27, 82.76, 64.27),
        Program("m-m", 66.37, 4902.29, 66.37),
        Program("t-sim", 4.64, 41.63, 4.64),
        Program("metis", 4.30, 124.41, 1.37),
        Program("r-sphere", 39.66, 318.64, 36.84),
        Program("r-wing", 23.39, 72.78, 19.53),
    ),
    128.0,
)

GROUPS = (SPEC, APP)


@dataclass(frozen=True, slots=True)
class Rate:
    """One of the five submission rates: parameters of the lognormal function (mu = sigma), jobs, and duration."""

    sigma: float
    jobs: int
    duration_s: float


RATES = (
    Rate(4.0, 359, 3586.0),
    Rate(3.7, 448, 3589.0),
    Rate(3.0, 578, 3581.0),
    Rate(2.0, 684, 3585.0),
    Rate(1.5, 777, 3582.0),
)

WORKSTATIONS = 32


@dataclass(frozen=True, slots=True)
class Submission:
    """One job of a trace: what it is, when and where it is submitted."""

    job: int
    program: Program
    at_s: float
    home: int


def trace(group: Group, rate: Rate, seed: int, arrivals: Arrivals = "lognormal") -> list[Submission]:
    """A trace: programs, times and workstations at random.

    Args:
        group: which programs.
        rate: how many jobs, and when.
        seed: the same seed gives the same trace.
        arrivals: ``lognormal`` takes the paper's function by its word, as a density over seconds, cut off at the
            duration; ``uniform`` spreads the jobs evenly over it.

    Returns:
        The jobs in order of submission.
    """
    random = np.random.default_rng((seed, rate.jobs, len(group.programs)))
    if arrivals == "lognormal":
        times_s = _lognormal(rate, random)
    else:
        times_s = random.uniform(0.0, rate.duration_s, rate.jobs).tolist()
    programs = random.integers(len(group.programs), size=rate.jobs)
    homes = random.integers(WORKSTATIONS, size=rate.jobs)
    return [
        Submission(number, group.programs[program], at_s, int(home))
        for number, (at_s, program, home) in enumerate(zip(sorted(times_s), programs, homes, strict=True))
    ]


def _lognormal(rate: Rate, random: np.random.Generator) -> list[float]:
    """Times drawn from the density, again and again until all are within the duration."""
    found: list[float] = []
    while len(found) < rate.jobs:
        drawn = random.lognormal(rate.sigma, rate.sigma, rate.jobs)
        found += drawn[drawn <= rate.duration_s].tolist()
    return found[: rate.jobs]
