"""Sharing: what it cost each job that its VMs shared CPUs, as far as the demands that were seen tell.

VMs that together demand more CPUs than their node has get less, each by the same part of what it demands; that is how
the simulated hypervisor shares, too. The CPU seconds that a VM demanded and did not get, over all its CPUs, are the
time that it lost; a job is as slow as the slowest of its VMs. Whole columns at once: the loads of all nodes are one sum
over all changes, and what a CPU lost there in some time is the difference of two places of another sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from rmsplugin.report.columns import Actions, Codes, Flags, Floats, Ints, Jobs, time_key
from rmsplugin.report.lives import RUNNING, WAITING, Lives

#: A node that is not known, and what a change leaves as it was.
_NOWHERE, _SAME = -1, -2


@dataclass(frozen=True, slots=True)
class _Runs:
    """The spans in which jobs ran, by row and time; ``counts``: those since the last loss, whose work was kept."""

    row: Ints
    begin: Floats
    until: Floats
    counts: Flags

    def at(self, row: Ints, time: Floats) -> tuple[Ints, Flags]:
        """The run of each of these jobs at a time, and whether there is one; times before a run are not in it."""
        origin = min(float(self.begin.min()), float(time.min(initial=np.inf)))
        keys = time_key(self.row, self.begin - origin)
        place = np.maximum(np.searchsorted(keys, time_key(row, time - origin), side="right") - 1, 0)
        return place, (self.row[place] == row) & (self.begin[place] <= time) & (time < self.until[place])


@dataclass(frozen=True, slots=True)
class _Changes:
    """What a VM does from a time on, until its next change or the end of its run; _SAME: as before.

    Attributes:
        vm: a number that it has among the VMs of all jobs.
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


def slowed_s(
    jobs: Jobs,
    lives: Lives,
    arrivals: Actions,
    samples: Iterable[tuple[Ints, Codes, Floats, Floats]],
    host_cpus: Mapping[str, int],
) -> Floats:
    """How many seconds less each job would have run on CPUs of its own, since its last loss.

    Args:
        jobs: of the report.
        lives: of these.
        arrivals: at least what brought their VMs to nodes (``hosts.ARRIVALS``).
        samples: demands that were observed, see ``LedgerReader.samples``; a VM demands what it requested until then.
        host_cpus: CPUs of the nodes by name; what VMs did on others is not known, and cost nothing.
    """
    cpus = np.array([host_cpus.get(name, 0) for name in arrivals.nodes.words], dtype=np.int64)
    runs = _runs(lives, len(jobs))
    if not cpus.any() or not len(runs.row):
        return np.zeros(len(jobs))
    first = np.append(0, np.cumsum(jobs.vms))
    changes = _joined(
        _begins(jobs, runs, first, arrivals),
        _moves(jobs, runs, first, arrivals),
        *(_demands(jobs, runs, first, piece) for piece in samples),
    )
    lost_s = _lost(changes, runs, cpus)
    kept = runs.counts[changes.run]
    lost_s *= changes.centi_cpus / (100.0 * jobs.cpus[runs.row[changes.run]])
    of_vm = np.bincount(changes.vm[kept], weights=lost_s[kept], minlength=int(first[-1]))
    return np.minimum(np.maximum.reduceat(of_vm, first[:-1]), lives.work_s)


def _runs(lives: Lives, count: int) -> _Runs:
    last_wait = np.full(count, -np.inf)
    waits = lives.span_state == WAITING
    np.maximum.at(last_wait, lives.row[waits], lives.begin[waits])
    runs = lives.span_state == RUNNING
    row, begin = lives.row[runs], lives.begin[runs]
    return _Runs(row, begin, lives.until[runs], begin >= last_wait[row])


def _begins(jobs: Jobs, runs: _Runs, first: Ints, arrivals: Actions) -> _Changes:
    """Each VM at the beginning of each run: on the node where it was brought last, with all that it requested."""
    count = jobs.vms[runs.row]
    run = np.repeat(np.arange(len(runs.row)), count)
    row = runs.row[run]
    index = np.arange(len(run)) - np.repeat(np.cumsum(count) - count, count)
    vm, time = first[row] + index, runs.begin[run]
    return _Changes(vm, run, time, _where(jobs, first, arrivals, vm, time), (100 * jobs.cpus[row]).astype(np.int32))


def _where(jobs: Jobs, first: Ints, arrivals: Actions, vm: Ints, time: Floats) -> Codes:
    """The node where each VM was brought last."""
    known = arrivals.vm < jobs.vms[arrivals.row]
    if not known.any():
        return np.full(len(vm), _NOWHERE, dtype=np.int32)
    arrived, at, node = first[arrivals.row] + arrivals.vm, arrivals.ended, arrivals.destination
    arrived, at, node = arrived[known], at[known], node[known]
    order = np.lexsort((at, arrived))
    origin = min(float(at.min()), float(time.min(initial=np.inf)))
    keys = time_key(arrived[order], at[order] - origin)
    place = np.searchsorted(keys, time_key(vm, time - origin), side="right") - 1
    last = order[np.maximum(place, 0)]
    return np.where((place >= 0) & (arrived[last] == vm), node[last], _NOWHERE).astype(np.int32)


def _moves(jobs: Jobs, runs: _Runs, first: Ints, arrivals: Actions) -> _Changes:
    """The VMs that came to another node while their job ran."""
    run, known = runs.at(arrivals.row, arrivals.ended)
    known &= arrivals.vm < jobs.vms[arrivals.row]
    vm = (first[arrivals.row] + arrivals.vm)[known]
    unchanged = np.full(len(vm), _SAME, dtype=np.int32)
    return _Changes(vm, run[known], arrivals.ended[known], arrivals.destination[known], unchanged)


def _demands(jobs: Jobs, runs: _Runs, first: Ints, piece: tuple[Ints, Codes, Floats, Floats]) -> _Changes:
    """Demands that were seen while their job ran."""
    job_id, index, time, cpus = piece
    row = jobs.rows_of(job_id)
    run, inside = runs.at(row, time)
    known = (row >= 0) & inside & (index < jobs.vms[row])
    run = run[known]
    vm = first[row[known]] + index[known]
    unchanged = np.full(len(vm), _SAME, dtype=np.int32)
    seen = np.rint(100 * np.minimum(cpus, jobs.cpus[row]))[known].astype(np.int32)
    return _Changes(vm, run, time[known], unchanged, seen)


def _joined(*parts: _Changes) -> _Changes:
    """All changes by VM and time, each with node and demand; beginnings are the first part, and first of one time."""
    vm, run, time, node, centi_cpus = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("vm", "run", "time", "node", "centi_cpus")
    )
    order = np.lexsort((time, vm))  # stable
    return _Changes(vm[order], run[order], time[order], _filled(node[order]), _filled(centi_cpus[order]))


def _filled(values: Codes) -> Codes:
    """The values, each _SAME replaced by the one before it; a VM's first change is a beginning, and has none."""
    places = np.maximum.accumulate(np.where(values == _SAME, 0, np.arange(len(values))))
    return np.asarray(values[places])


def _lost(changes: _Changes, runs: _Runs, cpus: Ints) -> Floats:
    """How long a CPU that each VM demands had to wait, all in all, from each change of the VM to the next."""
    goes_on = np.append((changes.vm[1:] == changes.vm[:-1]) & (changes.run[1:] == changes.run[:-1]), False)
    goes_on = goes_on[: len(changes.vm)]
    until = np.where(goes_on, np.append(changes.time[1:], 0.0)[: len(goes_on)], runs.until[changes.run])
    counted = np.flatnonzero((changes.node >= 0) & (cpus[changes.node] > 0) & (until > changes.time))
    node, demand = changes.node[counted], changes.centi_cpus[counted].astype(np.int64)
    nodes, times = np.concatenate((node, node)), np.concatenate((changes.time[counted], until[counted]))
    order = np.lexsort((times, nodes))
    # Whole numbers: all that came to a node leaves it, and the next node begins with nothing.
    load = np.cumsum(np.concatenate((demand, -demand))[order])
    has = 100 * cpus[nodes[order]]
    part_lost = np.where(load > has, 1.0 - has / np.maximum(load, 1), 0.0)
    lost = np.append(0.0, np.cumsum(part_lost[:-1] * np.diff(times[order])))[: len(order)]
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    found = np.zeros(len(changes.vm))
    found[counted] = lost[place[len(counted) :]] - lost[place[: len(counted)]]
    return found
