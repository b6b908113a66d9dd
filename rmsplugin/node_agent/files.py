"""File discipline: private directories; writes that are whole and on disk, or absent; one writer a VM."""

from __future__ import annotations

import fcntl
import os
import select
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from rmsplugin.node_agent.errors import AgentError
from rmsplugin.open_directories import make_above

CHUNK_BYTES = 1 << 20
#: The time between two reports of a long verb's progress, also while it waits for the disk.
PULSE_S = 0.5
_LOCK_WAIT_S = 60.0
_LOCK_FILE = ".lock"
_VMS_PER_JOB = 10**6  # parse_vm_name allows six digits for the index


def make_private(directory: Path, mode: int) -> None:
    """Make the directory with ``mode``, or give it that mode; refuse one into which others could have put files."""
    if not directory.is_dir():
        make_above(directory)
        with suppress(FileExistsError):
            directory.mkdir(mode=0o700)
    status = directory.stat()
    if status.st_uid != os.geteuid():
        raise AgentError("failed", f"{directory} belongs to uid {status.st_uid}, not to {os.geteuid()}")
    if status.st_mode & 0o7777 != mode:
        directory.chmod(mode)


def sync_directory(directory: Path) -> None:
    """Make renames and removals in the directory survive a loss of power."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(path: Path, content: bytes) -> None:
    """Put a 0600 file in place: after a crash, it has its whole content or its former one."""
    temporary = path.with_name(path.name + ".partial")
    with suppress(FileNotFoundError):
        temporary.unlink()
    try:
        with create(temporary) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except BaseException:
        with suppress(FileNotFoundError):
            temporary.unlink()
        raise
    sync_directory(path.parent)


def create(path: Path) -> IO[bytes]:
    """Open a new 0600 file for writing; it must not be there, not even as a symbolic link."""
    return open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "w+b")


def copy_rest(source: IO[bytes], destination: IO[bytes]) -> None:
    """Copy from the present positions of both files; a file system that can do so shares the blocks."""
    source_at, destination_at = source.tell(), destination.tell()
    while done := os.copy_file_range(
        source.fileno(), destination.fileno(), 1 << 30, offset_src=source_at, offset_dst=destination_at
    ):
        source_at, destination_at = source_at + done, destination_at + done


def copy_whole(source: Path, destination: Path) -> None:
    """Copy a file; ``destination`` must not exist, and does not until all of it is there."""
    temporary = destination.with_name(destination.name + ".partial")
    remove(temporary)
    with open(source, "rb") as old, create(temporary) as new:
        copy_rest(old, new)
    temporary.rename(destination)


def remove(*paths: Path) -> None:
    """Remove those files that exist."""
    removed = set()
    for path in paths:
        with suppress(FileNotFoundError):
            path.unlink()
            removed.add(path.parent)
    for directory in removed:
        sync_directory(directory)


def size_of(path: Path) -> int | None:
    """Size of a file; None if the file does not exist."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


class Pulse:
    """Reports the progress of a long verb, but not more often than is useful."""

    def __init__(self, report: Callable[[dict[str, int]], None], total: int | None = None) -> None:
        """``total``: the bytes to do; reported at once, so that the caller knows for how long to be patient."""
        self._report = report
        self._total = {} if total is None else {"bytes_total": total}
        self._told_at = time.monotonic()
        if total is not None:
            report({"bytes_done": 0, **self._total})

    def beat(self, done: int) -> None:
        """Report that ``done`` bytes are done."""
        now = time.monotonic()
        if now - self._told_at >= PULSE_S:
            self._report({"bytes_done": done, **self._total})
            self._told_at = now


def free_bytes(directory: Path) -> int:
    """Room in the file system for root's files."""
    status = os.statvfs(directory)
    return status.f_bfree * status.f_frsize if os.geteuid() == 0 else status.f_bavail * status.f_frsize


def require_listener() -> None:
    """Raise BrokenPipeError if nobody listens to the answer of this call."""
    output = select.poll()
    output.register(1, 0)
    if any(event & (select.POLLERR | select.POLLHUP) for _, event in output.poll(0)):
        raise BrokenPipeError


@contextmanager
def lock(
    directory: Path, vm: tuple[int, int], *, still: Callable[[], None], shared: bool = False, kind: str = ""
) -> Iterator[None]:
    """Keep other agents off the VM's files in the directory.

    All VMs share one lock file, with a byte for each. A file for each VM would have to be removed some day, and
    removing a lock file safely is hard. The kernel releases the lock when the process ends, however it ends. The kernel
    also does so when this process closes the lock file that it has opened a second time: so locks of one kind are not
    nested.

    Args:
        directory: the directory of the files.
        vm: job id and index; for a checkpoint's file, the checkpoint's number and the index.
        still: called with a lock that is not shared, before anything is done: ``require_listener``, or what raises for
            an engine, too, whose turn has ended while the call waited.
        shared: others may read too. The lock file is only read where it is there: a store may be mounted read-only.
        kind: the kind of the files; files of another kind have a lock of their own.

    Raises:
        AgentError: another call has had the lock for too long.
        BrokenPipeError: the caller has gone, and may have done other things with the files since.
        Exception: that of ``still``.
    """
    offset = vm[0] * _VMS_PER_JOB + vm[1]
    operation = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
    deadline = time.monotonic() + _LOCK_WAIT_S
    descriptor = _open_lock(directory / f"{_LOCK_FILE}{kind}", shared=shared)
    try:
        while True:
            try:
                fcntl.lockf(descriptor, operation, 1, offset)
                break
            except (BlockingIOError, PermissionError):
                if time.monotonic() > deadline:
                    raise AgentError("failed", "another call for this VM is under way") from None
                time.sleep(0.05)
        if not shared:
            still()
        yield
    finally:
        os.close(descriptor)


def _open_lock(path: Path, *, shared: bool) -> int:
    """Open the lock file; make it if it is not there. A lock that others may share needs no more than to read it."""
    flags = os.O_CLOEXEC | os.O_NOFOLLOW
    if shared:
        with suppress(FileNotFoundError):
            return os.open(path, os.O_RDONLY | flags)
    return os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o600)
