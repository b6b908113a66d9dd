"""Room hook: what the prolog and epilog of a room do on its node, as root.

The prolog looks whether the node can host VMs. The epilog ends whatever VM of ours is left, so that the node is clean
when Slurm gives it to somebody else, and tells the engine: its word that none is left is proof. The processes are
looked for themselves, not asked of libvirt, which may be down. Standard library only.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rmsplugin.client import EngineClient

DEFAULT_STORE = "/var/lib/rmsplugin/store"

_LOCAL = "qemu:///system"
_VIRSH_TIMEOUT_S = 15.0
_TELL_TIMEOUT_S = 5.0
_KILLED_WITHIN_S = 5.0

#: How libvirt names a VM on QEMU's command line.
_GUEST = re.compile(rb"guest=(vjob[0-9]{1,10}-[0-9]{1,6})(?:,|$)")


def run(
    name: str,
    settings: Mapping[str, Any],
    job_id: str,
    node: str,
    client: EngineClient | None,
    proc: Path = Path("/proc"),
) -> None:
    """Do what the hook ``name`` (prolog or epilog) of room ``job_id`` does on ``node``, and tell the engine.

    Raises:
        RmspluginError: the engine could not be told; what was to be done on the node is done.
    """
    ended: list[str] = []
    if name == "prolog":
        problem = unfit(settings)
    else:
        ended = end_vms(proc)
        left = sorted(running_vms(proc))
        problem = f"{', '.join(left)} could not be ended" if left else ""
    if client is not None:
        body = {"hook": name, "node": node, "problem": " ".join(problem.split())[:1000], "ended": ended}
        client.request("POST", f"/v1/rooms/{job_id}/report", body, timeout_s=_TELL_TIMEOUT_S)


def unfit(settings: Mapping[str, Any]) -> str:
    """Why no VM can be hosted here, in a sentence; empty if VMs can."""
    nodes = settings.get("nodes", {})
    store = Path(nodes.get("shared_store") or nodes.get("store") or DEFAULT_STORE)
    if not store.is_dir():
        return f"the store {store} is not there: is it mounted?"
    try:
        _virsh("version", check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return f"libvirt does not answer: {error}"
    return ""


def running_vms(proc: Path = Path("/proc")) -> dict[str, list[int]]:
    """The process ids of the VMs of ours on this host, by name of the VM."""
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
        for word in command:
            match = _GUEST.match(word)
            if match is not None:
                found.setdefault(match[1].decode("ascii"), []).append(int(entry.name))
    return found


def end_vms(proc: Path = Path("/proc")) -> list[str]:
    """End all VMs of ours: by libvirt, so that it knows, and those that are left by SIGKILL. Returns their names."""
    names = sorted(running_vms(proc))
    for name in names:
        try:
            _virsh("destroy", name, check=False)
        except (OSError, subprocess.SubprocessError):
            continue
    for pids in running_vms(proc).values():
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
    deadline = time.monotonic() + _KILLED_WITHIN_S
    while running_vms(proc) and time.monotonic() < deadline:
        time.sleep(0.05)
    return names


def _virsh(*words: str, check: bool) -> None:
    subprocess.run(
        ["virsh", "-c", _LOCAL, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_VIRSH_TIMEOUT_S,
        check=check,
    )
