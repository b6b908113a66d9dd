"""Plan views: decisions, plans, their steps and the pause, as JSON to be shown. No secrets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rmsplugin.calibration.agreement import agrees, is_right
from rmsplugin.decision.forecast import forecast
from rmsplugin.engine.context.clock import Clock
from rmsplugin.engine.decide.deciding import Found
from rmsplugin.engine.decide.emptying import ENERGY
from rmsplugin.engine.decide.planned_power import PlannedPower
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.power_book import PowerAct
from rmsplugin.engine.ledger.rows import OPEN_STEPS, DecisionRow, Pause, Plan, PlanState, Step, StepState
from rmsplugin.engine.serve.naming import own_name
from rmsplugin.engine.serve.views import progress_view
from rmsplugin.errors import NotFoundError
from rmsplugin.model.node_action import NodeActionKind
from rmsplugin.planning.graph import reconfiguration_graph, to_dot
from rmsplugin.proposing.document import document, states_before
from rmsplugin.proposing.steps import PlannedStep

View = dict[str, Any]

_OFF = NodeActionKind.POWER_OFF
#: The newest plans among which those are that tell whether expectations are right.
_NEWEST = 100
#: States of plans of which no step was begun.
_NOT_BEGUN = (PlanState.REJECTED, PlanState.STALE, PlanState.NONE)


def pause_view(pause: Pause | None) -> View | None:
    """The pause of the engine, with its time and author; None if the engine is not paused."""
    return asdict(pause) if pause is not None else None


# -- the next cycle --------------------------------------------------------------------------------------------------


def preview_view(found: Found, time: float, pause: Pause | None, *, dot: bool, starts: bool = False) -> View:
    """The context switch of the next cycle: the document of `rmsplugin plan`, and the facts of a live cluster.

    Args:
        found: the result of the preview.
        time: of the preview, in seconds since the epoch.
        pause: while there is one, no step is begun.
        dot: with the reconfiguration graph, in Graphviz' language.
        starts: with a forecast of when each vjob runs.
    """
    proposal, settled = found.prepared.proposal, found.assessment.settled
    refused = {name: {"why": "refused", "reason": reason} for name, reason in found.assessment.refused.items()}
    unsettled = {name: {"why": str(left.why), "reason": left.sentence} for name, left in settled.left_out.items()}
    view: View = {
        "decision": {},
        "target": {},
        "plan": None,
        "policy": found.prepared.parameters.policy,
        "sentence": "",
    }
    if proposal is not None:
        view = document(settled.configuration, proposal, {"total": found.seconds})
    view |= {
        "time": time,
        "paused": pause_view(pause),
        "fault": found.prepared.fault,
        "fallback": proposal.fallback if proposal else "",
        "summary": proposal.sentence if proposal else "",
        "now": states_before(settled.configuration),
        "steps": [_planned(number, step) for number, step in enumerate(found.prepared.steps)],
        "powers": [_planned_power(each) for each in found.powers],
        "left_out": unsettled | refused,
        "out_of_reach": dict(settled.quarantined),
    }
    if starts:
        found_s = forecast(settled.configuration, found.after)
        view["starts"] = {name: None if at_s is None else round(at_s, 1) for name, at_s in found_s.items()}
    if dot and proposal is not None:
        graph = reconfiguration_graph(settled.configuration, proposal.plan.actions())
        view["dot"] = to_dot(graph, proposal.plan, [each.action for each in found.powers])
    return view


def _planned(number: int, step: PlannedStep) -> View:
    return {
        "id": number,
        "vjob": step.vjob,
        "kind": str(step.kind),
        "hosts": dict(step.hosts),
        "needs": list(step.needs),
    }


def _planned_power(planned: PlannedPower) -> View:
    return {
        "action": str(planned.kind),
        "node": planned.node,
        "needs": list(planned.needs),
        "needed_by": list(planned.needed_by),
        "takes_s": round(planned.takes_s, 1),
        "state": "running" if planned.under_way else "planned",
        "reason": planned.why,
    }


# -- decisions of the past ---------------------------------------------------------------------------------------------


def cycles_view(ledger: Ledger, clock: Clock, limit: int) -> list[View]:
    """The newest plans, oldest first."""
    plans = ledger.plans.plans(limit)
    counts = ledger.plans.step_counts([plan.id for plan in plans])
    acts, is_known = _powers(ledger, plans), _are_expectations_right(ledger)
    return [_cycle(clock, plan, counts.get(plan.id, {}), acts[plan.id], is_known) for plan in plans]


def cycle_view(ledger: Ledger, clock: Clock, number: int) -> View:
    """One plan with its steps. Raises NotFoundError."""
    plans = ledger.plans
    plan = plans.plan(number)
    if plan is None:
        raise NotFoundError(f"no cycle {number} is on record; `rmsplugin cycles` lists them")
    counts = plans.step_counts([number]).get(number, {})
    powers = _powers(ledger, plans.from_one(number))[number]
    return {
        "cycle": _cycle(clock, plan, counts, powers, _are_expectations_right(ledger)),
        "steps": [_step(ledger, step) for step in plans.steps(number)],
    }


def last_plan_view(ledger: Ledger, clock: Clock) -> View | None:
    """The newest plan; None if there is none."""
    found = cycles_view(ledger, clock, 1)
    return found[0] if found else None


def _powers(ledger: Ledger, plans: Sequence[Plan]) -> dict[int, list[View]]:
    """By plan, the switches of nodes that began after it, and before the next one; ``plans``: in a row."""
    if not plans:
        return {}
    acts = ledger.power.acts(plans[0].time)
    ends = [*(plan.time for plan in plans[1:]), math.inf]
    return {
        plan.id: [_power(ledger, plan, act) for act in acts if plan.time <= act.began < end]
        for plan, end in zip(plans, ends, strict=True)
    }


def _power(ledger: Ledger, plan: Plan, act: PowerAct) -> View:
    """One switch of a node; a node that the plan has emptied had to wait for all of its steps."""
    emptied = plan.policy == ENERGY and plan.sentence.startswith(f"{act.node} is emptied, ")
    waited = [step.id for step in ledger.plans.steps(plan.id)] if emptied and act.kind is _OFF else []
    return {
        "action": str(act.kind),
        "node": act.node,
        "needs": waited,
        "state": "failed" if act.error else "done" if act.ended else "running",
        "began": act.began,
        "ended": act.ended or None,
        "error": act.error,
    }


def _are_expectations_right(ledger: Ledger) -> bool:
    """Whether the last context switches took about as long as they were expected to."""
    done = [plan for plan in ledger.plans.plans(_NEWEST) if plan.state is PlanState.DONE and plan.estimate_s > 0]
    return agrees([(plan.estimate_s, plan.ended - plan.time) for plan in done])


def _cycle(clock: Clock, plan: Plan, counts: Mapping[StepState, int], powers: list[View], is_known: bool) -> View:
    ended = plan.ended or clock.now()
    if plan.state is PlanState.RUNNING and ended - plan.time > plan.estimate_s:
        is_known = is_known and is_right(plan.estimate_s, ended - plan.time)  # it takes longer: nobody knows how long
    return {
        "number": plan.id,
        "time": plan.time,
        "state": str(plan.state),
        "policy": plan.policy,
        "sentence": plan.sentence,
        "cost_mib": plan.cost_mib,
        "lower_bound_mib": plan.lower_bound_mib,
        "expected_s": round(plan.estimate_s, 2),
        "expected_known": is_known,
        # For a plan that is being carried out, the time until now.
        "took_s": None if plan.state in _NOT_BEGUN else round(max(0.0, ended - plan.time), 2),
        "decided_s": round(plan.decided_s, 4),
        "steps": sum(counts.values()),
        "steps_done": counts.get(StepState.DONE, 0),
        "steps_open": sum(counts.get(state, 0) for state in OPEN_STEPS),
        "powers": powers,
        "fallback": plan.fallback,
        "error": plan.error,
    }


def _step(ledger: Ledger, step: Step) -> View:
    running = step.state is StepState.RUNNING
    return {
        "number": step.id,
        "vjob": step.vjob,
        "kind": str(step.kind),
        "hosts": step.hosts,
        "needs": list(step.needs),
        "state": str(step.state),
        "reason": step.reason,
        "error": step.error,
        "began": step.began or None,
        "ended": step.ended or None,
        "operation": progress_view(ledger, ledger.operation(step.operation_id)) if running else None,
    }


def decision_views(ledger: Ledger, vjob: str) -> list[View]:
    """The decisions about the vjobs with this name, oldest first; elements of an array may have no row yet."""
    return [_decision(row) for row in ledger.plans.decisions(own_name(ledger, vjob))]


def _decision(row: DecisionRow) -> View:
    return {
        "time": row.time,
        "cycle": row.plan_id or None,
        "vjob": row.vjob,
        "state": row.state,
        "code": row.code,
        "reason": row.sentence,
    }
