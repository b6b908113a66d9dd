"""Feasible: decides exactly whether VMs can all be hosted together, where a failing heuristic proves nothing."""

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
class Fits:
    """The VMs fit: a possible node of each."""

    assignment: Mapping[str, str]  # node by VM name


@dataclass(frozen=True, slots=True)
class FitsNot:
    """It is proven that the VMs cannot all be hosted together."""

    explanation: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """Within the limits of the search, neither was a place found for all VMs, nor proven that there is none."""


def fits(
    items: Sequence[Item], nodes: Sequence[Node], search: Search, current: Mapping[str, str] | None = None
) -> Fits | FitsNot | Unknown:
    """Decide whether all VMs can be hosted together, on any number of nodes.

    Args:
        items: the VMs, CPUs counted in hundredths, with their allowed nodes.
        nodes: the nodes, with their free resources; only those that are up and not overloaded are used.
        search: the limits.
        current: node by VM name; VMs stay there if that is easy.

    Raises:
        ValueError: two VMs have one name.
    """
    if not items:
        return Fits({})
    classes = classify(items, nodes)
    found = search_packing(classes, search, any_will_do=True)
    if found.loads is not None:
        return Fits(host(classes, found.loads, current or {}))
    return Unknown() if found.impossible is None else FitsNot(found.impossible)
