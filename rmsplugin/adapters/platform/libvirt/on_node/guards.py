"""Guards: libvirt's hook on this node, and the tools of its network filters; for `rmsplugin check`."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Any

#: libvirt runs this one, and all of the directory; each may refuse.
_QEMU_HOOK = "/etc/libvirt/hooks/qemu"
_QEMU_HOOKS = "/etc/libvirt/hooks/qemu.d"
_TIMEOUT_S = 20

#: The tools by which libvirt's network filters are made.
_FILTER_TOOLS = ("ebtables", "iptables")
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def seen() -> dict[str, Any]:
    """The state of these guards on the node."""
    return {
        "qemu_hook": _hook_refuses(),
        "filter_tools": [name for name in _FILTER_TOOLS if shutil.which(name, path=_SYSTEM_PATH) is None],
    }


def _hook_refuses() -> bool:
    """Whether a hook of libvirt on this node refuses a VM that is none of ours."""
    try:
        more = sorted(entry.path for entry in os.scandir(_QEMU_HOOKS))
    except OSError:
        more = []
    return any(map(_refuses, (_QEMU_HOOK, *more)))


def _refuses(hook: str) -> bool:
    words = [hook, "vjob0-0", "prepare", "begin", "-"]
    try:
        done = subprocess.run(words, input=b"<domain/>", capture_output=True, timeout=_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode != 0 and b"rmsplugin refuses" in done.stderr
