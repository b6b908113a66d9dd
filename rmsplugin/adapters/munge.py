"""MUNGE credential: a short-lived token that proves which user of this cluster made it, and for which payload.

It uses libmunge itself, through ctypes: no process is started for a credential, and an engine with a thousand wrappers
makes and checks hundreds of credentials in a second. Standard library only: the hooks and wrappers import this module
on every vjob's way through Slurm, and libmunge is loaded at the first credential. All functions may be called
from several threads; each call has a context of its own.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator
from contextlib import contextmanager

from rmsplugin.errors import ForbiddenError, NoMungeError, OperationFailedError, UnavailableError

#: The package libmunge2 has it; Slurm's own plugin for MUNGE needs it as well.
_LIBRARY = "libmunge.so.2"

# Error codes and options of munge.h.
_SUCCESS = 0
_SOCKET = 6  # munged is not running, not reachable, or has not answered five times in a row for 2 s each
_TIMEOUT = 7
_REJECTED = {
    2: "it is empty",  # EMUNGE_BAD_ARG
    8: "it is not a MUNGE credential",  # EMUNGE_BAD_CRED
    9: "it is of another MUNGE version",  # EMUNGE_BAD_VERSION
    10: "it is of another cluster (unknown cipher)",
    11: "it is of another cluster (unknown MAC)",
    12: "it is of another cluster (unknown compression)",
    13: "it is of another realm",
    14: "it was not made with this cluster's MUNGE key",  # EMUNGE_CRED_INVALID
    15: "it has expired (do the hosts' clocks agree?)",
    16: "it was made in the future (do the hosts' clocks agree?)",
    17: "it was used before",
    18: "it was made for another user",
}
_OPTION_SOCKET = 8
_OPTION_UID_RESTRICTION = 9


class Credential:
    """The proof in a decoded credential: its maker, and its payload.

    No dataclass: a wrapper would pay for the import.
    """

    __slots__ = ("gid", "payload", "uid")

    def __init__(self, uid: int, gid: int, payload: bytes) -> None:
        self.uid, self.gid, self.payload = uid, gid, payload


def encode(payload: bytes, *, restrict_uid: int | None = None, socket: str = "") -> str:
    """Make a credential of the calling process's user. Takes 11 s at most, which is libmunge's own bound.

    Args:
        payload: its payload.
        restrict_uid: the only user that will be able to decode it.
        socket: munged's socket, if it is not the default one.

    Raises:
        NoMungeError: munged does not answer.
        UnavailableError: libmunge is not installed.
        OperationFailedError: munged refuses to make it, for example because the payload is larger than 1 MiB.
    """
    library = _library()
    text = ctypes.c_void_p()
    with _context(library, socket) as context:
        if restrict_uid is not None:
            library.munge_ctx_set(context, _OPTION_UID_RESTRICTION, ctypes.c_uint32(restrict_uid))
        status = library.munge_encode(ctypes.byref(text), context, payload, len(payload))
        try:
            if status != _SUCCESS:
                raise _failure(library, context, status, "munge could not make a credential")
            return ctypes.string_at(text.value or 0).decode("ascii")
        finally:
            library.free(text)


def decode(credential: str, *, socket: str = "") -> Credential:
    """Verify a credential; bounded as ``encode``. Each one can be decoded once on a host: a second time is a replay.

    Args:
        credential: the text that ``encode`` returned.
        socket: munged's socket, if it is not the default one.

    Raises:
        ForbiddenError: it proves nothing: forged, expired, replayed, or made for another user.
        NoMungeError: munged does not answer.
        UnavailableError: libmunge is not installed.
    """
    library = _library()
    text = credential.encode("utf-8", "replace")
    if b"\0" in text:  # C would not see the bytes after it
        raise ForbiddenError(f"MUNGE credential refused: {_REJECTED[8]}")
    payload, length = ctypes.c_void_p(), ctypes.c_int()
    uid, gid = ctypes.c_uint32(), ctypes.c_uint32()
    with _context(library, socket) as context:
        found = (ctypes.byref(payload), ctypes.byref(length), ctypes.byref(uid), ctypes.byref(gid))
        status = library.munge_decode(text, context, *found)
        try:
            if status in _REJECTED:
                raise ForbiddenError(f"MUNGE credential refused: {_REJECTED[status]}")
            if status != _SUCCESS:
                raise _failure(library, context, status, "munge could not check a credential")
            data = ctypes.string_at(payload.value, length.value) if payload.value else b""
            return Credential(uid.value, gid.value, data)
        finally:
            library.free(payload)


@functools.cache
def _library() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError:
        raise UnavailableError(f"libmunge ({_LIBRARY}, package libmunge2) is not installed on this host") from None
    context, text = ctypes.c_void_p, ctypes.c_char_p
    library.munge_ctx_create.restype = context
    library.munge_ctx_destroy.argtypes = [context]
    library.munge_ctx_destroy.restype = None
    library.munge_ctx_strerror.argtypes = [context]
    library.munge_ctx_strerror.restype = text
    library.munge_ctx_set.argtypes = [context, ctypes.c_int]  # and one value, whose type depends on the option
    library.munge_encode.argtypes = [ctypes.c_void_p, context, text, ctypes.c_int]
    library.munge_decode.argtypes = [text, context, *[ctypes.c_void_p] * 4]
    library.free.argtypes = [ctypes.c_void_p]  # that of the C library with which libmunge is linked
    library.free.restype = None
    return library


@contextmanager
def _context(library: ctypes.CDLL, socket: str) -> Iterator[ctypes.c_void_p]:
    context = ctypes.c_void_p(library.munge_ctx_create())
    if not context:
        raise UnavailableError("no memory for a MUNGE credential")
    try:
        if socket:
            library.munge_ctx_set(context, _OPTION_SOCKET, ctypes.c_char_p(socket.encode()))
        yield context
    finally:
        library.munge_ctx_destroy(context)


def _failure(library: ctypes.CDLL, context: ctypes.c_void_p, status: int, what: str) -> Exception:
    said: bytes | None = library.munge_ctx_strerror(context)
    message = " ".join((said or b"").decode("utf-8", "replace").split()) or f"error {status} of libmunge"
    if status in (_SOCKET, _TIMEOUT):
        return NoMungeError(f"munged does not answer: {message}")
    return OperationFailedError(f"{what}: {message}")
