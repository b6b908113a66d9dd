"""FUSE's device: requests of the kernel as it words them (``linux/fuse.h``), and answers to them."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

from minicluster_lib import kernel
from minicluster_lib.nfs_client.attributes import Attributes

DEVICE = "/dev/fuse"
TYPE = "fuse.nfs"
#: Bytes of a write, at most.
MOST_BYTES = 1 << 18
_THREADS = 32
_MINOR = 36
_ASYNC_READ, _POSIX_LOCKS, _BIG_WRITES, _FLOCK_LOCKS = 1 << 0, 1 << 1, 1 << 5, 1 << 10
_PARALLEL_DIRECTORIES, _MAX_PAGES, _MORE_FLAGS = 1 << 18, 1 << 22, 1 << 30
_FLAGS = _ASYNC_READ | _POSIX_LOCKS | _BIG_WRITES | _FLOCK_LOCKS | _PARALLEL_DIRECTORIES | _MAX_PAGES | _MORE_FLAGS
#: Slurm maps its state, which Linux 6.6 allows with direct reads and writes.
_SECOND_FLAGS = 1 << 4
_LOOKED_AT_S = 0.2
_SIGKILL = 1 << 8


class _Kind(IntEnum):
    """Operations that ask nothing of the server."""

    FORGET = 2
    INIT = 26
    INTERRUPT = 36
    BATCH_FORGET = 42


@dataclass
class Request:
    """What the kernel asks for a process.

    Attributes:
        body: the arguments of this operation.
        interrupted: the process got a signal meanwhile.
    """

    operation: int
    unique: int
    node: int
    uid: int
    gid: int
    pid: int
    body: bytes
    interrupted: threading.Event = field(default_factory=threading.Event)

    def take(self, form: str) -> tuple[int, ...]:
        """The numbers at the beginning of the body, which then begins behind them."""
        found = struct.unpack_from(form, self.body)
        self.body = self.body[struct.calcsize(form) :]
        return found

    def names(self) -> list[bytes]:
        """The names in the body."""
        return self.body.split(b"\0")[:-1]

    def is_killed(self) -> bool:
        """Whether the process ends as soon as it is let go."""
        try:
            lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        except OSError:
            return True
        return any(int(line.split()[1], 16) & _SIGKILL for line in lines if line.startswith(("SigPnd", "ShdPnd")))


def mount(source: str, place: str) -> int:
    """Mount a file system of type fuse.nfs; returns what its requests are read from. The kernel keeps nothing of it.

    A mount there whose client has ended goes.
    """
    while any(line.split()[1:3] == [place, TYPE] for line in Path("/proc/mounts").read_text().splitlines()):
        kernel.unmount(place)
    device = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode={stat.S_IFDIR:o},user_id=0,group_id=0,allow_other"
    kernel.mount(source, place, TYPE, kernel.MS_NOSUID | kernel.MS_NODEV, options)
    return device


def written(found: Attributes) -> bytes:
    """Attributes as FUSE has them."""
    times = [divmod(each, 1_000_000_000) for each in (found.accessed, found.modified, found.changed)]
    seconds, rests = [each[0] for each in times], [each[1] for each in times]
    numbers = (found.number, found.size, (found.used + 511) // 512)
    last = (found.mode, found.links, found.uid, found.gid, 0, 4096, 0)
    return struct.pack("<6Q10I", *numbers, *seconds, *rests, *last)


class Device:
    """Answers the requests of one mount until it is unmounted."""

    def __init__(self, device: int, answer: Callable[[Request], bytes], forget: Callable[[int, int], None]) -> None:
        """``forget``: the kernel has no use any more for so many lookups of a node."""
        self._device, self._answer, self._forget = device, answer, forget
        self._pending: dict[int, Request] = {}
        self._lock = threading.Lock()

    def serve(self) -> None:
        """Answer."""
        threading.Thread(target=self._let_the_killed_go, daemon=True).start()
        with ThreadPoolExecutor(_THREADS) as pool:
            while True:
                try:
                    message = os.read(self._device, MOST_BYTES + 8192)
                except OSError as error:
                    if error.errno in (errno.EINTR, errno.EAGAIN, errno.ENOENT):
                        continue
                    return  # unmounted
                _, operation, unique, node, uid, gid, pid, _ = struct.unpack_from("<IIQQIIII", message)
                request = Request(operation, unique, node, uid, gid, pid, message[40:])
                if not self._done_at_once(request):
                    with self._lock:
                        self._pending[unique] = request
                    pool.submit(self._work, request)

    def _done_at_once(self, request: Request) -> bool:
        match request.operation:
            case _Kind.INIT:
                body = struct.pack(
                    "<4I2H2I2H8I", 7, _MINOR, 0, _FLAGS, 64, 48, MOST_BYTES, 1, 64, 0, _SECOND_FLAGS, *[0] * 7
                )
                self._write(request.unique, 0, body)
            case _Kind.FORGET:
                self._forget(request.node, *request.take("<Q"))
            case _Kind.BATCH_FORGET:
                count, _ = request.take("<II")
                for _ in range(count):
                    self._forget(*request.take("<QQ"))  # type: ignore[call-arg]
            case _Kind.INTERRUPT:
                with self._lock:
                    told = self._pending.get(*request.take("<Q"))  # type: ignore[call-overload]
                if told is not None:
                    told.interrupted.set()
            case _:
                return False
        return True

    def _work(self, request: Request) -> None:
        try:
            self._end(request, 0, self._answer(request))
        except OSError as error:
            self._end(request, error.errno or errno.EIO)
        except Exception:
            self._end(request, errno.EIO)
            print(f"operation {request.operation}:\n{traceback.format_exc()}", file=sys.stderr, flush=True)

    def _end(self, request: Request, error: int, body: bytes = b"") -> None:
        with self._lock:
            if self._pending.pop(request.unique, None) is None:
                return
        self._write(request.unique, error, body)

    def _write(self, unique: int, error: int, body: bytes = b"") -> None:
        with contextlib.suppress(OSError):
            os.write(self._device, struct.pack("<IiQ", 16 + len(body), -error, unique) + body)

    def _let_the_killed_go(self) -> None:
        """Keep no process that is killed waiting for the server, as NFS does not. What it asked for goes on."""
        while True:
            time.sleep(_LOOKED_AT_S)
            with self._lock:
                interrupted = [each for each in self._pending.values() if each.interrupted.is_set()]
            for request in interrupted:
                if request.is_killed():
                    self._end(request, errno.EINTR)
