"""Vouched: for whom a manager asks the engine of a group. Only a manager reaches that engine's socket."""

from __future__ import annotations

from collections.abc import Mapping

from rmsplugin.engine.serve.doors import LOCAL, Origin, read_address
from rmsplugin.engine.serve.parsing import BadRequestError

#: The caller's uid; and the address of the host that the request came from over TCP, left out where that is this one.
UID, ORIGIN = "X-Rmsplugin-Uid", "X-Rmsplugin-Origin"


def vouched(headers: Mapping[str, str], peer: int) -> tuple[int, Origin]:
    """The uid and the origin of the caller; those of the peer where the headers name no other.

    Raises:
        BadRequestError: the headers cannot be read.
    """
    uid, address = headers.get(UID), headers.get(ORIGIN)
    if uid is None:
        if address is not None:
            raise BadRequestError(f"{ORIGIN} needs {UID}")
        return peer, LOCAL
    if not (uid.isascii() and uid.isdecimal() and len(uid) <= 10):
        raise BadRequestError(f"{UID} is {uid[:40]!r}, which is no uid")
    try:
        return int(uid), LOCAL if address is None else Origin(read_address(address), here=False)
    except ValueError:
        raise BadRequestError(f"{ORIGIN} is {str(address)[:60]!r}, which is no address") from None
