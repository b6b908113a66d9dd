"""Attributes of files, as NFS 4 tells and takes them."""

from __future__ import annotations

import stat
from collections.abc import Callable
from dataclasses import dataclass

from minicluster_lib.nfs_client.xdr import Reader, bitmap, opaque, u32, u64

_TYPES = {
    1: stat.S_IFREG,
    2: stat.S_IFDIR,
    3: stat.S_IFBLK,
    4: stat.S_IFCHR,
    5: stat.S_IFLNK,
    6: stat.S_IFSOCK,
    7: stat.S_IFIFO,
}
_TYPE, _SIZE, _FILE_ID, _MODE, _LINKS, _OWNER, _GROUP, _USED = 1, 4, 20, 33, 35, 36, 37, 45
_ACCESSED, _CHANGED, _MODIFIED = 47, 52, 53
_SET_ACCESSED, _SET_MODIFIED = 48, 54
_SPACE = (21, 22, 23, 42, 43, 44)
_NOBODY = 65534


def _time(rest: Reader) -> int:
    return rest.i64() * 1_000_000_000 + rest.u32()


def _account(rest: Reader) -> int:
    name = rest.opaque()
    return int(name) if name.isdigit() else _NOBODY


_READ: dict[int, Callable[[Reader], int]] = {
    _TYPE: lambda rest: _TYPES.get(rest.u32(), stat.S_IFREG),
    _SIZE: Reader.u64,
    _FILE_ID: Reader.u64,
    _MODE: Reader.u32,
    _LINKS: Reader.u32,
    _OWNER: _account,
    _GROUP: _account,
    _USED: Reader.u64,
    _ACCESSED: _time,
    _CHANGED: _time,
    _MODIFIED: _time,
    **dict.fromkeys(_SPACE, Reader.u64),
}

WANTED = bitmap(sorted(set(_READ) - set(_SPACE)))
WANTED_SPACE = bitmap(_SPACE)
WANTED_ENTRY = bitmap([_TYPE, _FILE_ID])


@dataclass(frozen=True)
class Attributes:
    """What ``stat`` tells of a file; times are nanoseconds since 1970, sizes are bytes."""

    number: int
    mode: int
    size: int = 0
    links: int = 1
    uid: int = 0
    gid: int = 0
    used: int = 0
    accessed: int = 0
    changed: int = 0
    modified: int = 0


def _values(rest: Reader) -> dict[int, int]:
    bits = rest.bitmap()
    values = Reader(rest.opaque())
    return {bit: _READ[bit](values) for bit in bits}


def read_attributes(rest: Reader) -> Attributes:
    """Read what was asked for by WANTED, or WANTED_ENTRY."""
    found = _values(rest)
    return Attributes(
        found[_FILE_ID],
        found[_TYPE] | found.get(_MODE, 0),
        *(found.get(bit, 0) for bit in (_SIZE, _LINKS, _OWNER, _GROUP, _USED, _ACCESSED, _CHANGED, _MODIFIED)),
    )


def read_space(rest: Reader) -> list[int]:
    """Read what was asked for by WANTED_SPACE: files available, free, all; bytes available, free, all."""
    found = _values(rest)
    return [found.get(bit, 0) for bit in _SPACE]


@dataclass(frozen=True)
class Changes:
    """Attributes to be set. A time is nanoseconds since 1970, or -1: the server's now. None stays as it is."""

    mode: int | None = None
    uid: int | None = None
    gid: int | None = None
    size: int | None = None
    accessed: int | None = None
    modified: int | None = None

    def written(self) -> bytes:
        """As NFS takes them."""
        values = {
            _SIZE: None if self.size is None else u64(self.size),
            _MODE: None if self.mode is None else u32(self.mode),
            _OWNER: None if self.uid is None else opaque(str(self.uid).encode()),
            _GROUP: None if self.gid is None else opaque(str(self.gid).encode()),
            _SET_ACCESSED: _set_time(self.accessed),
            _SET_MODIFIED: _set_time(self.modified),
        }
        told = {bit: value for bit, value in values.items() if value is not None}
        return bitmap(told) + opaque(b"".join(told.values()))


def _set_time(time: int | None) -> bytes | None:
    if time is None:
        return None
    return u32(0) if time < 0 else u32(1) + u64(time // 1_000_000_000) + u32(time % 1_000_000_000)
