"""Names of VMs. Node agents and libvirt's hooks, which start for every call, need nothing else of a vjob."""

from __future__ import annotations

import hashlib
import re

_VM_NAME = re.compile(r"vjob([0-9]{1,10})-([0-9]{1,6})")
#: What leaves or reaches an interface with such a name is dropped on nodes that have our table, but for its VM's own.
TAP_PREFIX = "rmsg"


def vm_name(job_id: int, index: int) -> str:
    """Name, and host name, of VM number ``index`` (from 0) of a vjob."""
    return f"vjob{job_id}-{index}"


def parse_vm_name(name: str) -> tuple[int, int] | None:
    """Return (job id, index) of a VM of ours; None for any other name."""
    match = _VM_NAME.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


def tap_of(name: str) -> str:
    """The interface of a VM on its node where the node agent filters: 15 characters, as many as Linux takes.

    All of them begin with TAP_PREFIX; two VMs of a node with one name would not start both.
    """
    return f"{TAP_PREFIX}{hashlib.blake2b(name.encode()).hexdigest()[: 15 - len(TAP_PREFIX)]}"
