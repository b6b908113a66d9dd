"""Kernel: the Linux calls that Python 3.11 has no function for (namespaces, mounts, pivot_root, prctl)."""

from __future__ import annotations

import ctypes
import os

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_REMOUNT = 0x20
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
MNT_DETACH = 2

PR_SET_THP_DISABLE = 41

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Give the calling process (for CLONE_NEWPID: its children) new namespaces."""
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def use_small_pages() -> None:
    """Have this process, and all that it starts, get no huge pages for memory of its own."""
    _check(_libc.prctl(ctypes.c_int(PR_SET_THP_DISABLE), *(ctypes.c_ulong(word) for word in (1, 0, 0, 0))), "prctl")


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Mount."""
    result = _libc.mount(
        source.encode(), target.encode(), kind.encode() or None, ctypes.c_ulong(flags), options.encode() or None
    )
    _check(result, f"mount {source} on {target}")


def unmount(target: str) -> None:
    """Take a mount away from its place; whoever still uses it keeps it."""
    _check(_libc.umount2(target.encode(), ctypes.c_int(MNT_DETACH)), f"unmount {target}")


def bind(source: str, target: str, *, read_only: bool = False) -> None:
    """Bind-mount one file or directory, without what is mounted below it."""
    mount(source, target, flags=MS_BIND)
    if read_only:
        mount("none", target, flags=MS_REMOUNT | MS_BIND | MS_RDONLY)


def pivot_root(new_root: str) -> None:
    """Make new_root, a mount point, the root of the mount namespace, and let go of the old one."""
    os.chdir(new_root)
    _check(_libc.pivot_root(b".", b"."), f"pivot_root to {new_root}")
    _check(_libc.umount2(b".", ctypes.c_int(MNT_DETACH)), "unmount the old root")
    os.chdir("/")


def set_host_name(name: str) -> None:
    """Set the UTS host name."""
    data = name.encode()
    _check(_libc.sethostname(data, ctypes.c_size_t(len(data))), "sethostname")
