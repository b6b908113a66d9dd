"""Switches: how long real context switches took, beside what they take at best, and pool after pool. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """A step that is done. ``needs`` are indices of the steps, all before this one, that it waited for.

    ``began`` and ``ended`` are those of its operation, in seconds since the epoch.
    """

    began: float
    ended: float
    needs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SwitchTimes:
    """How long a context switch took, in seconds.

    Attributes:
        makespan_s: from the first step's beginning to the last one's end.
        critical_path_s: of the longest chain of steps that wait for each other, with the durations that they had: what
            remains if each begins in the moment in which it may.
        by_pools_s: each pool begins when the one before it has ended, as in the papers; a step is in the pool after
            those of the steps that it waits for.
    """

    makespan_s: float
    critical_path_s: float
    by_pools_s: float


def times_of(steps: Sequence[MeasuredStep]) -> SwitchTimes:
    """The times of a context switch all of whose steps are done; all 0 where there are none."""
    chains: list[float] = []
    pools: list[int] = []
    longest_s: dict[int, float] = {}
    for step in steps:
        seconds = max(0.0, step.ended - step.began)
        chains.append(seconds + max((chains[need] for need in step.needs), default=0.0))
        pools.append(1 + max((pools[need] for need in step.needs), default=-1))
        longest_s[pools[-1]] = max(longest_s.get(pools[-1], 0.0), seconds)
    if not steps:
        return SwitchTimes(0.0, 0.0, 0.0)
    makespan_s = max(step.ended for step in steps) - min(step.began for step in steps)
    return SwitchTimes(makespan_s, max(chains), sum(longest_s.values()))
