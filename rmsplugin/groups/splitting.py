"""Splitting: the part of a configuration that each group decides about.

A vjob that has memory in several groups (their hosts were others when it started) ties these together: they are one
part until it has ended. So do rules that count or gather VMs of several groups. A saved state may be in another part
than its vjob: its node is in both, and in the vjob's without room.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from rmsplugin.groups.assignment import Assignment
from rmsplugin.groups.forming import Group
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import SHARED, WAITING, Location, Node, NodeState, VJob
from rmsplugin.model.joint import Capacity, Gather, Online, Within
from rmsplugin.model.resources import NOTHING


@dataclass(frozen=True)
class Part:
    """The groups of a part, and their nodes and vjobs, in the order of the whole."""

    groups: tuple[str, ...]
    configuration: Configuration


def split(configuration: Configuration, groups: Sequence[Group], assignment: Assignment) -> tuple[Part, ...]:
    """Split a configuration.

    Args:
        configuration: the whole; its nodes that no group has are in the first part.
        groups: all groups, at least one.
        assignment: the group of each vjob.

    Returns:
        The parts in the order of the groups. Each vjob is in one of them; so is each node, besides the nodes of saved
        states that are elsewhere.
    """
    group_of = {host: group.name for group in groups for host in group.hosts}
    first = groups[0].name
    tied = _tied(configuration, group_of, assignment, first, [group.name for group in groups])
    nodes: dict[str, list[Node]] = {head: [] for head in tied.values()}
    vjobs: dict[str, list[VJob]] = {head: [] for head in tied.values()}
    for node in configuration.nodes:
        nodes[tied[group_of.get(node.name, first)]].append(node)
    for vjob in configuration.vjobs:
        vjobs[tied[assignment[vjob.name].group]].append(vjob)
    return tuple(
        Part(
            tuple(name for name, other in tied.items() if other == head),
            _part(configuration, nodes[head], vjobs[head]),
        )
        for head in nodes
    )


def _part(whole: Configuration, nodes: Sequence[Node], vjobs: Sequence[VJob]) -> Configuration:
    known = whole.locations
    locations: dict[str, Location] = {vm.name: known[vm.name] for vjob in vjobs for vm in vjob.vms}
    here = {node.name for node in nodes}
    places = {id(at): at for at in locations.values()}.values()  # there are as many objects as nodes
    elsewhere = {at.node for at in places if at.node is not None and at.node != SHARED} - here
    guests = [
        replace(node, capacity=NOTHING, state=NodeState.DRAINING) for node in whole.nodes if node.name in elsewhere
    ]
    return Configuration((*nodes, *guests), tuple(vjobs), locations, checked=True)


def _tied(
    configuration: Configuration,
    group_of: Mapping[str, str],
    assignment: Assignment,
    first: str,
    names: Sequence[str],
) -> dict[str, str]:
    """By group, the first one of those that are one part with it."""
    head, locations = {name: name for name in names}, configuration.locations

    def tie(groups: Collection[str]) -> None:
        nonlocal head
        heads = sorted({head[name] for name in groups}, key=names.index)
        if len(heads) > 1:
            head = {name: heads[0] if each in heads else each for name, each in head.items()}

    for rule in configuration.joint:
        if isinstance(rule, (Capacity, Online)):
            tie({group_of.get(node, first) for node in rule.nodes if node in configuration.node_by_name})
        elif isinstance(rule, (Gather, Within)):
            owners = (configuration.vjob_by_vm.get(vm) for vm in rule.vms)
            tie({assignment[vjob.name].group for vjob in owners if vjob is not None})
    for vjob in configuration.vjobs:
        own = assignment[vjob.name].group
        for vm in vjob.vms:
            at = locations[vm.name]
            if at is not WAITING and at.state.holds_memory and at.node is not None:
                other = group_of.get(at.node, first)
                if other != own and head[other] != head[own]:
                    tie((other, own))
    return head
