"""Answer: what `rmsplugin plan` found out, and the JSON of it (docs/operator-guide.md, Planning offline)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rmsplugin.decision.result import Decision
from rmsplugin.model.action import Action, ActionKind
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import Location, VMState
from rmsplugin.planning.cost import local_cost
from rmsplugin.planning.plan import Plan


@dataclass(frozen=True)
class Answer:
    """One decision, one target configuration, one plan; and how good the plan is known to be."""

    source: Configuration
    decision: Decision
    target: Mapping[str, Location]
    plan: Plan
    needs: Sequence[Sequence[int]]  # by action, in the order of the plan: the numbers of those it waits for
    makespan_by_pools_s: float
    makespan_by_dependencies_s: float
    lower_bound: int
    nodes_used: int
    nodes_lower_bound: int
    seconds: Mapping[str, float]  # of the clock, by step

    @property
    def optimal(self) -> bool:
        """Whether no plan for the decided states can cost less."""
        return self.plan.cost == self.lower_bound


def document(answer: Answer) -> dict[str, Any]:
    """The answer as JSON; the same answer gives the same bytes, but for `seconds`."""
    return {
        "decision": {vjob.name: _decided(answer.decision, vjob.name) for vjob in answer.source.vjobs},
        "target": {vm.name: _place(answer.target[vm.name]) for vjob in answer.source.vjobs for vm in vjob.vms},
        "plan": _plan(answer),
        "nodes_used": answer.nodes_used,
        "nodes_lower_bound": answer.nodes_lower_bound,
        "seconds": {step: round(seconds, 4) for step, seconds in answer.seconds.items()},
        "policy": answer.decision.policy,
        "sentence": answer.decision.sentence,
    }


def _decided(decision: Decision, vjob: str) -> dict[str, Any]:
    reason = decision.reasons[vjob]
    return {
        "state": str(decision.states[vjob]),
        "reason": reason.sentence,
        "code": str(reason.code),
        "numbers": {key: _finite(value) for key, value in reason.numbers.items()},
    }


def _place(location: Location) -> dict[str, str]:
    key = {VMState.RUNNING: "host", VMState.SLEEPING: "image"}.get(location.state)
    return {"state": str(location.state), **({key: location.node or ""} if key else {})}


def _plan(answer: Answer) -> dict[str, Any]:
    needs = iter(enumerate(answer.needs))
    return {
        "pools": [[_action(action, *next(needs)) for action in pool] for pool in answer.plan.pools],
        "cost": answer.plan.cost,
        "lower_bound": answer.lower_bound,
        "optimal": answer.optimal,
        "makespan_s": {
            "pools": round(answer.makespan_by_pools_s, 2),
            "dependencies": round(answer.makespan_by_dependencies_s, 2),
        },
    }


def _action(action: Action, number: int, needs: Sequence[int]) -> dict[str, Any]:
    found: dict[str, Any] = {"action": str(action.kind), "vm": action.vm.name}
    if action.source is not None:
        found["from"] = action.source
    if action.kind is ActionKind.SUSPEND:
        found["image"] = action.destination  # where the saved state will be: there, or "shared"
    elif action.destination is not None:
        found["to"] = action.destination
    if action.kind is ActionKind.RESUME:
        found["local"] = action.is_local
    for mark in ("bypass", "requeue"):
        if getattr(action, mark):
            found[mark] = True
    return found | {"cost": local_cost(action), "id": number, "needs": sorted(needs)}


def _finite(value: float | int | str) -> float | int | str | None:
    """A value that JSON has; it has no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
