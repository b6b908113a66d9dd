"""Checkpoint rules: the vjobs whose checkpoints are due, the nodes for copies, and the room that one needs. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

#: The size of a file besides the memory of its VM: header, devices.
_BESIDES_MIB = 16


@dataclass(frozen=True, slots=True)
class Covered:
    """A running vjob, and the work that a checkpoint would save from being repeated. Times in seconds."""

    job_id: int
    nodes: frozenset[str]  # where its VMs run
    interval_s: float  # of its partition; 0: no checkpoints are taken
    ran_s: float  # how long it has run since its start
    saved_s: float  # the part of ``ran_s`` that its checkpoint covers; 0 without one
    took_s: float  # how long that checkpoint took, from its beginning until it was whole
    copies: int  # remaining nodes with the file of the VM that has fewest; on shared storage as many as needed


#: The number of nodes that have each file of a whole checkpoint, if nodes do not share a store.
COPIES = 2


def due(vjobs: Collection[Covered], occupied: Collection[str], cycle_s: float) -> list[int]:
    """The vjobs of which a checkpoint is begun now, the one with most to lose first.

    A checkpoint is due so early that it is whole before the interval is over. It is due at once when the last one would
    not outlive the loss of a node any more. On each node one checkpoint is taken at a time, and none where something
    else is done to VMs.

    Args:
        vjobs: running vjobs on which nothing is under way or planned.
        occupied: nodes where VMs are being saved, restored, moved, or written for a checkpoint.
        cycle_s: the time between two looks.
    """
    taken = set(occupied)
    found = []
    for vjob in sorted(vjobs, key=lambda each: (each.saved_s - each.ran_s, each.job_id)):
        if not vjob.interval_s or taken & vjob.nodes:
            continue
        early_s = min(vjob.took_s + cycle_s, vjob.interval_s / 2)
        unsafe = vjob.saved_s > 0 and vjob.copies < COPIES
        if unsafe or vjob.ran_s - vjob.saved_s >= vjob.interval_s - early_s:
            found.append(vjob.job_id)
            taken |= vjob.nodes
    return found


def room_needed(files_mib: Sequence[int], saved_mib: Sequence[int]) -> int:
    """Bytes that a store must have free: for files of VMs of these sizes, beside the saves of others.

    Memory may not compress at all. A suspend must never fail because a checkpoint took its room.
    """
    return (sum(files_mib) + _BESIDES_MIB * len(files_mib) + sum(saved_mib) + _BESIDES_MIB * len(saved_mib)) << 20


def choose_targets(hosts: Mapping[str, str], memory_mib: int, free: Mapping[str, int]) -> dict[str, str] | None:
    """By VM name, another node for the copy of its file; None if a VM has none.

    Args:
        hosts: by VM name, the node where it runs.
        memory_mib: of each VM.
        free: bytes that checkpoints may take on each node, the best node first.
    """
    left = dict(free)
    found = {}
    for vm, host in sorted(hosts.items()):
        needed = room_needed([memory_mib], [])
        target = next((node for node, room in left.items() if node != host and room >= needed), None)
        if target is None:
            return None
        found[vm] = target
        left[target] -= needed
    return found
