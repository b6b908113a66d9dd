"""The rows of the ledger: vjobs, VMs, operations, actions and events, as the plugin remembers them."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field

from rmsplugin.model.made_at_once import made_at_once
from rmsplugin.model.operation import OperationKind as OperationKind  # a part of many rows
from rmsplugin.model.priority import Standing
from rmsplugin.model.vjob import Geometry, VJobState
from rmsplugin.model.vm_phase import VMPhase


@made_at_once
@dataclass(frozen=True, slots=True)
class VJobRow:
    """One vjob. Times are seconds since the epoch."""

    job_id: int
    display_id: str
    user: str
    uid: int
    partition: str
    geometry: Geometry
    state: VJobState
    reason: str
    submitted: float  # the first submission: a requeue does not change it
    state_since: float
    script_started: bool = False  # recorded before the script starts (I5)
    finished: bool = False  # the wrapper delivered exit code and output
    losses: int = 0  # how often the vjob's state was truly lost
    restarts: int = 0  # of the RMS job, as last seen
    wrapper_seen: float = 0.0  # from when on the wrapper's silence counts; each sign of life is in memory only
    private_key: str = field(default="", repr=False)
    public_key: str = ""
    priority: int = 0  # Slurm's priority, as last seen while the job was pending
    resumes: bool = False  # the engine suspended the vjob, and resumes it when its turn comes
    ran_s: float = 0.0  # how long it has run since its start, before it entered its present state
    taking_back: int = 0  # number of the saved states, put aside before, that the vjob gets back; 0: none
    returns: int = 0  # how often it went back to a checkpoint
    returned: str = ""  # a sentence for its user about the last return
    repeated_s: float = 0.0  # how much of its run the returns have repeated, at most
    job_name: str = ""  # name of its job in the RMS
    exit_code: int | None = None  # of its script; None: it has not ended by itself, or did under an older release
    exit_signal: int = 0  # the signal that ended the script; 0: none
    account: str = ""  # its user as the front knows him, in JSON; empty: as this host knows him
    finished_at: float = 0.0  # when the wrapper first delivered exit code and output; valid only if ``finished``
    standing: Standing | None = None  # the parts of ``priority``; None: not known yet
    requeue_of: int = -1  # ``restarts`` of the run that was requeued on purpose, as its wrapper told; -1: none
    script_digest: str = ""  # of the job's script, with the wrapper's line; empty: a row of an older release
    seen_restarts: int = -1  # restarts of its job, as last seen with its SubmitTime; -1: a row of an older release
    seen_submitted: int = 0
    begins_anew: bool = False  # its script asked to begin anew, or ended before the next run: that run starts it again
    paused: bool = False  # its VMs stand still: the vjob is *paused*, or *suspending* after a pause
    preference: str = ""  # an administrator's: running or sleeping; empty: the policy decides
    resized_cpus: int = 0  # to so many CPUs each VM was resized by hand; 0: never
    resized_memory_mib: int = 0  # the same of its requested memory

    @property
    def preferred(self) -> VJobState | None:
        """The state that an administrator prefers for it."""
        return VJobState(self.preference) if self.preference else None

    @property
    def wakes(self) -> bool:
        """Whether the engine resumes it, once it sleeps, when its turn comes."""
        return self.resumes or self.preferred is VJobState.RUNNING

    @property
    def said_end(self) -> str:
        """How its script has ended."""
        return f"by signal {self.exit_signal}" if self.exit_signal else f"with exit code {self.exit_code}"

    def cpus_of(self, index: int) -> int:
        """The CPUs that a VM is to have: those that are booked for it, or fewer if it was resized."""
        booked = self.geometry.cpus_of(index)
        return min(booked, self.resized_cpus or booked)

    def memory_mib_of(self, vm: VMRow) -> int:
        """The memory that a VM is to have: all of its own, or less if it was resized. That of its image stays."""
        booked_mib = self.geometry.memory_mib_of(vm.idx)
        return vm.memory_mib - max(0, booked_mib - (self.resized_memory_mib or booked_mib))

    def ran_by(self, moment: float) -> float:
        """The seconds that the vjob has run by ``moment``, since its start; sleeps and pauses do not count.

        Args:
            moment: seconds since the epoch, in its present state.
        """
        runs = self.state is VJobState.RUNNING
        return self.ran_s + (max(0.0, moment - self.state_since) if runs else 0.0)


@dataclass(frozen=True, slots=True)
class VMRow:
    """One VM of a vjob."""

    name: str
    job_id: int
    idx: int
    uuid: str
    mac: str
    address: str
    host: str  # the node where it runs or is paused, or soon will; "" while sleeping
    destination: str = ""  # the node to which a migration under way takes it
    image_node: str = ""  # the node of its saved state
    image_bytes: int = 0
    image_blake2b: str = ""
    touched: tuple[str, ...] = ()  # every node that may hold a file or a domain of it
    booted_on: str = ""  # the node where it was booted, and its disk made; "" before
    host_key: str = field(default="", repr=False)  # private, OpenSSH form
    host_key_public: str = ""
    centi_cpus: int | None = None  # its observed demand, hundredths of a CPU; None: the requested CPUs count
    memory_demand_mib: int | None = None  # its observed demand, MiB; None: the requested memory counts
    observed: bool = False  # it takes of its node the memory that it is seen to need, not all of its own
    #: The memory with which it was booted: the requested memory and, since decision 0043, its image's own.
    memory_mib: int = field(kw_only=True)
    #: What there is of it; the five places from ``host`` to ``image_blake2b`` change with it, and only so.
    phase: VMPhase = field(kw_only=True, default=VMPhase.PLACED)


def by_job(vms: Iterable[VMRow]) -> dict[int, list[VMRow]]:
    """The VMs of each vjob, by job id, in their order; a vjob without VMs is left out."""
    found: dict[int, list[VMRow]] = {}
    for vm in vms:
        found.setdefault(vm.job_id, []).append(vm)
    return found


@dataclass(frozen=True, slots=True)
class SetAsideState:
    """The saved states of a vjob that a restart put aside, with everything needed to take them back."""

    id: int
    job_id: int
    display_id: str
    user: str
    uid: int
    time: float
    reason: str
    complete: bool  # the restart has put all of them aside
    losses: int  # of the vjob, before that restart
    private_key: str = field(repr=False)
    public_key: str
    vms: tuple[VMRow, ...]  # all VMs of the vjob; those that were not in a file had no saved state


class Outcome(enum.StrEnum):
    """The state of an operation or action."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Operation:
    """Something done to a vjob; each vjob has at most one at a time."""

    id: int
    job_id: int
    kind: OperationKind
    state: Outcome
    requested_by: str
    arguments: dict[str, str]
    error: str
    created: float
    ended: float


@dataclass(frozen=True, slots=True)
class ActionRow:
    """One of the five actions on one VM (and the copy of a state file that a remote resume needs)."""

    id: int
    operation_id: int
    vm: str
    kind: str  # run, stop, suspend, resume, migrate, pause, unpause, checkpoint, copy
    source: str
    destination: str
    state: Outcome
    bytes_done: int
    bytes_total: int
    error: str
    created: float
    ended: float
    memory_mib: int = 0  # of the VM; 0: a row of an older release, with the requested memory


class PlanState(enum.StrEnum):
    """The state of a plan."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"  # a step failed, or was skipped
    REJECTED = "rejected"  # the checker found a fault: no step was done
    STALE = "stale"  # the cluster changed before the plan could be applied: no step was done
    NONE = "none"  # there was no plan: nothing could be proposed


class StepState(enum.StrEnum):
    """The state of a step."""

    PLANNED = "planned"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"  # a step that it waited for failed, or its time was over
    NEEDLESS = (
        "needless"  # nobody needs it any more: its vjob has ended, or is so already; or one that it waited for is
    )


OPEN_STEPS = (StepState.PLANNED, StepState.RUNNING)


@dataclass(frozen=True, slots=True)
class Plan:
    """One context switch, as decided. Times are seconds since the epoch."""

    id: int
    time: float
    policy: str
    sentence: str
    fallback: str  # why this plan replaces the answer that was asked for; empty if it is that answer
    cost_mib: int
    lower_bound_mib: int
    estimate_s: float  # expected makespan
    decided_s: float  # how long deciding and planning took
    state: PlanState
    error: str
    ended: float


@dataclass(frozen=True, slots=True)
class Step:
    """One operation of a plan on a vjob."""

    id: int
    plan_id: int
    vjob: str  # display id, since elements of job arrays may have no job id yet
    kind: OperationKind
    hosts: dict[str, str]  # by VM name, the node where it runs afterwards; empty for a suspend or pause
    reason: str
    state: StepState
    operation_id: int  # 0 before the step began
    error: str
    began: float
    ended: float
    needs: tuple[int, ...] = ()  # ids of the steps that it waits for


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """A decision about a vjob that differs from the one before, or has another reason."""

    id: int
    time: float
    plan_id: int  # 0: a cycle that had nothing to do
    vjob: str
    state: str
    code: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Pause:
    """An operator's order that the engine begin no context switch."""

    since: float
    by: str


@dataclass(frozen=True, slots=True)
class RoomReport:
    """The report of a room's prolog or epilog about its node. An epilog without a problem proves that no VM is left."""

    time: float
    room: int  # job id
    node: str
    hook: str  # prolog, epilog
    problem: str
    ended: tuple[str, ...]  # VMs that the epilog had to end


class RunState(enum.StrEnum):
    """What has become of a run of a job of the schedule."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    INTERRUPTED = "interrupted"  # the engine ended, or was killed, meanwhile


@dataclass(frozen=True, slots=True)
class ScheduledRun:
    """A run of a job of the schedule."""

    id: int
    job: str
    cron: str  # the expression by which it ran
    host_time: float  # when it began, by the host's clock; all else is the ledger's
    began: float
    ended: float  # 0: it has not
    state: RunState
    result: str  # a sentence on what was done, or why not
    failures: int  # of the job in a row, with this run


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, in a sentence for a person."""

    id: int
    time: float
    vjob: str
    vm: str
    node: str
    kind: str
    message: str
