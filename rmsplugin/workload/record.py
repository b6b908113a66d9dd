"""Record: one line of a trace in the Standard Workload Format (SWF) 2.2, with its fields by name."""

from __future__ import annotations

import enum
from typing import NamedTuple

#: The value of every field whose value is unknown.
UNKNOWN = -1


class Status(enum.IntEnum):
    """Field 11 of a line."""

    UNKNOWN = -1
    FAILED = 0
    COMPLETED = 1
    PARTIAL = 2  # one of several executions of a job that was checkpointed; it goes on later
    LAST_COMPLETED = 3  # the last of these executions, completed
    LAST_FAILED = 4  # the last of these executions, failed
    CANCELLED = 5  # before it started, or while it ran

    @property
    def is_partial(self) -> bool:
        """Whether the line tells of one execution only; another line of the job tells of the whole."""
        return self in (Status.PARTIAL, Status.LAST_COMPLETED, Status.LAST_FAILED)


class Record(NamedTuple):
    """The 18 fields of a line in their order; -1 is not known. Times are seconds, and may have decimals."""

    job_id: int  # 1, Job Number
    submit_s: float  # 2, Submit Time, from the beginning of the trace
    wait_s: float  # 3, Wait Time on the machine of the trace
    run_s: float  # 4, Run Time, wall clock; 0 is less than half a second
    allocated_processors: int  # 5, Number of Allocated Processors
    average_cpu_s: float  # 6, Average CPU Time Used, the mean over the processors
    used_memory_kib: float  # 7, Used Memory, the mean over the processors
    requested_processors: int  # 8, Requested Number of Processors
    requested_s: float  # 9, Requested Time, the user's estimate and the site's limit
    requested_memory_kib: float  # 10, Requested Memory, for each processor
    status: int  # 11, Status
    user: int  # 12, User ID
    group: int  # 13, Group ID
    executable: int  # 14, Executable (Application) Number
    queue: int  # 15, Queue Number
    partition: int  # 16, Partition Number
    preceding_job: int  # 17, Preceding Job Number
    think_s: float  # 18, Think Time from Preceding Job


#: The names of the fields in messages.
FIELD_NAMES = (
    "job number",
    "submit time",
    "wait time",
    "run time",
    "allocated processors",
    "average CPU time",
    "used memory",
    "requested processors",
    "requested time",
    "requested memory",
    "status",
    "user",
    "group",
    "executable",
    "queue",
    "partition",
    "preceding job",
    "think time",
)

#: Places (from 0) of the fields that may have decimals: times, and memory where it is a mean.
DECIMAL = frozenset({1, 2, 3, 5, 6, 8, 9, 17})
