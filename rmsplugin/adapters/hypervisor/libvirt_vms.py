"""What one short call does to a VM: stop, pause, unpause, abort."""

from __future__ import annotations

import libvirt

from rmsplugin.adapters.hypervisor.base import VMPower
from rmsplugin.adapters.hypervisor.libvirt_nodes import LibvirtNodes
from rmsplugin.errors import OperationFailedError

#: What is wrong with a VM that is POSTCOPY_FAILED.
HALF = "its post-copy migration broke off, and one half of its memory is on each side"

#: There is no such VM, or it is not in a state in which this could be done.
_NOTHING_TO_DO = (libvirt.VIR_ERR_NO_DOMAIN, libvirt.VIR_ERR_OPERATION_INVALID)


class LibvirtVMs:
    """The VMs of all nodes, one call each."""

    def __init__(self, nodes: LibvirtNodes) -> None:
        """Take the way to the nodes."""
        self._nodes = nodes

    def stop(self, node: str, name: str, timeout_s: float) -> None:
        """See ``base.Hypervisor.stop``."""

        def destroy(conn: libvirt.virConnect) -> None:
            try:
                conn.lookupByName(name).destroyFlags(0)
            except libvirt.libvirtError as error:
                if error.get_error_code() not in _NOTHING_TO_DO:
                    raise

        self._nodes.link(node).call(f"stopping {name}", destroy, timeout_s)
        if self._nodes.find(node, name) is not None:
            raise OperationFailedError(f"{name} on {node} was stopped, and is still there")

    def pause(self, node: str, name: str, timeout_s: float) -> None:
        """See ``base.Hypervisor.pause``."""

        def suspend(conn: libvirt.virConnect) -> None:
            domain = conn.lookupByName(name)
            if domain.state()[0] != libvirt.VIR_DOMAIN_PAUSED:
                domain.suspend()

        self._nodes.link(node).call(f"pausing {name}", suspend, timeout_s)

    def unpause(self, node: str, name: str, timeout_s: float) -> None:
        """See ``base.Hypervisor.unpause``."""
        if self._nodes.find(node, name) is VMPower.POSTCOPY_FAILED:
            raise OperationFailedError(f"{name} on {node} cannot run: {HALF}")

        def resume(conn: libvirt.virConnect) -> None:
            domain = conn.lookupByName(name)
            if domain.state()[0] != libvirt.VIR_DOMAIN_RUNNING:
                domain.resume()

        self._nodes.link(node).call(f"unpausing {name}", resume, timeout_s)

    def abort_job(self, node: str, name: str) -> None:
        """See ``base.Hypervisor.abort_job``."""

        def abort(conn: libvirt.virConnect) -> None:
            try:
                conn.lookupByName(name).abortJob()
            except libvirt.libvirtError as error:
                if error.get_error_code() not in _NOTHING_TO_DO:
                    raise

        self._nodes.query(node, f"aborting the job of {name}", abort)
