"""Rooms: the VMs of ours on this node, found by the control groups of their processes; podman need not answer."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from rmsplugin.adapters.platform.podman.on_node.groups import PARENT, Group
from rmsplugin.adapters.platform.podman.on_node.program import environment

_GROUP = re.compile(rf"^[0-9]+:[^:]*:/{PARENT}/(vjob[0-9]{{1,10}}-[0-9]{{1,6}})/libpod-", re.MULTILINE)
_TIMEOUT_S = 15.0


def silence() -> str:
    """See ``Rooms``."""
    try:
        subprocess.run(
            ["podman", "version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            env=environment(),
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"podman does not answer: {error}"
    return ""


def running_vms(proc: Path) -> dict[str, list[int]]:
    """See ``Rooms``."""
    found: dict[str, list[int]] = {}
    for entry in proc.iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            match = _GROUP.search((entry / "cgroup").read_text())
        except OSError:  # it has just ended
            continue
        if match is not None:
            found.setdefault(match[1], []).append(int(entry.name))
    return found


def end_vm(name: str) -> None:
    """See ``Rooms``."""
    Group(name).kill(_TIMEOUT_S)
