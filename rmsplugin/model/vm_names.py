"""VM names: node agents and libvirt's hooks, which start for every call, import no more of a vjob than this."""

from __future__ import annotations

import re

_VM_NAME = re.compile(r"vjob([0-9]{1,10})-([0-9]{1,6})")
#: Nodes with our table drop all packets from and to an interface with such a name, except its VM's own.
TAP_PREFIX = "rmsg"


def vm_name(job_id: int, index: int) -> str:
    """Name, and host name, of VM number ``index`` (from 0) of a vjob."""
    return f"vjob{job_id}-{index}"


def parse_vm_name(name: str) -> tuple[int, int] | None:
    """Return (job id, index) of a VM of ours; None for any other name."""
    match = _VM_NAME.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


def tap_of(name: str) -> str:
    """The interface of a VM on its node if the node agent filters: 15 characters, the most that Linux allows.

    All of them begin with TAP_PREFIX; two VMs of a node with one name would not start both.
    """
    import hashlib  # here: most that need names need none of these, and it is slow to load

    return f"{TAP_PREFIX}{hashlib.blake2b(name.encode()).hexdigest()[: 15 - len(TAP_PREFIX)]}"
