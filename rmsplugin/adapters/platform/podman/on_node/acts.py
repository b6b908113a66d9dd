"""Acts: what is under way with the VMs of this node: one act at a time for each VM, and which, as long as it lasts.

The kernel ends an act with its process, however that ends. Beside the acts lies what is known of each VM that is here.
All of it is gone when the node starts again, as its VMs are.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, NamedTuple

from rmsplugin.errors import TimedOutError

Kind = Literal["start", "save", "change"]
DIRECTORY = Path("/run/rmsplugin-podman")
_STEP_S = 0.02


def make_directory() -> Path:
    """Make the directory, which only root enters."""
    DIRECTORY.mkdir(mode=0o700, exist_ok=True)
    return DIRECTORY


@contextmanager
def act(name: str, kind: Kind, deadline: float, still: Callable[[], None]) -> Iterator[None]:
    """Begin an act with a VM when no other is under way.

    Args:
        name: of the VM.
        kind: what others are told: it comes to be here (start), or its state is written (save).
        deadline: by the monotonic clock.
        still: called after any wait; it raises if the act is not wanted any more.

    Raises:
        TimedOutError: another one went on until then.
    """
    descriptor = _begin(make_directory() / f"{name}.act", deadline)
    try:
        still()
        os.pwrite(descriptor, kind.ljust(8).encode(), 0)
        with suppress(FileNotFoundError):
            _stop_word(name).unlink()
        yield
    finally:
        os.close(descriptor)


def _begin(path: Path, deadline: float) -> int:
    """The open file of acts, locked. Whoever had the lock before may have removed the file (``forget``)."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with suppress(FileNotFoundError):
            if _locked(descriptor, fcntl.LOCK_EX) and os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        os.close(descriptor)
        if time.monotonic() > deadline:
            raise TimedOutError(f"something else is under way with {path.stem}")
        time.sleep(_STEP_S)


def under_way(name: str) -> str:
    """The kind of act that is under way with the VM; "" for none."""
    try:
        descriptor = os.open(DIRECTORY / f"{name}.act", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return ""
    try:
        return (
            "" if _locked(descriptor, fcntl.LOCK_SH) else os.pread(descriptor, 8, 0).decode("ascii", "replace").strip()
        )
    finally:
        os.close(descriptor)


def ask_to_stop(name: str) -> None:
    """Have the act that is under way end as a failure, as soon as it can."""
    if under_way(name):
        _stop_word(name).touch(mode=0o600)


def asked_to_stop(name: str) -> bool:
    """Whether somebody wants that."""
    return _stop_word(name).exists()


class Known(NamedTuple):
    """What is known of a VM."""

    uuid: str
    cpus: int  # that it was made with; 0: an agent of an older release has started it
    memory_mib: int


def remember(name: str, vm: Known) -> None:
    """Note what is known of a VM that is about to be here."""
    path = make_directory() / f"{name}.vm"
    path.write_text(json.dumps(vm._asdict()))


def known_of(name: str) -> Known:
    """What is known of a VM; nothing if nobody noted it."""
    try:
        said = json.loads((DIRECTORY / f"{name}.vm").read_text())
        return Known(str(said["uuid"]), int(said.get("cpus", 0)), int(said.get("memory_mib", 0)))
    except (OSError, ValueError, KeyError, TypeError):
        return Known("", 0, 0)


def is_known(name: str) -> bool:
    """Whether the VM was here since the node started."""
    return any(DIRECTORY.glob(f"{name}.*"))


def note_end(name: str) -> None:
    """Note that the VM is being ended: from now on none of its processes goes on, however long they take to end."""
    (make_directory() / f"{name}.ending").touch(mode=0o600)


def note_ended(name: str) -> None:
    """Note that none of its processes is left."""
    with suppress(FileNotFoundError):
        (DIRECTORY / f"{name}.ending").unlink()


def is_ending(name: str) -> bool:
    """Whether the end of the VM has begun, and nobody has seen it."""
    return (DIRECTORY / f"{name}.ending").exists()


def forget(name: str) -> None:
    """Drop what is known of a VM that is not here; within an act with it, which ends thereby for others."""
    for kind in ("vm", "use", "stop", "ending", "act"):
        with suppress(FileNotFoundError):
            (DIRECTORY / f"{name}.{kind}").unlink()
    for half in DIRECTORY.glob(f"{name}.use.*"):  # an agent was killed while it wrote
        half.unlink(missing_ok=True)


def _stop_word(name: str) -> Path:
    return DIRECTORY / f"{name}.stop"


def _locked(descriptor: int, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
