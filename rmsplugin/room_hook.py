"""Room hook: the work of a room's prolog and epilog on its node, as root.

The prolog looks whether the node can host VMs. The epilog ends all of our VMs that are left, so that the node is clean
when Slurm gives it to another job. It also tells the engine: its word that none is left is proof. The hook looks for
the processes itself and does not ask libvirt, which may be down. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmsplugin import defaults

if TYPE_CHECKING:
    from rmsplugin.client import EngineClient

_LOCAL = "qemu:///system"
_VIRSH_TIMEOUT_S = 15.0
_TELL_TIMEOUT_S = 5.0
#: An engine that does not answer is tried for so long; it may be restarted, or have its ledger repaired, meanwhile.
_TELL_WITHIN_S = 3600.0
_LATE_TIMEOUT_S = 30.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0
_KILLED_WITHIN_S = 5.0

#: The form of a VM's name on QEMU's command line, by libvirt.
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

    If the engine does not answer now, another process tells it later: the epilog's report may be proof. Slurm waits for
    this process, and is to have the node.
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
        _tell(client, f"/v1/rooms/{job_id}/report", body)


def _tell(client: EngineClient, path: str, body: dict[str, Any]) -> None:
    """Tell the engine the fresh report, or have it told as soon as the engine answers. Raises the engine's refusal."""
    from rmsplugin.errors import UnavailableError

    seen = time.monotonic()
    try:
        client.request("POST", path, body, timeout_s=_TELL_TIMEOUT_S)
    except UnavailableError:
        if not _leave_hook():
            raise
        _tell_later(client, path, body, seen)


def _leave_hook() -> bool:
    """Go on as a process that no other waits for; True there, False in the process that Slurm waits for."""
    if os.fork():
        return False
    os.setsid()  # slurmd ends the group of a hook that has ended
    if os.fork():
        os._exit(0)
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)  # slurmd waits until the output of its hook is closed
    return True


def _tell_later(client: EngineClient, path: str, body: dict[str, Any], seen: float) -> None:
    """Repeat the report with longer and longer pauses, and end. A late report says how old it is."""
    from rmsplugin.errors import UnavailableError

    pause_s = _FIRST_PAUSE_S
    try:
        while time.monotonic() - seen < _TELL_WITHIN_S:
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            with contextlib.suppress(UnavailableError):
                late = {**body, "age_s": time.monotonic() - seen}
                client.request("POST", path, late, timeout_s=_LATE_TIMEOUT_S)
                break
    finally:
        os._exit(0)


def unfit(settings: Mapping[str, Any]) -> str:
    """The reason why no VM can be hosted here, in a sentence; empty if VMs can."""
    nodes = settings.get("nodes", {})
    store = Path(nodes.get("shared_store") or nodes.get("store") or defaults.STORE)
    if not store.is_dir():
        return f"the store {store} is not there: is it mounted?"
    try:
        _virsh("version", check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return f"libvirt does not answer: {error}"
    return ""


def running_vms(proc: Path = Path("/proc")) -> dict[str, list[int]]:
    """The process ids of our VMs on this host, by name of the VM."""
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
    """End all VMs of ours: by libvirt, so that it knows, and the remaining ones by SIGKILL. Returns their names."""
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
