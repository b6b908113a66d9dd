"""The node's half of a platform: what node agent and room hooks ask of the program that runs VMs on their own node.

Contract, for every implementation:

* It is asked as root on the node itself, in a process that lives for one call. So making it costs nothing, each method
  imports what it alone needs, and all of it is of the standard library.
* It knows the form of files, accounts and programs of the platform. Directories, locks, temporary names and digests
  are the node agent's.
* Errors are those of ``rmsplugin.errors``, or OSError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path
    from typing import IO


class Identity(NamedTuple):
    """The parts in which two otherwise equal VMs must differ."""

    name: str
    job: int
    vm_index: int
    uuid: str
    mac: str


class Unpacked(NamedTuple):
    """How a state is written without its compression: a new head, then what follows the old one, through a program."""

    head: bytes
    program: str | None  # it unpacks with the option -dc; None: what follows is not compressed


class SavedStates(Protocol):
    """The form of the files into which VMs are saved."""

    def is_whole(self, state: Path) -> bool:
        """Whether the platform has finished writing the file."""
        ...

    def require_restorable(self, state: Path) -> None:
        """Refuse a whole state that this node could not restore. Raises OperationFailedError."""
        ...

    def head_as(self, state: IO[bytes], identity: Identity) -> bytes:
        """The head of a template's state, read from the beginning, as that of another VM; it is as long as before.

        Raises:
            CorruptStateError: the file is not of the known form, or has no room for the new names.
        """
        ...

    def unpacked(self, state: IO[bytes]) -> Unpacked:
        """Read the head of a template's state; the file stands behind it then.

        Raises:
            CorruptStateError: the file is not of the known form.
            OperationFailedError: the node lacks the program that unpacks it.
        """
        ...


class MemoryGroups(NamedTuple):
    """The control group in which the platform puts VMs whose memory is observed."""

    plain: str  # its name where the platform makes groups by itself
    of_systemd: str  # where it has systemd make them
    fault: str  # why the platform does not put VMs into groups of the memory controller; "" if it does


class Memory(Protocol):
    """The memory of VMs together."""

    def memory_groups(self, root: Path) -> MemoryGroups:
        """The group of all VMs whose memory is observed; ``root`` has the host's /etc."""
        ...


class NodeSettings(Protocol):
    """The settings of a node that say which files and interfaces its VMs have."""

    @property
    def vm_path(self) -> str:
        """The directory of the VMs' files."""
        ...

    @property
    def images(self) -> tuple[str, ...]:
        """Every file that an image needs."""
        ...

    @property
    def bases(self) -> frozenset[str]:
        """The images on which overlays may be made."""
        ...

    @property
    def bridge(self) -> str:
        """The bridge into which VMs plug."""
        ...

    @property
    def references(self) -> frozenset[str]:
        """The names of the images of containers."""
        ...

    @property
    def mount_targets(self) -> tuple[str, ...]:
        """The directories that guests have of the site; {user} and {home} in them are those of some user."""
        ...

    @property
    def file_servers(self) -> tuple[tuple[str, int], ...]:
        """Host and port of each server from which guests mount."""
        ...


class Facts(NamedTuple):
    """The facts about its node that the node agent knows, and a question before a creation needs."""

    epoch: int  # the highest of an engine that has acted here
    is_filtered: Callable[[str], bool]  # whether the node filters the interface of this name
    knows_leader: bool = True  # False: it has come up anew, and no engine has shown that it leads


class Creation(Protocol):
    """The platform's question before it creates a VM, takes one in or restores one: it does not if it is refused."""

    def creates(self, words: Sequence[str]) -> bool:
        """Whether these words of the platform's announce that a VM is created."""
        ...

    def refusal(self, words: Sequence[str], description: str, settings: NodeSettings, facts: Facts) -> str:
        """The reason why the VM may not be created here; "" if it may.

        Args:
            words: those of ``creates``; the first is the VM's name.
            description: the platform's description of the VM.
            settings: those of this node.
            facts: what the node agent knows of this node.

        Raises:
            ValueError: the description cannot be read.
        """
        ...


class Rooms(Protocol):
    """The VMs of ours on this node, found without help: the platform's daemon may be down."""

    def silence(self) -> str:
        """The reason why no VM can be started here, in a sentence; "" if the platform answers."""
        ...

    def running_vms(self, proc: Path) -> dict[str, list[int]]:
        """The process ids of our VMs, by name of the VM; ``proc`` is the host's /proc."""
        ...

    def end_vm(self, name: str) -> None:
        """Have the platform end the VM, if it can do so now; who calls looks at the outcome."""
        ...


class WantedVM(NamedTuple):
    """A VM to be booted or restored here by the node agent itself."""

    name: str
    uuid: str
    cpus: int
    memory_mib: int
    reference: str  # the name of its image
    mounts: tuple[tuple[str, bool], ...]  # directories of this node that it has, and whether it may write there
    filtered: bool  # this node filters its interface
    resized_cpus: int = 0  # the CPUs that it may use; 0: all of its own
    resized_memory_mib: int = 0  # the same of its memory


class Call(NamedTuple):
    """The call of an engine that has the node agent do something with a VM."""

    deadline: float  # by the monotonic clock
    settings: NodeSettings
    is_filtered: Callable[[str], bool]  # as in ``Facts``
    still: Callable[[], None]  # raises when nobody waits for the answer any more, or the turn of the engine is over
    turn: Callable[[], AbstractContextManager[None]]  # within it no other engine's turn begins; raises as ``still``
    report: Callable[[dict[str, Any]], None]  # tells the engine of the progress


class VMs(Protocol):
    """The VMs of this node where no daemon of the platform obeys engines: the node agent does what an engine asks.

    What each act does, and leaves behind, is that of ``base.Platform``.
    """

    def host(self) -> dict[str, Any]:
        """The values of ``base.HostInfo``: cpus, memory_mib, hypervisor."""
        ...

    def list(self) -> dict[str, dict[str, Any]]:
        """By name, the values of ``base.VMInfo``: power, uuid, job_running."""
        ...

    def has(self, name: str) -> bool:
        """Whether anything of the VM runs here."""
        ...

    def statistics(self) -> dict[str, dict[str, Any]]:
        """By name, the values of ``base.VMStatistics``.

        They are: cpu_time_ns, cpu_delay_ns, used_kib, most_kib, cpus, time_s, received_bytes, sent_bytes.
        """
        ...

    def used(self, name: str) -> dict[str, int]:
        """The use of the VM, by the names of ``guests.used.Used``. Raises NotFoundError: it is not here."""
        ...

    def boot(self, vm: WantedVM, call: Call) -> None:
        """See ``Platform``."""
        ...

    def stop(self, name: str, call: Call) -> None:
        """See ``Platform``."""
        ...

    def save(self, name: str, path: Path, call: Call) -> None:
        """See ``Platform``."""
        ...

    def checkpoint(self, name: str, path: Path, call: Call) -> None:
        """See ``Platform``."""
        ...

    def restore(self, vm: WantedVM, path: Path, call: Call) -> None:
        """See ``Platform``."""
        ...

    def pause(self, name: str, call: Call) -> None:
        """See ``Platform``."""
        ...

    def unpause(self, name: str, call: Call) -> None:
        """See ``Platform``."""
        ...

    def set_memory(self, name: str, mib: int, call: Call) -> None:
        """See ``Platform``."""
        ...

    def set_cpus(self, name: str, cpus: int, call: Call) -> None:
        """See ``Platform``."""
        ...

    def abort(self, name: str) -> None:
        """See ``Platform``: of the VM's save or checkpoint."""
        ...


class PlatformOnNode(SavedStates, Memory, Creation, Rooms, Protocol):
    """All that a node asks."""

    def sockets(self, *, look: bool) -> tuple[str, ...]:
        """The sockets on this node at which the platform obeys; the first one counts on which somebody listens.

        ``look``: those at which it only tells.
        """
        ...

    def vms(self) -> VMs | None:
        """The VMs of this node; None: engines reach the platform itself (``sockets``)."""
        ...

    def forget(self, name: str) -> None:
        """Remove what is left of a VM, if nothing of it runs here. Raises OperationFailedError."""
        ...

    def make_overlay(self, base: str, overlay: Path) -> None:
        """Make the disk of a VM, a new file, on the base of its image. Raises OperationFailedError."""
        ...

    def programs(self) -> tuple[str, ...]:
        """The paths of the programs on which the form of a VM in memory depends."""
        ...

    def reach(self, node: str) -> dict[str, Any]:
        """Whether the platform on another node obeys this one, under its key of the answer to ``reach``."""
        ...

    def check(self, vm_dir: Path, settings: NodeSettings) -> dict[str, Any]:
        """The facts of this node for ``rmsplugin check``, under their keys of the answer to ``check``."""
        ...

    def mounts(self, settings: NodeSettings) -> dict[str, Any]:
        """Whether this node has what guests mount, or reaches it, under the keys of the answer to ``look-at-mounts``.

        Takes 5 s at most, whatever file servers hang.
        """
        ...
