"""A session of NFS 4.1 (RFC 8881): a call that is sent twice is done once, and the lease is kept."""

from __future__ import annotations

import contextlib
import errno
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from minicluster_lib.nfs_client.rpc import Caller, Connection
from minicluster_lib.nfs_client.xdr import Reader, opaque, u32, u64

_SEQUENCE, _EXCHANGE_ID, _CREATE_SESSION, _RECLAIM_COMPLETE = 53, 42, 43, 58
_SLOTS = 16
_MESSAGE_BYTES = 1 << 20
#: The lease of most servers is 60 s or more; each call renews it.
_RENEWED_S = 10.0
_AGAIN_S = 0.2

DENIED = 10010
_LATER = (10008, 10013)  # NFS4ERR_DELAY, NFS4ERR_GRACE
_NO_SESSION = (10052, 10078, 10022)  # NFS4ERR_BADSESSION, NFS4ERR_DEADSESSION, NFS4ERR_STALE_CLIENTID
_COMPLETE_ALREADY = 10054
#: The server knows no such open file, or lock: it was restarted, or the lease was over.
STATE_LOST = (10011, 10023, 10024, 10025, 10047)
_ERRNO = {
    63: errno.ENAMETOOLONG,
    66: errno.ENOTEMPTY,
    69: errno.EDQUOT,
    70: errno.ESTALE,
    10001: errno.ESTALE,
    10004: errno.EOPNOTSUPP,
    DENIED: errno.EAGAIN,
    10029: errno.ELOOP,
    10045: errno.EDEADLK,
    10046: errno.EBUSY,
}


class NfsError(OSError):
    """The server refused an operation; ``status`` is its reason as NFS numbers them."""

    def __init__(self, status: int, operation: int, rest: Reader) -> None:
        number = status if 0 < status < 63 else _ERRNO.get(status, errno.EIO)
        super().__init__(number, f"operation {operation}: {status}")
        self.status, self.rest = status, rest


class Operation(NamedTuple):
    """One operation of a compound: its number, its arguments, and how its result is read."""

    number: int
    arguments: bytes = b""
    read: Callable[[Reader], Any] = lambda _: None


@dataclass
class _Slot:
    number: int
    sequence: int = 0


@dataclass
class _Opened:
    """A session that the server knows."""

    client: int
    session: bytes
    slots: queue.Queue[_Slot]


class Session:
    """Compounds in a session, which is made anew when the server does not know it any more.

    Attributes:
        restore: called with a new session, before the server gives anybody what the old one had.
        restoring: held meanwhile.
    """

    def __init__(self, host: str, port: int, name: str) -> None:
        self._connection = Connection(host, port)
        self._owner = f"{socket.gethostname()} {name} {os.getpid()}".encode()
        self._verifier = os.urandom(8)
        self.restoring = threading.RLock()
        self.restore: Callable[[], None] = lambda: None
        self._opened = self._open()
        self._complete()
        threading.Thread(target=self._renew, daemon=True).start()

    @property
    def client(self) -> int:
        """The number by which the server knows this client."""
        return self._opened.client

    def call(self, caller: Caller, *operations: Operation) -> list[Any]:
        """Have operations done one after the other; returns what each gave. Raises NfsError for the first refusal."""
        while True:
            opened = self._opened
            try:
                return self._call_once(opened, caller, operations)
            except NfsError as error:
                if error.status in _NO_SESSION:
                    self._open_again(opened)
                elif error.status in _LATER:
                    time.sleep(_AGAIN_S)
                else:
                    raise

    def _call_once(self, opened: _Opened, caller: Caller, operations: Sequence[Operation]) -> list[Any]:
        slot = opened.slots.get()
        try:
            slot.sequence += 1
            arguments = opened.session + u32(slot.sequence, slot.number, _SLOTS - 1, 1)
            sequence = Operation(_SEQUENCE, arguments, lambda rest: rest.fixed(36))
            return self._compound(caller, [sequence, *operations])[1:]
        finally:
            opened.slots.put(slot)

    def _compound(self, caller: Caller, operations: Sequence[Operation]) -> list[Any]:
        words = b"".join(u32(each.number) + each.arguments for each in operations)
        rest = self._connection.call(caller, opaque(b"") + u32(1, len(operations)) + words)
        status = rest.u32()
        rest.opaque()
        results = []
        done = rest.u32()
        for each in operations[:done]:
            number, status = rest.u32(), rest.u32()
            if status:
                raise NfsError(status, number, rest)
            results.append(each.read(rest))
        if status:
            raise NfsError(status, 0, rest)
        return results

    def _open(self) -> _Opened:
        """Make the client known, and a session of it."""
        root = Caller()
        who = self._verifier + opaque(self._owner) + u32(0, 0, 0)
        [(client, number)] = self._compound(root, [Operation(_EXCHANGE_ID, who, lambda rest: (rest.u64(), rest.u32()))])
        channel = u32(0, _MESSAGE_BYTES, _MESSAGE_BYTES, _MESSAGE_BYTES, 16, _SLOTS, 0)
        back = u32(0, 4096, 4096, 0, 2, 1, 0)
        wanted = u64(client) + u32(number, 0) + channel + back + u32(0x40000000, 1, 0)
        [(session, slots)] = self._compound(root, [Operation(_CREATE_SESSION, wanted, _read_session)])
        free: queue.Queue[_Slot] = queue.LifoQueue()
        for slot in range(min(slots, _SLOTS)):
            free.put(_Slot(slot))
        return _Opened(client, session, free)

    def _open_again(self, lost: _Opened) -> None:
        with self.restoring:
            if self._opened is lost:
                self._opened = self._open()
                self.restore()
                self._complete()

    def _complete(self) -> None:
        """Tell the server that nothing more is taken back."""
        try:
            self.call(Caller(), Operation(_RECLAIM_COMPLETE, u32(0)))
        except NfsError as error:
            if error.status != _COMPLETE_ALREADY:
                raise

    def _renew(self) -> None:
        while True:
            time.sleep(_RENEWED_S)
            with contextlib.suppress(OSError):
                self.call(Caller())


def _read_session(rest: Reader) -> tuple[bytes, int]:
    session = rest.fixed(16)
    attributes = [rest.u32() for _ in range(8)]  # sequence, flags, then the channel's
    return session, attributes[7]
