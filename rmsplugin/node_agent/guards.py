"""Guards: bounds for VMs, and for other nodes, on this node. `rmsplugin check` looks at them."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

from rmsplugin.node_agent import guest_filter
from rmsplugin.node_agent.values import Guard

_QEMU_HOOK = "/etc/libvirt/hooks/qemu"
_TIMEOUT_S = 20

#: The tools by which libvirt's network filters are made.
_FILTER_TOOLS = ("ebtables", "iptables")
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

#: The table of contrib/nftables/rmsplugin-guests.nft.
_CHAIN = ("inet", "rmsplugin", "input")


def seen() -> dict[str, Any]:
    """The state of the guards on the node."""
    return {
        "guest_filter": _can_filter(),
        "qemu_hook": _hook_refuses(),
        "filter_tools": [name for name in _FILTER_TOOLS if _program(name) is None],
        "ports_closed": _ports_closed(),
    }


def _hook_refuses() -> bool:
    """Whether libvirt's hook on this node refuses a VM that is none of ours."""
    done = _run([_QEMU_HOOK, "vjob0-0", "prepare", "begin", "-"], b"<domain/>")
    return done is not None and done.returncode != 0 and b"rmsplugin refuses" in done.stderr


def _can_filter() -> bool:
    """Whether the kernel would accept the rules of our own filter, for a VM that does not exist."""
    nft = _program("nft")
    rules = guest_filter.rules({"vjob0-0": Guard("52:54:00:00:00:00", "192.0.2.1")})
    done = _run([nft, "--check", "--file", "-"], rules.encode()) if nft else None
    return done is not None and done.returncode == 0


def _ports_closed() -> bool:
    """Whether our table closes the node's ports to VMs; other means of closing them cannot be seen."""
    nft = _program("nft")
    done = _run([nft, "list", "chain", *_CHAIN], b"") if nft else None
    return done is not None and done.returncode == 0 and b"drop" in done.stdout


def _program(name: str) -> str | None:
    return shutil.which(name, path=_SYSTEM_PATH)


def _run(words: list[str], given: bytes) -> subprocess.CompletedProcess[bytes] | None:
    try:
        return subprocess.run(words, input=given, capture_output=True, timeout=_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
