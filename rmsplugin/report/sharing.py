"""Sharing: the time that each job lost because its VMs shared CPUs, as far as the observed demands tell.

VMs that together demand more CPUs than their node has get less, each by the same part of its demand; the simulated
hypervisor shares in the same way. The CPU seconds that a VM demanded and did not get, over all its CPUs, are the time
that it lost; a job is as slow as the slowest of its VMs. Whole columns are computed at once: the loads of all nodes are
one sum over all changes, and the loss of a CPU in a span is the difference of two places of another sum. The
computation goes through windows of time, none with more samples than can be looked at together; each window begins
with the state of the VMs at its beginning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmsplugin.report.columns import Actions, Codes, Flags, Floats, Ints, Jobs, time_key
from rmsplugin.report.lives import RUNNING, WAITING, Lives
from rmsplugin.report.samples import SLICE, Samples, VMs

#: The code of an unknown node, and the code for a value that a change leaves as it was.
_NOWHERE, _SAME = -1, -2

#: One time in so many is used to find how the times are spread.
_EVERY = 100


@dataclass(frozen=True, slots=True)
class _Runs:
    """The spans in which jobs ran, by row and time; ``counts``: the spans since the last loss, whose work was kept."""

    row: Ints
    begin: Floats
    until: Floats
    counts: Flags

    def at(self, row: Ints, time: Floats) -> tuple[Ints, Flags]:
        """The run of each of these jobs at a time, and whether there is one; a time before a run is not in it."""
        origin = min(float(self.begin.min()), float(time.min(initial=np.inf)))
        keys = time_key(self.row, self.begin - origin)
        place = np.maximum(np.searchsorted(keys, time_key(row, time - origin), side="right") - 1, 0)
        return place, (self.row[place] == row) & (self.begin[place] <= time) & (time < self.until[place])


@dataclass(frozen=True, slots=True)
class _Changes:
    """The state of a VM from a time on, until its next change or the end of its run; _SAME: as before.

    Attributes:
        vm: its number (samples.VMs).
        run: the place of the run in ``_Runs``.
        time: seconds since the epoch, not before the run.
        node: code of its node.
        centi_cpus: its demand.
    """

    vm: Ints
    run: Ints
    time: Floats
    node: Codes
    centi_cpus: Codes

    def __getitem__(self, chosen: Flags | slice) -> _Changes:
        return _Changes(*(getattr(self, name)[chosen] for name in self.__slots__))


def slowed_s(
    jobs: Jobs, lives: Lives, vms: VMs, arrivals: Actions, samples: Samples, host_cpus: Mapping[str, int]
) -> Floats:
    """The seconds that each job would have run less on CPUs of its own, since its last loss.

    Args:
        jobs: of the report.
        lives: the lives of these jobs.
        vms: the VMs of these jobs.
        arrivals: at least the actions that brought their VMs to nodes (``hosts.ARRIVALS``).
        samples: observed demands; until the first one, a VM demands what it requested.
        host_cpus: CPUs of the nodes by name; on other nodes, VMs are taken to have lost nothing.
    """
    cpus = np.array([host_cpus.get(name, 0) for name in arrivals.nodes.words], dtype=np.int64)
    runs = _runs(lives, len(jobs))
    if not cpus.any() or not len(runs.row):
        return np.zeros(len(jobs))
    booked = 100 * vms.cpus
    begins = _begins(runs, vms, arrivals, booked)
    moves = _moves(runs, vms, arrivals)
    of_vm = np.zeros(len(vms))
    going_on = begins[:0]
    edges = _edges(samples.time, begins.time)
    for begin, until in pairwise(edges):
        demands = _demands(runs, vms, samples.between(begin, until), booked)
        parts = (each[(each.time >= begin) & (each.time < until)] for each in (begins, moves, demands))
        changes = _joined(going_on, *parts)
        lost_s = _lost(changes, runs, cpus, until)
        kept = runs.counts[changes.run]
        lost_s *= changes.centi_cpus / booked[changes.vm]
        of_vm += np.bincount(changes.vm[kept], weights=lost_s[kept], minlength=len(vms))
        going_on = _going_on(changes, runs, until)
    return np.minimum(np.maximum.reduceat(of_vm, vms.first[:-1]), lives.work_s)


def _edges(*times: NDArray[Any]) -> list[float]:
    """The edges of windows of time that have about as many of these times each; there are not too many windows."""
    windows = sum(map(len, times)) // SLICE + 1
    some = np.concatenate([each[::_EVERY] for each in times])
    inner = np.quantile(some, np.arange(1, windows) / windows) if windows > 1 else np.empty(0)
    return [-np.inf, *np.unique(inner).tolist(), np.inf]


def _runs(lives: Lives, count: int) -> _Runs:
    last_wait = np.full(count, -np.inf)
    waits = lives.span_state == WAITING
    np.maximum.at(last_wait, lives.row[waits], lives.begin[waits])
    runs = lives.span_state == RUNNING
    row, begin = lives.row[runs], lives.begin[runs]
    return _Runs(row, begin, lives.until[runs], begin >= last_wait[row])


def _begins(runs: _Runs, vms: VMs, arrivals: Actions, booked: Ints) -> _Changes:
    """Each VM at the beginning of each run: on the node to which it was brought last, with all that it requested."""
    count = np.diff(vms.first)[runs.row]
    run = np.repeat(np.arange(len(runs.row)), count)
    row = runs.row[run]
    index = np.arange(len(run)) - np.repeat(np.cumsum(count) - count, count)
    vm, time = vms.first[row] + index, runs.begin[run]
    return _Changes(vm, run, time, _where(vms, arrivals, vm, time), booked[vm].astype(np.int32))


def _where(vms: VMs, arrivals: Actions, vm: Ints, time: Floats) -> Codes:
    """The node to which each VM was brought last."""
    arrived, known = _arrived(vms, arrivals)
    if not known.any():
        return np.full(len(vm), _NOWHERE, dtype=np.int32)
    arrived, at, node = arrived[known], arrivals.ended[known], arrivals.destination[known]
    order = np.lexsort((at, arrived))
    origin = min(float(at.min()), float(time.min(initial=np.inf)))
    keys = time_key(arrived[order], at[order] - origin)
    place = np.searchsorted(keys, time_key(vm, time - origin), side="right") - 1
    last = order[np.maximum(place, 0)]
    return np.where((place >= 0) & (arrived[last] == vm), node[last], _NOWHERE).astype(np.int32)


def _arrived(vms: VMs, arrivals: Actions) -> tuple[Ints, Flags]:
    """The VM that each arrival brought, and whether its job has such a VM."""
    vm = vms.first[arrivals.row] + arrivals.vm
    return vm, vm < vms.first[arrivals.row + 1]


def _moves(runs: _Runs, vms: VMs, arrivals: Actions) -> _Changes:
    """The VMs that came to another node while their job ran."""
    vm, known = _arrived(vms, arrivals)
    run, inside = runs.at(arrivals.row, arrivals.ended)
    known &= inside
    unchanged = np.full(len(vm), _SAME, dtype=np.int32)
    return _Changes(vm, run, arrivals.ended, arrivals.destination, unchanged)[known]


def _demands(runs: _Runs, vms: VMs, samples: Samples, booked: Ints) -> _Changes:
    """The observed demands while their job ran."""
    row, time = vms.row[samples.vm].astype(np.int64), samples.time.astype(np.float64)
    run, inside = runs.at(row, time)
    unchanged = np.full(len(row), _SAME, dtype=np.int32)
    seen = np.minimum(samples.centi_cpus, booked[samples.vm]).astype(np.int32)
    return _Changes(samples.vm.astype(np.int64), run, time, unchanged, seen)[inside]


def _joined(*parts: _Changes) -> _Changes:
    """All changes by VM and time, each with node and demand; each VM's first one has both.

    Changes of one time keep their order: those of the first part come first.
    """
    vm, run, time, node, centi_cpus = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("vm", "run", "time", "node", "centi_cpus")
    )
    order = np.lexsort((time, vm))  # stable
    return _Changes(vm[order], run[order], time[order], _filled(node[order]), _filled(centi_cpus[order]))


def _filled(values: Codes) -> Codes:
    """The values, each _SAME replaced by the one before it; a VM's first change is a beginning, and is not _SAME."""
    places = np.maximum.accumulate(np.where(values == _SAME, 0, np.arange(len(values))))
    return np.asarray(values[places])


def _going_on(changes: _Changes, runs: _Runs, until: float) -> _Changes:
    """The states of VMs that go on running then, as changes of that time."""
    there = changes[np.append(changes.vm[1:] != changes.vm[:-1], True)[: len(changes.vm)]]
    there = there[runs.until[there.run] > until]
    return replace(there, time=np.full(len(there.vm), until))


def _lost(changes: _Changes, runs: _Runs, cpus: Ints, end: float) -> Floats:
    """The time that a CPU each VM demands had to wait, from each change of the VM to its next one, or ``end``."""
    goes_on = np.append((changes.vm[1:] == changes.vm[:-1]) & (changes.run[1:] == changes.run[:-1]), False)
    goes_on = goes_on[: len(changes.vm)]
    following = np.minimum(runs.until[changes.run], end)
    until = np.where(goes_on, np.append(changes.time[1:], 0.0)[: len(goes_on)], following)
    counted = np.flatnonzero((changes.node >= 0) & (cpus[changes.node] > 0) & (until > changes.time))
    node, demand = changes.node[counted], changes.centi_cpus[counted].astype(np.int64)
    nodes, times = np.concatenate((node, node)), np.concatenate((changes.time[counted], until[counted]))
    order = np.lexsort((times, nodes))
    # Whole numbers: all load that came to a node leaves it, so the next node begins with 0.
    load = np.cumsum(np.concatenate((demand, -demand))[order])
    has = 100 * cpus[nodes[order]]
    part_lost = np.where(load > has, 1.0 - has / np.maximum(load, 1), 0.0)
    lost = np.append(0.0, np.cumsum(part_lost[:-1] * np.diff(times[order])))[: len(order)]
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    found = np.zeros(len(changes.vm))
    found[counted] = lost[place[len(counted) :]] - lost[place[: len(counted)]]
    return found
