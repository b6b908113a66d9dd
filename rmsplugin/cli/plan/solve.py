"""Solve: decide, place, plan and check, with a clock beside it; everything that is pure is called from here."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rmsplugin.cli.plan.answer import Answer
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.policies import decide
from rmsplugin.decision.result import Decision, Infeasible
from rmsplugin.errors import OperationFailedError
from rmsplugin.model.configuration import Configuration
from rmsplugin.packing.search import Search
from rmsplugin.planning.checker import check_plan
from rmsplugin.planning.graph import reconfiguration_graph, to_dot
from rmsplugin.planning.makespan import Durations, makespan
from rmsplugin.planning.order import dependency_order
from rmsplugin.planning.placement import Objective, Placed, place, place_sample
from rmsplugin.planning.plan import Unreachable
from rmsplugin.settings import load, settings_path

Show = Callable[[str], None]


class _Clock:
    """Seconds of each step, and what is being done for who watches."""

    def __init__(self, show: Show) -> None:
        self.seconds: dict[str, float] = {}
        self._show = show

    @contextmanager
    def step(self, name: str, doing: str) -> Iterator[None]:
        self._show(doing)
        started = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - started


def plan(
    source: Configuration,
    *,
    policy: str,
    objective: Objective,
    heuristic: str | None,
    search: Search,
    durations: Durations,
    show: Show = lambda _: None,
) -> Answer:
    """Decide, place, plan; and have the plan checked by somebody who did not make it.

    Raises:
        OperationFailedError: there is no decision or no plan, or a fault of ours in it.
    """
    clock = _Clock(show)
    with clock.step("decision", f"deciding by {policy}"):
        decision = decide(policy, source, Parameters(search=search))
    if isinstance(decision, Infeasible):
        raise OperationFailedError(f"no decision: {decision.explanation}")
    with clock.step("placement", "placing"):
        placed = _place(source, decision, objective, heuristic, search)
    if isinstance(placed, Unreachable):
        raise OperationFailedError(f"no plan: {placed.explanation}")
    with clock.step("planning", "checking the plan"):
        _check(source, placed)
        order = dependency_order(source, placed.plan)
        estimate = makespan(placed.plan, order, durations)
    return Answer(
        source,
        decision,
        placed.target,
        placed.plan,
        order.needs,
        estimate.by_pools_s,
        estimate.by_dependencies_s,
        placed.lower_bound,
        placed.nodes_used,
        placed.nodes_lower_bound,
        clock.seconds,
    )


def _place(
    source: Configuration, decision: Decision, objective: Objective, heuristic: str | None, search: Search
) -> Placed | Unreachable:
    if heuristic is None:
        return place(source, decision.states, sample=decision.placement, objective=objective, search=search)
    return place_sample(source, decision.states, decision.placement)


def _check(source: Configuration, placed: Placed) -> None:
    """Refuse a plan with a fault; it would be one of this program."""
    found = check_plan(source, placed.target, placed.plan.pools, placed.plan.cost)
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise OperationFailedError(
            f"internal error: the plan is wrong: {found[0]}{more}; please report it, with the file"
        )


def durations(config: str | None) -> Durations:
    """How long actions take, by the settings; by the papers where there are no settings and none were asked for.

    Raises:
        SettingsError: the settings are wrong, or those that --config or the environment names are not there.
    """
    path = settings_path(config)
    named = config is not None or os.environ.get("RMSPLUGIN_CONFIG")
    if not named and not os.access(path, os.R_OK):
        return Durations()
    return Durations.from_values(load(path).durations.model_dump())


def graph(answer: Answer) -> str:
    """The reconfiguration graph in Graphviz's language."""
    return to_dot(reconfiguration_graph(answer.source, answer.plan.actions()), answer.plan)
