"""The file system: for each request of the kernel, what is asked of the server.

Operations have the numbers of ``enum fuse_opcode`` in ``linux/fuse.h``.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
import struct
import threading
from collections.abc import Callable
from typing import TypeVar

from minicluster_lib.nfs_client.attributes import Attributes, Changes
from minicluster_lib.nfs_client.fuse import Request, written
from minicluster_lib.nfs_client.nodes import Node, Nodes
from minicluster_lib.nfs_client.open_files import OpenFile, OpenFiles
from minicluster_lib.nfs_client.ranges import Range
from minicluster_lib.nfs_client.rpc import Caller
from minicluster_lib.nfs_client.session import NfsError
from minicluster_lib.nfs_client.volume import READ, WRITE, Entry, Stated, Volume

_DIRECT = 1  # FOPEN_DIRECT_IO
_NAME_BYTES = 255
_BLOCK = 4096
_MODE, _UID, _GID, _SIZE, _ATIME, _MTIME, _HAS_FILE, _ATIME_NOW, _MTIME_NOW = (1 << bit for bit in range(9))
_READ_LOCK, _WRITE_LOCK, _NO_LOCK = 0, 1, 2
_IS_FLOCK = 1  # FUSE_LK_FLOCK
_UNLOCKS_FLOCK = 2  # FUSE_RELEASE_FLOCK_UNLOCK

T = TypeVar("T")


class FileSystem:
    """Answers requests; what it raises is an OSError."""

    def __init__(self, volume: Volume) -> None:
        self._volume, self.nodes = volume, Nodes(volume.root.handle)
        self._open_files = OpenFiles(volume)
        self._files: dict[int, OpenFile] = {}
        self._directories: dict[int, list[tuple[bytes, Attributes]]] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._operations: dict[int, Callable[[Request], bytes]] = {
            1: self._lookup,
            3: self._getattr,
            4: self._setattr,
            5: self._readlink,
            6: self._symlink,
            9: self._mkdir,
            10: self._unlink,
            11: self._rmdir,
            12: self._rename,
            13: self._link,
            14: self._open,
            15: self._read,
            16: self._write,
            17: self._statfs,
            18: self._release,
            20: self._fsync,
            25: self._flush,
            27: self._opendir,
            28: self._readdir,
            29: self._releasedir,
            30: self._fsyncdir,
            31: self._getlk,
            32: self._setlk,
            33: self._setlkw,
            34: self._access,
            35: self._create,
            45: self._rename2,
        }

    def answer(self, request: Request) -> bytes:
        """Do what the kernel asks."""
        act = self._operations.get(request.operation)
        if act is None:
            raise OSError(errno.ENOSYS, "not offered")
        return act(request)

    def _handle(self, request: Request) -> bytes:
        return self.nodes[request.node].handle

    def _entry(self, found: Stated, node: Node | None = None) -> bytes:
        node = node or self.nodes.looked_up(found.handle)
        return struct.pack("<4Q2I", node.number, 0, 0, 0, 0, 0) + written(found.attributes)

    # -- names -------------------------------------------------------------------------------------------------------

    def _lookup(self, request: Request) -> bytes:
        return self._entry(self._volume.lookup(_caller(request), self._handle(request), request.names()[0]))

    def _mkdir(self, request: Request) -> bytes:
        mode, _ = request.take("<II")
        return self._make(request, request.names()[0], Changes(mode=stat.S_IMODE(mode)), None)

    def _symlink(self, request: Request) -> bytes:
        name, target = request.names()
        return self._make(request, name, Changes(), target)

    def _make(self, request: Request, name: bytes, changes: Changes, target: bytes | None) -> bytes:
        return self._entry(self._volume.make(_caller(request), self._handle(request), name, changes, target))

    def _link(self, request: Request) -> bytes:
        (node,) = request.take("<Q")
        [name] = request.names()
        caller, directory = _caller(request), self._handle(request)
        self._volume.link(caller, self.nodes[node].handle, directory, name)
        return self._entry(self._volume.lookup(caller, directory, name))

    def _unlink(self, request: Request) -> bytes:
        [name] = request.names()
        caller, directory = _caller(request), self._handle(request)
        if not self._hide(caller, directory, name):
            self._volume.remove(caller, directory, name)
        return b""

    def _rmdir(self, request: Request) -> bytes:
        self._volume.remove(_caller(request), self._handle(request), request.names()[0])
        return b""

    def _rename(self, request: Request) -> bytes:
        (to,) = request.take("<Q")
        return self._renamed(request, to)

    def _rename2(self, request: Request) -> bytes:
        to, flags, _ = request.take("<QII")
        if flags:
            raise OSError(errno.EINVAL, "NFS has no such rename")
        return self._renamed(request, to)

    def _renamed(self, request: Request, to: int) -> bytes:
        name, new = request.names()
        caller, target = _caller(request), self.nodes[to].handle
        self._hide(caller, target, new)
        self._volume.rename(caller, self._handle(request), name, target, new)
        return b""

    def _hide(self, caller: Caller, directory: bytes, name: bytes) -> bool:
        """Keep a file that is open here, and loses its name, under another one, as clients of NFS do."""
        try:
            found = self._volume.lookup(caller, directory, name)
        except NfsError as error:
            if error.errno == errno.ENOENT:
                return False
            raise
        node = self.nodes.open_with(found.handle)
        if node is None or found.attributes.links > 1:
            return False
        hidden = b".nfs%016x%08x" % (found.attributes.number, next(self._numbers))
        self._volume.rename(caller, directory, name, directory, hidden)
        node.hidden = (directory, hidden)
        return True

    def _readlink(self, request: Request) -> bytes:
        return self._volume.target(_caller(request), self._handle(request))

    # -- attributes --------------------------------------------------------------------------------------------------

    def _getattr(self, request: Request) -> bytes:
        return _told(self._volume.attributes(_caller(request), self._handle(request)))

    def _setattr(self, request: Request) -> bytes:
        valid, _, file, size, _, *times, _ = request.take("<2I6Q")
        accessed_ns, modified_ns, _, mode, _, uid, gid, _ = request.take("<8I")
        accessed, modified = times[0] * 1_000_000_000 + accessed_ns, times[1] * 1_000_000_000 + modified_ns
        changes = Changes(
            mode=stat.S_IMODE(mode) if valid & _MODE else None,
            uid=uid if valid & _UID else None,
            gid=gid if valid & _GID else None,
            size=size if valid & _SIZE else None,
            accessed=-1 if valid & _ATIME_NOW else accessed if valid & _ATIME else None,
            modified=-1 if valid & _MTIME_NOW else modified if valid & _MTIME else None,
        )
        state = {"state": self._files[file].state} if valid & _HAS_FILE and valid & _SIZE else {}
        return _told(self._volume.change(_caller(request), self._handle(request), changes, **state))

    def _access(self, request: Request) -> bytes:
        mask, _ = request.take("<II")
        caller, handle = _caller(request), self._handle(request)
        executes = 2 if stat.S_ISDIR(self._volume.attributes(caller, handle).mode) else 0x20
        wanted = {os.R_OK: 1, os.W_OK: 4 | 8, os.X_OK: executes}
        if not self._volume.may(caller, handle, sum(bits for one, bits in wanted.items() if mask & one)):
            raise PermissionError(errno.EACCES, "the server forbids it")
        return b""

    def _statfs(self, request: Request) -> bytes:
        files, free_files, all_files, available, free, total = self._volume.space(_caller(request))
        blocks = (total // _BLOCK, free // _BLOCK, available // _BLOCK, all_files, min(files, free_files))
        return struct.pack("<5Q4I24x", *blocks, _BLOCK, _NAME_BYTES, _BLOCK, 0)

    # -- open files --------------------------------------------------------------------------------------------------

    def _opened(self, file: OpenFile) -> bytes:
        number = next(self._numbers)
        self.nodes.opened(file.node, 1)
        self._files[number] = file
        self._open_files.opened(file)
        return struct.pack("<QIi", number, _DIRECT, 0)

    def _open(self, request: Request) -> bytes:
        flags, _ = request.take("<II")
        node, caller, share = self.nodes[request.node], _caller(request), _share(flags)
        return self._opened(OpenFile(node, caller, share, self._volume.open(caller, node.handle, share)))

    def _create(self, request: Request) -> bytes:
        flags, mode, _, _ = request.take("<4I")
        [name] = request.names()
        caller, share = _caller(request), _share(flags)
        state, found = self._volume.create(
            caller,
            self._handle(request),
            name,
            share,
            Changes(mode=stat.S_IMODE(mode)),
            new=bool(flags & os.O_EXCL),
        )
        node = self.nodes.looked_up(found.handle)
        return self._entry(found, node) + self._opened(OpenFile(node, caller, share, state))

    def _read(self, request: Request) -> bytes:
        file, at, size = request.take("<QQI")
        return self._open_files.read(self._files[file], at, size)

    def _write(self, request: Request) -> bytes:
        file, at, size, _, _, _, _ = request.take("<QQIIQII")
        return struct.pack("<II", self._open_files.write(self._files[file], at, request.body[:size]), 0)

    def _fsync(self, request: Request) -> bytes:
        self._open_files.commit(self._files[request.take("<Q")[0]])
        return b""

    def _flush(self, request: Request) -> bytes:
        number, _, _, owner = request.take("<QIIQ")
        file = self._files[number]
        try:
            self._open_files.commit(file)
        finally:
            self._open_files.unlock_all(file.node.handle, _owner(owner))
        return b""

    def _release(self, request: Request) -> bytes:
        number, _, flags, owner = request.take("<QIIQ")
        file = self._files.pop(number)
        if flags & _UNLOCKS_FLOCK:
            self._open_files.unlock_all(file.node.handle, _owner(owner, flock=True))
        self._open_files.close(file)
        if not self.nodes.opened(file.node, -1) and file.node.hidden is not None:
            hidden, file.node.hidden = file.node.hidden, None
            self._volume.remove(file.caller, *hidden)
        return b""

    # -- directories -------------------------------------------------------------------------------------------------

    def _opendir(self, request: Request) -> bytes:
        number = next(self._numbers)
        self._directories[number] = []
        return struct.pack("<QIi", number, 0, 0)

    def _readdir(self, request: Request) -> bytes:
        number, at, size = request.take("<QQI")
        if at == 0:
            handle = self._handle(request)
            own = self._volume.attributes(_caller(request), handle)
            found = self._volume.entries(_caller(request), handle)
            self._directories[number] = [Entry(b".", own), Entry(b"..", own), *found]
        told = b""
        for next_at, (name, attributes) in enumerate(self._directories[number][at:], at + 1):
            head = struct.pack("<QQII", attributes.number, next_at, len(name), stat.S_IFMT(attributes.mode) >> 12)
            entry = head + name + bytes(-len(name) % 8)
            if len(told) + len(entry) > size:
                break
            told += entry
        return told

    def _releasedir(self, request: Request) -> bytes:
        del self._directories[request.take("<Q")[0]]
        return b""

    def _fsyncdir(self, _: Request) -> bytes:
        return b""  # a server of NFS has done what it has answered

    # -- locks -------------------------------------------------------------------------------------------------------

    def _getlk(self, request: Request) -> bytes:
        number, owner, first, last, kind, _, flags, _ = request.take("<QQQQIIII")
        found = self._open_files.conflict(
            self._files[number],
            _owner(owner, flock=bool(flags & _IS_FLOCK)),
            Range(first, last),
            writes=kind == _WRITE_LOCK,
        )
        if found is None:
            return struct.pack("<QQII", first, last, _NO_LOCK, 0)
        end = min(found.start + found.length - 1, (1 << 63) - 1)
        return struct.pack("<QQII", found.start, end, _WRITE_LOCK if found.writes else _READ_LOCK, 0)

    def _setlk(self, request: Request) -> bytes:
        return self._lock_bytes(request, lambda: False)

    def _setlkw(self, request: Request) -> bytes:
        def waits() -> bool:
            if request.interrupted.is_set():
                raise InterruptedError(errno.EINTR, "a signal")
            return True

        return self._lock_bytes(request, waits)

    def _lock_bytes(self, request: Request, waits: Callable[[], bool]) -> bytes:
        number, owner, first, last, kind, _, flags, _ = request.take("<QQQQIIII")
        file, who, what = self._files[number], _owner(owner, flock=bool(flags & _IS_FLOCK)), Range(first, last)
        if kind == _NO_LOCK:
            self._open_files.unlock(file.node.handle, who, what)
        else:
            self._open_files.lock(file, who, what, writes=kind == _WRITE_LOCK, waits=waits)
        return b""


def _caller(request: Request) -> Caller:
    return Caller(request.uid, request.gid)


def _share(flags: int) -> int:
    return {os.O_RDONLY: READ, os.O_WRONLY: WRITE, os.O_RDWR: READ | WRITE}[flags & os.O_ACCMODE]


def _owner(number: int, *, flock: bool = False) -> bytes:
    return struct.pack(">?Q", flock, number)


def _told(found: Attributes) -> bytes:
    return struct.pack("<QII", 0, 0, 0) + written(found)
