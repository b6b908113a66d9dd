"""Arriving: all VMs packed by better-fit as they arrive, from empty nodes: a baseline for ``vmpp``."""

from __future__ import annotations

from collections.abc import Sequence

from rmsplugin.model.elements import Node
from rmsplugin.packing.better_fit import BetterFit
from rmsplugin.packing.bounds import fewest, impossible
from rmsplugin.packing.classes import classify
from rmsplugin.packing.greedy import plain
from rmsplugin.packing.item import Item
from rmsplugin.packing.vmpp import NoPacking, Packing


def pack_arriving(items: Sequence[Item], nodes: Sequence[Node]) -> Packing | NoPacking:
    """Insert the VMs in the given order; nothing is searched.

    Args:
        items: the VMs, with their allowed nodes.
        nodes: the nodes in the order in which they are looked at; only those that are up are used.

    Raises:
        ValueError: two VMs have one name.
    """
    if not items:
        return Packing({}, 0, 0, 0)
    classes = classify(items, nodes)
    reason = impossible(classes)
    if reason is not None:
        return NoPacking(reason, True)
    fit = BetterFit(nodes)
    for item in items:
        if not fit.insert(item):
            return NoPacking(f"better-fit finds no node with room for VM {item.vm.name}", False)
    ffd = plain(classes)
    return Packing(
        assignment=fit.assignment,
        nodes_used=fit.nodes_used,
        lower_bound=fewest(classes),
        ffd_nodes_used=None if ffd is None else sum(ffd.values()),
    )
