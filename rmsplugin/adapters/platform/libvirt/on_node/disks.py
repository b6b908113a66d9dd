"""Disks: the overlays on which VMs write, made by QEMU's own program."""

from __future__ import annotations

import subprocess
from pathlib import Path

from rmsplugin.errors import OperationFailedError

_TIMEOUT_S = 60


def make_overlay(base: str, overlay: Path) -> None:
    """See ``PlatformOnNode``."""
    command = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", base, str(overlay)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TIMEOUT_S)
    if done.returncode != 0:
        raise OperationFailedError(f"qemu-img: {done.stderr.strip()[-300:]}")
