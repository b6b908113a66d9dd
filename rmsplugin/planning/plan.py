"""Plan: a sequence of pools; the actions of one pool are feasible in parallel (RR-6929 section 4.1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from rmsplugin.model.action import Action
from rmsplugin.model.node_action import NodeAction
from rmsplugin.planning.cost import plan_cost, pool_cost


@dataclass(frozen=True)
class Plan:
    """Pools of actions, carried out one pool after the other; empty if there is nothing to do.

    Actions of nodes are in no pool, and cost nothing: a node is switched on before the first action that touches it,
    and off after the last (``rmsplugin.planning.order.powering``).
    """

    pools: tuple[tuple[Action, ...], ...]
    nodes: tuple[NodeAction, ...] = ()

    @cached_property
    def cost(self) -> int:
        """Cost by the papers' model, in MiB."""
        return plan_cost(self.pools)

    def actions(self) -> Iterator[Action]:
        """All actions of VMs, pool after pool."""
        for pool in self.pools:
            yield from pool

    @property
    def first_cost(self) -> int:
        """Cost of the first pool that costs anything, in MiB: all later pools wait for it; 0 if none does."""
        return next((cost for cost in map(pool_cost, self.pools) if cost), 0)

    def early_arrivals(self) -> frozenset[str]:
        """The VMs that arrive where they end without a wait for a costly action, by name."""
        found: set[str] = set()
        for pool in self.pools:
            found |= {action.vm.name for action in pool if action.demands is not None and not action.bypass}
            if pool_cost(pool):
                break
        return frozenset(found)


@dataclass(frozen=True, slots=True)
class Unreachable:
    """No plan leads to a target; ``explanation`` tells which VMs block each other, and why nothing helps."""

    explanation: str
