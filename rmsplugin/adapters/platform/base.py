"""The platform Protocol: the engine's requests to the program that runs VMs on each node, its hypervisor for short.

Contract, for every implementation:

* Calls block, and are bounded in time by ``timeout_s``; past it they raise TimedOutError and the outcome has to be
  observed with ``list_vms``. They may be called from several threads.
* A request that ``capabilities`` denies is never made, except by mistake; then it raises OperationFailedError.
* Every action is idempotent: if its result is there already, it returns without harm.
* ``node`` is a node's name in the RMS. A node whose hypervisor cannot be reached raises UnavailableError.
* VMs are transient: a VM that is not running does not exist. ``list_vms`` shows only VMs named by
  ``rmsplugin.model.vm_names.vm_name``; other VMs on the node are left alone.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from rmsplugin.adapters.guests.used import Used
from rmsplugin.model.capabilities import Capabilities
from rmsplugin.model.epochs import FIRST_EPOCH
from rmsplugin.model.made_at_once import made_at_once

#: Called with (bytes done, bytes in total) while data moves; total is 0 when not known yet.
Progress = Callable[[int, int], None]

#: Called when an action is about to happen: a caller that waits there lets several actions happen at one instant.
Ready = Callable[[], None]


def at_once() -> None:
    """Ready: wait for no other action."""


#: The ways to migrate a VM that writes its memory faster than it can be sent: its CPUs are slowed down until the rest
#: can be sent; or it is sent away as it is and fetches the rest from its source; or no way, and the migration ends at
#: its time.
Converge = Literal["auto-converge", "post-copy", "abort"]

#: The network filter that we define ourselves, by its name in the settings. Any other filter is the site's.
OUR_FILTER = "rmsplugin-guest"
#: The same rules on any platform: the node agent makes them before the VM is created (``node_agent/guest_filter.py``).
NODE_FILTER = "nftables"


class VMPower(enum.StrEnum):
    """A VM's power as its hypervisor reports it."""

    RUNNING = "running"
    PAUSED = "paused"
    INCOMING = "incoming"  # the destination side of a migration or restore that has not finished
    ENDING = "ending"  # its process has been told to end, and has not yet
    CRASHED = "crashed"
    HALF = "post-copy failed"  # half of a VM whose other half is lost; it never runs


@dataclass(frozen=True, slots=True)
class KernelImage:
    """A guest booted directly from a kernel and an initrd that lie on every node."""

    kernel: str
    initrd: str
    cmdline: str = ""


@dataclass(frozen=True, slots=True)
class DiskImage:
    """A guest booted from a qcow2 overlay (made per VM) on a base, configured by a cloud-init seed."""

    overlay: str
    seed: str


@dataclass(frozen=True, slots=True)
class ContainerImage:
    """A guest that is a container, with the node's kernel.

    Attributes:
        reference: the name of its image in podman's storage on every node.
        mounts: directories of the node that it has under the same paths, and whether it may write there.
    """

    reference: str
    mounts: tuple[tuple[str, bool], ...] = ()


@dataclass(frozen=True, slots=True)
class VMSpec:
    """All facts that a hypervisor needs to create a VM. Paths are paths on the node."""

    name: str
    uuid: str
    cpus: int
    memory_mib: int
    mac: str
    bridge: str
    image: KernelImage | DiskImage | ContainerImage
    config_path: str  # the 0600 file that the guest gets as fw_cfg opt/org.rmsplugin/config
    console_log: str  # the log of the serial console; "" for none
    address: str = ""  # its IPv4 address, for the filter
    network_filter: str = ""  # the filter of its interface: one of the platform or NODE_FILTER; "" lets everything pass
    epoch: int = FIRST_EPOCH  # the epoch of the engine that creates it
    bounded: bool = False  # its memory is observed: it runs in the node's bounded control group, if there is one
    #: The size to which it was resized, where the platform bounds it (``Capabilities.bounds``); 0: all that it has.
    resized_cpus: int = 0
    resized_memory_mib: int = 0


@made_at_once
@dataclass(frozen=True, slots=True)
class VMInfo:
    """One VM as observed on a node."""

    name: str
    node: str
    power: VMPower
    uuid: str
    job_running: bool  # a save or a migration of it is under way in the hypervisor


@made_at_once
@dataclass(frozen=True, slots=True)
class VMStatistics:
    """Counters of one VM since its process started, as the hypervisor has them; None where it has none."""

    cpu_time_ns: int | None
    vcpu_delay_ns: int | None
    memory_rss_kib: int | None
    memory_current_kib: int | None
    memory_usable_kib: int | None = None  # memory that the guest could give up at once, by its own report
    major_faults: int | None = None  # pages for which the guest waited for storage, since it booted
    swap_in_kib: int | None = None  # the data that the guest has read back from its swap, since it booted
    guest_said_s: int | None = None  # when the guest reported the last three (seconds since the epoch, by its node)
    cpus: int | None = None  # the CPUs that the platform lets it use; None: it bounds none, or does not say
    received_bytes: int | None = None  # over the network, of all its interfaces
    sent_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class HostInfo:
    """Capacity of a node as its hypervisor sees it."""

    node: str
    cpus: int
    memory_mib: int
    hypervisor: str  # e.g. "QEMU 7.2.0, libvirt 9.0.0"
    domain_type: str  # "kvm" or "qemu"
    machines: frozenset[str]  # machine types that VMs can have there, with their versions
    filters: frozenset[str] | str = frozenset()  # its network filters; a text is the reason why it can have none
    account_uid: int | None = None  # the account of QEMU; None: unknown
    confined_by: str | None = None  # QEMU's confinement to its files: "apparmor", "selinux", "" none; None: unknown


class WaysThroughAgents(Protocol):
    """The ways to the platform of each node through its agent, which lets no engine pass whose turn is over."""

    @property
    def only_looks(self) -> bool:
        """Whether nothing can be changed on them."""
        ...

    def path(self, node: str) -> AbstractContextManager[str]:
        """The path of a socket whose first connection is the node's platform; it is only there within the context.

        Raises:
            DeposedError: the turn of the engine is over.
            OperationFailedError: the node lets nobody through.
            UnavailableError: the node, its agent or its platform does not answer.
        """
        ...

    def close(self) -> None:
        """End all connections."""
        ...


class AgentCalls(Protocol):
    """Calls of the node agents by their verbs, for a platform that has the agents do what it is asked."""

    def call(
        self,
        node: str,
        words: list[str],
        *,
        content: bytes = b"",
        timeout_s: float | None = None,
        advance: Callable[[Mapping[str, int]], None] | None = None,
    ) -> dict[str, Any]:
        """Do one verb, and return the agent's answer.

        Args:
            node: the node.
            words: the verb, and what follows it.
            content: its standard input.
            timeout_s: bound of the call; None: that of short verbs.
            advance: called with each report of the progress.

        Raises:
            UnavailableError: the node, or its agent, does not answer.
            RmspluginError: what the agent says, as the contract of ``adapters.nodes.base`` has it.
        """
        ...


class Platform(Protocol):
    """The program that runs the VMs on all nodes of the cluster."""

    @property
    def capabilities(self) -> Capabilities:
        """The abilities of the platform with VMs, on each node alike; the same as long as the engine runs."""
        ...

    def listen(self, heard: Callable[[str, str], None]) -> None:
        """Have ``heard`` called with node and name when a VM of ours has ended there or was made to stand still.

        It is a hint to look, and no observation: it comes late, twice or not at all, and only of nodes to which there
        is a connection, which a question makes. What the caller has ordered itself is told, too. A platform that is
        told nothing tells nothing. ``heard`` is called in a thread of the platform's, and returns at once.
        """
        ...

    def host_info(self, node: str) -> HostInfo:
        """Describe the node. Raises UnavailableError."""
        ...

    def list_vms(self, node: str) -> dict[str, VMInfo]:
        """All VMs of ours that exist on the node now, by name. Raises UnavailableError."""
        ...

    def has_vm(self, node: str, name: str) -> bool:
        """Whether the VM exists on the node in any form, asked by its name. Raises UnavailableError.

        A listing may be cut short; before a conclusion from an absence, this is asked.
        """
        ...

    def statistics(self, node: str) -> dict[str, VMStatistics]:
        """Counters of all VMs of ours on the node, by name. Raises UnavailableError."""
        ...

    def used(self, node: str, name: str) -> Used | None:
        """The use of a VM without a kernel of its own, since its first boot: also before its saves.

        None: the platform does not count; a VM with a kernel of its own does (``Guests.used``). ``available_kib`` is 0.
        Raises NotFoundError, UnavailableError.
        """
        ...

    def template_key(self, node: str, spec: VMSpec) -> str:
        """The key of templates: a saved state of one VM can be restored as any VM with the same key.

        It is the same for VMs of the same virtual hardware on nodes with the same CPU, QEMU and libvirt. It does not
        depend on the VM's own name, addresses and paths, nor on the content of its image's files.

        Returns:
            32 hexadecimal digits.

        Raises:
            UnavailableError: the node does not answer.
        """
        ...

    def boot(self, node: str, spec: VMSpec, *, timeout_s: float) -> None:
        """Create and start the VM. Nothing happens if it exists there already.

        The VM starts with the network filter of ``spec``, as in ``restore``, or not at all: a node that cannot have the
        filter starts no VM. Raises OperationFailedError or TimedOutError (no VM is left), UnavailableError.
        """
        ...

    def stop(self, node: str, name: str, *, timeout_s: float) -> None:
        """End the VM at once. Nothing happens if it does not exist. Raises as ``boot``."""
        ...

    def save(self, node: str, name: str, path: str, *, timeout_s: float, progress: Progress | None = None) -> None:
        """Write the VM's state to ``path`` on the node and end the VM.

        On any failure the VM runs on (or stays paused, if it was), and no whole state is left at ``path``, at most a
        part of one. Only after a failure of the hypervisor itself, which is an UnavailableError, both have to be
        observed. The caller names a temporary path and seals it (checks, syncs, renames) afterwards. A VM that does not
        exist raises NotFoundError.
        Raises NoSpaceError, OperationFailedError, TimedOutError, UnavailableError.
        """
        ...

    def checkpoint(
        self, node: str, name: str, path: str, *, timeout_s: float, progress: Progress | None = None
    ) -> None:
        """Write the VM's state to ``path`` on the node; it stands still meanwhile, and then is as it was before.

        A VM that was PAUSED stays so: VMs of a vjob are paused first, so that they are saved in their states of one
        instant. The file can be restored as after ``save``, after the VM itself exists no more. On any
        failure the VM is as it was, too, and no whole state is left at ``path``; after an UnavailableError both have to
        be observed. A VM with disks is refused: their content is no part of the state.
        Raises NotFoundError, NoSpaceError, OperationFailedError, TimedOutError, UnavailableError.
        """
        ...

    def restore(self, node: str, spec: VMSpec, path: str, *, timeout_s: float) -> None:
        """Load the state in ``path`` on the node, with the paths of ``spec``; the VM is PAUSED until ``unpause``.

        Where the platform bounds VMs, it has the size to which it was resized (``spec``) from its first moment; if it
        uses more memory than that, it has all of its own.

        It is paused so that VMs of a vjob that cannot all be restored are ended again without having lived a moment
        that their saved states do not have (I1). The file is kept.
        Nothing happens if the VM exists there already, paused or running. Raises CorruptStateError when the hypervisor
        refuses the file, NotFoundError when there is none, OperationFailedError, TimedOutError, UnavailableError; then
        no VM is left.
        """
        ...

    def pause(self, node: str, name: str, *, timeout_s: float, ready: Ready = at_once) -> None:
        """Let a RUNNING VM stand still until ``unpause``; without effect if it does so. Raises as ``unpause``.

        Args:
            node: the node of the VM.
            name: the name of the VM.
            timeout_s: bound of the whole call, ``ready`` included.
            ready: called once when only the request itself is left to be made.
        """
        ...

    def unpause(self, node: str, name: str, *, timeout_s: float, ready: Ready = at_once) -> None:
        """Let a PAUSED VM run; nothing happens if it runs. Raises NotFoundError, and as ``boot``. Else as ``pause``."""
        ...

    def set_memory(self, node: str, name: str, mib: int, *, timeout_s: float) -> None:
        """Have the VM do with so much of its memory, or have it back.

        A platform that bounds VMs (``Capabilities.bounds``) lets it use no more from now on. Less than it uses now,
        without what it caches of files, is refused (OperationFailedError), and changes nothing. A VM that needs more
        later loses a process, as a job does that needs more than its memory.

        On others the guest is asked: its balloon takes the rest, caches first. The balloon never takes memory that the
        guest needs: it gives back before the guest kills a process. But less than that should not be asked for: its
        driver tries again and again, and the guest caches nothing. A VM of an older release, whose balloon could not
        give back, is left as it is. The call returns when the hypervisor has told the balloon, not when the guest has
        followed: ``statistics`` shows the progress. The request also holds in a state that is saved afterwards, and
        where the VM migrates to.

        More than the VM's size gives all back. While the VM is saved or migrated, no request is possible
        (TimedOutError).
        Raises NotFoundError, and as ``boot``.
        """
        ...

    def set_cpus(self, node: str, name: str, cpus: int, *, timeout_s: float) -> None:
        """Let the VM use so many CPUs from now on, on a platform that bounds VMs (``Capabilities.bounds``).

        It goes on seeing all that its node has. More than its size gives all back. While it is saved, no request is
        possible (TimedOutError). Raises NotFoundError, and as ``boot``.
        """
        ...

    def migrate(
        self,
        name: str,
        source: str,
        destination: str,
        *,
        timeout_s: float,
        progress: Progress | None = None,
        epoch: int = FIRST_EPOCH,
    ) -> None:
        """Move the running VM live. Nothing happens if it runs on ``destination`` (and not on ``source``) already.

        ``epoch``: of the engine that has it moved, which is the VM's from then on, as after ``boot`` and ``restore``. A
        node on which an engine of a higher epoch has acted does not take the VM in (OperationFailedError).

        On failure the VM runs on at ``source``, and so it does when its time is over: the migration is aborted then. A
        VM that is on neither raises NotFoundError.

        It never runs on both (I1): on ``destination`` it is let run when nothing of it is left on ``source``. After a
        failure of a hypervisor itself, which is mostly an UnavailableError, and after one of the caller, the remains
        have to be observed. The VM is then on either node, running or PAUSED, or it is on both, and runs on at most
        one; on ``source`` it is never behind the one that is PAUSED on ``destination``.

        This is different after a migration has gone over to post-copy: the VM then runs on ``destination``, and nothing
        aborts the migration any more. Its outcome past its time has to be observed. If it breaks off, the VM is lost,
        and its remains are HALF (OperationFailedError).
        Raises OperationFailedError, TimedOutError, UnavailableError.
        """
        ...

    def abort_job(self, node: str, name: str) -> None:
        """Abort a save, checkpoint or migration that is under way, if there is one. Raises UnavailableError."""
        ...

    def close(self) -> None:
        """Drop all connections."""
        ...
