"""Room hook: the work of a room's prolog and epilog on its node, as root.

The prolog looks whether the node can host VMs. The epilog ends all of our VMs that are left, so that the node is clean
when Slurm gives it to another job. It also tells the engine: its word that none is left is proof. The hook looks for
the processes itself and does not ask the platform, which may be down. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmsplugin import defaults

if TYPE_CHECKING:
    from rmsplugin.adapters.platform.node_base import PlatformOnNode, Rooms
    from rmsplugin.client import EngineClient

_TELL_TIMEOUT_S = 5.0
#: An engine that does not answer is tried for so long; it may be restarted, or have its ledger repaired, meanwhile.
_TELL_WITHIN_S = 3600.0
_LATE_TIMEOUT_S = 30.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0
_KILLED_WITHIN_S = 5.0


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
        platform = platform_of(settings)
        ended = end_vms(platform, proc)
        left = sorted(platform.running_vms(proc))
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
    return platform_of(settings).silence()


def platform_of(settings: Mapping[str, Any]) -> PlatformOnNode:
    """The program that runs the VMs of this node."""
    from rmsplugin.adapters.platform.node_factory import platform_on_node

    return platform_on_node(settings.get("hypervisor", {}).get("platform", defaults.PLATFORM))


def end_vms(platform: Rooms, proc: Path = Path("/proc")) -> list[str]:
    """End all VMs of ours: by the platform, so that it knows, and the rest by SIGKILL. Returns their names."""
    names = sorted(platform.running_vms(proc))
    for name in names:
        platform.end_vm(name)
    for pids in platform.running_vms(proc).values():
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
    deadline = time.monotonic() + _KILLED_WITHIN_S
    while platform.running_vms(proc) and time.monotonic() < deadline:
        time.sleep(0.05)
    return names
