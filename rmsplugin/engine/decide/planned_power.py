"""Planned power: a switch of a node, as one of the actions that the next cycle would begin, or that are under way."""

from __future__ import annotations

from dataclasses import dataclass

from rmsplugin.model.node_action import NodeAction, NodeActionKind


@dataclass(frozen=True, slots=True)
class PlannedPower:
    """One node that is switched.

    Attributes:
        kind: off or on.
        node: its name.
        why: in a sentence.
        takes_s: the seconds that it will take, or still takes, as its class says.
        under_way: whether it has begun.
        needs: indices of the steps of the next context switch for which it waits.
        needed_by: display ids of the vjobs that start once it is on.
    """

    kind: NodeActionKind
    node: str
    why: str
    takes_s: float
    under_way: bool = False
    needs: tuple[int, ...] = ()
    needed_by: tuple[str, ...] = ()

    @property
    def action(self) -> NodeAction:
        """The same as an action of a plan."""
        return NodeAction(self.kind, self.node)
