"""vjob: a virtualised job, one RMS job in one or more VMs, scheduled as a unit (RR-6929, section 2.2)."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, field

from rmsplugin.errors import RmspluginError
from rmsplugin.model.constraints import Constraints

_TRANSITIONAL = frozenset({"starting", "pausing", "unpausing", "suspending", "resuming", "stopping"})


class VJobState(enum.StrEnum):
    """Life cycle of a vjob: the states of RR-6929 fig. 2, paused beside them, and the transitions between them."""

    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    PAUSING = "pausing"
    PAUSED = "paused"  # its VMs compute nothing, and keep their memory on their nodes
    UNPAUSING = "unpausing"
    SUSPENDING = "suspending"
    SLEEPING = "sleeping"
    RESUMING = "resuming"
    STOPPING = "stopping"
    TERMINATED = "terminated"

    def __init__(self, word: str) -> None:
        """Make the state of this word. A cycle asks of each vjob many times.

        ``is_live``: whether VMs or saved states of the vjob may exist. ``is_transitional``: whether an operation is
        under way that a restarted engine has to finish.
        """
        self.is_live = word not in ("waiting", "terminated")
        self.is_transitional = word in _TRANSITIONAL


_S = VJobState

#: Every legal move, with its reason. All other moves raise IllegalTransitionError.
TRANSITIONS: dict[tuple[VJobState, VJobState], str] = {
    (_S.WAITING, _S.STARTING): "the decision found room: the RMS job is released, VMs will boot",
    (_S.WAITING, _S.TERMINATED): "cancelled in the queue",
    (_S.STARTING, _S.RUNNING): "all VMs answer",
    (_S.STARTING, _S.WAITING): "the RMS did not start the job, or a VM could not boot: back to its place in the queue",
    (_S.STARTING, _S.STOPPING): "cancelled while starting",
    (_S.RUNNING, _S.SUSPENDING): "a context switch, or an operator, suspends it",
    (_S.RUNNING, _S.STOPPING): "the job has ended",
    (_S.RUNNING, _S.WAITING): "its VMs were lost: the job is requeued from the start (I5)",
    (_S.RUNNING, _S.PAUSING): "a context switch, or an operator, pauses it",
    (_S.PAUSING, _S.PAUSED): "all its VMs hold still",
    (_S.PAUSING, _S.RUNNING): "a VM could not be paused: all of them go on (I4)",
    (_S.PAUSING, _S.STOPPING): "cancelled while being paused",
    (_S.PAUSING, _S.WAITING): "its VMs were lost while being paused",
    (_S.PAUSED, _S.PAUSING): "one of its VMs was seen running: all of them hold still again (I4)",
    (_S.PAUSED, _S.UNPAUSING): "a context switch, or an operator, lets it go on where it is",
    (_S.PAUSED, _S.SUSPENDING): "somebody needs its memory, its node leaves, or it was paused for long enough",
    (_S.PAUSED, _S.STOPPING): "cancelled while paused",
    (_S.PAUSED, _S.WAITING): "its VMs were lost: the job is requeued from the start (I5)",
    (_S.UNPAUSING, _S.RUNNING): "all its VMs are seen running",
    (_S.UNPAUSING, _S.PAUSED): "a VM could not go on: all of them hold still (I4)",
    (_S.UNPAUSING, _S.STOPPING): "cancelled while going on",
    (_S.UNPAUSING, _S.WAITING): "its VMs were lost while going on",
    (_S.SUSPENDING, _S.PAUSED): "a save of paused VMs failed: all of them stay paused (I2, I4)",
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
    (_S.WAITING, _S.STOPPING): "saved states that were put aside are taken back, or dropped as its job has ended",
    (_S.STOPPING, _S.SLEEPING): "saved states that were put aside were taken back",
    (_S.STOPPING, _S.TERMINATED): "no VM and no state file is left",
    (_S.TERMINATED, _S.WAITING): "the RMS requeued an ended job, or gave its id to a new one: it begins anew",
    (_S.STOPPING, _S.WAITING): "what was lost is cleaned up and the job is back in the queue (I5)",
}


class IllegalTransitionError(RmspluginError):
    """A vjob was asked to make a move that its life cycle does not have."""

    def __init__(self, vjob: str, source: VJobState, target: VJobState) -> None:
        super().__init__(f"vjob {vjob} is {source} and cannot become {target}")


def check_transition(vjob: str, source: VJobState, target: VJobState) -> str:
    """Return the reason for the move.

    Raises:
        IllegalTransitionError: the table has no such edge.
    """
    try:
        return TRANSITIONS[source, target]
    except KeyError:
        raise IllegalTransitionError(vjob, source, target) from None


_IMAGE = re.compile(r"[A-Za-z0-9_-]{1,32}")

#: Keys of a geometry's text: the field, and the form of its value. All but the image are whole numbers.
_KEYS = {
    "vms": ("vms", re.compile(r"[0-9]{1,6}")),
    "cpus": ("cpus", re.compile(r"[0-9]{1,6}")),
    "memory": ("memory_mib", re.compile(r"[0-9]{1,9}")),
    "ntasks": ("ntasks", re.compile(r"[0-9]{1,9}")),
    "cpus_per_task": ("cpus_per_task", re.compile(r"[0-9]{1,6}")),
    "image": ("image", _IMAGE),
}
#: Keys of VMs that have one task less than the others, if tasks do not divide evenly: two more whole numbers.
_SMALL_KEYS = {
    "small_cpus": ("small_cpus", re.compile(r"[0-9]{1,6}")),
    "small_memory": ("small_memory_mib", re.compile(r"[0-9]{1,9}")),
}
#: Keys of the user's wishes about nodes, present if he gave any; `;` stands for a comma in their values.
_CONSTRAINTS = ("features", "nodes", "exclude")
#: The user's wishes about VMs beside each other: by wish, its key and value; a key is present if he gave it.
_WISHES = {
    "spread": ("spread", "1"),
    "exclusive": ("exclusive", "user"),
    "alone": ("exclusive", "yes"),
    "labelled": ("exclusive", "mcs"),
}
_WISH_KEYS = {key for key, _ in _WISHES.values()}
#: More switches than there are; lua/rmsplugin_options.lua has the same.
MOST_SWITCHES = 999_999
_VALUES = {**_KEYS, **_SMALL_KEYS, "switches": ("switches", re.compile(r"[1-9][0-9]{0,5}"))}
#: The beginning of keys that a release ignores if it does not know them.
_OPTIONAL = "x_"
_PAIR = re.compile(r"([a-z][a-z0-9_]*)=([^,=\s]*)")


def _pairs(text: str) -> dict[str, str]:
    """The pairs in ``key=value,key=value``.

    Raises:
        ValueError: the text is not of that form, or has a key twice.
    """
    pairs: dict[str, str] = {}
    for part in text.split(","):
        match = _PAIR.fullmatch(part)
        if match is None:
            raise ValueError(f"not a vjob geometry: {text!r}")
        if match[1] in pairs:
            raise ValueError(f"not a vjob geometry: {text!r}: {match[1]} is there twice")
        pairs[match[1]] = match[2]
    return pairs


@dataclass(frozen=True, slots=True)
class Geometry:
    """The number of a vjob's VMs, the demand of each, and their allowed nodes, as fixed at submission.

    Attributes:
        vms: their number; ``cpus`` and ``memory_mib`` are of each, or of the larger ones.
        small_cpus: the CPUs of each VM that has one task less than the first ones; 0: all are of one size. Then
            ``small_memory_mib`` is 0, too.
        wishes: about VMs beside each other: ``spread`` (--spread-job), ``exclusive`` (--exclusive=user), ``alone``
            (--exclusive), ``labelled`` (--exclusive=mcs).
        switches: the most leaf switches of the topology on which the VMs are (--switches); 0: any number.
    """

    vms: int
    cpus: int
    memory_mib: int
    ntasks: int = 1
    cpus_per_task: int = 1
    image: str = "default"
    constraints: Constraints = field(default_factory=Constraints)
    small_cpus: int = 0
    small_memory_mib: int = 0
    wishes: frozenset[str] = frozenset()
    switches: int = 0

    def __post_init__(self) -> None:
        """Refuse impossible sizes of VMs.

        Raises:
            ValueError: a count below 1; smaller VMs where all have as many tasks; smaller VMs that are not smaller.
        """
        for name in ("vms", "cpus", "memory_mib", "ntasks", "cpus_per_task"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if (self.small_cpus, self.small_memory_mib) == (0, 0):
            return
        if not (0 < self.small_cpus < self.cpus and 0 < self.small_memory_mib <= self.memory_mib):
            raise ValueError(
                f"small_cpus={self.small_cpus} and small_memory={self.small_memory_mib} are no smaller VM than"
                f" cpus={self.cpus} and memory={self.memory_mib}"
            )
        if self.ntasks % self.vms == 0:
            raise ValueError(f"small_cpus={self.small_cpus}: {self.ntasks} tasks are as many in each of {self.vms} VMs")

    @property
    def large(self) -> int:
        """The number of VMs, the first ones, that have ``cpus`` and ``memory_mib``; the others are smaller."""
        return self.ntasks % self.vms if self.small_cpus else self.vms

    def cpus_of(self, index: int) -> int:
        """The CPUs of VM number ``index`` (from 0)."""
        return self.cpus if index < self.large else self.small_cpus

    def memory_mib_of(self, index: int) -> int:
        """The memory requested for VM number ``index`` (from 0)."""
        return self.memory_mib if index < self.large else self.small_memory_mib

    @property
    def wishing(self) -> bool:
        """Whether the user wishes anything about VMs beside each other."""
        return bool(self.wishes or self.switches)

    @property
    def total_cpus(self) -> int:
        """The summed CPUs of all VMs."""
        return self.large * self.cpus + (self.vms - self.large) * self.small_cpus

    @property
    def total_memory_mib(self) -> int:
        """The summed requested memory of all VMs."""
        return self.large * self.memory_mib + (self.vms - self.large) * self.small_memory_mib

    @classmethod
    def parse(cls, text: str) -> Geometry:
        """Read the text by lua/rmsplugin.lua on the wrapper's line: ``key=value`` pairs with commas, in any order.

        A key that begins with ``x_`` is for facts that an older release may do without, and is ignored if unknown.
        Any other unknown key is a need of the vjob, and is refused.

        Raises:
            ValueError: the text is not of that form, or of a newer release.
        """
        text = text.strip()
        given = _pairs(text)
        values: dict[str, object] = {}
        for key, value in given.items():
            if key in _VALUES:
                field, pattern = _VALUES[key]
                if not pattern.fullmatch(value):
                    raise ValueError(f"not a vjob geometry: {text!r}: {key} cannot be {value!r}")
                values[field] = int(value) if pattern is not _IMAGE else value
            elif key in _WISH_KEYS and (key, value) not in _WISHES.values():
                raise ValueError(f"a vjob geometry made by a newer release: {key} cannot be {value!r} in {text!r}")
            elif key not in (*_CONSTRAINTS, *_WISH_KEYS) and not key.startswith(_OPTIONAL):
                raise ValueError(f"a vjob geometry made by a newer release: unknown key {key!r} in {text!r}")
        missing = [key for key in _KEYS if key not in given]
        if missing:
            raise ValueError(f"not a vjob geometry: {text!r}: it lacks {', '.join(missing)}")
        said = {key: given[key].replace(";", ",") for key in _CONSTRAINTS if key in given}
        values["constraints"] = Constraints.parse(**said)
        values["wishes"] = frozenset(wish for wish, pair in _WISHES.items() if pair in given.items())
        return cls(**values)  # type: ignore[arg-type]  # _KEYS gives each field its type

    def __str__(self) -> str:
        text = (
            f"vms={self.vms},cpus={self.cpus},memory={self.memory_mib},ntasks={self.ntasks},"
            f"cpus_per_task={self.cpus_per_task},image={self.image}"
        )
        if self.small_cpus:
            text += f",small_cpus={self.small_cpus},small_memory={self.small_memory_mib}"
        text += "".join(f",{key}={value}" for wish, (key, value) in _WISHES.items() if wish in self.wishes)
        if self.switches:
            text += f",switches={self.switches}"
        lists = (self.constraints.features, ",".join(self.constraints.nodes), ",".join(self.constraints.exclude))
        said = [f",{key}={value.replace(',', ';')}" for key, value in zip(_CONSTRAINTS, lists, strict=True) if value]
        return text + "".join(said)
