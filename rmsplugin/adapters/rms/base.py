"""The RMS Protocol: the engine's reads of Slurm, and its requests to Slurm.

Contract, for every implementation:

* Calls block, are bounded by the implementation's command time-out, and raise UnavailableError when the RMS does not
  answer. They may be called from several threads.
* ``snapshot`` is one consistent reading of all that a cycle needs; no caller re-reads the world half-way.
* Actions are idempotent: an existing result is no error. A job that does not exist (any more) raises NotFoundError;
  a refusal of the RMS raises RefusedError with its words.

The *gate* is a licence that a reservation takes away from all jobs. A job that asks for it stays pending, with all
the facts of pending jobs in the RMS (priority, holds, dependencies, begin times, limits), until ``open_gate`` takes
the gate off. A *room* is an exclusive job of the engine's own user, by which the engine holds a node.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from rmsplugin.adapters.rms.power_saving import PowerSaving
from rmsplugin.model.made_at_once import made_at_once
from rmsplugin.model.priority import Parts, Weights
from rmsplugin.model.vjob import Geometry

#: Name of every room's job.
ROOM_NAME = "rmsplugin-room"
#: In an UnavailableError: the RMS does not change a job yet that it is just entering into the accounting.
BEING_ENTERED = "the DB index is being set"


class JobState(enum.StrEnum):
    """Base states of a job that matter to us. COMPLETING is a flag beside them, see RmsJob.completing."""

    PENDING = "PENDING"
    CONFIGURING = "CONFIGURING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    ENDED = "ENDED"  # COMPLETED, CANCELLED, FAILED, TIMEOUT, NODE_FAIL, ...; the exact word is in RmsJob.detail


@made_at_once
@dataclass(frozen=True, slots=True)
class RmsJob:
    """One job, or one element of a job array, as the RMS has it."""

    display_id: str  # "12", or "12_3" for an element of an array: stable for life
    job_id: int  # for an element that the RMS has not split off yet: the id of its array
    partition: str
    user: str
    uid: int
    name: str
    state: JobState
    detail: str  # the RMS's own word for the state, e.g. "TIMEOUT"
    reason: str  # the RMS's reason, e.g. "Licenses", "JobHeldUser", "Dependency", "AssocGrpCpuLimit"
    held: bool  # by its user or an admin: priority is 0
    gated: bool  # the gate's licence is among those it asks for
    completing: bool  # the batch host is still being cleaned up
    cpus: int  # on all its nodes together
    memory_mib: int
    priority: int
    submit_time: int  # seconds since the epoch
    eligible: bool  # pending, and kept only by the gate: no hold, dependency, begin time, limit of its array
    nodes: tuple[str, ...]  # allocated; for a pending job the nodes that it names (ReqNodeList)
    batch_host: str
    restarts: int
    split: bool = True  # False: an element of an array that has no job id of its own yet
    licenses: str = ""  # the licences of its user, as ``Licenses=`` takes them; never the gate
    time_limit_s: float = math.inf
    start_time: int = 0  # of this run, seconds since the epoch; 0 while it has not started
    end_time: int = 0  # the time when it reaches its time limit, or ended; 0 if unknown or never
    preempt_time: int = 0  # the time when the RMS began to take its nodes for a job of a higher tier; 0 if it did not
    gid: int | None = None  # the group that it runs in; None: its user's
    nice: int = 0
    account: str = ""
    begin_time: int = 0  # pending, and kept only by the gate and a begin time: that time; 0: it is not
    accrue_time: int = 0  # the time from which its age counts in its priority, seconds since the epoch; 0: not yet
    mcs_label: str = ""  # of multi-category security; empty: it has none

    @property
    def held_by_user(self) -> bool:
        """Whether a user has certainly held it: with ``scontrol hold``, ``requeuehold``, or at submission."""
        return self.held and self.reason.replace("_", " ").startswith(("JobHeldUser", "job requeued in"))

    @property
    def held_for_launch(self) -> bool:
        """Whether the RMS itself holds it because a node could not launch it."""
        return self.held and self.reason.replace("_", " ").startswith("launch failed")


@dataclass(frozen=True, slots=True)
class MailWish:
    """To whom, and of what, a job has the RMS send mail."""

    uid: int  # of the job's user
    address: str  # an address, or several with commas; any text that a user gives
    kinds: frozenset[str]  # as the RMS prints them, such as "END"


@dataclass(frozen=True, slots=True)
class Overseers:
    """Users who may know of others' jobs, whatever the RMS keeps private."""

    operators: frozenset[str] = frozenset()  # of all
    coordinators: Mapping[str, frozenset[str]] = field(default_factory=dict)  # by account, of its jobs


@dataclass(frozen=True, slots=True)
class Readings:
    """What the RMS's daemon last measured on a node; None: the RMS, or the node, does not measure it.

    Attributes:
        cpu_load: the load average of a minute.
        memory_free_mib: memory that no process has.
        watts: the power that it takes.
        temperature_c: of its sensor, in degrees Celsius.
    """

    cpu_load: float | None = None
    memory_free_mib: int | None = None
    watts: int | None = None
    temperature_c: int | None = None


class NodePower(enum.StrEnum):
    """The power of a node as the RMS counts it. It is no proof: timers end these states, whatever a node does."""

    ON = "on"
    GOING_OFF = "going off"  # it was asked to power the node down, or is doing so
    OFF = "off"
    COMING_ON = "coming on"  # it was asked to power the node up, by a job too, or waits until the node registers


@made_at_once
@dataclass(frozen=True, slots=True)
class RmsNode:
    """One node as the RMS has it."""

    name: str
    cpus: int
    memory_mib: int
    up: bool
    draining: bool
    state: str  # the RMS's own word
    features: tuple[str, ...] = ()  # the active ones
    reason: str = ""  # the reason why it is drained or down
    address: str = ""  # its address, by name or number (NodeAddr); empty: its name
    power: NodePower = NodePower.ON
    port: int = 0  # of the RMS's daemon there; 0: that of the others (``RmsSnapshot.daemon_port``)
    cpus_taken: int = 0  # by jobs, in the RMS's books: those of a suspended job are free there
    memory_taken_mib: int = 0  # likewise; that of a suspended job is taken
    #: When it booted, as its daemon said last, seconds since the epoch; 0: unknown. It may vary by a second.
    boot_time: int = field(default=0, compare=False)
    #: They are only shown: a node whose load has changed is the same node.
    readings: Readings = field(default=Readings(), compare=False)

    @property
    def flags(self) -> frozenset[str]:
        """The words of its state."""
        return frozenset(re.findall(r"[A-Z_]+", self.state))

    @property
    def idle(self) -> bool:
        """Whether it is on, has no job, and may take one."""
        return self.up and not self.draining and self.power is NodePower.ON and "IDLE" in self.flags


@dataclass(frozen=True, slots=True)
class RmsPartition:
    """One partition, with the admin's settings that steer context switches."""

    name: str
    up: bool
    nodes: tuple[str, ...]
    preempt_mode: str  # "OFF", "SUSPEND", "REQUEUE", ...
    priority_tier: int
    grace_time_s: int
    exclusive: bool = False  # OverSubscribe=EXCLUSIVE
    hidden: bool = False
    allow_groups: tuple[str, ...] = ()  # empty: all
    max_time_s: float = math.inf


@dataclass(frozen=True, slots=True)
class RmsReservation:
    """One reservation."""

    name: str
    start_time: int  # seconds since the epoch
    end_time: int
    nodes: tuple[str, ...]
    licenses: Mapping[str, int]  # the licences that it holds, with their numbers
    users: tuple[str, ...]
    flags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RmsPriorities:
    """The rules by which the RMS computes the priorities of pending jobs, as far as it tells them."""

    weights: Weights | None = None  # None: its plugin is unknown, or has no factors
    parts: Mapping[int, Parts] = field(default_factory=dict)  # of pending jobs, by job id
    #: From 0 to 1, by account, user and partition; the partition is empty unless the association is of one alone.
    shares: Mapping[tuple[str, str, str], float] = field(default_factory=dict)

    def share(self, account: str, user: str, partition: str) -> float | None:
        """The fair share of jobs there; None: unknown."""
        found = self.shares.get((account, user, partition))
        return self.shares.get((account, user, "")) if found is None else found


@dataclass(frozen=True, slots=True)
class RmsSnapshot:
    """One reading of the RMS. Jobs are read after nodes: no job that is pending here has made a node busy."""

    jobs: tuple[RmsJob, ...]  # of all partitions; ended jobs as long as the RMS remembers them
    nodes: Mapping[str, RmsNode] = field(default_factory=dict)
    partitions: Mapping[str, RmsPartition] = field(default_factory=dict)
    reservations: Mapping[str, RmsReservation] = field(default_factory=dict)
    licenses: Mapping[str, int] = field(default_factory=dict)  # the licences of slurm.conf, with their numbers
    preempt_type: str = "preempt/none"
    preempt_mode: str = "OFF"
    #: PreemptExemptTime of slurm.conf: a job is not preempted for so long after its start; None if it is not set.
    preempt_exempt_s: float | None = None
    #: KillWait of slurm.conf: from SIGTERM to SIGKILL; None if it cannot be read.
    kill_wait_s: int | None = None
    #: RequeueExit and RequeueExitHold of slurm.conf: a job that ends with one of these codes is queued again.
    requeue_exits: frozenset[int] = frozenset()
    #: SlurmdSpoolDir of slurm.conf, with its %n and %h.
    spool_dir: str = ""
    #: SlurmdPort of slurm.conf, at which the RMS's daemons listen on nodes; 0: it cannot be read.
    daemon_port: int = 0
    #: StateSaveLocation of slurm.conf, on the controller.
    state_dir: str = ""
    version: str = ""
    priorities: RmsPriorities = RmsPriorities()
    power_saving: PowerSaving = field(default_factory=PowerSaving)
    #: PrivateData of slurm.conf: what users are not told of each other, such as *jobs*.
    private: frozenset[str] = frozenset()
    #: MailProg of slurm.conf: the program by which the RMS sends mail; empty: it cannot be read.
    mail_program: str = ""

    def kept_on(self, name: str) -> str:
        """Why this node, which exists, has to stay on by the RMS's own settings, in a sentence; empty: it need not."""
        node = self.nodes[name]
        with_it = [each.name for each in self.partitions.values() if name in each.nodes]
        idle = {other.name for other in self.nodes.values() if other.idle and other.name != name}
        return self.power_saving.keeps_on(name, with_it, node.flags, idle)


class Rms(Protocol):
    """The resource management system."""

    def snapshot(self) -> RmsSnapshot:
        """Read jobs, nodes, partitions, reservations and the settings that matter here. Raises UnavailableError."""
        ...

    def leaf_switches(self) -> tuple[tuple[str, ...], ...]:
        """The nodes of each leaf switch (or block) of the topology, in its order; none if there is no topology.

        Raises:
            UnavailableError: the RMS does not answer.
        """
        ...

    def pulse(self, partitions: Iterable[str]) -> str:
        """A value that changes when a job of these partitions arrives, moves on, is held, released or preempted.

        It is as the RMS told it last, of itself, about a second ago; a busy one tells it less often. So to ask for it
        costs nothing. Raises UnavailableError.
        """
        ...

    def job(self, job_id: int) -> RmsJob:
        """Read one job afresh. Raises NotFoundError, UnavailableError."""
        ...

    def jobs(self, job_ids: Collection[int]) -> dict[int, RmsJob]:
        """Read some jobs afresh, by one question; those that do not exist are left out. Raises UnavailableError.

        The limit of an array, which may leave no room for an element, is not looked at (RmsJob.eligible).
        """
        ...

    def unheard(self, partition: str) -> tuple[str, ...]:
        """The nodes of a partition that the RMS has not heard of since it started: it does not know what they run.

        Raises UnavailableError.
        """
        ...

    def ended(self, job_ids: Collection[int]) -> dict[int, str]:
        """The jobs among these that have ended by accounting, with its word for the end; one question for all.

        A job that is missing in the answer may be under way, unknown, or not written down yet.

        Raises:
            RefusedError: there is no accounting.
            UnavailableError: accounting does not answer.
        """
        ...

    def mail_wish(self, job_id: int) -> MailWish | None:
        """The mail that a job asks for; None: none. Raises NotFoundError, UnavailableError."""
        ...

    def overseers(self) -> Overseers:
        """Operators and administrators by accounting, and coordinators of accounts.

        Raises:
            RefusedError: there is no accounting.
            UnavailableError: accounting does not answer.
        """
        ...

    def batch_script(self, job_id: int) -> str:
        """The script as the RMS will run it, first line included. Raises NotFoundError, UnavailableError."""
        ...

    def geometry(self, job_id: int) -> Geometry:
        """What a job asks for, by its own request: one VM stands for its part on each of its nodes.

        For an element of an array that the RMS has not split off, ``job_id`` is its array's.

        Raises:
            NotFoundError: there is no such job.
            RefusedError: it is not known beforehand what the job has on each of its nodes; the words are for its user.
            UnavailableError: the RMS does not answer.
        """
        ...

    # -- the gate ------------------------------------------------------------------------------------------------

    def reserve_gate(self) -> None:
        """Make the reservation that takes the gate's licence away from all jobs; renew an existing one.

        Raises:
            RefusedError: slurm.conf has no such licence, or the caller may not make reservations.
        """
        ...

    def split(self, display_id: str) -> int:
        """Give an element of an array a job of its own, still gated, and return its id.

        Raises NotFoundError, UnavailableError.
        """
        ...

    def open_gate(self, job_id: int) -> None:
        """Take the gate, and the delay after a requeue, off a pending job: the RMS starts it when it can.

        A hold, a dependency or a begin time of the user's stays. A job that was requeued may fail if it starts within
        the second in which the clean-up of its last run ends.

        Raises:
            RefusedError: among others while the last run of the job is still being cleaned up.
        """
        ...

    def close_gate(self, job_id: int) -> None:
        """Put a pending job (or the rest of an array that is not split off) back behind the gate.

        Without effect on a job that is gated, or under way.
        """
        ...

    def hold(self, job_id: int) -> None:
        """Hold a pending job so that its owner cannot release it: it is no vjob and must not start."""
        ...

    # -- jobs under way ------------------------------------------------------------------------------------------

    def suspend(self, job_id: int) -> None:
        """Suspend a running job; without effect if it is suspended."""
        ...

    def resume(self, job_id: int) -> None:
        """Resume a suspended job; without effect if it runs."""
        ...

    def requeue(self, job_id: int) -> None:
        """Put a running or suspended job back in the queue, behind the gate; a pending job is only gated.

        The RMS holds a suspended job that is requeued: that hold is lifted, but not a user's hold.
        """
        ...

    def cancel(self, job_id: int) -> None:
        """Cancel the job; without effect if it has ended."""
        ...

    def tell_end(self, job_id: int, restarts: int, exit_code: int, signal: int) -> None:
        """End a running job as its script has ended, which the RMS has forgotten; without effect if it has ended.

        Args:
            job_id: of the job; on its nodes nothing of it may be left but what an end removes.
            restarts: how often it had been requeued before the run whose script has ended.
            exit_code: of its script, 0 to 255.
            signal: the signal that has ended the script; 0: none.

        Raises:
            RefusedError: it does not run, or it runs again: another run's script has not ended.
        """
        ...

    def comment(self, job_id: int, text: str) -> None:
        """Put a text beside the job for its user, in the place of the one that is there (Slurm: AdminComment)."""
        ...

    # -- rooms ---------------------------------------------------------------------------------------------------

    def request_room(self, node: str, partition: str, *, time_limit_s: float, time_min_s: float) -> int:
        """Submit the job of a room on ``node`` and return its id; it starts when the node is free.

        Args:
            node: the node to hold.
            partition: the hosts partition.
            time_limit_s: its time limit.
            time_min_s: the shortest useful limit; the RMS may choose the longest one up to the limit that fits.
        """
        ...

    def extend_room(self, job_id: int, time_limit_s: float) -> None:
        """Let a running room last ``time_limit_s`` from its start. Raises RefusedError if the RMS does not allow it."""
        ...

    # -- power ---------------------------------------------------------------------------------------------------

    def power_down(self, node: str, reason: str) -> None:
        """Have a node powered down as soon as its jobs have ended; no further job starts there. It needs power saving.

        Without effect on a node that is off or going off. It cannot be taken back: the node goes off, and may then come
        on again. The RMS counts the node as off after a while, whether it is or not.

        Args:
            node: its name.
            reason: why, in one line for admins.

        Raises:
            NotFoundError: there is no such node.
        """
        ...

    def power_up(self, node: str) -> None:
        """Have a node powered up that is off: it counts as coming on, until it registers with a newer boot time.

        Without effect on a node that is on or coming on. Not needed for a room: the RMS powers up what a job waits for.

        Raises:
            NotFoundError: there is no such node.
            RefusedError: the node is going off: the RMS would take the request and forget it.
        """
        ...

    def repair_node(self, node: str) -> None:
        """Let a node that did not register in time be off again, and no longer down; then it can be powered up.

        Without effect on a node that is not down.

        Raises:
            NotFoundError: there is no such node.
            RefusedError: it is down for another reason, or drained: that is for an admin to undo.
        """
        ...
