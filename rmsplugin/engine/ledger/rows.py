"""The rows of the ledger: what the plugin remembers of vjobs, VMs, operations, actions and events."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from rmsplugin.model.operation import OperationKind as OperationKind  # of many rows
from rmsplugin.model.priority import Standing
from rmsplugin.model.vjob import Geometry, VJobState


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
    submitted: float  # first submission: a requeue does not change it
    state_since: float
    script_started: bool = False  # recorded before the script starts (I5)
    finished: bool = False  # the wrapper delivered exit code and output
    losses: int = 0  # how often its state was truly lost
    restarts: int = 0  # of the RMS job, as last seen
    wrapper_seen: float = 0.0  # from when on its wrapper may be silent; each sign of life is in memory only
    private_key: str = field(default="", repr=False)
    public_key: str = ""
    priority: int = 0  # Slurm's, as it last was while the job was pending
    resumes: bool = False  # it sleeps because the engine suspended it: it resumes when its turn comes
    ran_s: float = 0.0  # how long it has run since its start, before it came into its state
    taking_back: int = 0  # number of the saved states, put aside before, that it gets back; 0: none
    returns: int = 0  # how often it went back to a checkpoint
    returned: str = ""  # what its user is told of the last time
    repeated_s: float = 0.0  # how much of its run was repeated by that, at most
    job_name: str = ""  # of its job in the RMS
    exit_code: int | None = None  # of its script; None: it has not ended by itself, or under an older release
    exit_signal: int = 0  # that ended it; 0: none
    account: str = ""  # its user as the front told, as JSON; empty: as this host has it
    finished_at: float = 0.0  # when the wrapper delivered them for the first time; means nothing while not ``finished``
    standing: Standing | None = None  # what ``priority`` was made of; None: not known yet
    requeue_of: int = -1  # ``restarts`` of the run that was requeued on purpose, as its wrapper told; -1: none
    script_digest: str = ""  # of the job's script, wrapper's line included; empty: of an older release
    seen_restarts: int = -1  # of its job, as last seen, with its SubmitTime then; -1: of an older release
    seen_submitted: int = 0
    begins_anew: bool = False  # its script asked for that, or had ended before the next run: it starts again in that
    paused: bool = False  # its VMs stand still: it is *paused*, or *suspending* and was before


@dataclass(frozen=True, slots=True)
class VMRow:
    """One VM of a vjob."""

    name: str
    job_id: int
    idx: int
    uuid: str
    mac: str
    address: str
    host: str  # where it runs or is paused, or is about to; "" while sleeping
    destination: str = ""  # where a migration under way takes it
    image_node: str = ""  # where its saved state is
    image_bytes: int = 0
    image_blake2b: str = ""
    touched: tuple[str, ...] = ()  # every node that may hold a file or a domain of it
    host_key: str = field(default="", repr=False)  # private, OpenSSH form
    host_key_public: str = ""
    centi_cpus: int | None = None  # its demand by observation, hundredths of a CPU; None: what was requested
    memory_demand_mib: int | None = None  # likewise
    observed: bool = False  # it takes of its node what it is seen to need, and not all of its memory
    #: With which it was booted: what was requested and, since 0043, what its image takes on top of it.
    memory_mib: int = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class Aside:
    """The saved states of a vjob that a restart put aside, with all that is needed to take them back."""

    id: int
    job_id: int
    display_id: str
    user: str
    uid: int
    time: float
    reason: str
    complete: bool  # the restart that put them aside is done with them
    losses: int  # the vjob's, before that restart
    private_key: str = field(repr=False)
    public_key: str
    vms: tuple[VMRow, ...]  # all VMs of the vjob; those without a digest had no saved state


class Outcome(enum.StrEnum):
    """How far an operation or action is."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Operation:
    """Something done to a vjob; at most one at a time for each."""

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
    memory_mib: int = 0  # of the VM; 0: of an older release, as large as was requested


class PlanState(enum.StrEnum):
    """How far a plan is."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"  # a step of it failed, or was skipped
    REJECTED = "rejected"  # the checker found a fault in it: nothing of it was done
    STALE = "stale"  # the cluster had changed before it could be applied: nothing of it was done
    NONE = "none"  # there was none: nothing could be proposed


class StepState(enum.StrEnum):
    """How far a step is."""

    PLANNED = "planned"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"  # a step that it waited for failed, or its time is over


OPEN_STEPS = (StepState.PLANNED, StepState.RUNNING)


@dataclass(frozen=True, slots=True)
class Plan:
    """One context switch, as it was decided. Times are seconds since the epoch."""

    id: int
    time: float
    policy: str
    sentence: str
    fallback: str  # why this stands in for the answer that was asked for; empty if it is that answer
    cost_mib: int
    lower_bound_mib: int
    estimate_s: float  # of its makespan
    decided_s: float  # how long deciding and planning took
    state: PlanState
    error: str
    ended: float


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that a plan does to a vjob."""

    id: int
    plan_id: int
    vjob: str  # display id: elements of job arrays may have no job id yet
    kind: OperationKind
    hosts: dict[str, str]  # by VM name, where it runs afterwards; empty for a suspend or pause
    reason: str
    state: StepState
    operation_id: int  # 0 before it began
    error: str
    began: float
    ended: float
    needs: tuple[int, ...] = ()  # ids of steps


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """What was decided of a vjob, when that, or why, was something else than before."""

    id: int
    time: float
    plan_id: int  # 0: of a cycle that had nothing to do
    vjob: str
    state: str
    code: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Pause:
    """An operator's word that the engine shall begin no context switch."""

    since: float
    by: str


@dataclass(frozen=True, slots=True)
class RoomReport:
    """What the prolog or epilog of a room said of its node. An epilog without a problem proves that no VM is left."""

    time: float
    room: int  # job id
    node: str
    hook: str  # prolog, epilog
    problem: str
    ended: tuple[str, ...]  # VMs that the epilog had to end


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
