"""Epoch: no engine is obeyed whose turn is over. Its epoch is lower than the highest that acted here.

The highest epoch is kept in a file beside the VMs' configurations, which a restart of node or agent leaves as it is. On
a node without disks it is forgotten with all else: so a node that has come up anew asks who leads (``owner``). A store
that all nodes mount has such a file of its own, beside its marker: a node that the present engine could not reach yet
obeys an older one, and must not remove states of others for it.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rmsplugin.model.epochs import FIRST_EPOCH
from rmsplugin.node_agent.errors import AgentError

if TYPE_CHECKING:
    from pathlib import Path

#: In the VMs' directory, and in a shared store.
_FILE, _STORE_FILE = ".epoch", ".rmsplugin-epoch"
_MOST_BYTES = 64
#: How a file is opened that need not be there yet.
_MAKE = os.O_RDWR | os.O_CREAT
#: A file system that takes no new file. Until it does, no higher epoch can be written down either.
_TAKES_NONE = (errno.EROFS, errno.ENOSPC, errno.EDQUOT)


def of_node(vm_dir: str | Path) -> str:
    """The file with the highest epoch that has acted on this node."""
    return os.path.join(vm_dir, _FILE)


def of_store(directory: Path) -> str:
    """The file with the highest epoch that has acted on the store."""
    return os.path.join(directory, _STORE_FILE)


def obey(path: str, epoch: int) -> None:
    """Return if an act of this epoch is to be done here, and remember the epoch.

    Args:
        path: the file, whose directory is there if the epoch is not the first.
        epoch: the epoch of the asking engine.

    Raises:
        AgentError: kind ``deposed``: an engine of a higher epoch has acted here.
    """
    found = highest(path)
    if epoch > found:
        with _locked(path, fcntl.LOCK_EX, _MAKE) as descriptor:
            found = _read(descriptor, path)
            if epoch > found:
                _write(descriptor, path, epoch)
                found = epoch
    if epoch < found:
        raise AgentError(
            "deposed", f"the turn of this engine (epoch {epoch}) is over: an engine of epoch {found} has acted here"
        )


def remember(path: str, epoch: int) -> None:
    """Refuse engines of lower epochs here from now on; one of a higher epoch may have acted here before."""
    if epoch > highest(path):
        with _locked(path, fcntl.LOCK_EX, _MAKE) as descriptor:
            if epoch > _read(descriptor, path):
                _write(descriptor, path, epoch)


def highest(path: str) -> int:
    """The highest epoch that has acted here; the first epoch if none is recorded."""
    try:
        with _locked(path, fcntl.LOCK_SH, os.O_RDONLY) as descriptor:
            return _read(descriptor, path)
    except (FileNotFoundError, NotADirectoryError):
        return FIRST_EPOCH


@contextmanager
def obeyed(path: str, epoch: int) -> Iterator[bool]:
    """Whether an engine of this epoch is obeyed; no higher one begins to be until the context ends.

    The file is made if only engines of the first epoch have acted: without it there is nothing to lock. Its directory
    is there. Where it cannot be made, nothing is locked: VMs go on beside a disk that has failed or is full, and have
    to be reached. A file that is there is only read.
    """
    if not _is_made(path):
        yield True
        return
    with _locked(path, fcntl.LOCK_SH, os.O_RDONLY) as descriptor:
        yield epoch >= _read(descriptor, path)


@contextmanager
def one_act(path: str, epoch: int) -> Iterator[None]:
    """Do an act of this epoch, all of it before a higher one begins to be obeyed. Raises AgentError ``deposed``.

    The act reads no epoch of this file again, by no function of this module: a process that closes a file loses all its
    locks of that file, whichever descriptor they came by.
    """
    with obeyed(path, epoch) as still:
        if not still:
            raise AgentError(
                "deposed",
                f"the turn of this engine (epoch {epoch}) is over: an engine of a higher epoch has acted here",
            )
        yield


def _is_made(path: str) -> bool:
    """Whether the file is there, once it has been made if it was not; false if its file system takes none now."""
    if os.path.lexists(path):
        return True
    try:
        os.close(os.open(path, _MAKE | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    except OSError as error:
        if error.errno not in _TAKES_NONE:
            raise
        return False
    return True


@contextmanager
def _locked(path: str, how: int, flags: int) -> Iterator[int]:
    """The open file, locked: with a lock, a client of NFS asks the server for what others have written."""
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.lockf(descriptor, how)
        yield descriptor
    finally:
        os.close(descriptor)


def _read(descriptor: int, path: str) -> int:
    text = os.pread(descriptor, _MOST_BYTES, 0).decode("ascii", "replace").strip()
    if not text:
        return FIRST_EPOCH  # it has just been made
    if not text.isdecimal():
        raise AgentError("failed", f"{path} holds no epoch: {text[:40]!r}")
    return int(text)


def _write(descriptor: int, path: str, epoch: int) -> None:
    """Write over the old epoch, which is never longer: so the file is never without one."""
    os.pwrite(descriptor, f"{epoch}\n".encode("ascii"), 0)
    os.fsync(descriptor)
    directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
