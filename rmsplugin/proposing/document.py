"""Document: a proposal as JSON (docs/simulation/plan-and-pack.md)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rmsplugin.decision.reservation import Note
from rmsplugin.decision.result import Decision
from rmsplugin.model.action import Action, ActionKind
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import Location, VJob, VMState
from rmsplugin.planning.cost import local_cost
from rmsplugin.proposing.proposal import Proposal


def document(source: Configuration, proposal: Proposal, seconds: Mapping[str, float]) -> dict[str, Any]:
    """The JSON of a proposal; the same proposal gives the same bytes, but for ``seconds``.

    Vjobs in transit are left out: they stand for the holdings of vjobs about which nothing is decided.

    Args:
        source: the configuration of the proposal.
        proposal: the proposal.
        seconds: the duration of each stage, by a clock.
    """
    decision, vjobs = proposal.decision, decided_about(source)
    return {
        "decision": {vjob.name: _decided(decision, vjob.name) for vjob in vjobs},
        "target": {vm.name: _place(proposal.target[vm.name]) for vjob in vjobs for vm in vjob.vms},
        "plan": _plan(proposal),
        "nodes_used": proposal.nodes_used,
        "nodes_lower_bound": proposal.nodes_lower_bound,
        "seconds": {stage: round(value, 4) for stage, value in seconds.items()},
        "policy": decision.policy,
        "sentence": decision.sentence,
    }


def notes_of(notes: Iterable[Note]) -> list[dict[str, Any]]:
    """The course of reservations, and the costs of shortages, as JSON."""
    return [
        {
            "note": note.what,
            "node": note.node,
            "sentence": note.sentence,
            "numbers": {key: _finite(value) for key, value in note.numbers.items()},
        }
        for note in notes
    ]


def decided_about(configuration: Configuration) -> list[VJob]:
    """The vjobs about which something is decided, in queue order."""
    return [vjob for vjob in configuration.vjobs if not vjob.in_transit]


def states_before(source: Configuration) -> dict[str, str]:
    """The state of each vjob before the context switch, by name."""
    return {vjob.name: f"{source.state(vjob)}{', lost' if vjob.lost else ''}" for vjob in decided_about(source)}


def _decided(decision: Decision, vjob: str) -> dict[str, Any]:
    reason = decision.reasons[vjob]
    return {
        "state": str(decision.states[vjob]),
        "reason": reason.sentence,
        "code": str(reason.code),
        "numbers": {key: _finite(value) for key, value in reason.numbers.items()},
    }


def _place(location: Location) -> dict[str, str]:
    key = {VMState.RUNNING: "host", VMState.PAUSED: "host", VMState.SLEEPING: "image"}.get(location.state)
    return {"state": str(location.state), **({key: location.node or ""} if key else {})}


def _plan(proposal: Proposal) -> dict[str, Any]:
    needs = iter(enumerate(proposal.order.needs))
    return {
        **_nodes(proposal),
        "pools": [[_action(action, *next(needs)) for action in pool] for pool in proposal.plan.pools],
        "cost": proposal.plan.cost,
        "lower_bound": proposal.lower_bound,
        "optimal": proposal.optimal,
        "makespan_s": {
            "pools": round(proposal.estimate.by_pools_s, 2),
            "dependencies": round(proposal.estimate.by_dependencies_s, 2),
        },
    }


def _nodes(proposal: Proposal) -> dict[str, Any]:
    """Actions of nodes, and the ids of the VM actions after which each begins; nothing where there are none."""
    if not proposal.plan.nodes:
        return {}
    each = zip(proposal.plan.nodes, proposal.order.node_needs, strict=True)
    return {"nodes": [{"action": str(one.kind), "node": one.node, "needs": sorted(needs)} for one, needs in each]}


def _action(action: Action, number: int, needs: Sequence[int]) -> dict[str, Any]:
    found: dict[str, Any] = {"action": str(action.kind), "vm": action.vm.name}
    if action.source is not None:
        found["from"] = action.source
    if action.kind is ActionKind.SUSPEND:
        found["image"] = action.destination  # the place of the saved state: that node, or "shared"
    elif action.destination is not None:
        found["to"] = action.destination
    if action.kind is ActionKind.RESUME:
        found["local"] = action.is_local
    for mark in ("bypass", "requeue", "paused"):
        if getattr(action, mark):
            found[mark] = True
    return found | {"cost": local_cost(action), "id": number, "needs": sorted(needs)}


def _finite(value: float | int | str) -> float | int | str | None:
    """The value if JSON has it; JSON has no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
