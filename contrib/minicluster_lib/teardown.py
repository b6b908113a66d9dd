"""Teardown: find everything that belongs to a minicluster and remove it, however its `up` ended.

Nothing has to have been written down for that. A process belongs to the cluster when one of these holds:

- it is a host's first process (its command line names the cluster's directory);
- it lives in the PID or network namespace of such a process;
- it has the cluster's directory in its environment under a name of our own.

The hosts' mounts and network interfaces are in namespaces that no file refers to, so they go with the processes.
Their control groups do not: they have names made from the cluster's directory.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

from minicluster_lib import control_groups
from minicluster_lib.layout import MEMBER_VARIABLE, MiniclusterError, RefusedError
from minicluster_lib.namespaces import HeldNamespaces

MARKER = ".rmsplugin-minicluster"


def is_init(pid: int, directory: Path) -> bool:
    """Whether a process is the first process of one of the cluster's hosts."""
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"minicluster_lib.host_init" in arguments and os.fsencode(directory) in arguments


def _has_member_variable(pid: int, directory: Path) -> bool:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return MEMBER_VARIABLE.encode() + b"=" + os.fsencode(directory) in environment


def _ancestry() -> set[int]:
    pids = set()
    pid = os.getpid()
    while pid > 0:
        pids.add(pid)
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, ValueError):
            break
    return pids


def is_zombie(pid: int) -> bool:
    """Whether a process has ended (and perhaps waits to be collected)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except OSError:
        return True


def members(directory: Path, held: HeldNamespaces | None = None) -> dict[int, bool]:
    """Return the PIDs of the cluster's processes, each with whether it is a host's first process.

    Args:
        directory: the cluster's directory.
        held: namespaces seen to be the cluster's, held; those found are added.
    """
    if held is None:
        with HeldNamespaces() as for_now:
            return members(directory, for_now)
    spared = _ancestry()
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    inits = {pid for pid in pids if pid not in spared and is_init(pid, directory)}
    for pid in inits:
        held.hold(pid)
    return {
        pid: pid in inits
        for pid in pids
        if pid not in spared and not is_zombie(pid) and (pid in inits or belongs(pid, directory, held))
    }


def end_processes(directory: Path, timeout_s: float = 90) -> int:
    """Kill every process of the cluster, and remove its control groups; return how many processes there were."""
    seen: set[int] = set()
    deadline = time.monotonic() + timeout_s
    with HeldNamespaces() as held:
        while found := members(directory, held):
            if time.monotonic() > deadline:
                raise MiniclusterError(f"processes {sorted(found)} of the minicluster do not end")
            seen |= set(found)
            for pid in sorted(found, key=lambda pid: not found[pid]):
                try:
                    # Look again: the PID may have been given to another process meanwhile.
                    if belongs(pid, directory, held):
                        os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            control_groups.thaw(directory)
            time.sleep(0.05)
    control_groups.remove(directory)
    return len(seen)


def belongs(pid: int, directory: Path, held: HeldNamespaces) -> bool:
    """Whether a process belongs to the cluster."""
    return held.has(pid) or _has_member_variable(pid, directory) or is_init(pid, directory)


def check_removable(directory: Path) -> None:
    """Refuse to touch a directory that no minicluster has made."""
    if directory.exists() and not (directory / MARKER).exists() and any(directory.iterdir()):
        raise RefusedError(f"{directory} is not the directory of a minicluster (it lacks {MARKER}): left alone")


def check_ours(directory: Path) -> None:
    """Refuse where processes of a cluster of this name run, and none has its files here: it is another root's."""
    if not (directory / MARKER).exists() and (found := members(directory)):
        raise RefusedError(
            f"{len(found)} processes of a minicluster in {directory} run, but its files are not there: it is one of "
            "another root (chroot), or they were removed by hand. Take another --dir, or end them with: "
            f"minicluster down --dir {directory}"
        )


def remove_files(directory: Path, *, keep_logs: bool = False) -> None:
    """Remove the cluster's directory."""
    if not directory.exists():
        return
    check_removable(directory)
    mounted = [
        line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines() if len(line.split()) > 4
    ]
    below = [path for path in mounted if Path(path) != directory and Path(path).is_relative_to(directory)]
    if below:
        raise MiniclusterError(f"something is mounted below {directory}; unmount it first: {', '.join(below)}")
    for entry in directory.iterdir():
        if entry.name == MARKER or (keep_logs and entry.name == "log"):
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    if keep_logs:
        return
    (directory / MARKER).unlink(missing_ok=True)
    directory.rmdir()
