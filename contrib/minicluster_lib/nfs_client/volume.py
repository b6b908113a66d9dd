"""A directory that a server exports: what NFS does with its files. Nothing of it is remembered here.

Operations have the numbers of RFC 8881, section 18.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

from minicluster_lib.nfs_client.attributes import (
    WANTED,
    WANTED_ENTRY,
    WANTED_SPACE,
    Attributes,
    Changes,
    read_attributes,
    read_space,
)
from minicluster_lib.nfs_client.rpc import Caller
from minicluster_lib.nfs_client.session import DENIED, NfsError, Operation, Session
from minicluster_lib.nfs_client.xdr import Reader, opaque, u32, u64

READ, WRITE = 1, 2
_NO_DELEGATION = 0x400
_NONE = bytes(16)
"""The stateid of no open file."""


class Stated(NamedTuple):
    """A file, or directory: the handle by which the server knows it, and its attributes."""

    handle: bytes
    attributes: Attributes


class Entry(NamedTuple):
    """One name in a directory."""

    name: bytes
    attributes: Attributes


class Conflict(NamedTuple):
    """A lock that is in the way: its first byte, its length (all ones: to the end), and if it is for writing."""

    start: int
    length: int
    writes: bool


def _fixed(size: int) -> Any:
    return lambda rest: rest.fixed(size)


def _put(handle: bytes) -> Operation:
    return Operation(22, opaque(handle))


_SAVE = Operation(32)
_GET_HANDLE = Operation(10, read=Reader.opaque)
_GET_ATTRIBUTES = Operation(9, WANTED, read_attributes)
_CHANGE_INFO = _fixed(20)


def _lookup(name: bytes) -> Operation:
    return Operation(15, opaque(name))


def _read_open(rest: Reader) -> bytes:
    state = rest.fixed(16)
    rest.fixed(20)
    rest.u32()
    rest.bitmap()
    if rest.u32() == 3 and rest.u32() in (1, 2):  # why there is no delegation
        rest.u32()
    return state


def _read_entries(rest: Reader) -> tuple[bytes, list[tuple[int, Entry]], bool]:
    verifier, entries = rest.fixed(8), []
    while rest.u32():
        cookie, name = rest.u64(), rest.opaque()
        entries.append((cookie, Entry(name, read_attributes(rest))))
    return verifier, entries, bool(rest.u32())


class Volume:
    """Files are named by their handles, names in a directory are bytes. All raise NfsError."""

    def __init__(self, session: Session, path: str) -> None:
        self.session = session
        self._openings = itertools.count(1)
        steps = [_lookup(part.encode()) for part in path.split("/") if part]
        *_, handle, attributes = session.call(Caller(), Operation(24), *steps, _GET_HANDLE, _GET_ATTRIBUTES)
        self.root = Stated(handle, attributes)

    def _on(self, caller: Caller, handle: bytes, *operations: Operation) -> list[Any]:
        return self.session.call(caller, _put(handle), *operations)[1:]

    # -- names -------------------------------------------------------------------------------------------------------

    def lookup(self, caller: Caller, directory: bytes, name: bytes) -> Stated:
        """What has this name."""
        return Stated(*self._on(caller, directory, _lookup(name), _GET_HANDLE, _GET_ATTRIBUTES)[1:])

    def make(self, caller: Caller, directory: bytes, name: bytes, changes: Changes, target: bytes | None) -> Stated:
        """Make a directory, or a symbolic link to ``target``."""
        kind = u32(2) if target is None else u32(5) + opaque(target)
        create = Operation(6, kind + opaque(name) + changes.written(), lambda rest: (rest.fixed(20), rest.bitmap()))
        return Stated(*self._on(caller, directory, create, _GET_HANDLE, _GET_ATTRIBUTES)[1:])

    def link(self, caller: Caller, handle: bytes, directory: bytes, name: bytes) -> None:
        """Give a file another name."""
        self._on(caller, handle, _SAVE, _put(directory), Operation(11, opaque(name), _CHANGE_INFO))

    def remove(self, caller: Caller, directory: bytes, name: bytes) -> None:
        """Remove a name, or an empty directory."""
        self._on(caller, directory, Operation(28, opaque(name), _CHANGE_INFO))

    def rename(self, caller: Caller, directory: bytes, name: bytes, to: bytes, new: bytes) -> None:
        """Rename; what has the new name in directory ``to`` loses it."""
        both = Operation(29, opaque(name) + opaque(new), lambda rest: rest.fixed(40))
        self._on(caller, directory, _SAVE, _put(to), both)

    def entries(self, caller: Caller, directory: bytes) -> Iterator[Entry]:
        """All names of a directory."""
        cookie, verifier, ended = 0, bytes(8), False
        while not ended:
            wanted = u64(cookie) + verifier + u32(1 << 14, 1 << 16) + WANTED_ENTRY
            [(verifier, found, ended)] = self._on(caller, directory, Operation(26, wanted, _read_entries))
            for cookie, entry in found:  # noqa: B007 the last one is where it goes on
                yield entry

    def target(self, caller: Caller, handle: bytes) -> bytes:
        """Where a symbolic link leads."""
        [target] = self._on(caller, handle, Operation(27, read=Reader.opaque))
        return bytes(target)

    # -- attributes --------------------------------------------------------------------------------------------------

    def attributes(self, caller: Caller, handle: bytes) -> Attributes:
        """The attributes of now."""
        [found] = self._on(caller, handle, _GET_ATTRIBUTES)
        assert isinstance(found, Attributes)
        return found

    def change(self, caller: Caller, handle: bytes, changes: Changes, state: bytes = _NONE) -> Attributes:
        """Set attributes; returns those of now."""
        setting = Operation(34, state + changes.written(), Reader.bitmap)
        found = self._on(caller, handle, setting, _GET_ATTRIBUTES)[1]
        assert isinstance(found, Attributes)
        return found

    def may(self, caller: Caller, handle: bytes, wanted: int) -> bool:
        """Whether all of these accesses are allowed, as NFS numbers them."""
        [(known, allowed)] = self._on(caller, handle, Operation(3, u32(wanted), lambda rest: (rest.u32(), rest.u32())))
        return bool(known & wanted == allowed & wanted)

    def space(self, caller: Caller) -> list[int]:
        """Files available, free, and all; bytes available, free, and all."""
        [found] = self._on(caller, self.root.handle, Operation(9, WANTED_SPACE, read_space))
        return list(found)

    # -- contents ----------------------------------------------------------------------------------------------------

    def _open(self, share: int, how: bytes, claim: bytes) -> Operation:
        owner = u64(self.session.client) + opaque(b"open %d" % next(self._openings))
        return Operation(18, u32(0, share | _NO_DELEGATION, 0) + owner + how + claim, _read_open)

    def open(self, caller: Caller, handle: bytes, share: int) -> bytes:
        """Open a file for reading (1), writing (2) or both (3); returns its state."""
        [state] = self._on(caller, handle, self._open(share, u32(0), u32(4)))
        return bytes(state)

    def create(
        self, caller: Caller, directory: bytes, name: bytes, share: int, changes: Changes, *, new: bool
    ) -> tuple[bytes, Stated]:
        """Make a file and open it; ``new``: it must not be there. Returns its state, and the file."""
        opening = self._open(share, u32(1, 1 if new else 0) + changes.written(), u32(0) + opaque(name))
        state, handle, attributes = self._on(caller, directory, opening, _GET_HANDLE, _GET_ATTRIBUTES)
        return state, Stated(handle, attributes)

    def open_again(self, caller: Caller, handle: bytes, share: int) -> bytes:
        """Take back from a server that was restarted what was open; returns its state."""
        [state] = self._on(caller, handle, self._open(share, u32(0), u32(1, 0)))
        return bytes(state)

    def close(self, handle: bytes, state: bytes) -> None:
        """Close an open file."""
        self._on(Caller(), handle, Operation(4, u32(0) + state, _fixed(16)))

    def read(self, caller: Caller, handle: bytes, state: bytes, at: int, size: int) -> bytes:
        """Read up to ``size`` bytes from ``at``; fewer only at the end of the file."""
        parts = []
        while size:
            reading = Operation(25, state + u64(at) + u32(size), lambda rest: (rest.u32(), rest.opaque()))
            [(ended, data)] = self._on(caller, handle, reading)
            parts.append(data)
            at, size = at + len(data), size - len(data)
            if ended or not data:
                break
        return b"".join(parts)

    def write(self, caller: Caller, handle: bytes, state: bytes, at: int, data: bytes) -> tuple[int, bytes]:
        """Write; returns how many bytes, and the verifier of the server's run, which may lose them until a commit."""
        writing = Operation(38, state + u64(at) + u32(0) + opaque(data), lambda rest: (rest.u32(), rest.fixed(12)[4:]))
        [(size, verifier)] = self._on(caller, handle, writing)
        return size, verifier

    def commit(self, caller: Caller, handle: bytes) -> bytes:
        """Have all that was written on the server's disk; returns the verifier of the server's run."""
        [verifier] = self._on(caller, handle, Operation(5, u64(0) + u32(0), _fixed(8)))
        return bytes(verifier)

    # -- locks -------------------------------------------------------------------------------------------------------

    def _locker(self, owner: bytes) -> bytes:
        return u64(self.session.client) + opaque(owner)

    def lock(
        self,
        handle: bytes,
        state: bytes,
        start: int,
        length: int,
        *,
        owner: bytes = b"",
        writes: bool,
        again: bool = False,
    ) -> bytes:
        """Lock bytes. ``state`` is the open file's with ``owner``, who has no lock of it yet, or else his lock's.

        ``again``: it is taken back from a server that was restarted. Returns the state of the locks. Raises NfsError
        with DENIED: somebody has one.
        """
        locker = u32(1, 0) + state + u32(0) + self._locker(owner) if owner else u32(0) + state + u32(0)
        wanted = u32(WRITE if writes else READ, again) + u64(start, length) + locker
        [found] = self._on(Caller(), handle, Operation(12, wanted, _fixed(16)))
        return bytes(found)

    def unlock(self, handle: bytes, state: bytes, start: int, length: int) -> bytes:
        """Unlock bytes; returns the state of the locks."""
        wanted = u32(READ, 0) + state + u64(start, length)
        [found] = self._on(Caller(), handle, Operation(14, wanted, _fixed(16)))
        return bytes(found)

    def forget_locks(self, state: bytes) -> None:
        """Have the server forget an owner of locks, who has none any more."""
        self.session.call(Caller(), Operation(45, state))

    def conflict(self, handle: bytes, start: int, length: int, *, owner: bytes, writes: bool) -> Conflict | None:
        """The lock that is in the way of one; None: it could be had."""
        wanted = u32(WRITE if writes else READ) + u64(start, length) + self._locker(owner)
        try:
            self._on(Caller(), handle, Operation(13, wanted))
        except NfsError as error:
            if error.status != DENIED:
                raise
            return Conflict(error.rest.u64(), error.rest.u64(), error.rest.u32() == WRITE)
        return None
