"""Migration by libvirt: how the memory is sent, and on which side the VM runs in any case."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import libvirt

from rmsplugin.adapters.platform.base import Converge, Progress, VMPower
from rmsplugin.adapters.platform.libvirt.domain_xml import (
    PARTITION,
    epoch_of,
    is_bounded,
    require_ours,
    with_epoch,
    with_partition,
)
from rmsplugin.adapters.platform.libvirt.errors import NoControlGroupError
from rmsplugin.adapters.platform.libvirt.network_filter import NetworkFilters, filter_of
from rmsplugin.adapters.platform.libvirt.nodes import LibvirtNodes
from rmsplugin.adapters.platform.libvirt.values import HELD, MIGRATE_FLAGS, JobProgress, is_emulated
from rmsplugin.adapters.platform.libvirt.vms import HALF, LibvirtVMs
from rmsplugin.adapters.platform.libvirt.waiting import Waiting
from rmsplugin.errors import NotFoundError, OperationFailedError, RmspluginError

#: Libvirt's parameters of a migration besides its flags.
Parameters = dict[str, str]

#: A migration goes over to post-copy when it begins to send rewritten memory for the third time, or when so
#: much of its time is over.
_POSTCOPY_ITERATION = 4
_POSTCOPY_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Manner:
    """The manner in which VMs are migrated: see the parameters of ``LibvirtPlatform``."""

    host_template: str
    tls: bool
    converge: Converge
    emulated: Literal["paused", "live"]


class Migrations:
    """Migrates VMs from node to node."""

    def __init__(
        self, nodes: LibvirtNodes, vms: LibvirtVMs, waiting: Waiting, filters: NetworkFilters, manner: Manner
    ) -> None:
        """Take the ways to the nodes and to their VMs."""
        self._filters = filters
        self._nodes, self._vms, self._waiting, self.manner = nodes, vms, waiting, manner

    def migrate(
        self,
        name: str,
        source: str,
        destination: str,
        epoch: int,
        timeout_s: float,
        progress: Progress | None = None,
    ) -> None:
        """See ``base.Platform.migrate``."""
        before = self._before(name, source, destination)
        if before is None:
            return
        flags = self._flags(source, name)
        # Left to itself, libvirt asks the destination for its host name, which others need not be able to resolve.
        host = self.manner.host_template.format(node=destination)
        parameters: Parameters = {libvirt.VIR_MIGRATE_PARAM_URI: f"tcp:{host}"}
        may_split = flags & libvirt.VIR_MIGRATE_POSTCOPY
        go_over = self._go_over(source, name, timeout_s) if may_split else None

        def send(more: Parameters) -> None:
            call = self._nodes.link(source).start_between(
                self._nodes.link(destination),
                f"migrating {name} to {destination}",
                lambda conn, there: bool(conn.lookupByName(name).migrate3(there, parameters | more, flags)),
            )
            self._waiting.watch(call, source, name, timeout_s, progress, go_over)

        try:
            self._send_as_described(source, destination, name, epoch, send)
        except RmspluginError as error:
            self._require_whole(source, name, error)
            # A VM that is paused here may be about to run there (I1).
            if self._is_gone(destination, name):
                self._waiting.keep_running(source, name, before)
            raise
        if flags & HELD and before is VMPower.RUNNING:
            self._vms.unpause(destination, name, self._nodes.call_timeout_s)
        arrived = (before, VMPower.ENDING)  # a guest may end as soon as it runs there
        if self._nodes.find(destination, name) not in arrived or self._nodes.find(source, name) is not None:
            raise OperationFailedError(
                f"{name} was migrated from {source} to {destination}, but the hosts do not show that"
            )

    def _send_as_described(
        self, source: str, destination: str, name: str, epoch: int, send: Callable[[Parameters], None]
    ) -> None:
        """Send the VM, with the epoch that is to be its own, to where its XML says that it belongs.

        A bounded one goes into the group, if there is one. The destination needs the VM's network filter; the filter
        itself is not changed.
        """
        flags = libvirt.VIR_DOMAIN_XML_SECURE | libvirt.VIR_DOMAIN_XML_MIGRATABLE
        what = f"describing {name}"
        xml: str = self._nodes.query(source, what, lambda conn: conn.lookupByName(name).XMLDesc(flags))
        try:
            require_ours(xml)
        except ValueError as error:
            raise OperationFailedError(
                f"{name} is not moved from {source}, for somebody has changed it: {error}"
            ) from None
        self._filters.require(destination, filter_of(xml))
        there = with_epoch(xml, epoch)
        if not is_bounded(xml):
            send({} if epoch == epoch_of(xml) else {libvirt.VIR_MIGRATE_PARAM_DEST_XML: there})
            return
        try:
            send({libvirt.VIR_MIGRATE_PARAM_DEST_XML: with_partition(there, PARTITION)})
        except NoControlGroupError:
            send({libvirt.VIR_MIGRATE_PARAM_DEST_XML: with_partition(there, None)})

    def _before(self, name: str, source: str, destination: str) -> VMPower | None:
        """The VM's power at its source; None: it has arrived already."""
        # This is asked first, also because a silent destination is found out cheaply.
        there, before = self._nodes.find(destination, name), self._nodes.find(source, name)
        if before is None and there is None:
            raise NotFoundError(f"no VM {name} on {source} nor on {destination}")
        if before is None and there is VMPower.INCOMING:
            raise OperationFailedError(f"{name} on {destination} has not arrived yet")
        if before is not None and VMPower.HALF in (there, before):
            raise OperationFailedError(f"{name} cannot go on from {source} to {destination}: {HALF}")
        return before

    def _flags(self, node: str, name: str) -> int:
        """The flags VIR_MIGRATE_*."""
        way = HELD
        if self._runs_on(node, name):
            way = libvirt.VIR_MIGRATE_LIVE | MIGRATE_FLAGS[self.manner.converge]
        if self.manner.tls:
            way |= libvirt.VIR_MIGRATE_TLS
        flags: int = way | libvirt.VIR_MIGRATE_ABORT_ON_ERROR
        return flags

    def _runs_on(self, node: str, name: str) -> bool:
        """Whether a VM runs while it is migrated: docs/decisions/0036 tells which do not."""
        if self.manner.emulated == "live":
            return True
        what = f"asking whether {name} is emulated"
        return not is_emulated(self._nodes.query(node, what, lambda conn: conn.lookupByName(name).XMLDesc(0)))

    def _go_over(self, node: str, name: str, timeout_s: float) -> Callable[[JobProgress], None]:
        """Go over to post-copy, once, if a migration does not come to its end; from then on nothing can abort it."""
        switch_at = time.monotonic() + timeout_s * _POSTCOPY_SHARE
        is_over = False

        def go_over(seen: JobProgress) -> None:
            nonlocal is_over
            if is_over or (seen.iteration < _POSTCOPY_ITERATION and time.monotonic() < switch_at):
                return
            what = f"sending {name} away"
            self._nodes.query(node, what, lambda conn: conn.lookupByName(name).migrateStartPostCopy(0))
            is_over = True

        return go_over

    def _require_whole(self, node: str, name: str, error: RmspluginError) -> None:
        """After a failed migration: raise OperationFailedError if it had gone over to post-copy and broke off."""
        try:
            if self._nodes.find(node, name) is not VMPower.HALF:
                return
        except RmspluginError:
            return  # The node does not answer; the failure itself is told.
        raise OperationFailedError(f"{name} is lost, or at least cannot run: {HALF} ({error})") from error

    def _is_gone(self, node: str, name: str) -> bool:
        """Whether the VM certainly does not exist on the node."""
        try:
            return self._nodes.find(node, name) is None
        except RmspluginError:
            return False
