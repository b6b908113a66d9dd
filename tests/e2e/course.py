"""Course: what VMs demanded of the CPUs over a run of vjobs, and who slept, as the ledger has it; drawn as text."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

#: What is drawn is the mean of what was so many seconds apart.
_STEP_S = 5.0
#: The most CPUs that a column of signs shows; more are not drawn, but told.
_WIDEST = 16

#: Asks the ledger: a statement and its parameters.
Ask = Callable[..., list[tuple[Any, ...]]]


@dataclass(frozen=True)
class Slice:
    """Means over a slice of time: CPUs that running VMs demanded, how many ran, and how many vjobs slept or waited."""

    cpus: float
    vms: float
    asleep: float
    waiting: float


@dataclass
class _VM:
    """One VM: when it ran (``math.inf`` is not yet over), and its samples; seconds since the epoch."""

    runs: list[tuple[float, float]] = field(default_factory=list)
    samples: list[tuple[float, float]] = field(default_factory=list)  # when it was seen, CPUs

    def cpus(self, now: float) -> float | None:
        """What it demanded; None while it did not run. One of which nothing is known yet demands its one CPU."""
        began = next((begin for begin, end in self.runs if begin <= now < end), None)
        if began is None:
            return None
        known = [cpus for time, cpus in self.samples if began <= time <= now]
        return known[-1] if known else 1.0


def course(ask: Ask, jobs: Sequence[int], began: float, width_s: float) -> list[Slice]:
    """How a run of vjobs of VMs of one CPU went, in slices of time, until all have ended.

    Args:
        ask: the ledger.
        jobs: the vjobs' jobs, all of which have ended.
        began: when they were submitted, seconds since the epoch.
        width_s: of a slice.
    """
    vms = _vms(ask, jobs)
    changes = _changes(ask, jobs)
    ended = max(changes[job][-1][0] for job in jobs)
    slices = []
    for number in range(math.ceil((ended - began) / width_s)):
        moments = [began + number * width_s + (step + 0.5) * _STEP_S for step in range(round(width_s / _STEP_S))]
        demands = [[each for vm in vms if (each := vm.cpus(now)) is not None] for now in moments]
        states = [[_state(changes[job], now) for job in jobs] for now in moments]
        slices.append(
            Slice(
                cpus=sum(map(sum, demands)) / len(moments),
                vms=sum(map(len, demands)) / len(moments),
                asleep=sum(each.count("sleeping") for each in states) / len(moments),
                waiting=sum(each.count("waiting") for each in states) / len(moments),
            )
        )
    return slices


def _vms(ask: Ask, jobs: Sequence[int]) -> list[_VM]:
    """The VMs by what was done to them: one runs from the end of its boot or resume until its save or stop begins."""
    found: dict[str, _VM] = {}
    for job in jobs:
        sql = "select vm, kind, created, ended from actions where state = 'done' and vm like ? order by id"
        for name, kind, created, ended in ask(sql, f"vjob{job}-%"):
            vm = found.setdefault(name, _VM())
            if kind in ("run", "resume"):
                vm.runs.append((ended, math.inf))
            elif kind in ("suspend", "stop") and vm.runs and vm.runs[-1][1] == math.inf:
                vm.runs[-1] = (vm.runs[-1][0], created)
    for name, vm in found.items():
        sql = "select time, centi_cpus from samples where vm = ? order by time"
        vm.samples = [(float(time), centi / 100) for time, centi in ask(sql, name)]
    return list(found.values())


def _changes(ask: Ask, jobs: Sequence[int]) -> Mapping[int, list[tuple[float, str]]]:
    """When the state of each vjob changed, and to which, as events have it."""
    sql = "select time, substr(kind, 6) from events where vjob = ? and kind like 'vjob-%' order by id"
    return {job: [(float(time), str(state)) for time, state in ask(sql, str(job))] for job in jobs}


def _state(changes: Sequence[tuple[float, str]], now: float) -> str:
    return next((state for time, state in reversed(changes) if time <= now), "waiting")


def drawn(runs: Mapping[str, Sequence[Slice]], width_s: float) -> list[str]:
    """Runs side by side, a line for each slice of time: a sign for each CPU that was demanded, and the figures."""
    shown = f"{'CPUs demanded':{_WIDEST}} {'CPUs':>5} {'VMs':>5} {'asleep':>6} {'waits':>5}"
    lines = [
        "     | " + " | ".join(f"{name + ' context switches':{len(shown)}}" for name in runs).rstrip(),
        "   s | " + " | ".join(shown for _ in runs),
    ]
    for number, row in enumerate(zip_longest(*runs.values())):
        cells = [_cell(each, len(shown)) for each in row]
        lines.append(f"{number * width_s:4.0f} | {' | '.join(cells)}".rstrip())
    return lines


def _cell(each: Slice | None, width: int) -> str:
    if each is None:
        return " " * width
    signs = "#" * min(_WIDEST, round(each.cpus))
    return f"{signs:{_WIDEST}} {each.cpus:5.1f} {each.vms:5.1f} {each.asleep:6.1f} {each.waiting:5.1f}"
