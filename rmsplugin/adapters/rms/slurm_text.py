"""Slurm text: reads the output of Slurm's commands about jobs. Pure: text in, values out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from rmsplugin.adapters.rms.base import JobState, RmsJob
from rmsplugin.adapters.rms.slurm_records import epoch, limit_s
from rmsplugin.model.hostlist import expand

# After a requeue Slurm itself delays a job by its credentials' lifetime (AuthInfo cred_expire, 120 s) plus one.
_REQUEUE_DELAY_S = 125

_ENDED = {
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL"),
    *("OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT"),
}
_PENDING = {"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
_UNDER_WAY = (JobState.RUNNING, JobState.CONFIGURING, JobState.SUSPENDED)

#: The fields asked of squeue, in this order, by its words for them. The name is the user's and may hold any text: it
#: stands last.
JOB_FIELDS = {
    "display_id": "JobArrayID",
    "job_id": "JobID",
    "array_id": "ArrayJobID",
    "task": "ArrayTaskID",
    "partition": "Partition",
    "user": "UserName",
    "uid": "UserID",
    "gid": "GroupID",
    "word": "State",
    "reason": "Reason",
    "priority": "PriorityLong",
    "nice": "Nice",
    "account": "Account",
    "cpus": "NumCPUs",
    "memory": "MinMemory",
    "submit": "SubmitTime",
    "start": "StartTime",
    "end": "EndTime",
    "limit": "TimeLimit",
    "dependency": "Dependency",
    "nodes": "NodeList",
    "required_nodes": "ReqNodes",
    "batch_host": "BatchHost",
    "licenses": "Licenses",
    "restarts": "RestartCnt",
    "eligible_time": "EligibleTime",  # its begin time, or the time from which it was eligible; a word if it is not
    "preempt_time": "PreemptTime",
    "accrue_time": "AccrueTime",
    "mcs_label": "MCSLabel",
    "name": "Name",
}
_SEPARATOR = "\x1f"  # in no field except, maybe, the name


@dataclass(frozen=True, slots=True)
class JobRow:
    """One row of squeue: the job, with facts that only the adapter needs."""

    job: RmsJob
    array_id: int  # the id of its array; its own id if it belongs to none
    task: str  # index in the array; empty if it belongs to none
    delayed: bool = False  # by Slurm itself, after a requeue

    @property
    def target(self) -> str:
        """Its word in a command: the id of an array's record would mean all of its elements."""
        return f"{self.array_id}_{self.task}" if self.task else str(self.job.job_id)


def squeue_format(token: str) -> str:
    """Return the format (``-O``) of squeue that ``job_rows`` reads. A width of 0 is as much as a value has.

    Args:
        token: ends each row. Job names may hold any text, also line ends; an unguessable token cannot be forged.
    """
    return ",".join(f"{word}:0{_SEPARATOR}" for word in JOB_FIELDS.values()) + token


def job_rows(text: str, token: str, gate: str, now: int) -> list[JobRow]:
    """Read the output of ``squeue -r`` with ``squeue_format``, run with TZ=UTC and SLURM_TIME_FORMAT=%s.

    Args:
        text: the output.
        token: the token of the format.
        gate: name of the gate's licence.
        now: seconds since the epoch.
    """
    return list(with_split([job_row(_fields(line), gate, now) for line in _lines(text, token)]))


class KeptRows:
    """Reads the whole queue again and again; a row whose text is as it was is the same object.

    A large site has tens of thousands of jobs, of which few have changed since the last cycle.
    """

    def __init__(self, gate: str) -> None:
        """Keep nothing yet. ``gate``: name of the gate's licence."""
        self._gate = gate
        self._kept: tuple[int, dict[str, JobRow]] = (0, {})  # when they were read, and the rows by their texts

    def read(self, text: str, token: str, now: int) -> list[JobRow]:
        """As ``job_rows`` does. Several threads may call."""
        before, kept = self._kept
        if now < before:
            kept = {}  # what was eligible then may not be so now
        found, rows = {}, []
        for line in _lines(text, token):
            row = kept.get(line)
            if row is None:
                fields = _fields(line)
                row = job_row(fields, self._gate, now)
                if not _changes_by_itself(fields, now):
                    found[line] = row
            else:
                found[line] = row
            rows.append(row)
        self._kept = now, found
        return list(with_split(rows))


def _lines(text: str, token: str) -> list[str]:
    """The rows of squeue as texts."""
    return text.split(f"{_SEPARATOR}{token}\n")[:-1]


def _fields(line: str) -> dict[str, str]:
    return dict(zip(JOB_FIELDS, line.split(_SEPARATOR, len(JOB_FIELDS) - 1), strict=True))


def _changes_by_itself(fields: Mapping[str, str], now: int) -> bool:
    """Whether the same text may mean something else later: see ``job_row``."""
    return fields["word"] == "COMPLETING" or epoch(fields["eligible_time"]) > now


def job_row(fields: Mapping[str, str], gate: str, now: int) -> JobRow:
    """Read the fields of ``JOB_FIELDS`` as squeue prints them."""
    word, submitted = fields["word"], epoch(fields["submit"])
    state = _state(word, epoch(fields["end"]), now)
    pending = state is JobState.PENDING
    held = pending and fields["priority"] == "0"
    gated, licenses = without_gate(fields["licenses"], gate)
    restarts, eligible_time = int(fields["restarts"]), epoch(fields["eligible_time"])
    # That delay is Slurm's own, and ``open_gate`` lifts it.
    delayed = pending and restarts > 0 and now < eligible_time <= submitted + _REQUEUE_DELAY_S
    depends, begins_later = bool(fields["dependency"].removeprefix("(null)")), eligible_time > now and not delayed
    job = RmsJob(
        display_id=fields["display_id"],
        job_id=int(fields["job_id"]),
        partition=fields["partition"],
        user=fields["user"],
        uid=int(fields["uid"]),
        gid=int(fields["gid"]),
        name=fields["name"],
        state=state,
        detail=word,
        reason=fields["reason"],
        held=held,
        gated=gated,
        completing=word == "COMPLETING",
        cpus=int(fields["cpus"]),
        memory_mib=memory_mib(fields["memory"]),
        priority=int(fields["priority"]),
        nice=int(fields["nice"]),
        account=fields["account"].removeprefix("(null)"),
        accrue_time=epoch(fields["accrue_time"]),
        submit_time=submitted,
        eligible=pending and not held and not depends and not begins_later,
        begin_time=eligible_time if pending and not held and not depends and begins_later else 0,
        nodes=expand(fields["nodes"]) or (expand(fields["required_nodes"]) if pending else ()),
        batch_host=fields["batch_host"].removeprefix("n/a"),
        restarts=restarts,
        licenses=licenses,
        time_limit_s=limit_s(fields["limit"]),
        # For a pending job both are guesses of the scheduler; the limit of a suspended one stands still.
        start_time=0 if pending else epoch(fields["start"]),
        end_time=0 if pending or state is JobState.SUSPENDED else epoch(fields["end"]),
        preempt_time=epoch(fields["preempt_time"]),
        mcs_label="" if fields["mcs_label"] in ("(null)", "N/A") else fields["mcs_label"],
    )
    return JobRow(job, int(fields["array_id"]), fields["task"].removeprefix("N/A"), delayed)


def ended_jobs(text: str, job_ids: Collection[int]) -> dict[int, str]:
    """Read ``sacct -n -P -X -o JobIDRaw,State``: the jobs among ``job_ids`` that have ended, each with its end."""
    found = {}
    for line in text.splitlines():
        job_id, _, state = line.partition("|")
        word = state.partition(" ")[0]  # "CANCELLED by 1000"
        if job_id.isdecimal() and int(job_id) in job_ids and word in _ENDED:
            found[int(job_id)] = word
    return found


def without_gate(licenses: str, gate: str) -> tuple[bool, str]:
    """Return whether the gate's licence is among these, and the others, as ``Licenses=`` takes them.

    With "|" (24.11 and later) one of the licences is enough for Slurm, so that the gate's is no gate.
    """
    if licenses in ("", "(null)", "N/A") or "|" in licenses:
        return False, licenses if "|" in licenses else ""
    given = [each for each in re.split("[,;]", licenses) if each]
    own = [each for each in given if re.split("[:=*@]", each, maxsplit=1)[0] != gate]
    return len(own) < len(given), ",".join(own)


def _state(word: str, end: int, now: int) -> JobState:
    if word == "COMPLETING":
        # The word hides whether the job has ended or was requeued. The end of a requeued job is in the future (or,
        # without a time limit, at no time).
        return JobState.ENDED if 0 < end <= now else JobState.PENDING
    if word in _ENDED:
        return JobState.ENDED
    if word in _PENDING:
        return JobState.PENDING
    if word in ("CONFIGURING", "SUSPENDED"):
        return JobState(word)
    return JobState.RUNNING  # RUNNING, RESIZING, SIGNALING, STAGE_OUT, STOPPED: its script is there


def with_split(rows: list[JobRow]) -> Iterator[JobRow]:
    """Mark the elements of arrays that Slurm has not split off yet: they share the job id of their array."""
    shared = Counter(row.job.job_id for row in rows if row.task)
    for row in rows:
        if row.task and row.job.job_id == row.array_id and shared[row.job.job_id] > 1:
            yield replace(row, job=replace(row.job, split=False))
        else:
            yield row


def limited_arrays(rows: Iterable[JobRow]) -> list[int]:
    """The ids of the arrays whose limits decide something now: elements of them wait behind the gate. Ascending."""
    return sorted({row.array_id for row in rows if row.task and row.job.eligible and row.job.gated})


def within_array_limits(rows: Iterable[JobRow], limits: Mapping[int, int]) -> list[JobRow]:
    """Leave as many gated elements of each array eligible as may still run beside those under way or opened.

    Args:
        rows: all elements of the arrays, among other rows.
        limits: the number that may run, by the id of the array; an array that is missing has no limit.
    """
    rows = list(rows)
    room = Counter(limits)
    limited = [row for row in rows if row.task and row.array_id in limits]
    for row in limited:
        opened = row.job.eligible and not row.job.gated
        if row.job.state in _UNDER_WAY or opened:
            room[row.array_id] -= 1
    too_many = set()
    for row in sorted(limited, key=lambda row: (row.array_id, int(row.task))):
        if row.job.eligible and row.job.gated:
            if room[row.array_id] <= 0:
                too_many.add(row.job.display_id)
            room[row.array_id] -= 1
    return [
        replace(row, job=replace(row.job, eligible=False)) if row.job.display_id in too_many else row for row in rows
    ]


def array_limits(text: str, rows: Iterable[JobRow]) -> dict[int, int]:
    """Read the limits of arrays' running elements, by the array's id, from ``scontrol show job -o``.

    Only the text before a job's name is Slurm's own, and a name may hold line ends. So a job counts only if squeue
    knows it by the same ids (in ``rows``), and not if it seems to be there twice, because one of the two is forged.
    """
    known = {(str(row.job.job_id), str(row.array_id)) for row in rows if row.task}
    found = re.findall(r"^JobId=(\d+) ArrayJobId=(\d+) ArrayTaskId=\S+ (?:ArrayTaskThrottle=(\d+) )?", text, re.M)
    seen = Counter(job_id for job_id, _, _ in found)
    return {
        int(array_id): int(limit)
        for job_id, array_id, limit in found
        if limit and seen[job_id] == 1 and (job_id, array_id) in known
    }


def memory_mib(text: str) -> int:
    """Read an amount of memory such as ``1.50G``, in MiB; what is no amount is 0."""
    match = re.fullmatch(r"([0-9.]+)([KMGTP]?).*", text)
    if match is None:
        return 0
    scale = {"K": 1 / 1024, "M": 1, "": 1, "G": 1024, "T": 1024**2, "P": 1024**3}
    return round(float(match[1]) * scale[match[2]])


#: Reasons by a user or the calendar; other reasons change with the weather in the queue.
_TELLING = ("JobHeld", "Dependency", "BeginTime")


def pulse(text: str) -> str:
    """The part of ``squeue -O JobArrayID,StateCompact,PreemptTime,Reason`` whose changes matter; sorted."""
    lines = []
    for line in text.splitlines():
        head, _, reason = line.rstrip().rpartition(" ")
        lines.append(f"{head.strip()} {reason if reason.startswith(_TELLING) else ''}")
    return "\n".join(sorted(lines))


def unheard_nodes(text: str) -> tuple[str, ...]:
    """The nodes that are *unknown* in the output of ``sinfo -h -N -o "%N %T"``, each one once."""
    found = (line.split() for line in text.splitlines())
    return tuple(dict.fromkeys(words[0] for words in found if len(words) > 1 and words[1].startswith("unknown")))
