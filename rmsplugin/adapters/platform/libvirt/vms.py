"""Short calls on a VM: stop, pause, unpause, set its memory, abort."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import libvirt

from rmsplugin.adapters.platform.base import Ready, VMPower, at_once
from rmsplugin.adapters.platform.libvirt.domain_xml import balloon_gives_back
from rmsplugin.adapters.platform.libvirt.errors import NOT_THERE
from rmsplugin.adapters.platform.libvirt.nodes import LibvirtNodes
from rmsplugin.errors import OperationFailedError

#: The fault of a VM that is HALF.
HALF = "its post-copy migration broke off, and each side has one half of its memory"


@contextmanager
def _if_there() -> Iterator[None]:
    """Ignore errors because the VM does not exist, or has nothing on which the call could act."""
    try:
        yield
    except libvirt.libvirtError as error:
        if error.get_error_code() not in NOT_THERE:
            raise


class LibvirtVMs:
    """The VMs of all nodes, one call each."""

    def __init__(self, nodes: LibvirtNodes) -> None:
        """Take the way to the nodes."""
        self._nodes = nodes

    def stop(self, node: str, name: str, timeout_s: float) -> None:
        """See ``base.Platform.stop``."""

        def destroy(conn: libvirt.virConnect) -> None:
            with _if_there():
                conn.lookupByName(name).destroyFlags(0)

        self._nodes.link(node).call(f"stopping {name}", destroy, timeout_s)
        if self._nodes.find(node, name) is not None:
            raise OperationFailedError(f"{name} on {node} was stopped, and is still there")

    def pause(self, node: str, name: str, timeout_s: float, ready: Ready = at_once) -> None:
        """See ``base.Platform.pause``."""

        def suspend(conn: libvirt.virConnect) -> None:
            domain = conn.lookupByName(name)
            runs = domain.state()[0] != libvirt.VIR_DOMAIN_PAUSED
            ready()
            if runs:
                domain.suspend()

        self._nodes.link(node).call(f"pausing {name}", suspend, timeout_s)

    def unpause(self, node: str, name: str, timeout_s: float, ready: Ready = at_once) -> None:
        """See ``base.Platform.unpause``."""
        if self._nodes.find(node, name) is VMPower.HALF:
            raise OperationFailedError(f"{name} on {node} cannot run: {HALF}")

        def resume(conn: libvirt.virConnect) -> None:
            domain = conn.lookupByName(name)
            stands_still = domain.state()[0] != libvirt.VIR_DOMAIN_RUNNING
            ready()
            if stands_still:
                domain.resume()

        self._nodes.link(node).call(f"unpausing {name}", resume, timeout_s)

    def set_memory(self, node: str, name: str, mib: int, timeout_s: float) -> None:
        """See ``base.Platform.set_memory``."""

        def tell(conn: libvirt.virConnect) -> None:
            domain = conn.lookupByName(name)
            if balloon_gives_back(domain.XMLDesc(0)):
                wanted_kib = min(max(mib, 1) * 1024, domain.maxMemory())
                domain.setMemoryFlags(wanted_kib, libvirt.VIR_DOMAIN_AFFECT_LIVE)

        self._nodes.link(node).call(f"setting the memory of {name}", tell, timeout_s)

    def abort_job(self, node: str, name: str) -> None:
        """See ``base.Platform.abort_job``."""

        def abort(conn: libvirt.virConnect) -> None:
            with _if_there():
                conn.lookupByName(name).abortJob()

        self._nodes.query(node, f"aborting the job of {name}", abort)
