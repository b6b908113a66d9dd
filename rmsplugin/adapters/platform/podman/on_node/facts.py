"""Facts: what `rmsplugin check` is told of podman, runc and CRIU on this node. Nothing is changed."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable
from typing import Any

from rmsplugin.adapters.platform.podman.on_node import container, criu, groups, program
from rmsplugin.errors import OperationFailedError

_TIMEOUT_S = 60


def seen(references: Iterable[str]) -> dict[str, Any]:
    """By word: the versions of the programs ("" where one is missing), and what is wrong with what they need.

    Args:
        references: names of the images.
    """
    return {
        "podman": program.version("podman", "--version"),
        "runc": program.version("runc", "--version"),
        "criu": program.version("criu", "--version"),
        "kernel": platform.release(),
        "criu_check": _criu_check(),
        "hook": os.access(criu.HOOK, os.X_OK),
        "freezer": (groups.ROOT / "freezer").is_dir() or groups.has_version_2(),
        "images": {each: _image(each) for each in sorted(references)},
    }


def _image(reference: str) -> str:
    try:
        return container.image_id(reference)
    except OperationFailedError:
        return ""  # there is no podman, which is told


def _criu_check() -> str:
    """What CRIU says that this kernel lacks; "" if it lacks nothing, or there is no CRIU."""
    try:
        done = subprocess.run(
            ["criu", "check"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            env=program.environment(),
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    said = " ".join(done.stderr.split())[-300:]
    return "" if done.returncode == 0 else said or f"exit status {done.returncode}"
