"""RPC over TCP (RFC 5531): calls that are repeated until they are answered, as those of a hard mount are."""

from __future__ import annotations

import contextlib
import itertools
import secrets
import socket
import struct
import threading
import time
from dataclasses import dataclass

from minicluster_lib.nfs_client.xdr import Reader, opaque, u32

_PROGRAM, _VERSION, _COMPOUND = 100003, 4, 1
_LAST = 1 << 31
#: The server takes calls from ports below this one: those are root's.
_RESERVED = 1023
#: A connection on which nothing comes for so long while a call waits is made anew. TCP alone would wait longer and
#: longer after a cut.
_SILENT_S = 5.0
_AGAIN_S = 0.5


@dataclass(frozen=True)
class Caller:
    """For whom a call is made."""

    uid: int = 0
    gid: int = 0

    def written(self) -> bytes:
        """As AUTH_SYS has it, without a verifier."""
        body = u32(0) + opaque(socket.gethostname().encode()) + u32(self.uid, self.gid, 0)
        return u32(1) + opaque(body) + u32(0, 0)


class _Call:
    """A call that waits for its answer."""

    def __init__(self, message: bytes) -> None:
        self.message = message
        self.answer: bytes | None = None
        self.answered = threading.Event()


class Connection:
    """A connection to a server of NFS 4. It is made anew, and calls are sent again, for as long as it takes."""

    def __init__(self, host: str, port: int) -> None:
        self._place = (host, port)
        self._numbers = itertools.count(secrets.randbits(31))
        self._waiting: dict[int, _Call] = {}
        self._lock = threading.Lock()
        self._heard = time.monotonic()
        self._socket: socket.socket | None = None
        threading.Thread(target=self._receive_always, daemon=True).start()

    def call(self, caller: Caller, compound: bytes) -> Reader:
        """Make a call; returns its answer, whenever that comes."""
        with self._lock:
            number = next(self._numbers) & 0xFFFFFFFF
            call = _Call(u32(number, 0, 2, _PROGRAM, _VERSION, _COMPOUND) + caller.written() + compound)
            if not self._waiting:
                self._heard = time.monotonic()
            self._waiting[number] = call
            self._send(call.message)
        call.answered.wait()
        assert call.answer is not None
        return _result(call.answer)

    def _send(self, message: bytes) -> None:
        """Send it if there is a connection; a new connection gets all that waits."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.sendall(u32(_LAST | len(message)) + message)

    def _receive_always(self) -> None:
        while True:
            with contextlib.suppress(OSError, struct.error):
                self._connect()
                self._receive()
            self._drop()
            time.sleep(_AGAIN_S)

    def _connect(self) -> None:
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            made.settimeout(_SILENT_S)
            _bind_reserved(made)
            made.connect(self._place)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            made.close()
            raise
        with self._lock:
            self._socket, self._heard = made, time.monotonic()
            for call in self._waiting.values():
                self._send(call.message)

    def _drop(self) -> None:
        with self._lock:
            if self._socket is not None:
                self._socket.close()
                self._socket = None

    def _receive(self) -> None:
        rest = b""
        while True:
            assert self._socket is not None
            try:
                data = self._socket.recv(1 << 18)
            except TimeoutError:
                if self._is_silent():
                    return
                continue
            if not data:
                return
            self._heard = time.monotonic()
            rest = self._answers(rest + data)

    def _is_silent(self) -> bool:
        with self._lock:
            return bool(self._waiting) and time.monotonic() - self._heard >= _SILENT_S

    def _answers(self, data: bytes) -> bytes:
        """Give each whole answer to whom it is for; returns what is left."""
        at = 0
        while len(data) - at >= 4:
            size = struct.unpack_from(">I", data, at)[0] & ~_LAST
            if len(data) - at < 4 + size:
                break
            answer = data[at + 4 : at + 4 + size]
            at += 4 + size
            with self._lock:
                call = self._waiting.pop(struct.unpack_from(">I", answer)[0], None)
            if call is not None:
                call.answer = answer
                call.answered.set()
        return data[at:]


def _bind_reserved(made: socket.socket) -> None:
    for _ in range(20):
        with contextlib.suppress(OSError):
            made.bind(("", 600 + secrets.randbelow(_RESERVED - 600)))
            return
    raise OSError("no reserved port is free")


def _result(answer: bytes) -> Reader:
    """What follows the head of an answer. Raises OSError for a call that the server did not take."""
    head = Reader(answer)
    _, _, denied = head.u32(), head.u32(), head.u32()
    if denied:
        raise PermissionError(13, "the server refuses calls of this client")
    head.u32()
    head.opaque()
    if status := head.u32():
        raise OSError(5, f"the server did not take the call ({status})")
    return head
