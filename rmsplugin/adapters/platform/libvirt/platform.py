"""libvirt behind the hypervisor Protocol: one libvirtd a node, QEMU with or without KVM."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import libvirt

from rmsplugin.adapters.guests.used import Used
from rmsplugin.adapters.platform.base import (
    Converge,
    HostInfo,
    Progress,
    Ready,
    VMInfo,
    VMPower,
    VMSpec,
    VMStatistics,
    at_once,
)
from rmsplugin.adapters.platform.libvirt.domain_xml import (
    Machine,
    StrangeXMLError,
    domain_xml,
    has_disks,
    neutral,
    snapshot_xml,
    with_partition,
    with_paths_of,
)
from rmsplugin.adapters.platform.libvirt.errors import NoControlGroupError, is_unknown_format, is_unloadable_state
from rmsplugin.adapters.platform.libvirt.link import start_event_loop
from rmsplugin.adapters.platform.libvirt.migration import Manner, Migrations
from rmsplugin.adapters.platform.libvirt.network_filter import NetworkFilters, offered_filters
from rmsplugin.adapters.platform.libvirt.nodes import LibvirtNodes
from rmsplugin.adapters.platform.libvirt.values import (
    confined_by,
    host_cpu,
    offered_domain_type,
    offered_machines,
    qemu_uid,
    version,
)
from rmsplugin.adapters.platform.libvirt.vms import HALF, LibvirtVMs
from rmsplugin.adapters.platform.libvirt.waiting import Waiting, wait
from rmsplugin.adapters.platform.libvirt.ways import Way
from rmsplugin.errors import (
    CorruptStateError,
    DeposedError,
    NotFoundError,
    OperationFailedError,
    RmspluginError,
    TimedOutError,
    UnavailableError,
)
from rmsplugin.model.capabilities import EVERYTHING, Capabilities
from rmsplugin.model.epochs import FIRST_EPOCH

DomainType = Literal["auto", "kvm", "qemu"]


class LibvirtPlatform:
    """Implements ``base.Platform`` on libvirt.

    An action ends at the latest some 30 s after its ``timeout_s``: aborting the operation under way, and looking at its
    outcome, take time too.
    """

    def __init__(
        self,
        way: Way,
        migrate_host_template: str = "{node}",
        *,
        domain_type: DomainType = "auto",
        machine_type: str,
        cpu_model: str = "",
        migrate_tls: bool = True,
        migrate_converge: Converge = "auto-converge",
        migrate_emulated: Literal["paused", "live"] = "paused",
        connect_timeout_s: float = 10.0,
        call_timeout_s: float = 10.0,
    ) -> None:
        """Connect to nothing yet.

        Args:
            way: the way to the libvirtd of each node.
            migrate_host_template: the name or address to which a VM's memory is sent when it migrates to ``{node}``.
            domain_type: ``auto`` = kvm where libvirt offers it.
            machine_type: of new VMs, with its version; the same on all nodes, else nothing can be moved. VMs that are
                restored or migrated keep their own.
            cpu_model: likewise; see ``Machine``.
            migrate_tls: encrypt and authenticate the memory stream (libvirt's VIR_MIGRATE_TLS).
            migrate_converge: the way to migrate a VM that writes its memory faster than it can be sent.
            migrate_emulated: whether a VM without KVM stands still while it is sent, or runs on.
            connect_timeout_s: bound of a connection.
            call_timeout_s: bound of the calls that take no ``timeout_s``.
        """
        self._nodes = LibvirtNodes(way, connect_timeout_s, call_timeout_s)
        self._vms = LibvirtVMs(self._nodes)
        self._waiting = Waiting(self._nodes, self._vms)
        manner = Manner(migrate_host_template, migrate_tls, migrate_converge, migrate_emulated)
        self._filters = NetworkFilters(self._nodes)
        self._migrations = Migrations(self._nodes, self._vms, self._waiting, self._filters, manner)
        self._domain_type = domain_type
        self._machine_type = machine_type
        self._cpu_model = cpu_model
        self._detected: dict[str, Literal["kvm", "qemu"]] = {}
        self._lock = threading.Lock()
        start_event_loop()

    @property
    def capabilities(self) -> Capabilities:
        """See ``base.Platform``."""
        return EVERYTHING

    # Observation.

    def listen(self, heard: Callable[[str, str], None]) -> None:
        """See ``base.Platform``."""
        self._nodes.listen(heard)

    def host_info(self, node: str) -> HostInfo:
        """See ``base.Platform``."""

        def ask(conn: libvirt.virConnect) -> tuple[int, int, str, str, frozenset[str] | str]:
            # Not getInfo's memory: that of a NUMA cell, and so of the sum, leaves out memory plugged in later.
            memory_kib = conn.getMemoryStats(libvirt.VIR_NODE_MEMORY_STATS_ALL_CELLS)["total"]
            cpus = conn.getInfo()[2]
            versions = f"QEMU {version(conn.getVersion())}, libvirt {version(conn.getLibVersion())}"
            return cpus, memory_kib // 1024, versions, conn.getCapabilities(), offered_filters(conn)

        cpus, memory_mib, versions, capabilities, filters = self._nodes.query(node, "describing the host", ask)
        kind = self._chosen(offered_domain_type(capabilities))
        return HostInfo(
            node,
            cpus,
            memory_mib,
            versions,
            kind,
            offered_machines(capabilities),
            filters,
            qemu_uid(capabilities),
            confined_by(capabilities),
        )

    def list_vms(self, node: str) -> dict[str, VMInfo]:
        """See ``base.Platform``."""
        return self._nodes.list_vms(node)

    def has_vm(self, node: str, name: str) -> bool:
        """See ``base.Platform``."""
        return self._nodes.find(node, name) is not None

    def statistics(self, node: str) -> dict[str, VMStatistics]:
        """See ``base.Platform``."""
        return self._nodes.statistics(node)

    def used(self, node: str, name: str) -> Used | None:
        """See ``base.Platform``: guests count."""
        return None

    def template_key(self, node: str, spec: VMSpec) -> str:
        """See ``base.Platform``."""
        xml = self._xml(neutral(spec), self._machine_on(node))

        def ask(conn: libvirt.virConnect) -> tuple[int, int, str]:
            return conn.getVersion(), conn.getLibVersion(), host_cpu(conn.getCapabilities())

        facts = self._nodes.query(node, "describing the host", ask)
        return hashlib.blake2b(repr((xml, facts)).encode(), digest_size=16).hexdigest()

    # Actions.

    def boot(self, node: str, spec: VMSpec, *, timeout_s: float) -> None:
        """See ``base.Platform``."""
        if self._nodes.find(node, spec.name) is not None:
            return
        xml = self._xml(spec, self._machine_on(node))

        def create(conn: libvirt.virConnect, xml: str) -> bool:
            return bool(conn.createXML(xml, 0))

        self._start(node, spec, f"booting {spec.name}", create, xml, timeout_s)

    def stop(self, node: str, name: str, *, timeout_s: float) -> None:
        """See ``base.Platform``."""
        self._vms.stop(node, name, timeout_s)

    def pause(self, node: str, name: str, *, timeout_s: float, ready: Ready = at_once) -> None:
        """See ``base.Platform``."""
        self._vms.pause(node, name, timeout_s, ready)

    def unpause(self, node: str, name: str, *, timeout_s: float, ready: Ready = at_once) -> None:
        """See ``base.Platform``."""
        self._vms.unpause(node, name, timeout_s, ready)

    def save(self, node: str, name: str, path: str, *, timeout_s: float, progress: Progress | None = None) -> None:
        """See ``base.Platform``."""
        parameters = {libvirt.VIR_DOMAIN_SAVE_PARAM_FILE: path}
        self._write_state(
            node, name, f"saving {name}", lambda domain: domain.saveParams(parameters, 0), timeout_s, progress
        )

    def checkpoint(
        self, node: str, name: str, path: str, *, timeout_s: float, progress: Progress | None = None
    ) -> None:
        """See ``base.Platform``."""
        xml = self._nodes.query(node, f"describing {name}", lambda conn: str(conn.lookupByName(name).XMLDesc(0)))
        if has_disks(xml):
            # libvirt would make an overlay of each disk, and another one with each further checkpoint.
            raise OperationFailedError(f"{name} on {node} has disks: no checkpoint is made of such a VM")
        # Not live: so the memory is written once, and takes no more room than the memory in use.
        snapshot, flags = snapshot_xml(path), libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_NO_METADATA
        self._write_state(
            node,
            name,
            f"making a checkpoint of {name}",
            lambda domain: domain.snapshotCreateXML(snapshot, flags),
            timeout_s,
            progress,
        )

    def _write_state(
        self,
        node: str,
        name: str,
        what: str,
        write: Callable[[libvirt.virDomain], object],
        timeout_s: float,
        progress: Progress | None,
    ) -> None:
        """Write the VM's state to a file; after a failure the VM is as it was."""
        before = self._nodes.find(node, name)
        if before is None:
            raise NotFoundError(f"no VM {name} on {node}")
        if before is VMPower.HALF:
            raise OperationFailedError(f"{name} on {node} cannot be saved: {HALF}")
        call = self._nodes.link(node).start(what, lambda conn: bool(write(conn.lookupByName(name))))
        try:
            self._waiting.watch(call, node, name, timeout_s, progress)
        except RmspluginError:
            self._waiting.keep_running(node, name, before)
            raise

    def restore(self, node: str, spec: VMSpec, path: str, *, timeout_s: float) -> None:
        """See ``base.Platform``."""
        found = self._nodes.find(node, spec.name)
        if found is VMPower.INCOMING:
            raise OperationFailedError(f"{spec.name} is being restored on {node} already")
        if found is not None:
            return
        saved_xml = self._saved_xml(node, spec, path, timeout_s)
        try:
            xml = with_paths_of(saved_xml, spec)
        except StrangeXMLError as error:
            # Not corrupt: the VM's memory may be as it was, and an operator has to find out who did this.
            raise OperationFailedError(
                f"the state of {spec.name} on {node} is refused, for somebody else has changed it: {error}"
            ) from None
        except ValueError as error:
            raise CorruptStateError(f"{path} on {node}: {error}") from None

        def load(conn: libvirt.virConnect, xml: str) -> bool:
            return bool(conn.restoreFlags(path, xml, libvirt.VIR_DOMAIN_SAVE_PAUSED))

        try:
            self._start(node, spec, f"restoring {spec.name}", load, xml, timeout_s)
        except RmspluginError as error:
            if is_unloadable_state(error):
                raise CorruptStateError(str(error)) from None
            raise

    def _start(
        self,
        node: str,
        spec: VMSpec,
        what: str,
        start: Callable[[libvirt.virConnect, str], bool],
        xml: str,
        timeout_s: float,
    ) -> None:
        """Start a VM by its XML, in the node's bounded control group only if the node has it. Failing leaves no VM."""
        self._filters.require(node, spec.network_filter)
        call = self._nodes.link(node).start(what, lambda conn: start(conn, xml))
        try:
            wait(call, timeout_s)
        except RmspluginError as error:
            self._waiting.leave_none(call, node, spec.name)
            if not (spec.bounded and isinstance(error, NoControlGroupError)):
                raise
            self._start(node, replace(spec, bounded=False), what, start, with_partition(xml, None), timeout_s)

    def set_memory(self, node: str, name: str, mib: int, *, timeout_s: float) -> None:
        """See ``base.Platform``."""
        self._vms.set_memory(node, name, mib, timeout_s)

    def set_cpus(self, node: str, name: str, cpus: int, *, timeout_s: float) -> None:
        """See ``base.Platform``: the guest's own kernel does with fewer CPUs."""
        raise OperationFailedError(f"libvirt does not bound the CPUs of {name}: its guest is asked")

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
        """See ``base.Platform``."""
        self._migrations.migrate(name, source, destination, epoch, timeout_s, progress)

    def abort_job(self, node: str, name: str) -> None:
        """See ``base.Platform``."""
        self._vms.abort_job(node, name)

    def close(self) -> None:
        """See ``base.Platform``."""
        self._nodes.close()

    # Other questions to a node.

    def _saved_xml(self, node: str, spec: VMSpec, path: str, timeout_s: float) -> str:
        flags = libvirt.VIR_DOMAIN_SAVE_IMAGE_XML_SECURE
        call = self._nodes.link(node).start(
            f"reading the state of {spec.name}", lambda conn: str(conn.saveImageGetXMLDesc(path, flags))
        )
        try:
            return wait(call, timeout_s)
        except (UnavailableError, NotFoundError, TimedOutError, DeposedError):
            raise
        except OperationFailedError as error:
            if is_unknown_format(error):
                raise
            # libvirt has many words for it: no magic, a half-written file, a header that leads nowhere, no XML.
            raise CorruptStateError(str(error)) from None

    def _machine_on(self, node: str) -> Machine:
        return Machine(self._domain_type_of(node), self._machine_type, self._cpu_model)

    def _xml(self, spec: VMSpec, machine: Machine) -> str:
        try:
            return domain_xml(spec, machine)
        except ValueError as error:
            raise OperationFailedError(f"{spec.name} cannot be created: {error}") from None

    def _domain_type_of(self, node: str) -> Literal["kvm", "qemu"]:
        with self._lock:
            known = self._detected.get(node)
        if known is None:
            offered = self._nodes.query(
                node, "reading capabilities", lambda conn: offered_domain_type(conn.getCapabilities())
            )
            known = self._chosen(offered)
            with self._lock:
                self._detected[node] = known
        return known

    def _chosen(self, offered: str) -> Literal["kvm", "qemu"]:
        if self._domain_type != "auto":
            return self._domain_type
        return "kvm" if offered == "kvm" else "qemu"
