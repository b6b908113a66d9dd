"""Jobs: the simulated part of a trace. A job of P processors is a vjob of P VMs of one CPU each.

The rules by which a record becomes a job:

- processors: those that were allocated, else those that were requested;
- estimate: the requested time; where it is not known (or 0), the run time itself, as if the user had known it;
- the run time stays as it is, also where it is longer than the estimate: the work of a job is never cut;
- memory: the requested memory of each processor, else the used memory, else not known;
- the average CPU time is not believed where it is the same for all jobs, whatever their run times: some sites fill the
  field with a constant (MetaCentrum: 1 s). Then it is unknown for all jobs;
- user, account and partition are named by the numbers of user, group and queue; the partition by its own number where
  no queue is known;
- a job that was checkpointed has one line for the whole, and then a line for each partial execution (status 2, 3,
  4); lines of partial executions are counted and not simulated;
- a job that names a preceding one is submitted after that has ended and its user has thought, not before its own
  submit time (``rmsplugin.simulation.feedback``);
- the queue is in the order of the submit times, then of the file.

Three fields of a record are not used: the wait time, which is simulated; requested processors where others were
allocated; the status, but for partial executions and jobs that were cancelled before they ran. A job that failed or was
cancelled has its real run time.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rmsplugin.model.elements import VM, VJob
from rmsplugin.model.resources import Resources
from rmsplugin.workload.faults import FaultCode, Faults
from rmsplugin.workload.record import Record, Status
from rmsplugin.workload.swf import SwfReader


class Job(NamedTuple):
    """One job of a workload. Times are seconds, whole numbers where the trace has whole numbers."""

    job_id: int
    submit_s: float
    run_s: float
    processors: int
    estimate_s: float  # the user's estimate, above 0 unless the job runs for 0 s
    memory_mib: int | None  # of each VM; None: not known
    line: int  # of the trace, from 1
    average_cpu_s: float | None = None  # CPU time used by each processor; None: not known
    cpus_per_vm: int | None = None  # None: as the cluster's VMs; else ``memory_mib`` is of such a VM
    preemptible: bool = True  # whether it may be suspended and moved
    user: str = ""  # like account and partition: empty where unknown
    account: str = ""
    partition: str = ""
    program: str = ""  # the number of the executable, likewise
    used_mib: int | None = None  # of each VM, as ``memory_mib``, when it ran; None: not known
    wishes: frozenset[str] = frozenset()  # of its user about VMs beside each other; these two as ``Geometry`` has them
    switches: int = 0

    @property
    def wishing(self) -> bool:
        """Whether its user wishes anything about VMs beside each other."""
        return bool(self.wishes or self.switches)


#: With fewer jobs that have an average CPU time, it may be the same by chance.
_FEW = 10


class MemoryUnit(enum.StrEnum):
    """The unit of a trace's memory fields."""

    KIB_PER_PROCESSOR = "kib-per-processor"  # as the format says
    BYTES_PER_JOB = "bytes-per-job"  # as some traces have it, MetaCentrum's for one


@dataclass(frozen=True, slots=True)
class Workload:
    """The jobs of a trace in the order of the queue, and the counts of its other lines.

    Attributes:
        jobs: in the order of the queue.
        header: the values of each ``; Key: value`` line, by key.
        faults: lines that are no jobs.
        lines: the number of all lines of the trace.
        partial: the number of lines for partial executions of jobs that have another line for the whole.
        extended: the number of lines with more than 18 fields, whose further fields were not read.
        unestimated: the number of jobs without a requested time.
        disbelieved: the number of jobs whose average CPU time was not believed, and is unknown.
        disbelieved_cpu_s: this disbelieved time.
        records: the word for what ``lines`` counts: lines of a trace, or jobs of a ledger.
        following: by job id, for jobs that name a preceding one: its id, and the think time in seconds.
    """

    jobs: list[Job]
    header: dict[str, list[str]]
    faults: Faults
    lines: int
    partial: int
    extended: int
    unestimated: int
    disbelieved: int = 0
    disbelieved_cpu_s: float = 0.0
    records: str = "lines"
    following: Mapping[int, tuple[int, float]] = field(default_factory=dict)


def read_workload(blocks: Iterable[bytes], memory_unit: MemoryUnit = MemoryUnit.KIB_PER_PROCESSOR) -> Workload:
    """Make jobs of the bytes of a trace.

    Args:
        blocks: the bytes in pieces of any size, not compressed.
        memory_unit: the unit of the memory fields.

    Raises:
        WorkloadError: a line without end; such a file is no trace.
    """
    reader = SwfReader(blocks)
    memory = _MEMORY[memory_unit]
    faults = reader.faults
    jobs: list[Job] = []
    seen: dict[int, int] = {}  # line by job number
    partial: list[tuple[int, int]] = []  # line and job number
    unestimated = 0
    names = _Names()
    following: dict[int, tuple[int, float]] = {}
    for line, record in reader:
        job_id = record.job_id
        if 2 <= record.status <= 4:
            partial.append((line, job_id))
            continue
        first = seen.setdefault(job_id, line)
        if first != line and job_id >= 0:
            faults.add(line, FaultCode.REPEATED, f"job {job_id} is on line {first} already")
            continue
        processors = record.allocated_processors
        if processors <= 0:
            processors = record.requested_processors
        if job_id < 0 or record.submit_s < 0 or record.run_s <= 0 or processors <= 0:
            fault = _fault(record, processors)
            if fault is not None:
                faults.add(line, *fault)
                continue
        if record.preceding_job > 0:
            following[job_id] = (record.preceding_job, max(0, record.think_s))
        estimate_s = record.requested_s
        if estimate_s <= 0:
            estimate_s = record.run_s
            unestimated += 1
        cpu_s = record.average_cpu_s if record.average_cpu_s > 0 else None
        used_mib = memory(record.used_memory_kib, processors)
        memory_mib = memory(record.requested_memory_kib, processors) or used_mib
        partition = record.partition if record.queue < 0 else record.queue
        whose = (names[record.user], names[record.group], names[partition])
        given = (job_id, record.submit_s, record.run_s, processors, estimate_s, memory_mib, line, cpu_s)
        jobs.append(Job(*given, None, True, *whose, names[record.executable], used_mib))
    alone = [(line, job_id) for line, job_id in partial if job_id not in seen]
    for line, job_id in alone:
        faults.add(line, FaultCode.PARTIAL, f"is a partial execution of job {job_id}, of which no line tells the whole")
    jobs.sort(key=lambda job: job.submit_s)  # stable: then the order of the file
    disbelieved = _filled_in(jobs)
    if disbelieved:
        jobs = [job._replace(average_cpu_s=None) for job in jobs]
    few, value = disbelieved or (0, 0.0)
    counted = (reader.lines, len(partial) - len(alone), reader.extended, unestimated, few, value)
    return Workload(jobs, reader.header, faults, *counted, following=following)


class _Names(dict[int, str]):
    """The names of numbers; an unknown number has no name. Many jobs share each name."""

    def __missing__(self, number: int) -> str:
        name = self[number] = "" if number < 0 else str(number)
        return name


def _filled_in(jobs: Sequence[Job]) -> tuple[int, float] | tuple[()]:
    """The number of jobs whose average CPU time is a mere constant, and that constant; nothing if it is believable."""
    known = [job for job in jobs if job.average_cpu_s is not None]
    values = {job.average_cpu_s for job in known}
    if len(known) < _FEW or len(values) > 1 or len({job.run_s for job in known}) == 1:
        return ()
    return len(known), values.pop() or 0.0


def _fault(record: Record, processors: int) -> tuple[FaultCode, str] | None:
    """The reason why a record is no job, if it is none."""
    job = f"job {record.job_id}"
    if record.job_id < 0:
        return FaultCode.NO_JOB_NUMBER, "has no job number"
    if record.submit_s < 0:
        return FaultCode.NO_SUBMIT_TIME, f"{job} has no submit time"
    if record.status == Status.CANCELLED and record.run_s <= 0:
        return FaultCode.CANCELLED, f"{job} was cancelled before it started"
    if record.run_s < 0:
        return FaultCode.NO_RUN_TIME, f"{job} has no run time"
    if processors <= 0:
        return FaultCode.NO_PROCESSORS, f"{job} has no processors, neither allocated nor requested"
    return None


def _kib_per_processor(kib: float, processors: int) -> int | None:
    return math.ceil(kib / 1024) if kib > 0 else None


def _bytes_per_job(amount: float, processors: int) -> int | None:
    return math.ceil(amount / processors / 2**20) if amount > 0 else None


_MEMORY = {MemoryUnit.KIB_PER_PROCESSOR: _kib_per_processor, MemoryUnit.BYTES_PER_JOB: _bytes_per_job}


def vjob_of(job: Job, *, default_memory_mib: int, ran_s: float = 0.0) -> VJob:
    """The vjob of a job: named by its number, a VM of one CPU for each processor, its estimate as time limit.

    Args:
        job: the job.
        default_memory_mib: memory of a VM where the trace has none.
        ran_s: its run time so far, in seconds.
    """
    demand = Resources(1, default_memory_mib if job.memory_mib is None else job.memory_mib)
    vms = tuple(VM(f"{job.job_id}-{index}", demand) for index in range(job.processors))
    return VJob(str(job.job_id), vms, time_limit_s=job.estimate_s, ran_s=ran_s)
