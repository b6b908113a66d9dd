"""Open files, and locks of their bytes. All locks are the server's: those of one host, too."""

from __future__ import annotations

import contextlib
import errno
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from minicluster_lib.nfs_client.nodes import Node
from minicluster_lib.nfs_client.ranges import ALL, Locked, Range, locked, unlocked
from minicluster_lib.nfs_client.rpc import Caller
from minicluster_lib.nfs_client.session import STATE_LOST, NfsError
from minicluster_lib.nfs_client.volume import Conflict, Volume

_AGAIN_S = 0.1

T = TypeVar("T")


@dataclass(eq=False)
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


@dataclass
class _Locks:
    """What an owner has locked of a file: by which open file, and the state by which the server knows it."""

    file: OpenFile
    state: bytes
    ranges: Locked


class OpenFiles:
    """Reads, writes and locks.

    What a server that was restarted has forgotten is taken back. If it does not give it back, a file without locks is
    opened again, and one with locks is of no use any more (EIO).
    """

    def __init__(self, volume: Volume) -> None:
        self._volume = volume
        self._files: set[OpenFile] = set()
        self._locks: dict[tuple[bytes, bytes], _Locks] = {}
        self._lock = threading.Lock()
        volume.session.restore = self._restore

    def opened(self, file: OpenFile) -> None:
        """Take in a file that was opened."""
        with self._lock:
            self._files.add(file)

    def _with_state(self, file: OpenFile, act: Callable[[bytes], T]) -> T:
        while True:
            if file.lost:
                raise OSError(errno.EIO, "locks of it were lost")
            state = file.state
            try:
                return act(state)
            except NfsError as error:
                if error.status not in STATE_LOST:
                    raise
            with self._volume.session.restoring:
                if file.state == state:
                    self._open_anew(file)

    def _open_anew(self, file: OpenFile) -> None:
        """Open a file that the server has forgotten for good; its locks are lost."""
        with self._lock:
            lost = [key for key, locks in self._locks.items() if locks.file is file]
            for key in lost:
                del self._locks[key]
            file.lost = bool(lost)
        if not file.lost:
            file.state = self._volume.open(file.caller, file.node.handle, file.share)

    def _restore(self) -> None:
        """Take all that is open and locked back from a server that was restarted, as far as it is given."""
        with self._lock:
            files, held = list(self._files), dict(self._locks)
        for file in files:
            with contextlib.suppress(NfsError):
                file.state = self._volume.open_again(file.caller, file.node.handle, file.share)
        for (handle, owner), locks in held.items():
            with contextlib.suppress(NfsError):
                self._lock_again(handle, owner, locks)

    def _lock_again(self, handle: bytes, owner: bytes, locks: _Locks) -> None:
        state = locks.file.state
        for what, writes in locks.ranges:
            state = self._volume.lock(handle, state, what.first, what.length, owner=owner, writes=writes, again=True)
            owner = b""
        locks.state = state

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
        with self._lock:
            self._files.discard(file)
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
                state, who = held.state, b""
            return self._volume.lock(file.node.handle, state, what.first, what.length, owner=who, writes=writes)

        state = self._with_state(file, act)
        with self._lock:
            locks = self._locks.setdefault(key, _Locks(file, state, []))
            locks.state, locks.ranges = state, locked(locks.ranges, what, writes=writes)

    def unlock(self, handle: bytes, owner: bytes, what: Range) -> None:
        """Unlock bytes of an owner."""
        if (locks := self._locks.get((handle, owner))) is None:
            return
        locks.ranges = unlocked(locks.ranges, what)
        self._let_go(handle, locks, what)

    def unlock_all(self, handle: bytes, owner: bytes) -> None:
        """Unlock all that an owner has of a file, as any close of it does."""
        with self._lock:
            locks = self._locks.pop((handle, owner), None)
        if locks is not None and self._let_go(handle, locks, ALL):
            self._volume.forget_locks(locks.state)

    def _let_go(self, handle: bytes, locks: _Locks, what: Range) -> bool:
        """Unlock at the server. False: it has forgotten that they were locked."""
        try:
            locks.state = self._volume.unlock(handle, locks.state, what.first, what.length)
        except NfsError as error:
            if error.status not in STATE_LOST:
                raise
            return False
        return True

    def conflict(self, file: OpenFile, owner: bytes, what: Range, *, writes: bool) -> Conflict | None:
        """The lock that is in the way of one."""
        return self._volume.conflict(file.node.handle, what.first, what.length, owner=owner, writes=writes)
