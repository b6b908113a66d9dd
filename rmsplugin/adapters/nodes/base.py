"""Node agents: the engine's requests about files on a node (``rmsplugin-node``, docs/protocols.md section 4).

Contract of ``Nodes``, for every implementation:

* Calls block and are bounded in time; they may be made from several threads. A silent node does not delay callers of
  other nodes, and delays all of its own callers equally long.
* Every verb is idempotent, except that ``seal``, ``send`` and ``verify`` read the whole file again.
* A node that cannot be reached raises UnavailableError; past the bound TimedOutError is raised, and the outcome has
  to be observed (``stat``, ``list_files``).
* A store without a marker raises NoStoreError for every request about its states: it is not mounted, or was never set
  up. So NotFoundError of a state says that a store with a marker does not have the state.
* A store whose files do not answer, as those of a file server that hangs, raises TimedOutError for every request that
  reads it. Requests that do not read it are answered.
* A saved state is that of a suspend, or, if ``checkpoint`` is not 0, the checkpoint with this number. Each has files
  of its own, and a verb on one kind does not wait for one on the other.
* An engine of a lower epoch than the highest that has acted on a node is refused each act there (DeposedError), and may
  only look. An engine that gives no epoch is of the first.
* With several engines, a node that was booted anew refuses all acts until an engine has shown there that it leads. The
  first act does so. It raises DeposedError if the engine does not lead, and UnavailableError if that took too long.
* A missing file raises NotFoundError, a full file system NoSpaceError, a file with other content than it should have
  CorruptStateError, anything else OperationFailedError.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from rmsplugin.adapters.platform.base import Progress


@dataclass(frozen=True, slots=True)
class PartialFile:
    """A state file under its temporary name."""

    size_bytes: int
    complete: bool  # the hypervisor (or a copy) has finished writing it


@dataclass(frozen=True, slots=True)
class StateFiles:
    """The files of one VM's state on a node."""

    final_bytes: int | None
    partial: PartialFile | None
    free_bytes: int


@dataclass(frozen=True, slots=True)
class Digest:
    """Size and BLAKE2b of a state file: ``seal`` returns it, and ``send`` and ``verify`` expect it."""

    size_bytes: int
    blake2b: str


@dataclass(frozen=True, slots=True)
class NodeFiles:
    """The VMs of which a node has files."""

    states: frozenset[str]
    partials: frozenset[str]
    configs: frozenset[str]


@dataclass(frozen=True, slots=True)
class Space:
    """Room in a store, and its marker; None: it has none."""

    free_bytes: int
    marker: str | None


@dataclass(frozen=True, slots=True)
class NodeCheck:
    """A node's facts for ``rmsplugin check``."""

    version: str
    directories: Mapping[str, Mapping[str, Any]]  # by setting, e.g. "store": path, exists, owner, mode, free_bytes
    images: Mapping[str, bool]  # path -> readable there
    time: float  # the node's clock, seconds since the epoch
    bridge: bool  # whether the guests' bridge is there
    save_format: str  # how its libvirt compresses saves, e.g. "raw" or "lzop"; "" unknown
    restorable_formats: frozenset[str]  # the formats for which the node has the programs
    snapshot_format: str = ""  # as ``save_format``, of checkpoints
    templates: tuple[int, int] | None = None  # the number of templates, and their bytes; None: an older release
    vm_hook: bool | None = None  # libvirt's hook there refuses VMs that are not ours; None: an older release
    filter_tools: tuple[str, ...] = ()  # missing programs by which libvirt filters
    ports_closed: bool | None = None  # our table closes its ports to VMs; None: an older release
    writable_images: frozenset[str] = frozenset()  # image files that root there may write, and give to others
    hidden_vm_dir: str = ""  # the first directory on the way to ``vm_dir`` that QEMU's account may not pass
    kvm_closed: bool | None = None  # /dev/kvm is there, and QEMU's account may not open it; None: not known
    guest_filter: bool | None = None  # the node can filter VMs' interfaces by itself; None: an older release
    unfiltered: tuple[str, ...] = ()  # VMs there whose interfaces it filtered until its rules were flushed
    epoch: int | None = None  # it obeys no engine of a lower one; None: an older release
    platform: Mapping[str, Any] = field(default_factory=dict)  # what else its platform tells; none: an older release


@dataclass(frozen=True, slots=True)
class RoomEnd:
    """What a node did when it was told to end a room."""

    ended: bool  # the process with which the room ends was there, and was ended
    vms: tuple[str, ...] = ()  # our VMs there, for which nothing was done


class TemplateUse(enum.StrEnum):
    """The next step of a VM of a template's kind."""

    COPIED = "copied"  # the template's state is there under the VM's name, to be restored
    MAKE = "make"  # there is no template, and this VM makes it
    BOOT = "boot"  # it may not: another VM does, it failed lately, or the node keeps none


@dataclass(frozen=True, slots=True)
class Template:
    """The name of a template."""

    key: str  # 32 hexadecimal digits, of ``Platform.template_key``
    image: str  # its name in the settings; the node tells whether the files are still the same


@dataclass(frozen=True, slots=True)
class Reach:
    """Whether one node can reach another, as copies need it, and no further."""

    agent: str  # the fault on the way to its node agent; "" if there is none
    platform_open: bool = False  # the other node's libvirt obeys the first node
    unrestricted: bool = False  # the first node's key may call all verbs on the other node, not only those of copies


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """The present memory and the bound of a node's VMs whose memory is observed."""

    bounded: bool  # there is a bound, and it holds
    why: str  # else the node's missing requirement; "" if there is none, and no bound was set
    limit_mib: int | None
    used_mib: int | None
    waits: bool  # a process waits for memory now, because of the bound
    pressure: float | None  # share of the last 10 s in which a process on the node waited for memory, in percent
    waiting: tuple[str, ...] = ()  # the VMs that wait


#: Storage that is slower than this, reading and syncing, is taken for broken.
SLOWEST_SEAL_BYTES_PER_S = 10 << 20


def seal_timeout_s(size_bytes: int, call_timeout_s: float) -> float:
    """The seconds that the seal of a file of ``size_bytes`` may take, with ``call_timeout_s`` for a small one."""
    return call_timeout_s + size_bytes / SLOWEST_SEAL_BYTES_PER_S


@dataclass(frozen=True, slots=True)
class Guard:
    """The addresses to which the node's own filter pins a VM's interface, if the site has chosen it (NODE_FILTER)."""

    mac: str
    address: str


class VMFiles(Protocol):
    """A VM's files on its node besides its state."""

    def put_config(self, node: str, vm: str, content: bytes, guard: Guard | None = None) -> None:
        """Write the VM's configuration file, after the VM's future interface is pinned, if it is to be.

        ``drop_config`` undoes this. A node that cannot, or whose agent is of an older release, raises
        OperationFailedError.
        """
        ...

    def put_seed(self, node: str, vm: str, content: bytes) -> None:
        """Write the VM's cloud-init seed (an ISO image)."""
        ...

    def make_overlay(self, node: str, vm: str, base: str) -> None:
        """Make the VM's qcow2 overlay on a base image that the settings name; one that exists is kept."""
        ...

    def drop_config(self, node: str, vm: str) -> None:
        """Remove the VM's configuration, seed, overlay and console log."""
        ...


class SavedStates(Protocol):
    """The saved states and checkpoints of VMs."""

    def stat(self, node: str, vm: str, *, shared: bool = False, checkpoint: int = 0) -> StateFiles:
        """The files of the VM's state."""
        ...

    def seal(
        self, node: str, vm: str, *, shared: bool = False, checkpoint: int = 0, progress: Progress | None = None
    ) -> Digest:
        """Put the partial file on disk under its final name, and return its digest.

        If there is no partial file, but a final one, it was sealed before, and its digest is returned. So the caller
        that saves a VM has to make sure that no older final file is there. Bounded by the size of the file
        (``seal_timeout_s``), and by the silence of the node. An incomplete file raises CorruptStateError.
        """
        ...

    def verify(
        self, node: str, vm: str, digest: Digest, *, timeout_s: float, shared: bool = False, checkpoint: int = 0
    ) -> None:
        """Read the final file. One that differs raises CorruptStateError."""
        ...

    def send(
        self,
        source: str,
        destination: str,
        vm: str,
        digest: Digest,
        *,
        timeout_s: float,
        checkpoint: int = 0,
        progress: Progress | None = None,
        replaces: bool = True,
    ) -> None:
        """Copy the final file from one node's store to another's, verified where it arrives.

        Another state of the VM there is outdated, and removed; without ``replaces`` it raises OperationFailedError, and
        the other node is asked nothing.
        """
        ...

    def drop_state(self, node: str, vm: str, *, shared: bool = False, checkpoint: int = 0) -> None:
        """Remove final and partial file."""
        ...

    def use_checkpoint(self, node: str, vm: str, number: int, *, shared: bool = False) -> None:
        """Make a checkpoint on the node the VM's state, and keep it as a checkpoint, too: one file with two names.

        Another state in the VM's place raises OperationFailedError.
        """
        ...

    def list_files(self, node: str, *, shared: bool = False) -> NodeFiles:
        """All VMs that the node has files of."""
        ...


class GroupStores(Protocol):
    """The parts of a shared store that are groups' own."""

    def adopt(self, node: str, vms: Collection[str]) -> None:
        """Move the states of these VMs, and their checkpoints, to the engine's own part of the shared store.

        The engine of all groups before has left them in the whole store. Those that are there already stay. It can be
        called again.

        Raises:
            NoStoreError: the node does not see the engine's part.
            OperationFailedError: the engine has no part of its own. Also the error of an older agent.
        """
        ...

    def lend(self, node: str, vm: str, group: str, digest: Digest) -> None:
        """Give another group a second name of the VM's state in its part of the shared store; nothing is copied.

        The state has this engine's name still, and each of the two is dropped for itself. It can be called again.

        Raises:
            NotFoundError: there is no state.
            CorruptStateError: it has another size. Its content is not read.
            OperationFailedError: the other group has no store yet, or another state of this VM is there.
        """
        ...


class AsideStates(Protocol):
    """Saved states that were put aside, under names that nothing else uses."""

    def put_aside(self, node: str, vm: str, number: int, *, shared: bool = False) -> bool:
        """Give the VM's final state, and its disk on the node, names that nothing else uses. ``take_back`` undoes it.

        Returns:
            Whether the state lies there, put aside. A node that has neither raises NotFoundError.
        """
        ...

    def take_back(self, node: str, vm: str, number: int, *, shared: bool = False) -> bool:
        """Undo ``put_aside``; one that has another state in its place raises OperationFailedError."""
        ...

    def drop_aside(self, node: str, vm: str, number: int, *, shared: bool = False) -> None:
        """Remove the files of ``put_aside``."""
        ...

    def verify_aside(
        self, node: str, vm: str, number: int, digest: Digest, *, timeout_s: float, shared: bool = False
    ) -> None:
        """Read the state that was put aside. Raises as ``verify``."""
        ...


class StateStores(Protocol):
    """The stores of saved states."""

    def init_store(self, node: str, marker: str, *, expected: str = "", shared: bool = False) -> str:
        """Set up the store, with a marker of 32 hexadecimal digits; one that has a marker keeps it.

        Args:
            node: the node.
            marker: an unguessable word that no other store has.
            expected: a VM whose final state has to be there; otherwise, or if a shared store is no directory,
                NoStoreError.
            shared: whether it is the shared store.

        Returns:
            The marker that the store has now.
        """
        ...

    def space(self, node: str, *, shared: bool = False) -> Space:
        """Room in the store, and its marker; nothing is made."""
        ...


class Templates(Protocol):
    """The templates from which VMs start in place of a boot."""

    def use_template(
        self,
        node: str,
        vm: str,
        template: Template,
        uuid: str,
        mac: str,
        config: bytes,
        seed: bytes = b"",
        guard: Guard | None = None,
    ) -> TemplateUse:
        """Have a copy of the template that can be restored as this VM, with its name, UUID and MAC address.

        The copy lies in ``VM.template`` beside the VM's configuration, and goes with it. The state of a VM that makes
        the template is saved there, too. If the image has a disk, the VM's disk is the template's afterwards, or
        missing. No VM may run on the disk. With a copy come the configuration and the seed, as by ``put_config`` and,
        if there is one, ``put_seed``; the interface is pinned as by ``put_config`` in any case. Raises
        CorruptStateError for a template that cannot be used.
        """
        ...

    def await_guest(self, node: str, vm: str, template: Template, *, timeout_s: float) -> bool:
        """Wait until the guest of the VM that makes the template waits for its configuration. Returns whether it does.

        Raises NotFoundError if the VM does not make it.
        """
        ...

    def keep_disk(self, node: str, vm: str, template: Template) -> None:
        """Keep a copy of the disk of the VM that makes the template, in its state after the VM was saved.

        Raises NotFoundError if the VM does not make it.
        """
        ...

    def settle_template(self, node: str, vm: str, template: Template) -> bool:
        """Handle a successful start: keep the state that the VM made as the template, or remove the copy that it used.

        Returns:
            Whether a template was kept: it is not if the store cannot hold it.
        """
        ...

    def refuse_template(self, node: str, vm: str, template: Template) -> None:
        """Handle a failed template, or one that could not be made: it is removed, and for an hour none is made.

        The VM's disk is removed too, for the VM boots from a new one. No VM may run on it.
        """
        ...


class MemoryBounds(Protocol):
    """The bounds on the memory of a node's observed VMs together."""

    def bound_memory(self, node: str, mib: int) -> MemoryReport:
        """Bound the memory of all VMs of the node whose memory is observed, with their hypervisor processes.

        A process that needs more then waits until memory is freed or the bound is raised. With control groups of
        version 1 this is at the bound, and none is killed. With version 2 it is from a little below, longer and longer,
        and at the bound itself the kernel kills. The bound is gone when the node restarts, and VMs that start while
        there is none are outside of it until they start or arrive anew: so it has to be set before.

        Each call gives each VM its present memory and a share of the rest, and most of the rest to those that wait.
        A VM without a share, since it has just started, may take others' parts. With version 1 a waiting VM is lost
        when its hypervisor is asked to save or move it: so the bound is raised first.

        Args:
            node: the node.
            mib: the bound; 0 to leave it as it is.

        Raises:
            OperationFailedError: more is used, and cannot be reclaimed; the bound is as it was. Also the error of an
                older agent.
        """
        ...


class Turns(Protocol):
    """The turns of engines."""

    def obey(self, node: str) -> None:
        """Have the node refuse all acts of engines of lower epochs from now on; nothing else changes.

        An agent of an older release raises OperationFailedError: it learns the epoch with the first act.
        """
        ...


class NodeLooks(Protocol):
    """The questions of `rmsplugin check`."""

    def check(self, node: str) -> NodeCheck:
        """Version, directories and images of the node."""
        ...

    def mounts(self, node: str) -> Mapping[str, Any]:
        """What its platform tells of what guests mount there (``PlatformOnNode.mounts``).

        An agent of an older release raises OperationFailedError.
        """
        ...

    def reach(self, node: str, other: str) -> Reach:
        """Try the other node's agent and libvirt from ``node``."""
        ...


class RoomsOnNodes(Protocol):
    """The rooms on their nodes."""

    def end_room(self, node: str, job_id: int) -> RoomEnd:
        """End the room of this job, if no VM of ours is on its node; the RMS sees the job complete then.

        A room of an older release, or of another hand, has no process that the node knows. Raises OperationFailedError
        if the agent is of an older release.
        """
        ...


class Nodes(
    VMFiles,
    SavedStates,
    GroupStores,
    AsideStates,
    StateStores,
    Templates,
    MemoryBounds,
    Turns,
    RoomsOnNodes,
    NodeLooks,
    Protocol,
):
    """The node agents of all nodes of the cluster."""

    def close(self) -> None:
        """Drop all connections."""
        ...
