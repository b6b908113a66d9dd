"""Events: libvirt tells on a connection that a VM of its node has ended, or was made to stand still."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import libvirt

#: Called with the name of the VM, in the thread of libvirt's event loop.
Heard = Callable[[str], None]

#: How a VM ends that was neither saved nor moved away.
_ENDS = {
    libvirt.VIR_DOMAIN_EVENT_STOPPED_SHUTDOWN,
    libvirt.VIR_DOMAIN_EVENT_STOPPED_DESTROYED,
    libvirt.VIR_DOMAIN_EVENT_STOPPED_CRASHED,
    libvirt.VIR_DOMAIN_EVENT_STOPPED_FAILED,
}
#: Why a VM stands still that is neither on the move nor restored.
_STOPS = {
    libvirt.VIR_DOMAIN_EVENT_SUSPENDED_PAUSED,
    libvirt.VIR_DOMAIN_EVENT_SUSPENDED_IOERROR,
    libvirt.VIR_DOMAIN_EVENT_SUSPENDED_WATCHDOG,
    libvirt.VIR_DOMAIN_EVENT_SUSPENDED_API_ERROR,
    libvirt.VIR_DOMAIN_EVENT_SUSPENDED_POSTCOPY_FAILED,
}


def matters(event: int, detail: int) -> bool:
    """Whether a VM has ended, or stands still, by this event of its life (VIR_DOMAIN_EVENT_*)."""
    if event == libvirt.VIR_DOMAIN_EVENT_STOPPED:
        return detail in _ENDS
    if event == libvirt.VIR_DOMAIN_EVENT_SUSPENDED:
        return detail in _STOPS
    return bool(event == libvirt.VIR_DOMAIN_EVENT_CRASHED)


def nothing() -> None:
    """End to hear where nothing is heard."""


def listen(conn: libvirt.virConnect, heard: Heard) -> Callable[[], None]:
    """Have ``heard`` called from now on, until the returned function is called; blocks.

    A libvirt that tells nothing is no reason to do without the connection.
    """

    def told(_conn: object, domain: libvirt.virDomain, event: int, detail: int, _opaque: object) -> None:
        if matters(event, detail):
            heard(domain.name())

    try:
        number = conn.domainEventRegisterAny(None, libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, told, None)
    except libvirt.libvirtError:
        return nothing

    def end() -> None:
        # libvirt forgets the function first, and then tells the other side, which may be gone.
        with contextlib.suppress(libvirt.libvirtError):
            conn.domainEventDeregisterAny(number)

    return end
