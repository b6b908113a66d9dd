"""Node checker: verifies a plan's actions of nodes, and the waits between them and its actions of VMs.

Like ``rmsplugin.planning.checker`` it shares nothing with the planner but the model's values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rmsplugin.model.action import Action
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import Location, NodeState
from rmsplugin.model.node_action import NodeAction, NodeActionKind
from rmsplugin.planning.violations import Rule, Violation

Needs = Sequence[Sequence[int]]


def check_nodes(source: Configuration, target: Mapping[str, Location], nodes: Sequence[NodeAction]) -> list[Violation]:
    """Return all faults of a plan's actions of nodes, in any order; empty if all is right.

    Args:
        source: the configuration in which the plan begins.
        target: the final location of each VM; a missing VM stays where it was.
        nodes: the plan's actions of nodes.
    """
    return [Violation(Rule.NODE, None, None, sentence) for sentence in _wrong(source, target, nodes)]


def _wrong(source: Configuration, target: Mapping[str, Location], nodes: Sequence[NodeAction]) -> Iterator[str]:
    states = {node.name: node.state for node in source.nodes}
    ends = {**source.locations, **target}
    for name, times in Counter(action.node for action in nodes).items():
        if times > 1:
            yield f"{times} actions are on node {name}: one at most can be"
    for action in nodes:
        state = states.get(action.node)
        if state is None:
            yield f"{action}: there is no node {action.node!r}"
        elif (state is NodeState.DOWN) is (action.kind is NodeActionKind.POWER_OFF):
            yield f"{action}: the node is {state} already"
        elif action.kind is NodeActionKind.POWER_OFF:
            left = sorted(name for name, at in ends.items() if at.node == action.node)
            if left:
                yield f"{action}: {len(left)} VMs or saved states are there in the end: {', '.join(left[:3])}"


def check_node_order(
    actions: Sequence[Action], needs: Needs, nodes: Sequence[NodeAction], node_needs: Needs, needed: Needs
) -> list[Violation]:
    """Return a violation for each action that could begin too early; empty if none can.

    Args:
        actions: the actions of VMs.
        needs: for each of them, the indices of the VM actions that it waits for; all below its own.
        nodes: the actions of nodes.
        node_needs: for each of them, the indices of the VM actions that it waits for.
        needed: for each VM action, the indices of the actions of nodes that it waits for.
    """
    if len(node_needs) != len(nodes) or (nodes and len(needed) != len(actions)):
        return [Violation(Rule.NODE, None, None, "the dependency order is of other actions of nodes")]
    return [
        Violation(Rule.NODE, None, None, sentence) for sentence in _early(actions, needs, nodes, node_needs, needed)
    ]


def _early(
    actions: Sequence[Action], needs: Needs, nodes: Sequence[NodeAction], node_needs: Needs, needed: Needs
) -> Iterator[str]:
    before = [set(each) for each in needed] if nodes else []  # the ended actions of nodes when a VM action begins
    earlier: list[set[int]] = []  # and the ended actions of VMs
    for index, own in enumerate(needs if nodes else ()):
        earlier.append(set(own).union(*(earlier[need] for need in own)))
        before[index] |= set[int]().union(*(before[need] for need in own))
    for number, node in enumerate(nodes):
        for index, action in enumerate(actions):
            if node.node not in (action.source, action.destination):
                continue
            ended = set(node_needs[number]).union(*(earlier[need] for need in node_needs[number]))
            if node.kind is NodeActionKind.POWER_OFF and index not in ended:
                yield f"{node} does not wait for {action}"
            if node.kind is NodeActionKind.POWER_ON and number not in before[index]:
                yield f"{action} does not wait for {node}"
