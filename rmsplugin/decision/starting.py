"""Which waiting vjobs start: in queue order, each when FFD finds room for all its VMs beside those that run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rmsplugin.model.elements import VM
from rmsplugin.model.resources import Resources
from rmsplugin.packing.ffd import first_fit_decreasing


@dataclass(frozen=True, slots=True)
class Candidate:
    """A waiting vjob: its VMs, and the nodes it may use (those of its partition)."""

    name: str
    vms: tuple[VM, ...]
    nodes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was decided for one vjob: where its VMs start, or (``placement`` None) why they do not."""

    placement: dict[str, str] | None
    reason: str


def decide_starts(queue: Sequence[Candidate], room: Mapping[str, Resources]) -> dict[str, Verdict]:
    """Walk the whole queue, head first; a vjob without room does not keep smaller ones behind it from starting.

    Args:
        queue: the waiting vjobs.
        room: what is free on each node that takes VMs, in the order in which nodes are tried.

    Returns:
        A verdict by vjob name, in queue order.
    """
    verdicts: dict[str, Verdict] = {}
    left = dict(room)
    for candidate in queue:
        free = {name: amount for name, amount in left.items() if name in candidate.nodes}
        placement = first_fit_decreasing(candidate.vms, free)
        verdicts[candidate.name] = Verdict(placement, _reason(candidate.vms, free, placement))
        if placement is not None:
            for vm in candidate.vms:
                left[placement[vm.name]] -= vm.demand
    return verdicts


def _reason(vms: tuple[VM, ...], free: dict[str, Resources], placement: dict[str, str] | None) -> str:
    if placement is not None:
        return "starts on " + ", ".join(sorted(set(placement.values())))
    if not free:
        return "no node is up, reachable and not draining"
    largest = max(vms, key=lambda vm: (vm.demand.memory_mib, vm.demand.cpus))
    roomiest = max(free, key=lambda name: (free[name].memory_mib, free[name].cpus))
    needs = f"{len(vms)} VMs of {largest.demand} each" if len(vms) > 1 else f"a VM of {largest.demand}"
    return f"needs {needs}; the node with most memory free, {roomiest}, has {free[roomiest]}"
