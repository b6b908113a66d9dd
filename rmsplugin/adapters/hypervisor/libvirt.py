"""libvirt behind the hypervisor Protocol: one libvirtd a node, QEMU with or without KVM."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Literal, TypeVar
from urllib.parse import urlsplit

import libvirt

from rmsplugin.adapters.hypervisor.base import (
    Converge,
    HostInfo,
    Progress,
    VMInfo,
    VMPower,
    VMSpec,
    VMStatistics,
)
from rmsplugin.adapters.hypervisor.domain_xml import Machine, domain_xml, has_disks, snapshot_xml, with_paths_of
from rmsplugin.adapters.hypervisor.libvirt_errors import is_unknown_format, is_unloadable_state
from rmsplugin.adapters.hypervisor.libvirt_link import Call, start_event_loop
from rmsplugin.adapters.hypervisor.libvirt_nodes import LibvirtNodes
from rmsplugin.adapters.hypervisor.libvirt_values import (
    HELD,
    MIGRATE_FLAGS,
    JobProgress,
    is_emulated,
    job_progress,
    offered_domain_type,
    offered_machines,
    version,
)
from rmsplugin.errors import (
    CorruptStateError,
    NotFoundError,
    OperationFailedError,
    RmspluginError,
    TimedOutError,
    UnavailableError,
)

T = TypeVar("T")

DomainType = Literal["auto", "kvm", "qemu"]

_POLL_S = 0.25
#: How long an aborted save, checkpoint or migration may take to come to its end.
_ABORT_GRACE_S = 20.0
#: A migration goes over to post-copy when it begins to send for the third time what was written meanwhile; or when so
#: much of its time is over.
_POSTCOPY_ITERATION = 4
_POSTCOPY_SHARE = 0.5


class LibvirtHypervisor:
    """Implements ``base.Hypervisor`` on libvirt.

    An action ends at the latest some 30 s after its ``timeout_s``: aborting what is under way, and looking what has
    become of it, takes time too.
    """

    def __init__(
        self,
        uri_template: str,
        migrate_uri_template: str,
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
            uri_template: how we reach the libvirtd of ``{node}``.
            migrate_uri_template: how the libvirtd of one node reaches that of another for a migration; the memory goes
                to the host in it.
            domain_type: ``auto`` = kvm where libvirt offers it.
            machine_type: of new VMs, with its version; the same on all nodes, else nothing can be moved. What is
                restored or migrated keeps the one that it was made with.
            cpu_model: likewise; see ``Machine``.
            migrate_tls: encrypt and authenticate the memory stream (libvirt's VIR_MIGRATE_TLS).
            migrate_converge: what is done for a VM that writes its memory faster than it can be sent.
            migrate_emulated: whether a VM without KVM stands still while it is sent, or runs on.
            connect_timeout_s: bound of a connection.
            call_timeout_s: bound of the calls that take no ``timeout_s``.
        """
        self._nodes = LibvirtNodes(uri_template, connect_timeout_s, call_timeout_s)
        self._migrate_uri_template = migrate_uri_template
        self._domain_type = domain_type
        self._machine_type = machine_type
        self._cpu_model = cpu_model
        self._migrate_tls = migrate_tls
        self._migrate_converge = migrate_converge
        self._migrate_emulated = migrate_emulated
        self._detected: dict[str, Literal["kvm", "qemu"]] = {}
        self._lock = threading.Lock()
        start_event_loop()

    # Observation.

    def host_info(self, node: str) -> HostInfo:
        """See ``base.Hypervisor``."""

        def ask(conn: libvirt.virConnect) -> tuple[int, int, str, str]:
            # Not getInfo's memory: that of a NUMA cell, and so of the sum, leaves out what was plugged in later.
            memory_kib = conn.getMemoryStats(libvirt.VIR_NODE_MEMORY_STATS_ALL_CELLS)["total"]
            cpus = conn.getInfo()[2]
            versions = f"QEMU {version(conn.getVersion())}, libvirt {version(conn.getLibVersion())}"
            return cpus, memory_kib // 1024, versions, conn.getCapabilities()

        cpus, memory_mib, versions, capabilities = self._nodes.query(node, "describing the host", ask)
        kind = self._chosen(offered_domain_type(capabilities))
        return HostInfo(node, cpus, memory_mib, versions, kind, offered_machines(capabilities))

    def list_vms(self, node: str) -> dict[str, VMInfo]:
        """See ``base.Hypervisor``."""
        return self._nodes.list_vms(node)

    def has_vm(self, node: str, name: str) -> bool:
        """See ``base.Hypervisor``."""
        return self._nodes.find(node, name) is not None

    def statistics(self, node: str) -> dict[str, VMStatistics]:
        """See ``base.Hypervisor``."""
        return self._nodes.statistics(node)

    # Actions.

    def boot(self, node: str, spec: VMSpec, *, timeout_s: float) -> None:
        """See ``base.Hypervisor``."""
        if self._nodes.find(node, spec.name) is not None:
            return
        xml = self._xml(spec, Machine(self._domain_type_of(node), self._machine_type, self._cpu_model))
        call = self._nodes.link(node).start(f"booting {spec.name}", lambda conn: bool(conn.createXML(xml, 0)))
        try:
            self._wait(call, timeout_s)
        except RmspluginError:
            self._leave_none(call, node, spec.name)
            raise

    def stop(self, node: str, name: str, *, timeout_s: float) -> None:
        """See ``base.Hypervisor``."""

        def destroy(conn: libvirt.virConnect) -> None:
            try:
                conn.lookupByName(name).destroyFlags(0)
            except libvirt.libvirtError as error:
                if error.get_error_code() not in (libvirt.VIR_ERR_NO_DOMAIN, libvirt.VIR_ERR_OPERATION_INVALID):
                    raise

        self._nodes.link(node).call(f"stopping {name}", destroy, timeout_s)
        if self._nodes.find(node, name) is not None:
            raise OperationFailedError(f"{name} on {node} was stopped, and is still there")

    def pause(self, node: str, name: str, *, timeout_s: float) -> None:
        """See ``base.Hypervisor``."""

        def suspend(conn: libvirt.virConnect) -> None:
            domain = conn.lookupByName(name)
            if domain.state()[0] != libvirt.VIR_DOMAIN_PAUSED:
                domain.suspend()

        self._nodes.link(node).call(f"pausing {name}", suspend, timeout_s)

    def unpause(self, node: str, name: str, *, timeout_s: float) -> None:
        """See ``base.Hypervisor``."""
        if self._nodes.find(node, name) is VMPower.POSTCOPY_FAILED:
            raise OperationFailedError(f"{name} on {node} cannot run: {_HALF}")

        def resume(conn: libvirt.virConnect) -> None:
            domain = conn.lookupByName(name)
            if domain.state()[0] != libvirt.VIR_DOMAIN_RUNNING:
                domain.resume()

        self._nodes.link(node).call(f"unpausing {name}", resume, timeout_s)

    def save(self, node: str, name: str, path: str, *, timeout_s: float, progress: Progress | None = None) -> None:
        """See ``base.Hypervisor``."""
        parameters = {libvirt.VIR_DOMAIN_SAVE_PARAM_FILE: path}
        self._write_state(
            node, name, f"saving {name}", lambda domain: domain.saveParams(parameters, 0), timeout_s, progress
        )

    def checkpoint(
        self, node: str, name: str, path: str, *, timeout_s: float, progress: Progress | None = None
    ) -> None:
        """See ``base.Hypervisor``."""
        xml = self._nodes.query(node, f"describing {name}", lambda conn: str(conn.lookupByName(name).XMLDesc(0)))
        if has_disks(xml):
            # libvirt would make an overlay of each disk, and another one with each further checkpoint.
            raise OperationFailedError(f"{name} on {node} has disks: no checkpoint is made of such a VM")
        # Not live: then it is written once, and takes no more room than the memory in use.
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
        """Have the VM's state written to a file; after a failure the VM is as it was."""
        before = self._nodes.find(node, name)
        if before is None:
            raise NotFoundError(f"no VM {name} on {node}")
        if before is VMPower.POSTCOPY_FAILED:
            raise OperationFailedError(f"{name} on {node} cannot be saved: {_HALF}")
        call = self._nodes.link(node).start(what, lambda conn: bool(write(conn.lookupByName(name))))
        try:
            self._watch(call, node, name, timeout_s, progress)
        except RmspluginError:
            self._keep_running(node, name, before)
            raise

    def restore(self, node: str, spec: VMSpec, path: str, *, timeout_s: float) -> None:
        """See ``base.Hypervisor``."""
        found = self._nodes.find(node, spec.name)
        if found is VMPower.INCOMING:
            raise OperationFailedError(f"{spec.name} is being restored on {node} already")
        if found is not None:
            return
        saved_xml = self._saved_xml(node, spec, path, timeout_s)
        try:
            xml = with_paths_of(saved_xml, spec)
        except ValueError as error:
            raise CorruptStateError(f"{path} on {node}: {error}") from None
        call = self._nodes.link(node).start(
            f"restoring {spec.name}", lambda conn: bool(conn.restoreFlags(path, xml, libvirt.VIR_DOMAIN_SAVE_PAUSED))
        )
        try:
            self._wait(call, timeout_s)
        except RmspluginError as error:
            self._leave_none(call, node, spec.name)
            if is_unloadable_state(error):
                raise CorruptStateError(str(error)) from None
            raise

    def migrate(
        self, name: str, source: str, destination: str, *, timeout_s: float, progress: Progress | None = None
    ) -> None:
        """See ``base.Hypervisor``."""
        # Asked first, also because a destination that does not answer is found out cheaply.
        there, before = self._nodes.find(destination, name), self._nodes.find(source, name)
        if before is None:
            if there is None:
                raise NotFoundError(f"no VM {name} on {source} nor on {destination}")
            if there is VMPower.INCOMING:
                raise OperationFailedError(f"{name} on {destination} has not arrived yet")
            return
        if VMPower.POSTCOPY_FAILED in (there, before):
            raise OperationFailedError(f"{name} cannot go on from {source} to {destination}: {_HALF}")
        live = self._runs_on(source, name)
        flags = (
            libvirt.VIR_MIGRATE_PEER2PEER
            | libvirt.VIR_MIGRATE_ABORT_ON_ERROR
            | (libvirt.VIR_MIGRATE_LIVE | MIGRATE_FLAGS[self._migrate_converge] if live else HELD)
            | (libvirt.VIR_MIGRATE_TLS if self._migrate_tls else 0)
        )
        uri = self._migrate_uri_template.format(node=destination)
        # Left to itself, libvirt asks the destination for its host name, which others need not be able to resolve.
        parameters = {libvirt.VIR_MIGRATE_PARAM_URI: f"tcp:{urlsplit(uri).hostname or destination}"}
        call = self._nodes.link(source).start(
            f"migrating {name} to {destination}",
            lambda conn: bool(conn.lookupByName(name).migrateToURI3(uri, parameters, flags)),
        )
        try:
            self._watch(
                call, source, name, timeout_s, progress, postcopy=live and self._migrate_converge == "post-copy"
            )
        except RmspluginError as error:
            self._require_whole(source, name, error)
            # A VM that is paused here may be about to run there (I1).
            if self._is_gone(destination, name):
                self._keep_running(source, name, before)
            raise
        if flags & HELD and before is VMPower.RUNNING:
            self.unpause(destination, name, timeout_s=self._nodes.call_timeout_s)
        if self._nodes.find(destination, name) is not before or self._nodes.find(source, name) is not None:
            raise OperationFailedError(f"{name} was migrated from {source} to {destination}, and is not seen so")

    def _runs_on(self, node: str, name: str) -> bool:
        """Whether a VM runs while it is migrated: docs/decisions/0036 says which do not."""
        if self._migrate_emulated == "live":
            return True
        what = f"asking whether {name} is emulated"
        return not is_emulated(self._nodes.query(node, what, lambda conn: conn.lookupByName(name).XMLDesc(0)))

    def abort_job(self, node: str, name: str) -> None:
        """See ``base.Hypervisor``."""

        def abort(conn: libvirt.virConnect) -> None:
            try:
                conn.lookupByName(name).abortJob()
            except libvirt.libvirtError as error:
                # No such VM; or nothing to abort in it.
                if error.get_error_code() not in (libvirt.VIR_ERR_NO_DOMAIN, libvirt.VIR_ERR_OPERATION_INVALID):
                    raise

        self._nodes.query(node, f"aborting the job of {name}", abort)

    def close(self) -> None:
        """See ``base.Hypervisor``."""
        self._nodes.close()

    # How an action is waited for.

    def _wait(self, call: Call[T], timeout_s: float) -> T:
        if not call.wait(timeout_s):
            raise TimedOutError(f"{call.what} did not end within {timeout_s:g} s")
        return call.result()

    def _watch(
        self,
        call: Call[T],
        node: str,
        name: str,
        timeout_s: float,
        progress: Progress | None,
        *,
        postcopy: bool = False,
    ) -> T:
        """Wait for a save or a migration, telling its progress; abort it when its time is over.

        With ``postcopy``, a migration that does not come to its end goes over to that, and is not aborted any more.
        """
        began = time.monotonic()
        deadline, switch_at = began + timeout_s, began + timeout_s * _POSTCOPY_SHARE
        while not call.wait(min(_POLL_S, deadline - time.monotonic())):
            if time.monotonic() >= deadline:
                return self._abort(call, node, name, timeout_s)
            if progress is None and not postcopy:
                continue
            try:
                seen = self._nodes.query(node, f"asking how far {name} is", lambda conn: job_progress(conn, name))
                if postcopy and (seen.iteration >= _POSTCOPY_ITERATION or time.monotonic() >= switch_at):
                    self._nodes.query(
                        node, f"sending {name} away", lambda conn: conn.lookupByName(name).migrateStartPostCopy(0)
                    )
                    postcopy = False
            except RmspluginError:
                continue  # It has just ended, or nobody answers: the call itself will tell.
            _tell(progress, seen)
        return call.result()

    def _abort(self, call: Call[T], node: str, name: str, timeout_s: float) -> T:
        deadline = time.monotonic() + _ABORT_GRACE_S
        self.abort_job(node, name)
        while not call.wait(_POLL_S):
            if time.monotonic() >= deadline:
                raise TimedOutError(f"{call.what} did not end within {timeout_s:g} s, nor when it was aborted")
            self.abort_job(node, name)  # once more: it may not have begun when it was aborted first
        if call.failed:
            raise TimedOutError(f"{call.what} did not end within {timeout_s:g} s and was aborted")
        return call.result()  # It was done before the abort reached it.

    def _require_whole(self, node: str, name: str, error: RmspluginError) -> None:
        """After a failed migration: raise OperationFailedError if it had gone over to post-copy and broke off."""
        try:
            if self._nodes.find(node, name) is not VMPower.POSTCOPY_FAILED:
                return
        except RmspluginError:
            return  # Nobody answers; the failure itself is told.
        raise OperationFailedError(f"{name} is lost, or at least cannot run: {_HALF} ({error})") from error

    def _keep_running(self, node: str, name: str, before: VMPower) -> None:
        """After a failure: let a VM that ran before run on. libvirt does that itself, nearly always."""
        try:
            now = self._nodes.find(node, name)
            if before is VMPower.RUNNING and now is VMPower.PAUSED:
                self.unpause(node, name, timeout_s=self._nodes.call_timeout_s)
        except RmspluginError:
            return  # The failure itself is what the caller has to know; the engine looks at the VM in any case.

    def _is_gone(self, node: str, name: str) -> bool:
        """Whether the VM certainly does not exist on the node."""
        try:
            return self._nodes.find(node, name) is None
        except RmspluginError:
            return False

    def _leave_none(self, call: Call[T], node: str, name: str) -> None:
        """After a failed start: end what it has made, or, when it was given up and still goes on, will make."""
        deadline = time.monotonic() + _ABORT_GRACE_S
        try:
            while True:
                ended = call.wait(0)
                if self._nodes.find(node, name) is not None:
                    self.stop(node, name, timeout_s=self._nodes.call_timeout_s)
                if ended or time.monotonic() > deadline:
                    return
                call.wait(_POLL_S)
        except RmspluginError:
            return  # Nobody answers. The engine looks for the VM in any case.

    # What else is asked of a node.

    def _saved_xml(self, node: str, spec: VMSpec, path: str, timeout_s: float) -> str:
        flags = libvirt.VIR_DOMAIN_SAVE_IMAGE_XML_SECURE
        call = self._nodes.link(node).start(
            f"reading the state of {spec.name}", lambda conn: str(conn.saveImageGetXMLDesc(path, flags))
        )
        try:
            return self._wait(call, timeout_s)
        except (UnavailableError, NotFoundError, TimedOutError):
            raise
        except OperationFailedError as error:
            if is_unknown_format(error):
                raise
            # libvirt has many words for it: no magic, a half-written one, a header that leads nowhere, no XML.
            raise CorruptStateError(str(error)) from None

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


#: What is wrong with a VM that is POSTCOPY_FAILED.
_HALF = "its post-copy migration broke off, and one half of its memory is on each side"


def _tell(progress: Progress | None, seen: JobProgress) -> None:
    if progress and seen.total_bytes:
        progress(seen.done_bytes, seen.total_bytes)
