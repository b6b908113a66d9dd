"""Names of VMs. Node agents and libvirt's hooks, which start for every call, need nothing else of a vjob."""

from __future__ import annotations

import re

_VM_NAME = re.compile(r"vjob([0-9]{1,10})-([0-9]{1,6})")


def vm_name(job_id: int, index: int) -> str:
    """Name, and host name, of VM number ``index`` (from 0) of a vjob."""
    return f"vjob{job_id}-{index}"


def parse_vm_name(name: str) -> tuple[int, int] | None:
    """Return (job id, index) of a VM of ours; None for any other name."""
    match = _VM_NAME.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None
