"""Cap: a bound on the watts that all nodes may take together, and which nodes may have VMs within it. Pure.

A node that has something may take all its watts at any time: it counts as busy. So whatever its VMs compute, the bound
holds, as far as the watts of classes are true.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from rmsplugin.energy.power import PowerClass


class Use(enum.Enum):
    """How a node is used, from what is had soonest to what is had last."""

    USED = 0
    IDLE = 1
    SWITCHING = 2
    OFF = 3


@dataclass(frozen=True, slots=True)
class CappedNode:
    """A node."""

    name: str
    power: PowerClass
    use: Use

    @property
    def now_w(self) -> float:
        """The watts that it may take as it is used now."""
        watts = {
            Use.USED: self.power.busy_w,
            Use.IDLE: self.power.idle_w,
            Use.SWITCHING: max(self.power.transition_w, self.power.idle_w),
            Use.OFF: self.power.off_w,
        }
        return watts[self.use]

    @property
    def most_w(self) -> float:
        """The watts that it may take once it is used, or comes on for that."""
        return max(self.power.busy_w, self.power.transition_w) if self.use is Use.OFF else self.power.busy_w


@dataclass(frozen=True, slots=True)
class Capped:
    """What the bound says.

    Attributes:
        watts: that the nodes may take as they are used now.
        closed: nodes that are not used and may not be: they take no VM, and are not switched on for any.
    """

    watts: float
    closed: frozenset[str]


def capped(nodes: Iterable[CappedNode], cap_w: float) -> Capped:
    """Choose the nodes that may be used, in the order in which vjobs take them: all of them may be used at once.

    Args:
        nodes: all that count, those that are alike in the order in which vjobs take them.
        cap_w: the bound.
    """
    known = sorted(nodes, key=lambda node: node.use.value)
    watts = sum(node.now_w for node in known)
    left_w, closed = cap_w - watts, set()
    for node in known:
        more_w = max(0.0, node.most_w - node.now_w)
        if node.use is Use.USED:
            continue
        if more_w <= left_w:
            left_w -= more_w
        else:
            closed.add(node.name)
    return Capped(watts, frozenset(closed))
