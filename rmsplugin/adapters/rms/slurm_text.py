"""Slurm text: what the Slurm commands print, read into our values. Pure: text in, values out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from rmsplugin.adapters.rms.base import HELD_DEPENDENCY, JobState, RmsJob, RmsNode, RmsPartition
from rmsplugin.model.hostlist import expand

#: A job with dependencies is not held, because Slurm would not look at them; it is kept back by a begin time this far
#: behind its user's own (or the moment it was gated). lua/rmsplugin.lua has the same number.
GATE_S = 3650 * 86400


# After a requeue Slurm itself delays a job by its credentials' lifetime (AuthInfo cred_expire, 120 s) plus one.
_REQUEUE_DELAY_S = 125

_ENDED = {
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL"),
    *("OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT"),
}
_PENDING = {"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"}

# A node that is in one of these can take no new job, and what ran on it is gone or out of reach.
_NODE_DOWN = {
    *("DOWN", "ERROR", "FUTURE", "INVAL", "NOT_RESPONDING", "NO_RESPOND", "POWERED_DOWN", "POWERING_DOWN"),
    *("POWER_DOWN", "REBOOT_ISSUED", "UNKNOWN"),
}
_NODE_DRAINING = {"DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING"}

#: What is asked of squeue, in this order. The name is the user's and may hold anything, so it comes last.
JOB_FIELDS = {
    "display_id": "%i",
    "job_id": "%A",
    "array_id": "%F",
    "task": "%K",
    "partition": "%P",
    "user": "%u",
    "uid": "%U",
    "word": "%T",
    "reason": "%r",
    "priority": "%Q",
    "cpus": "%C",
    "memory": "%m",
    "submit": "%V",
    "start": "%S",
    "end": "%e",
    "dependency": "%E",
    "nodes": "%N",
    "batch_host": "%B",
    "name": "%j",
}


@dataclass(frozen=True, slots=True)
class JobRow:
    """One row of squeue: the job, and what only the adapter needs of it."""

    job: RmsJob
    array_id: int  # of the array it belongs to; its own id if it belongs to none
    task: str  # index in the array; empty if it belongs to none
    dependency: str  # what is left to be fulfilled
    begin: int  # not before this, as Slurm has it; 0 if at once

    @property
    def gated(self) -> bool:
        """Whether it is kept back by a begin time of ours."""
        return self.begin >= self.job.submit_time + GATE_S

    @property
    def target(self) -> str:
        """What to call it in a command: the id of an array's record would mean all of its elements."""
        return f"{self.array_id}_{self.task}" if self.task else str(self.job.job_id)


def squeue_format(token: str) -> str:
    """Return the format of squeue that ``job_rows`` reads.

    Args:
        token: begins each row. Job names may hold anything, line ends too; an unguessable token cannot be forged.
    """
    return "|".join((token, *JOB_FIELDS.values()))


def job_rows(text: str, token: str, restarts: Mapping[int, int], now: int) -> list[JobRow]:
    """Read the output of ``squeue -r`` with ``squeue_format``, run with TZ=UTC and SLURM_TIME_FORMAT=%s."""
    rows = []
    for part in text.split(f"{token}|")[1:]:
        values = part.removesuffix("\n").split("|", len(JOB_FIELDS) - 1)
        fields = dict(zip(JOB_FIELDS, values, strict=True))
        rows.append(job_row(fields, restarts.get(int(fields["job_id"]), 0), now))
    return list(with_split(rows))


def job_row(fields: Mapping[str, str], restarts: int, now: int) -> JobRow:
    """Read the fields of ``JOB_FIELDS`` as squeue prints them."""
    word, submitted, starts = fields["word"], _time(fields["submit"]), _time(fields["start"])
    completing = word == "COMPLETING"
    state = _state(word, _time(fields["end"]), now)
    held = state is JobState.PENDING and fields["priority"] == "0"
    dependency = fields["dependency"].removeprefix("(null)")
    # For a job that has not started this is its begin time; without one, and not held, it is the scheduler's guess.
    waits = held or fields["reason"] in ("BeginTime", "Dependency") or starts >= submitted + GATE_S
    job = RmsJob(
        display_id=fields["display_id"],
        job_id=int(fields["job_id"]),
        partition=fields["partition"],
        user=fields["user"],
        uid=int(fields["uid"]),
        name=fields["name"],
        state=state,
        detail=word,
        reason=HELD_DEPENDENCY if held and dependency else fields["reason"],
        held=held,
        completing=completing,
        cpus=int(fields["cpus"]),
        memory_mib=_memory_mib(fields["memory"]),
        priority=int(fields["priority"]),
        submit_time=submitted,
        eligible=False,
        nodes=expand(fields["nodes"]),
        batch_host=fields["batch_host"].removeprefix("n/a"),
        restarts=restarts,
    )
    row = JobRow(
        job,
        array_id=int(fields["array_id"]),
        task=fields["task"].removeprefix("N/A"),
        dependency=dependency,
        begin=starts if state is JobState.PENDING and waits and not completing else 0,
    )
    return replace(row, job=replace(job, eligible=_eligible(row, now), held=held or row.gated))


def _state(word: str, end: int, now: int) -> JobState:
    if word == "COMPLETING":
        # The word hides whether the job has ended or was requeued. One that was requeued is to end in the future (or,
        # without a time limit, at no time).
        return JobState.ENDED if 0 < end <= now else JobState.PENDING
    if word in _ENDED:
        return JobState.ENDED
    if word in _PENDING:
        return JobState.PENDING
    if word in ("CONFIGURING", "SUSPENDED"):
        return JobState(word)
    return JobState.RUNNING  # RUNNING, RESIZING, SIGNALING, STAGE_OUT, STOPPED: its script is there


def _eligible(row: JobRow, now: int) -> bool:
    """Whether nothing but the hold, or our own gate, keeps it; ``within_array_limits`` has another word in it."""
    if row.job.state is not JobState.PENDING or row.dependency:
        return False
    begin = row.begin - GATE_S if row.gated else row.begin
    if row.job.restarts > 0 and begin <= row.job.submit_time + _REQUEUE_DELAY_S:
        return True  # that delay is Slurm's own, and ``start`` lifts it
    return begin <= now


def with_split(rows: list[JobRow]) -> Iterator[JobRow]:
    """Mark the elements of arrays that Slurm has not split off yet: they share the job id of their array."""
    shared = Counter(row.job.job_id for row in rows if row.task)
    for row in rows:
        if row.task and row.job.job_id == row.array_id and shared[row.job.job_id] > 1:
            yield replace(row, job=replace(row.job, split=False))
        else:
            yield row


def limited_arrays(rows: Iterable[JobRow]) -> set[int]:
    """Return the arrays that may have a limit on running elements which matters now: some wait."""
    return {row.array_id for row in rows if row.task and row.job.state is JobState.PENDING}


def within_array_limits(rows: Iterable[JobRow], limits: Mapping[int, int]) -> list[JobRow]:
    """Leave as many elements of each array eligible as may still run beside those that are under way."""
    rows = list(rows)
    room = Counter(limits)
    for row in rows:
        under_way = row.job.state in (JobState.RUNNING, JobState.CONFIGURING, JobState.SUSPENDED)
        released = row.job.state is JobState.PENDING and not row.job.held and row.job.eligible
        if row.array_id in limits and row.task and (under_way or released):
            room[row.array_id] -= 1
    allowed = {}
    for row in sorted(rows, key=lambda row: (row.array_id, int(row.task or 0))):
        if row.array_id in limits and row.task and row.job.held and row.job.eligible:
            allowed[row.job.display_id] = room[row.array_id] > 0
            room[row.array_id] -= 1
    return [
        row if allowed.get(row.job.display_id, True) else replace(row, job=replace(row.job, eligible=False))
        for row in rows
    ]


def array_limit(text: str) -> int:
    """Read the limit of an array's running elements from ``scontrol show job -o ARRAY``; 0 if it has none."""
    # Only what stands before the job's name is Slurm's own.
    found = [re.search(r" ArrayTaskThrottle=(\d+)", line.partition(" JobName=")[0]) for line in text.splitlines()]
    return max((int(match[1]) for match in found if match), default=0)


def restart_counts(text: str) -> dict[int, int]:
    """Read the output of ``squeue -O JobID:12,RestartCnt:12``."""
    return {int(job_id): int(count) for job_id, count in (line.split() for line in text.splitlines() if line.strip())}


def nodes(text: str) -> dict[str, RmsNode]:
    """Read the output of ``scontrol show node -o``."""
    return {
        record["NodeName"]: node(record["NodeName"], int(record["CPUTot"]), int(record["RealMemory"]), record["State"])
        for record in _records(text, "NodeName")
    }


def node(name: str, cpus: int, memory_mib: int, state: str) -> RmsNode:
    """Make a node of what Slurm says of it; ``state`` with all its flags, such as "IDLE*+DRAIN"."""
    words = set(re.findall(r"[A-Z_]+", state))
    return RmsNode(
        name=name,
        cpus=cpus,
        memory_mib=memory_mib,
        # "*": slurmd does not answer (Slurm before 23.02 has no word for it).
        up=not words & _NODE_DOWN and "*" not in state,
        draining=bool(words & _NODE_DRAINING),
        state=state,
    )


def partitions(text: str) -> dict[str, RmsPartition]:
    """Read the output of ``scontrol show partition -o``."""
    return {
        record["PartitionName"]: RmsPartition(
            name=record["PartitionName"],
            up=record["State"] == "UP",
            nodes=expand(record["Nodes"]),
            preempt_mode=record["PreemptMode"],
            priority_tier=int(record["PriorityTier"]),
            grace_time_s=int(record["GraceTime"]),
        )
        for record in _records(text, "PartitionName")
    }


def configuration(text: str) -> dict[str, str]:
    """Read the output of ``scontrol show config``."""
    pairs = (line.partition("=") for line in text.splitlines())
    return {key.strip(): value.strip() for key, sign, value in pairs if sign}


def duration_s(text: str) -> int:
    """Read ``[DAYS-]HH:MM:SS``; 0 for Slurm's words for none."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d+):(\d+)", text)
    if match is None:
        return 0
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _records(text: str, first: str) -> Iterator[dict[str, str]]:
    for line in text.splitlines():
        if line.startswith(f"{first}="):
            record: dict[str, str] = {}
            for key, sign, value in (word.partition("=") for word in line.split()):
                if sign:
                    record.setdefault(key, value)  # free text stands last, so it cannot change what came before
            yield record


def _time(text: str) -> int:
    return int(text) if text.isdigit() else 0  # "N/A", "Unknown"


def _memory_mib(text: str) -> int:
    match = re.fullmatch(r"([0-9.]+)([KMGTP]?).*", text)
    if match is None:
        return 0
    scale = {"K": 1 / 1024, "M": 1, "": 1, "G": 1024, "T": 1024**2, "P": 1024**3}
    return round(float(match[1]) * scale[match[2]])
