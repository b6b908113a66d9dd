"""Control groups: a memory controller for each host, where the machine has one of version 1.

Without it hosts have none, as a container may. Version 2 gives a controller to no group that has processes of its own,
which those of whoever calls `up` have.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from pathlib import Path

_PREFIX = "rmsplugin-minicluster"


def _hierarchy() -> Path | None:
    """Where the machine's memory controller of version 1 is mounted, as a whole."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        root, mount_point = before.split()[3:5]
        kind, _, options = after.split()[:3]
        if kind == "cgroup" and root == "/" and "memory" in options.split(","):
            return Path(mount_point)
    return None


def _own(hierarchy: Path) -> Path:
    """The memory group of the calling process."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return hierarchy / path.lstrip("/")
    return hierarchy


def _name(directory: Path) -> str:
    """What the groups of a cluster's hosts begin with: `down` finds them by it, wherever `up` was called."""
    return f"{_PREFIX}-{hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]}-"


def is_offered() -> bool:
    """Whether hosts get a memory controller."""
    return _hierarchy() is not None


def enter(directory: Path, host: str) -> bool:
    """Move the calling process, and so all that it starts, to a memory group for a host; False if there is none.

    Args:
        directory: the cluster's directory.
        host: a host's name.
    """
    hierarchy = _hierarchy()
    if hierarchy is None:
        return False
    try:
        group = _own(hierarchy) / f"{_name(directory)}{host}"
        group.mkdir(exist_ok=True)
        (group / "cgroup.procs").write_text(str(os.getpid()))
    except OSError:
        return False  # somebody else's to give
    return True


def of(directory: Path) -> list[Path]:
    """The groups of a cluster's hosts, that `up` has made in whatever group it was called."""
    hierarchy = _hierarchy()
    return [] if hierarchy is None else sorted(hierarchy.rglob(f"{_name(directory)}*"))


def remove(directory: Path, timeout_s: float = 10) -> None:
    """Remove the groups of a cluster's hosts, whose processes have ended."""
    deadline = time.monotonic() + timeout_s
    for top in of(directory):
        for group in sorted([top, *(path for path in top.rglob("*") if path.is_dir())], reverse=True):
            _remove_one(group, deadline)


def _remove_one(group: Path, deadline: float) -> None:
    while True:
        try:
            group.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:
            # The kernel takes its time to let go of a process that has ended.
            if time.monotonic() > deadline:
                raise
        with contextlib.suppress(OSError):
            (group / "memory.force_empty").write_text("0")
        time.sleep(0.05)
