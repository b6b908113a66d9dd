"""Guards: bounds for VMs on this node, whichever platform runs them. `rmsplugin check` looks at them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from rmsplugin.node_agent import guest_filter
from rmsplugin.node_agent.values import Guard

_TIMEOUT_S = 20
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

#: The table of contrib/nftables/rmsplugin-guests.nft.
_CHAIN = ("inet", "rmsplugin", "input")


def seen(filters: Path) -> dict[str, Any]:
    """The state of the guards on the node; ``filters``: where the rules of its own filter lie."""
    return {
        "guest_filter": _can_filter(),
        "unfiltered": guest_filter.unfiltered(filters),
        "ports_closed": _ports_closed(),
    }


def _can_filter() -> bool:
    """Whether the kernel would accept the rules of our own filter, for a VM that does not exist."""
    rules = guest_filter.rules({"vjob0-0": Guard("52:54:00:00:00:00", "192.0.2.1")})
    done = _nft(["--check", "--file", "-"], rules.encode())
    return done is not None and done.returncode == 0


def _ports_closed() -> bool:
    """Whether our table closes the node's ports to VMs; other means of closing them cannot be seen."""
    done = _nft(["list", "chain", *_CHAIN], b"")
    return done is not None and done.returncode == 0 and b"drop" in done.stdout


def _nft(words: list[str], given: bytes) -> subprocess.CompletedProcess[bytes] | None:
    """The outcome of ``nft``; None: there is none here, or it did not end."""
    nft = shutil.which("nft", path=_SYSTEM_PATH)
    if nft is None:
        return None
    try:
        return subprocess.run([nft, *words], input=given, capture_output=True, timeout=_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
