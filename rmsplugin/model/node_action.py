"""Node action: a plan's action on a node of the cluster (power-off, power-on), beside its actions on VMs."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import NodeState


class NodeActionKind(enum.StrEnum):
    """The kinds of actions on a node."""

    POWER_OFF = "power-off"
    POWER_ON = "power-on"


@dataclass(frozen=True, slots=True)
class NodeAction:
    """One action on one node; it leaves the executor no choice."""

    kind: NodeActionKind
    node: str

    def obstacle(self, configuration: Configuration) -> str | None:
        """The reason why it cannot begin now, with the numbers; None if it can.

        In the model a node that is down has nothing: so no node is switched off that has a VM or a saved state.
        """
        node = configuration.node_by_name.get(self.node)
        if node is None:
            return f"there is no node {self.node!r}"
        if self.kind is NodeActionKind.POWER_ON:
            return None if node.state is NodeState.DOWN else f"{self.node} is {node.state} already"
        if node.state is NodeState.DOWN:
            return f"{self.node} is down already"
        there = [name for name, at in configuration.locations.items() if at.node == self.node]
        return f"{len(there)} VMs or saved states are on {self.node}, {there[0]} among them" if there else None

    def is_feasible(self, configuration: Configuration) -> bool:
        """Whether it can begin now."""
        return self.obstacle(configuration) is None

    def apply(self, configuration: Configuration) -> Configuration:
        """The configuration after the action.

        Raises:
            InfeasibleNodeActionError: it is not feasible in ``configuration``.
        """
        obstacle = self.obstacle(configuration)
        if obstacle is not None:
            raise InfeasibleNodeActionError(f"{self} is not feasible: {obstacle}")
        state = NodeState.UP if self.kind is NodeActionKind.POWER_ON else NodeState.DOWN
        nodes = (replace(node, state=state) if node.name == self.node else node for node in configuration.nodes)
        return replace(configuration, nodes=tuple(nodes), checked=True)

    def __str__(self) -> str:
        return f"{self.kind} {self.node}"


class InfeasibleNodeActionError(ValueError):
    """An action on a node was applied to a configuration in which it cannot begin."""


def power_off(node: str) -> NodeAction:
    """Switch a node off, after the last VM has left it."""
    return NodeAction(NodeActionKind.POWER_OFF, node)


def power_on(node: str) -> NodeAction:
    """Switch a node on; VMs may come once it is up."""
    return NodeAction(NodeActionKind.POWER_ON, node)
