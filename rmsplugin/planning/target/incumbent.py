"""Incumbent: the best answer so far, judged by the plan that the planner makes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import Location, VMState
from rmsplugin.packing.budget import STEPS_A_SECOND, Budget
from rmsplugin.planning.order.builder import build_plan
from rmsplugin.planning.order.improve import Tries
from rmsplugin.planning.plan import Plan, Unreachable
from rmsplugin.planning.target.counts import Named

#: The part of the remaining limits that ordering one answer may use: there may be better answers.
_ORDER_SHARE = 0.05

#: The work of looking at one candidate for a pool, in steps: about 1.25 microseconds.
_STEPS = 250


@dataclass(frozen=True, slots=True)
class Reached:
    """A target, its plan, and the nodes that host VMs in the end."""

    target: Mapping[str, Location]
    plan: Plan
    nodes: frozenset[str]


class Incumbent:
    """Takes offers, and keeps the cheapest that is reachable on no more than ``most_nodes`` nodes (None: any)."""

    def __init__(
        self,
        source: Configuration,
        most_nodes: int | None = None,
        budget: Budget | None = None,
        on_better: Callable[[Reached], None] | None = None,
    ) -> None:
        """Begin without an answer.

        Args:
            source: the present configuration.
            most_nodes: the most nodes that host VMs in the end; None: any number.
            budget: cheaper orders of an answer are looked for with a part of the rest; None: without limit.
            on_better: called with each better answer.
        """
        self.source = source
        self.most_nodes = most_nodes
        self._budget = budget
        self._on_better = on_better
        self._best: Reached | None = None

    @property
    def cost(self) -> int | None:
        """Cost of the best plan in MiB; None as long as there is none."""
        return None if self._best is None else self._best.plan.cost

    def best(self) -> Reached:
        """The best answer.

        Raises:
            LookupError: there is none.
        """
        if self._best is None:
            raise LookupError("no answer was found yet")
        return self._best

    def offer(self, named: Named) -> bool:
        """Plan for a target; returns whether it is better than the best so far."""
        nodes = frozenset(
            location.node
            for location in named.target.values()
            if location.state is VMState.RUNNING and location.node is not None
        )
        if self.most_nodes is not None and len(nodes) > self.most_nodes:
            return False
        plan = self._plan(named)
        return not isinstance(plan, Unreachable) and self.take(Reached(named.target, plan, nodes))

    def _plan(self, named: Named) -> Plan | Unreachable:
        budget = self._budget
        if budget is None:
            return build_plan(self.source, named.target, early=named.early)
        most = max(0.0, budget.left) * _ORDER_SHARE * STEPS_A_SECOND / _STEPS
        tries = Tries(most)
        plan = build_plan(self.source, named.target, early=named.early, tries=tries)
        budget.charge((most - tries.left) * _STEPS)
        return plan

    def take(self, reached: Reached) -> bool:
        """Keep an answer with its plan if it is better than the best so far; returns whether it is."""
        if self._best is not None and reached.plan.cost >= self._best.plan.cost:
            return False
        self._best = reached
        if self._on_better is not None:
            self._on_better(reached)
        return True
