"""Workload: makes a workload for simulation from the history of a ledger: each job, and its real course.

A job is there from its first submission, and runs for its run time since its last loss, without its sleeps. Times
are seconds since the first submission.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rmsplugin.model.operation import OperationKind
from rmsplugin.report.columns import Floats, Jobs
from rmsplugin.report.ledger import LedgerReader
from rmsplugin.report.lives import ENDED, RUNNING, WAITING, Lives, lives_of
from rmsplugin.report.replay import UNLIMITED_S
from rmsplugin.simulation.measured import Measured, Went
from rmsplugin.workload.activity import Activity, Phase
from rmsplugin.workload.faults import FaultCode, Faults
from rmsplugin.workload.jobs import Job, Workload

#: The samples of one VM: the time (seconds since the epoch), and the CPUs that it demanded from then on.
_Seen = list[tuple[float, float]]

#: A shorter span is no phase of its own.
_LEAST_S = 0.001


@dataclass(frozen=True, slots=True)
class History:
    """A workload from a ledger.

    Attributes:
        workload: its jobs.
        activity: the activity of the jobs whose demands were observed, by job id.
        measured: the courses of the operations on them; None where they were not asked for.
    """

    workload: Workload
    activity: Mapping[int, Activity]
    measured: Measured | None = None


def history_of(
    reader: LedgerReader,
    until: float,
    *,
    window_s: float,
    measured: bool = False,
    limits_s: Callable[[Jobs], Floats] | None = None,
    unpreemptible: Collection[str] = (),
) -> History:
    """Read a workload.

    Args:
        reader: of the ledger, until then.
        until: the time of the reading, seconds since the epoch.
        window_s: a demand is recorded to fall so long after the VM's activity fell.
        measured: whether the courses of operations are read, too; activity is then the observed demand, at its times.
        limits_s: tells the time limits of jobs, NaN for an unknown one; None: all are unknown.
        unpreemptible: partitions whose jobs may not be suspended.

    Raises:
        ReportError: the ledger knows no such partition.
        LedgerError: the ledger cannot be read.
    """
    reader.require("partition", sorted(unpreemptible))
    jobs = reader.jobs(0.0)
    lives = lives_of(jobs, reader.operations(jobs), until)
    faults = Faults()
    rows = [row for row in range(len(jobs)) if _ran(jobs, lives, row, faults)]
    rows.sort(key=lambda row: float(jobs.submit[row]))
    if not rows:
        nothing = Workload([], {}, faults, len(jobs), 0, 0, 0, records="jobs")
        return History(nothing, {}, Measured() if measured else None)
    begin = float(jobs.submit[rows[0]])
    limits = np.full(len(jobs), np.nan) if limits_s is None else limits_s(jobs)
    pinned = [word in unpreemptible for word in jobs.partitions.words]
    found = [_job(jobs, lives, row, begin, float(limits[row]), not pinned[jobs.partition[row]]) for row in rows]
    header = {"UnixStartTime": [str(int(begin))]}
    workload = Workload(found, header, faults, len(jobs), 0, 0, int(np.isnan(limits[rows]).sum()), records="jobs")
    activity = _activity(reader, jobs, lives, rows, 0.0 if measured else window_s)
    return History(workload, activity, _measured(reader) if measured else None)


def _measured(reader: LedgerReader) -> Measured:
    """The courses of operations on vjobs, for each vjob since it last began anew, or went back to a checkpoint."""
    found: dict[int, dict[OperationKind, list[Went]]] = defaultdict(lambda: defaultdict(list))
    for job_id, kind, went in reader.durations():
        if kind is OperationKind.RESTART:
            found.pop(job_id, None)
        else:
            found[job_id][kind].append(went)
    return Measured({(job_id, kind): each for job_id, kinds in found.items() for kind, each in kinds.items()})


def _ran(jobs: Jobs, lives: Lives, row: int, faults: Faults) -> bool:
    """Whether a job ran and has ended; a fault is added for a job that has not."""
    if lives.ended[row] and lives.work_s[row] > 0:
        return True
    if lives.state[row] == ENDED:
        faults.add(0, FaultCode.NEVER_RAN, f"job {jobs.name(row)} ended before it ran")
    else:
        doing = {WAITING: "waits", RUNNING: "runs"}.get(int(lives.state[row]), "sleeps")
        faults.add(0, FaultCode.NOT_ENDED, f"job {jobs.name(row)} has not ended: it {doing}")
    return False


def _job(jobs: Jobs, lives: Lives, row: int, begin: float, limit_s: float, preemptible: bool) -> Job:
    run_s = round(float(lives.work_s[row]), 3)
    return Job(
        job_id=int(jobs.job_id[row]),
        submit_s=round(float(jobs.submit[row]) - begin, 3),
        run_s=run_s,
        processors=int(jobs.vms[row] * jobs.cpus[row]),  # a workload's VMs are of one size: that of the larger ones
        estimate_s=limit_s if 0 < limit_s < np.inf else run_s if limit_s != np.inf else UNLIMITED_S,
        memory_mib=int(jobs.memory_mib[row]),
        line=0,
        cpus_per_vm=int(jobs.cpus[row]),
        preemptible=preemptible,
        user=jobs.users.words[jobs.user[row]],
        partition=jobs.partitions.words[jobs.partition[row]],
        # A ledger has no labels of jobs.
        wishes=frozenset(jobs.wishes.words[jobs.wish[row]].split()) - {"labelled"},
        switches=int(jobs.switches[row]),
    )


def _activity(
    reader: LedgerReader, jobs: Jobs, lives: Lives, rows: Sequence[int], window_s: float
) -> dict[int, Activity]:
    """The observed activity of jobs' VMs."""
    wanted = dict(zip(jobs.job_id[rows].tolist(), rows, strict=True))
    seen: dict[int, dict[int, _Seen]] = defaultdict(lambda: defaultdict(list))
    for columns in reader.samples(float(jobs.submit[rows].min())):
        for job_id, vm, time, centi_cpus in zip(*(column.tolist() for column in columns), strict=True):
            if job_id in wanted:
                seen[job_id][vm].append((time, centi_cpus / 100))
    found = {}
    for job_id, vms in seen.items():
        row = wanted[job_id]
        phases = _phases(vms, _runs(lives, row), int(jobs.vms[row]), int(jobs.cpus[row]), window_s)
        if phases:
            found[job_id] = phases
    return found


def _runs(lives: Lives, row: int) -> list[tuple[float, float]]:
    """The spans in which a job ran since its last loss."""
    runs: list[tuple[float, float]] = []
    for span in range(int(lives.first[row]), int(lives.first[row + 1])):
        if lives.span_state[span] == WAITING:
            runs = []
        elif lives.span_state[span] == RUNNING:
            runs.append((float(lives.begin[span]), float(lives.until[span])))
    return runs


def _phases(
    seen: Mapping[int, _Seen], runs: Sequence[tuple[float, float]], vms: int, cpus: int, window_s: float
) -> Activity:
    """The phases of a job's work, from the demands of its VMs."""
    changes = [change for vm, samples in seen.items() for change in _changes(vm, samples, runs, float(cpus), window_s)]
    changes.sort(key=lambda change: change[0])  # stable: of changes of one instant the last counts
    whole_s = sum(until - begin for begin, until in runs)
    using = [float(cpus)] * vms
    found: list[Phase] = []
    for number, (after_s, vm, demand) in enumerate(changes):
        using[vm] = demand
        ends_s = changes[number + 1][0] if number + 1 < len(changes) else whole_s
        if ends_s - after_s >= _LEAST_S:
            _add(found, ends_s - after_s, tuple(using))
    return tuple(found)


def _changes(
    vm: int, samples: _Seen, runs: Sequence[tuple[float, float]], cpus: float, window_s: float
) -> Iterator[tuple[float, int, float]]:
    """The amounts of work after which a VM's demand changes; a VM that boots or resumes demands what it requested."""
    done_s = 0.0
    for begin, until in runs:
        now, after_s = cpus, done_s
        yield after_s, vm, now
        for time, demand in samples:
            if begin <= time < until:
                since = time - window_s if demand < now else time
                now, after_s = min(demand, cpus), max(after_s, done_s + since - begin)
                yield after_s, vm, now
        done_s += until - begin


def _add(phases: list[Phase], work_s: float, cpus: tuple[float, ...]) -> None:
    """Add a phase, or lengthen the last one if the activity of the VMs has not changed."""
    if phases and phases[-1].cpus == cpus:
        work_s += phases.pop().work_s
    phases.append(Phase(work_s, cpus))
