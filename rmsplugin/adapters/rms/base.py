"""The RMS Protocol: what the engine reads from Slurm and asks of it.

Contract, for every implementation:

* Calls block, are bounded by the implementation's command time-out, and raise UnavailableError when the RMS does not
  answer. They may be called from several threads.
* ``snapshot`` is one consistent reading of all that a cycle needs; nobody re-reads the world half-way.
* Actions are idempotent: what is already so is no error. A job that does not exist (any more) raises NotFoundError;
  what the RMS refuses raises RefusedError with its words.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Protocol

#: RmsJob.reason of a held job with a dependency: nothing will come of the dependency until ``hold`` has seen the job.
HELD_DEPENDENCY = "HeldDependency"


class JobState(enum.StrEnum):
    """Base states of a job that matter to us. COMPLETING is a flag beside them, see RmsJob.completing."""

    PENDING = "PENDING"
    CONFIGURING = "CONFIGURING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    ENDED = "ENDED"  # COMPLETED, CANCELLED, FAILED, TIMEOUT, NODE_FAIL, ...; the exact word is in RmsJob.detail


@dataclass(frozen=True, slots=True)
class RmsJob:
    """One job, or one element of a job array, as the RMS has it."""

    display_id: str  # "12", or "12_3" for an element of an array: stable for life
    job_id: int  # of an element that the RMS has not split off yet: the id of its array
    partition: str
    user: str
    uid: int
    name: str
    state: JobState
    detail: str  # the RMS's own word for the state, e.g. "TIMEOUT"
    reason: str  # the RMS's reason, e.g. "JobHeldAdmin", "Dependency"
    held: bool  # priority is 0
    completing: bool  # the batch host is still being cleaned up
    cpus: int
    memory_mib: int  # on the RMS's side
    priority: int
    submit_time: int  # seconds since the epoch
    eligible: bool  # nothing but the hold keeps it (no dependency, begin time, limit)
    nodes: tuple[str, ...]  # allocated
    batch_host: str
    restarts: int
    split: bool = True  # False: an element of an array that has no job id of its own yet


@dataclass(frozen=True, slots=True)
class RmsNode:
    """One node as the RMS has it."""

    name: str
    cpus: int
    memory_mib: int
    up: bool
    draining: bool
    state: str  # the RMS's own word


@dataclass(frozen=True, slots=True)
class RmsPartition:
    """One partition and the settings of the admin's that steer context switches."""

    name: str
    up: bool
    nodes: tuple[str, ...]
    preempt_mode: str  # "OFF", "SUSPEND", "REQUEUE", ...
    priority_tier: int
    grace_time_s: int


@dataclass(frozen=True, slots=True)
class RmsSnapshot:
    """One reading of the RMS."""

    jobs: tuple[RmsJob, ...]  # of all partitions; ended ones as long as the RMS remembers them
    nodes: dict[str, RmsNode] = field(default_factory=dict)
    partitions: dict[str, RmsPartition] = field(default_factory=dict)
    preempt_type: str = "preempt/none"
    preempt_mode: str = "OFF"
    preempt_exempt_time_s: int = 0
    version: str = ""


class Rms(Protocol):
    """The resource management system."""

    def snapshot(self) -> RmsSnapshot:
        """Read jobs, nodes, partitions and the settings that concern us. Raises UnavailableError."""
        ...

    def job(self, job_id: int) -> RmsJob:
        """Read one job afresh. Raises NotFoundError, UnavailableError."""
        ...

    def batch_script(self, job_id: int) -> str:
        """The script as the RMS will run it, first line included. Raises NotFoundError, UnavailableError."""
        ...

    def split(self, display_id: str) -> int:
        """Give an element of an array a job of its own, and return its id. Raises NotFoundError, UnavailableError."""
        ...

    def hold(self, job_id: int) -> None:
        """Hold a pending job so that its owner cannot release it."""
        ...

    def start(self, job_id: int, node: str) -> None:
        """Lift hold and delay of a pending job and have it start on ``node``, or ("") on any node.

        Of a job that takes CPUs of several nodes, ``node`` is one; which is the batch host, the RMS chooses. A job that
        was requeued may fail if it starts within the second in which the clean-up of its last run ends.
        """
        ...

    def suspend(self, job_id: int) -> None:
        """Suspend a running job; nothing happens if it is suspended."""
        ...

    def resume(self, job_id: int) -> None:
        """Resume a suspended job; nothing happens if it runs."""
        ...

    def requeue(self, job_id: int, *, hold: bool) -> None:
        """Put a running or suspended job back in the queue; nothing happens if it is pending."""
        ...

    def cancel(self, job_id: int) -> None:
        """Cancel the job; nothing happens if it has ended."""
        ...
