"""Open files, and locks of their bytes. All locks are the server's: those of one host, too."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from minicluster_lib.nfs_client.nodes import Node
from minicluster_lib.nfs_client.rpc import Caller
from minicluster_lib.nfs_client.session import STATE_LOST, NfsError
from minicluster_lib.nfs_client.volume import Conflict, Volume

_AGAIN_S = 0.1
#: NFS has the end of a file as a length of all ones, the kernel as the greatest offset.
_KERNELS_END, _TO_END = (1 << 63) - 1, (1 << 64) - 1

T = TypeVar("T")


@dataclass
class OpenFile:
    """One open file of a process, and of those that have it from that one.

    Attributes:
        share: for reading (1), writing (2) or both (3).
        state: by which the server knows it.
        lost: locks of it were lost with the server's state.
        verifiers: the runs of the server to which was written since the last commit.
    """

    node: Node
    caller: Caller
    share: int
    state: bytes
    lost: bool = False
    verifiers: set[bytes] = field(default_factory=set)


@dataclass(frozen=True)
class Range:
    """Bytes from the first one to the last one, as the kernel numbers them."""

    first: int
    last: int

    @property
    def length(self) -> int:
        """Their number, as NFS has it."""
        return _TO_END if self.last >= _KERNELS_END else self.last - self.first + 1


class OpenFiles:
    """Reads, writes and locks. What the server lost of a file without locks is opened again; with locks it is EIO."""

    def __init__(self, volume: Volume) -> None:
        self._volume = volume
        self._locks: dict[tuple[bytes, bytes], bytes] = {}
        self._lock = threading.Lock()

    def _with_state(self, file: OpenFile, act: Callable[[bytes], T]) -> T:
        if file.lost:
            raise OSError(errno.EIO, "locks of it were lost")
        state = file.state
        try:
            return act(state)
        except NfsError as error:
            if error.status not in STATE_LOST:
                raise
        with self._lock:
            lost = [key for key in self._locks if key[0] == file.node.handle]
            for key in lost:
                del self._locks[key]
            file.lost = bool(lost)
        if file.lost:
            raise OSError(errno.EIO, "locks of it were lost")
        file.state = self._volume.open(file.caller, file.node.handle, file.share)
        return act(file.state)

    def read(self, file: OpenFile, at: int, size: int) -> bytes:
        """Read from the server."""
        return self._with_state(file, lambda state: self._volume.read(file.caller, file.node.handle, state, at, size))

    def write(self, file: OpenFile, at: int, data: bytes) -> int:
        """Write to the server, which may keep it in memory; returns how many bytes."""
        done, verifier = self._with_state(
            file, lambda state: self._volume.write(file.caller, file.node.handle, state, at, data)
        )
        file.verifiers.add(verifier)
        return done

    def commit(self, file: OpenFile) -> None:
        """Have all that was written on the server's disk. EIO: the server was restarted meanwhile."""
        if file.verifiers:
            before, file.verifiers = file.verifiers, set()
            if before != {self._volume.commit(file.caller, file.node.handle)}:
                raise OSError(errno.EIO, "what was written may be lost")

    def close(self, file: OpenFile) -> None:
        """Close it."""
        try:
            self._volume.close(file.node.handle, file.state)
        except NfsError as error:
            if error.status not in STATE_LOST:
                raise

    def lock(self, file: OpenFile, owner: bytes, what: Range, *, writes: bool, waits: Callable[[], bool]) -> None:
        """Lock bytes for an owner. ``waits`` says whether a lock that another one has is waited for."""
        while True:
            try:
                return self._lock_once(file, owner, what, writes)
            except NfsError as error:
                if error.errno != errno.EAGAIN or not waits():
                    raise
            time.sleep(_AGAIN_S)

    def _lock_once(self, file: OpenFile, owner: bytes, what: Range, writes: bool) -> None:
        key = (file.node.handle, owner)

        def act(state: bytes) -> bytes:
            held, who = self._locks.get(key), owner
            if held is not None:
                state, who = held, b""
            return self._volume.lock(file.node.handle, state, what.first, what.length, owner=who, writes=writes)

        state = self._with_state(file, act)
        with self._lock:
            self._locks[key] = state

    def unlock(self, handle: bytes, owner: bytes, what: Range) -> None:
        """Unlock bytes of an owner."""
        with self._lock:
            state = self._locks.get((handle, owner))
        if state is not None:
            state = self._volume.unlock(handle, state, what.first, what.length)
            with self._lock:
                self._locks[handle, owner] = state

    def unlock_all(self, handle: bytes, owner: bytes) -> None:
        """Unlock all that an owner has of a file, as any close of it does."""
        with self._lock:
            state = self._locks.pop((handle, owner), None)
        if state is None:
            return
        try:
            self._volume.forget_locks(self._volume.unlock(handle, state, 0, _TO_END))
        except NfsError as error:
            if error.status not in STATE_LOST:
                raise

    def conflict(self, file: OpenFile, owner: bytes, what: Range, *, writes: bool) -> Conflict | None:
        """The lock that is in the way of one."""
        return self._volume.conflict(file.node.handle, what.first, what.length, owner=owner, writes=writes)
