"""Proposal: one possible context switch, with all that is known about it; or the reason why there is none."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from rmsplugin.decision.outgrown import Remedy
from rmsplugin.decision.result import Decision
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import Location
from rmsplugin.model.wording import counted
from rmsplugin.planning.order.dependencies import Order
from rmsplugin.planning.order.makespan import Makespan
from rmsplugin.planning.plan import Plan


@dataclass(frozen=True)
class Proposal:
    """A decision, the target configuration, the plan that leads there, and the proven quality of the plan.

    Attributes:
        decision: the state of every vjob, with the reason.
        target: the final location of each VM, by VM name.
        plan: pools of actions.
        order: for each action the actions that it waits for.
        estimate: the estimated duration of the plan.
        lower_bound: MiB; proven, no plan for the decided states costs less.
        nodes_used: the number of nodes that host VMs in the end.
        nodes_lower_bound: proven, they cannot be fewer.
        fingerprint: a digest of all that the plan depends on (``rmsplugin.proposing.fingerprint``).
        sentence: the whole proposal in one sentence for a person.
        fallback: the reason why it stands in for the requested answer: First Fit Decreasing alone decided and placed,
            or it is the best that the search had found before it failed, or the clock has cut its decision short; empty
            if it is the requested answer.
        remedy: the measures for nodes that are short of memory, taken first; None if they were not asked for.
    """

    decision: Decision
    target: Mapping[str, Location]
    plan: Plan
    order: Order
    estimate: Makespan
    lower_bound: int
    nodes_used: int
    nodes_lower_bound: int
    fingerprint: str
    sentence: str
    fallback: str = ""
    remedy: Remedy | None = None

    def decided_about(self, source: Configuration) -> Configuration:
        """The configuration that the decision is about and the plan begins with, derived from the observed one."""
        return source if self.remedy is None else self.remedy.applied_to(source)

    @property
    def optimal(self) -> bool:
        """Whether no plan for the decided states can cost less."""
        return self.plan.cost == self.lower_bound


class Missing(enum.StrEnum):
    """The missing part for lack of which a proposal could not be made."""

    DECISION = "decision"
    PLAN = "plan"
    ORDER = "order"  # the plan that was made contradicts itself: a fault of this program
    ANSWER = "answer"  # the process that was asked gave no answer


@dataclass(frozen=True, slots=True)
class NoProposal:
    """No proposal: the missing part, and the reason."""

    missing: Missing
    explanation: str

    @property
    def sentence(self) -> str:
        """Both in a sentence for a person."""
        return f"no {self.missing}: {self.explanation}"


def sentence(decision: Decision, plan: Plan) -> str:
    """A decision and its plan: "2 of 3 vjobs run: 1 starts; 1 action in 1 pool, cost 0 MiB."."""
    decided = decision.sentence or f"{counted(len(decision.states), 'vjob')} decided"
    count = sum(1 for _ in plan.actions())
    if not count and not plan.nodes:
        return f"{decided}; there is nothing to do."
    nodes = f", {counted(len(plan.nodes), 'action')} of nodes" if plan.nodes else ""
    return f"{decided}; {counted(count, 'action')} in {counted(len(plan.pools), 'pool')}, cost {plan.cost} MiB{nodes}."
