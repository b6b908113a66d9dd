"""vjob: a virtualised job, one RMS job in one or more VMs, scheduled as a unit (RR-6929, section 2.2)."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass


class VJobState(enum.StrEnum):
    """Life cycle of a vjob: the four states of RR-6929 fig. 2, and the transitions between them while they last."""

    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    SUSPENDING = "suspending"
    SLEEPING = "sleeping"
    RESUMING = "resuming"
    STOPPING = "stopping"
    TERMINATED = "terminated"

    @property
    def is_live(self) -> bool:
        """Whether VMs or saved states of the vjob may exist."""
        return self not in (VJobState.WAITING, VJobState.TERMINATED)

    @property
    def is_transitional(self) -> bool:
        """Whether an operation is under way that a restarted engine has to finish."""
        return self in (VJobState.STARTING, VJobState.SUSPENDING, VJobState.RESUMING, VJobState.STOPPING)


_S = VJobState

#: Every legal move, and why it exists. Whatever is not here raises IllegalTransitionError.
TRANSITIONS: dict[tuple[VJobState, VJobState], str] = {
    (_S.WAITING, _S.STARTING): "the decision found room: the RMS job is released, VMs will boot",
    (_S.WAITING, _S.TERMINATED): "cancelled in the queue",
    (_S.STARTING, _S.RUNNING): "all VMs answer",
    (_S.STARTING, _S.WAITING): "the RMS did not start the job, or a VM could not boot: back to its place in the queue",
    (_S.STARTING, _S.STOPPING): "cancelled while starting",
    (_S.RUNNING, _S.SUSPENDING): "a context switch, or an operator, suspends it",
    (_S.RUNNING, _S.STOPPING): "the job has ended",
    (_S.RUNNING, _S.WAITING): "its VMs were lost: the job is requeued from the start (I5)",
    (_S.SUSPENDING, _S.SLEEPING): "all its states are saved and checked",
    (_S.SUSPENDING, _S.RUNNING): "a save failed: all its VMs run on (I2, I4)",
    (_S.SUSPENDING, _S.STOPPING): "cancelled while suspending",
    (_S.SUSPENDING, _S.WAITING): "its VMs were lost while being saved",
    (_S.SLEEPING, _S.RESUMING): "a context switch, or an operator, resumes it",
    (_S.SLEEPING, _S.STOPPING): "cancelled while sleeping",
    (_S.SLEEPING, _S.WAITING): "a saved state is corrupt or gone: the job is requeued from the start (I5)",
    (_S.RESUMING, _S.RUNNING): "all VMs are seen running",
    (_S.RESUMING, _S.SLEEPING): "a restore failed, the saved states are intact (I2, I4)",
    (_S.RESUMING, _S.STOPPING): "cancelled while resuming",
    (_S.RESUMING, _S.WAITING): "a saved state is corrupt: the job is requeued from the start (I5)",
    (_S.STOPPING, _S.TERMINATED): "no VM and no state file is left",
    (_S.TERMINATED, _S.WAITING): "the RMS requeued an ended job, or gave its id to a new one: it begins anew",
    (_S.STOPPING, _S.WAITING): "what was lost is cleaned up and the job is back in the queue (I5)",
}


class IllegalTransitionError(Exception):
    """A vjob was asked to make a move that its life cycle does not have."""

    def __init__(self, vjob: str, source: VJobState, target: VJobState) -> None:
        super().__init__(f"vjob {vjob} is {source} and cannot become {target}")


def check_transition(vjob: str, source: VJobState, target: VJobState) -> str:
    """Return the reason why the move exists.

    Raises:
        IllegalTransitionError: the table has no such edge.
    """
    try:
        return TRANSITIONS[source, target]
    except KeyError:
        raise IllegalTransitionError(vjob, source, target) from None


@dataclass(frozen=True, slots=True)
class Geometry:
    """How many VMs a vjob has and what each of them demands, as fixed at submission."""

    vms: int
    cpus: int
    memory_mib: int
    ntasks: int = 1
    cpus_per_task: int = 1
    image: str = "default"

    _PATTERN = re.compile(
        r"vms=([0-9]{1,6}),cpus=([0-9]{1,6}),memory=([0-9]{1,9}),ntasks=([0-9]{1,9}),"
        r"cpus_per_task=([0-9]{1,6}),image=([A-Za-z0-9_-]{1,32})"
    )

    def __post_init__(self) -> None:
        """Refuse what no VM can be.

        Raises:
            ValueError: a count below one.
        """
        for name in ("vms", "cpus", "memory_mib", "ntasks", "cpus_per_task"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")

    @classmethod
    def parse(cls, text: str) -> Geometry:
        """Read the form that lua/rmsplugin.lua writes on the wrapper's line.

        Raises:
            ValueError: the text is not of that form.
        """
        match = cls._PATTERN.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"not a vjob geometry: {text!r}")
        vms, cpus, memory, ntasks, per_task, image = match.groups()
        return cls(int(vms), int(cpus), int(memory), int(ntasks), int(per_task), image)

    def __str__(self) -> str:
        return (
            f"vms={self.vms},cpus={self.cpus},memory={self.memory_mib},ntasks={self.ntasks},"
            f"cpus_per_task={self.cpus_per_task},image={self.image}"
        )


def vm_name(job_id: int, index: int) -> str:
    """Name, and host name, of VM number ``index`` (from 0) of a vjob."""
    return f"vjob{job_id}-{index}"


_VM_NAME = re.compile(r"vjob([0-9]{1,10})-([0-9]{1,6})")


def parse_vm_name(name: str) -> tuple[int, int] | None:
    """Return (job id, index) of a VM of ours; None for any other name."""
    match = _VM_NAME.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None
