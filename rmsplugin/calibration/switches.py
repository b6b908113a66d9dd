"""Switches: the durations of real context switches, beside their best, and beside pool after pool. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """A step that is done. ``needs``: the indices of the steps that it waited for, all before this one.

    ``began`` and ``ended`` are the times of its operation, in seconds since the epoch.
    """

    began: float
    ended: float
    needs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SwitchTimes:
    """The durations of a context switch, in seconds.

    Attributes:
        makespan_s: from the first step's beginning to the last one's end.
        critical_path_s: of the longest chain of steps that wait for each other, with the durations that they had: the
            duration if each step began at its earliest moment.
        by_pools_s: the duration if each pool began at the end of the one before it, as in the papers; a step is in the
            pool after the pools of the steps that it waits for.
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
