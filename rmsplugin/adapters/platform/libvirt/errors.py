"""Errors: our errors for libvirt's, in one table."""

from __future__ import annotations

import errno

import libvirt

from rmsplugin.errors import (
    NoSpaceError,
    NotFoundError,
    OperationFailedError,
    RmspluginError,
    TimedOutError,
    UnavailableError,
)

#: Codes for a domain that does not exist, or that has gone before the request.
NOT_THERE = (libvirt.VIR_ERR_NO_DOMAIN, libvirt.VIR_ERR_OPERATION_INVALID)


class NoControlGroupError(OperationFailedError):
    """The node has no control group of the name in the VM's XML."""


_BY_CODE: dict[int, type[RmspluginError]] = {
    libvirt.VIR_ERR_NO_DOMAIN: NotFoundError,
    libvirt.VIR_ERR_NO_CONNECT: UnavailableError,
    libvirt.VIR_ERR_INVALID_CONN: UnavailableError,
    libvirt.VIR_ERR_RPC: UnavailableError,
    libvirt.VIR_ERR_AUTH_FAILED: UnavailableError,
    libvirt.VIR_ERR_AUTH_CANCELLED: UnavailableError,
    libvirt.VIR_ERR_AUTH_UNAVAILABLE: UnavailableError,
    libvirt.VIR_ERR_GNUTLS_ERROR: UnavailableError,
    libvirt.VIR_ERR_OPERATION_TIMEOUT: TimedOutError,
}

_BY_ERRNO: dict[int, type[RmspluginError]] = {
    errno.ENOSPC: NoSpaceError,
    errno.EDQUOT: NoSpaceError,
    errno.ENOENT: NotFoundError,
}

#: Failures of a helper process (libvirt_iohelper writes the states) reach us only as its words. They are in English, as
#: libvirtd runs its helpers in the C locale.
_BY_TEXT: dict[str, type[RmspluginError]] = {
    "No space left on device": NoSpaceError,
    "Disk quota exceeded": NoSpaceError,
    # The program that (de)compresses a state. libvirt calls the error ENOENT, but it is about no VM and no file of
    # ours.
    "Cannot find '": OperationFailedError,
    # libvirt calls it ENOENT, too. It makes only its own group, unless systemd does it for libvirt.
    "Failed to create v1 controller": NoControlGroupError,
    "Failed to create v2 cgroup": NoControlGroupError,
}

#: QEMU's words when it refuses to load a state. libvirt passes them on as a failed start.
_UNLOADABLE = (
    "load of migration failed",
    "error while loading state",
    "Unknown savevm section",
    "Not a migration stream",
    "expected EOF",
)


def translate(error: libvirt.libvirtError, what: str) -> RmspluginError:
    """Our error for libvirt's; ``what`` says what was being done, where, to which VM."""
    text = " ".join((error.get_error_message() or str(error)).split())
    message = f"{what}: {text}"
    for words, kind in _BY_TEXT.items():
        if words in text:
            return kind(message)
    code = error.get_error_code()
    if code in _BY_CODE:
        return _BY_CODE[code](message)
    # The client side's own troubles: no listener, no route, a broken or a silent connection.
    if error.get_error_domain() in (libvirt.VIR_FROM_RPC, libvirt.VIR_FROM_REMOTE):
        return UnavailableError(message)
    if code == libvirt.VIR_ERR_SYSTEM_ERROR:
        return _BY_ERRNO.get(error.get_int1() or 0, OperationFailedError)(message)
    return OperationFailedError(message)


def is_unknown_format(error: RmspluginError) -> bool:
    """Whether a state is of a format that this libvirt does not know, but a newer one does."""
    return "save image format" in str(error) or "compressed save format" in str(error)


def is_unloadable_state(error: RmspluginError) -> bool:
    """Whether a restore failed because of the file's content."""
    return any(words in str(error) for words in _UNLOADABLE)
