"""VMPP, the Virtual Machine Packing Problem: the fewest nodes that can host the running VMs (VEE'09, section 3).

There is no variable for each VM and node. Equal VMs are a class, equal nodes a kind, and the search is for the number
of nodes of each kind that host each pattern of VMs (see docs/decisions/0009-packing-patterns.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rmsplugin.model.elements import Node
from rmsplugin.packing.classes import classify
from rmsplugin.packing.exact import search_packing
from rmsplugin.packing.hosting import host
from rmsplugin.packing.item import Item
from rmsplugin.packing.search import Search


@dataclass(frozen=True, slots=True)
class Packing:
    """All VMs on few nodes, with the least possible number."""

    assignment: Mapping[str, str]  # node by VM name
    nodes_used: int
    lower_bound: int  # proven: no packing uses fewer nodes
    ffd_nodes_used: int | None  # the nodes of first fit decreasing; None: it finds no packing

    @property
    def optimal(self) -> bool:
        """Whether this is proven to be a packing on the fewest nodes."""
        return self.nodes_used == self.lower_bound


@dataclass(frozen=True, slots=True)
class NoPacking:
    """No packing, and the reason: there is none (``proven``), or none was found within the limits."""

    explanation: str
    proven: bool


def pack(
    items: Sequence[Item], nodes: Sequence[Node], search: Search, current: Mapping[str, str] | None = None
) -> Packing | NoPacking:
    """Host all VMs on the fewest nodes.

    Args:
        items: the VMs, CPUs counted in hundredths, with their allowed nodes.
        nodes: the nodes in the order of first fit; only those that are up are used.
        search: the limits; the best packing found within them is returned, with the proven bound.
        current: node by VM name; among equal nodes, VMs are given to those that host them already if that is easy.

    Raises:
        ValueError: two VMs have one name.
    """
    if not items:
        return Packing({}, 0, 0, 0)
    classes = classify(items, nodes)
    found = search_packing(classes, search)
    if found.loads is None:
        if found.impossible is not None:
            return NoPacking(found.impossible, True)
        return NoPacking(f"no packing of {len(items)} VMs was found within the limits of the search", False)
    assignment = host(classes, found.loads, current or {})
    return Packing(
        assignment=assignment,
        nodes_used=len(set(assignment.values())),
        lower_bound=found.lower_bound,
        ffd_nodes_used=found.ffd_nodes_used,
    )
