"""Control groups: controllers of its own for each host, where the machine has those of version 1.

Without them hosts have none, as a container may. Version 2 gives a controller to no group that has processes of its
own, which those of whoever calls `up` have.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from minicluster_lib.layout import Cluster

#: libvirt counts a VM's CPU time with the second, or not at all where it has a group without it.
CONTROLLERS = ("memory", "cpuacct")

#: runc makes groups of these for a container.
RUNC_CONTROLLERS = ("cpuset", "cpu", "cpuacct", "blkio", "memory", "devices", "freezer", "pids")

_PREFIX = "rmsplugin-minicluster"


def hierarchies(wanted: Sequence[str] = CONTROLLERS) -> dict[Path, str]:
    """Where the machine's controllers of version 1 are mounted, with the options that they are mounted by.

    Empty unless all that are wanted are there.
    """
    found: dict[Path, str] = {}
    controllers: set[str] = set()
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        root, mount_point = before.split()[3:5]
        kind, _, options = after.split()[:3]
        offered = set(wanted).intersection(options.split(",")) - controllers
        if kind == "cgroup" and root == "/" and offered:
            controllers |= offered
            found[Path(mount_point)] = ",".join(option for option in options.split(",") if option not in ("rw", "ro"))
    return found if controllers == set(wanted) else {}


def enter(directory: Path, host: str) -> dict[Path, str]:
    """Move the calling process, and so all that it starts, to groups for a host; return their ``hierarchies``.

    Args:
        directory: the cluster's directory.
        host: a host's name.
    """
    cluster = Cluster.load(directory)
    wanted = RUNC_CONTROLLERS if cluster is not None and cluster.podman else CONTROLLERS
    return enter_group(f"{_name(directory)}{host}", wanted)


def enter_group(name: str, wanted: Sequence[str]) -> dict[Path, str]:
    """Move the calling process to groups of this name, below those it is in; return their ``hierarchies``."""
    found = hierarchies(wanted)
    try:
        for hierarchy, options in found.items():
            group = _own(hierarchy, options) / name
            group.mkdir(exist_ok=True)
            for file in ("cpuset.cpus", "cpuset.mems") if "cpuset" in options.split(",") else ():
                (group / file).write_text((group.parent / file).read_text())
            (group / "cgroup.procs").write_text(str(os.getpid()))
    except OSError:
        return {}  # they are somebody else's to give
    return found


def of(directory: Path) -> list[Path]:
    """The groups of a cluster's hosts, that `up` has made in whatever group it was called."""
    found = {**hierarchies(), **hierarchies(RUNC_CONTROLLERS)}
    return _named(found, _name(directory))


def _named(found: Iterable[Path], beginning: str) -> list[Path]:
    return sorted(group for hierarchy in found for group in _below(hierarchy) if group.name.startswith(beginning))


def thaw(directory: Path) -> None:
    """Let go on what stands still in a cluster's groups: processes that are frozen do not end, even if killed."""
    _thaw(of(directory))


def _thaw(tops: Iterable[Path]) -> None:
    for top in tops:
        for group in (top, *_below(top)):
            with contextlib.suppress(OSError):
                if (group / "freezer.state").read_text().strip() != "THAWED":
                    (group / "freezer.state").write_text("THAWED")


def remove(directory: Path, timeout_s: float = 60) -> None:
    """Remove the groups of a cluster's hosts, whose processes have ended."""
    _remove(of(directory), time.monotonic() + timeout_s)


def remove_groups(name: str, wanted: Sequence[str], timeout_s: float = 60) -> None:
    """Remove the groups of ``enter_group``, and those below; their processes have ended, or are about to."""
    tops = _named(hierarchies(wanted), name)
    _thaw(tops)
    _remove(tops, time.monotonic() + timeout_s)


def _remove(tops: Iterable[Path], deadline: float) -> None:
    for top in tops:
        for group in sorted([top, *_below(top)], reverse=True):
            _remove_one(group, deadline)


def _below(top: Path) -> Iterator[Path]:
    """The groups below one, at any depth. Other groups may go meanwhile: pathlib's own search fails then."""
    for place, names, _ in os.walk(top):
        yield from (Path(place) / name for name in names)


def _own(hierarchy: Path, options: str) -> Path:
    """The group of the calling process."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if set(controllers.split(",")) == set(options.split(",")):
            return hierarchy / path.lstrip("/")
    return hierarchy


def _name(directory: Path) -> str:
    """What the groups of a cluster's hosts begin with: `down` finds them by it, wherever `up` was called."""
    return f"{_PREFIX}-{hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]}-"


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
