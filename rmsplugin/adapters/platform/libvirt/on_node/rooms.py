"""Rooms: the VMs of ours on this node, found by their processes. libvirt, which may be down, is told of their ends.

Any user can start a process with the command line of a VM. So libvirt has to have noted it, or its account counts: that
of a VM may be none of libvirt's settings any more, or one whose directory is down.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from rmsplugin.adapters.platform.libvirt.on_node import account

_LOCAL = "qemu:///system"
_TIMEOUT_S = 15.0
#: Where libvirt notes the process of each VM; only root writes there.
NOTES = Path("/run/libvirt/qemu")

#: The form of a VM's name on QEMU's command line, by libvirt.
_GUEST = re.compile(rb"guest=(vjob[0-9]{1,10}-[0-9]{1,6})(?:,|$)")
#: The account that started a process. That which a directory of /proc belongs to is no proof: a process can have it be
#: root's.
_ACCOUNT = re.compile(r"^Uid:\t([0-9]+)", re.MULTILINE)


def silence() -> str:
    """See ``Rooms``."""
    try:
        _virsh("version", check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return f"libvirt does not answer: {error}"
    return ""


def running_vms(proc: Path) -> dict[str, list[int]]:
    """See ``Rooms``."""
    found: dict[str, list[int]] = {}
    for entry in proc.iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            command = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:  # it has just ended
            continue
        if not command[0].rpartition(b"/")[2].startswith(b"qemu"):
            continue
        for match in filter(None, map(_GUEST.match, command)):
            name = match[1].decode("ascii")
            if _is_noted(name, entry.name) or _is_vm(entry):
                found.setdefault(name, []).append(int(entry.name))
    return found


def _is_noted(name: str, pid: str) -> bool:
    """Whether libvirt has noted the process as that of the VM."""
    try:
        return (NOTES / f"{name}.pid").read_text(errors="replace").strip() == pid
    except OSError:  # there is no such VM, or no libvirt
        return False


def _is_vm(process: Path) -> bool:
    """Whether the process with a VM's command line runs under an account of VMs."""
    try:
        match = _ACCOUNT.search((process / "status").read_text(errors="replace"))
    except OSError:  # it has just ended
        return False
    return match is not None and account.runs_vms(int(match[1]))


def end_vm(name: str) -> None:
    """See ``Rooms``."""
    try:
        _virsh("destroy", name, check=False)
    except (OSError, subprocess.SubprocessError):
        return


def _virsh(*words: str, check: bool) -> None:
    subprocess.run(
        ["virsh", "-c", _LOCAL, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_TIMEOUT_S,
        check=check,
    )
