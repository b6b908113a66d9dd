"""Packing: what `rmsplugin pack` packs, and its answer as JSON and as text."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rmsplugin.cli.shared.table import Column, Field, Table, text_of
from rmsplugin.errors import OperationFailedError
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VMState
from rmsplugin.model.resources import NOTHING
from rmsplugin.model.wording import counted
from rmsplugin.packing.arriving import pack_arriving
from rmsplugin.packing.item import Item
from rmsplugin.packing.ruled_fit import obeys
from rmsplugin.packing.ruled_vmpp import pack_by_rules
from rmsplugin.packing.search import Search
from rmsplugin.packing.vmpp import NoPacking, Packing, pack

_NODES = (
    Field("node", "a node that is used", text_of("node")),
    Field("vms", "how many VMs it hosts", text_of("vms"), right=True),
    Field("cpu", "the CPUs that they demand, of those that it has", text_of("cpu"), right=True),
    Field("memory_mib", "the memory that they demand, of its own, in MiB", text_of("memory_mib"), right=True),
    Field("names", "which VMs", text_of("names")),
)

#: So many names of VMs are listed for a node.
_NAMED = 6


@dataclass(frozen=True)
class Packed:
    """A packing, and the seconds that it took."""

    packing: Packing
    seconds: float


def pack_running(configuration: Configuration, search: Search, heuristic: str | None = None) -> Packed:
    """Pack the VMs that run onto the fewest nodes; ``heuristic``: ``better-fit``, or None for the search.

    Raises:
        OperationFailedError: there is no packing, or none was found.
    """
    items: list[Item] = []
    current: dict[str, str] = {}
    for vjob in configuration.vjobs:
        for vm in vjob.vms:
            location = configuration.locations[vm.name]
            if location.state is VMState.RUNNING and location.node is not None:
                items.append(Item(vm, vjob.rules_of(vm)))
                current[vm.name] = location.node
    started = time.perf_counter()
    if heuristic is None and configuration.joint:
        joint, homes = configuration.joint, configuration.homes
        found = pack_by_rules(items, configuration.nodes, joint, homes, search, current)
    elif heuristic is None:
        found = pack(items, configuration.nodes, search, current)
    else:
        found = pack_arriving(items, configuration.nodes)
    if heuristic is not None and not isinstance(found, NoPacking):
        _refuse_disobedience(configuration, found)
    if isinstance(found, NoPacking):
        raise OperationFailedError(f"no packing: {found.explanation}")
    return Packed(found, time.perf_counter() - started)


def _refuse_disobedience(configuration: Configuration, packing: Packing) -> None:
    """Better-fit places VMs by capacity alone: an answer that breaks a rule is none."""
    if not obeys(configuration.concerning, configuration.homes, packing.assignment):
        raise OperationFailedError("no packing: better-fit knows no rules about VMs beside each other, and breaks one")


def document(configuration: Configuration, packed: Packed) -> dict[str, Any]:
    """The answer as JSON; VMs in the order of the file."""
    found = packed.packing
    names = [vm.name for vjob in configuration.vjobs for vm in vjob.vms if vm.name in found.assignment]
    return {
        "nodes_used": found.nodes_used,
        "lower_bound": found.lower_bound,
        "optimal": found.optimal,
        "ffd_nodes_used": found.ffd_nodes_used,
        "assignment": {name: found.assignment[name] for name in names},
        "seconds": round(packed.seconds, 4),
    }


def lines(configuration: Configuration, packed: Packed) -> Iterator[str]:
    """The nodes that are used, and a sentence."""
    found = packed.packing
    hosted: dict[str, list[str]] = {}
    for vjob in configuration.vjobs:
        for vm in vjob.vms:
            if vm.name in found.assignment:
                hosted.setdefault(found.assignment[vm.name], []).append(vm.name)
    rows = []
    for node in configuration.nodes:
        if names := hosted.get(node.name):
            used = sum((configuration.vm_by_name[name].demand for name in names), NOTHING)
            more = [f"and {len(names) - _NAMED} more"] if len(names) > _NAMED else []
            rows.append(
                {
                    "node": node.name,
                    "vms": len(names),
                    "cpu": f"{round(used.cpus, 2):g}/{node.capacity.cpus:g}",
                    "memory_mib": f"{used.memory_mib}/{node.capacity.memory_mib}",
                    "names": [*names[:_NAMED], *more],
                }
            )
    if rows:
        yield from Table([Column(field, field.right) for field in _NODES]).lines(rows)
        yield ""
    known = "the fewest possible" if found.optimal else f"at least {found.lower_bound} are needed"
    ffd = "finds no packing" if found.ffd_nodes_used is None else f"uses {found.ffd_nodes_used}"
    yield (
        f"{counted(len(found.assignment), 'running VM')} on {counted(found.nodes_used, 'node')}: {known}; "
        f"First Fit Decreasing {ffd}."
    )
