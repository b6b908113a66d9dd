"""A workstation: how its jobs share memory, CPU and paging disk. The paging model is ours (docs/reproduction.md).

Memory. Jobs that demand more than the user memory together have the same part of their demands in memory, as pages are
replaced without regard to whose they are; or equal shares, so that the largest are short first (the paper's [6]). In
``sweep_s`` seconds of CPU time a job visits as many pages as it has; a visited page is missing with the probability of
the missing part of its pages. Each missing page is a fault, of 10 ms.

CPU and disk. Jobs take turns on the CPU; one that waits for a page leaves it to the others. The disk serves one fault
at a time. So the speeds of jobs are equal, as far as none is held up by its own faults, the disk, or the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

PAGE_MB = 4 / 1024
FAULT_S = 0.010
CONTEXT_SWITCH_S = 0.0001


@dataclass(frozen=True, slots=True)
class Paging:
    """What is not published of the paper's model.

    Args:
        sweep_s: seconds of CPU time in which a job visits as many pages as it has.
        memory: who is short of memory: all by the same part, or the largest first (``equal`` shares).
        overlaps: whether others compute while one waits for a page.
        quantum_s: a turn on the CPU.
    """

    sweep_s: float = 10.0
    memory: Literal["equal", "proportional"] = "proportional"
    overlaps: bool = True
    quantum_s: float = 0.1


@dataclass(frozen=True, slots=True)
class Speed:
    """How a job fares: each second, so much of its work is done (CPU seconds), and so much is waited for pages."""

    work: float
    paging: float
    faults_per_s: float
    stalled: float  # the share of time without its pages, the wait for the disk included


def resident_mb(demands_mb: Sequence[float], user_mb: float, paging: Paging) -> list[float]:
    """How much of each demand is in memory."""
    total = sum(demands_mb)
    if total <= user_mb:
        return list(demands_mb)
    if paging.memory == "proportional":
        return [demand * user_mb / total for demand in demands_mb]
    resident = [0.0] * len(demands_mb)
    left_mb, left = user_mb, len(demands_mb)
    for number in sorted(range(len(demands_mb)), key=lambda each: demands_mb[each]):
        resident[number] = min(demands_mb[number], left_mb / left)
        left_mb -= resident[number]
        left -= 1
    return resident


def faults_per_cpu_s(demand_mb: float, resident: float, paging: Paging) -> float:
    """Faults that a job has in a second of its CPU time."""
    missing = max(0.0, 1.0 - resident / demand_mb)
    return demand_mb / PAGE_MB / paging.sweep_s * missing


def speeds(demands_mb: Sequence[float], user_mb: float, paging: Paging) -> list[Speed]:
    """How the jobs of a workstation fare together, by their demands."""
    resident = resident_mb(demands_mb, user_mb, paging)
    faults = [faults_per_cpu_s(*each, paging) for each in zip(demands_mb, resident, strict=True)]
    busy = 1.0 + (CONTEXT_SWITCH_S / paging.quantum_s if len(demands_mb) > 1 else 0.0)
    waits = [each * FAULT_S for each in faults]
    if paging.overlaps:
        work, starved = _overlapped(waits, busy)
    else:
        work, starved = [1.0 / len(waits) / (busy + wait) for wait in waits], [False] * len(waits)
    return [
        Speed(
            done,
            done * wait,
            done * rate,
            1.0 - done * busy if is_starved else done * wait,
        )
        for done, wait, rate, is_starved in zip(work, waits, faults, starved, strict=True)
    ]


def _overlapped(waits: Sequence[float], busy: float) -> tuple[list[float], list[bool]]:
    """Equal speeds, raised until the CPU is busy; those that page stop earlier, when the disk or they themselves are.

    Returns:
        The speeds, and who is held up by faults rather than by the CPU.
    """
    work = [0.0] * len(waits)
    starved = [False] * len(waits)
    active = set(range(len(waits)))
    while active:
        level = max(work[each] for each in active)
        cpu_left = 1.0 - busy * sum(work)
        disk_left = 1.0 - sum(done * wait for done, wait in zip(work, waits, strict=True))
        paging = sum(waits[each] for each in active)
        step_cpu = cpu_left / (busy * len(active))
        step_disk = disk_left / paging if paging > 0 else float("inf")
        caps = {each: 1.0 / (busy + waits[each]) - level for each in active}
        step = max(0.0, min(step_cpu, step_disk, *caps.values()))
        for each in active:
            work[each] += step
        if step_cpu <= step:
            return work, starved
        held = {each for each in active if caps[each] <= step or (step_disk <= step and waits[each] > 0)}
        for each in held:
            starved[each] = waits[each] > 0
        active -= held
    return work, starved
