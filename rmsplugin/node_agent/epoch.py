"""Epoch: this node obeys no engine whose turn is over. Its epoch is lower than the highest that acted here.

The highest epoch is kept in a file beside the VMs' configurations, which a restart of node or agent leaves as it is. On
a node without disks it is forgotten with all else: such a node obeys the first engine that comes.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rmsplugin.model.epochs import FIRST_EPOCH
from rmsplugin.node_agent.errors import AgentError

if TYPE_CHECKING:
    from pathlib import Path

_FILE = ".epoch"


def obey(directory: Path, epoch: int) -> None:
    """Return if an act of this epoch is to be done here, and remember the epoch.

    Args:
        directory: the VMs' directory, which is there if the epoch is not the first.
        epoch: the epoch of the asking engine.

    Raises:
        AgentError: kind ``deposed``: an engine of a higher epoch has acted here.
    """
    if epoch > highest(directory):
        with _locked(directory):
            if epoch > highest(directory):
                from rmsplugin.node_agent import files  # here: a platform's hook only looks

                files.write_whole(directory / _FILE, f"{epoch}\n".encode("ascii"))
    found = highest(directory)
    if epoch < found:
        raise AgentError(
            "deposed", f"the turn of this engine (epoch {epoch}) is over: an engine of epoch {found} has acted here"
        )


def highest(directory: str | Path) -> int:
    """The highest epoch that has acted here; the first epoch if none is recorded."""
    path = os.path.join(directory, _FILE)
    try:
        with open(path, encoding="ascii") as file:
            text = file.read().strip()
    except (FileNotFoundError, NotADirectoryError):
        return FIRST_EPOCH
    if not text.isdecimal():
        raise AgentError("failed", f"{path} holds no epoch: {text[:40]!r}")
    return int(text)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
