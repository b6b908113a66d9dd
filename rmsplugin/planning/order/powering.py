"""Powering: the waits between a plan's actions of nodes and its actions of VMs.

A node is switched off after all actions that touch it, and switched on before any of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from rmsplugin.model.action import Action
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.node_action import NodeAction, NodeActionKind

Needs = tuple[tuple[int, ...], ...]


def needs_of_nodes(actions: Sequence[Action], nodes: Sequence[NodeAction]) -> Needs:
    """For each action of a node, the indices of the VM actions that must have succeeded before it begins."""
    return tuple(_touching(actions, each.node) if each.kind is NodeActionKind.POWER_OFF else () for each in nodes)


def needed_nodes(actions: Sequence[Action], nodes: Sequence[NodeAction]) -> Needs:
    """For each VM action, the indices of the actions of nodes that must have succeeded before it begins."""
    on = {each.node: index for index, each in enumerate(nodes) if each.kind is NodeActionKind.POWER_ON}
    if not on:
        return ((),) * len(actions)
    ends = (sorted({action.source, action.destination} & on.keys(), key=str) for action in actions)
    return tuple(tuple(sorted(on[end] for end in each if end is not None)) for each in ends)


def switched_on(source: Configuration, nodes: Sequence[NodeAction]) -> Configuration:
    """The configuration for looking at a plan's VM actions: all nodes that it can switch on are up."""
    for each in nodes:
        if each.kind is NodeActionKind.POWER_ON and each.is_feasible(source):
            source = each.apply(source)
    return source


def _touching(actions: Sequence[Action], node: str) -> tuple[int, ...]:
    return tuple(index for index, action in enumerate(actions) if node in (action.source, action.destination))
