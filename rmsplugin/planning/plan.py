"""Plan: a sequence of pools; the actions of one pool are feasible in parallel (RR-6929 section 4.1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rmsplugin.model.action import Action
from rmsplugin.planning.cost import plan_cost


@dataclass(frozen=True, slots=True)
class Plan:
    """Pools of actions, carried out one pool after the other; empty if there is nothing to do."""

    pools: tuple[tuple[Action, ...], ...]

    @property
    def cost(self) -> int:
        """Cost by the papers' model, in MiB."""
        return plan_cost(self.pools)

    def actions(self) -> Iterator[Action]:
        """All actions, pool after pool."""
        for pool in self.pools:
            yield from pool


@dataclass(frozen=True, slots=True)
class Unreachable:
    """No plan leads to a target; ``explanation`` says which VMs stand in each other's way, and why nothing helps."""

    explanation: str
