"""Solve: propose a context switch and have it checked, with a clock beside it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from rmsplugin.cli.plan.solved import Solved
from rmsplugin.energy.parameters import EnergyParameters
from rmsplugin.errors import OperationFailedError
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.durations import DEFAULTS
from rmsplugin.planning.graph import reconfiguration_graph, to_dot
from rmsplugin.proposing.check import check
from rmsplugin.proposing.idle_off import saving
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.proposal import Missing, NoProposal
from rmsplugin.proposing.propose import Decides, decided, propose
from rmsplugin.settings import load, settings_path

Show = Callable[[str], None]


class _Clock:
    """Seconds of each step, and what is being done for who watches."""

    def __init__(self, show: Show, policy: str) -> None:
        self.seconds: dict[str, float] = {}
        self._show = show
        self._doing = {"decision": f"deciding by {policy}", "placement": "placing", "planning": "checking the plan"}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        self._show(self._doing[name])
        started = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started


def plan(
    source: Configuration,
    parameters: ProposalParameters,
    show: Show = lambda _: None,
    energy: EnergyParameters | None = None,
    decides: Decides = decided,
) -> Solved:
    """Decide, place, plan; and have the plan checked by somebody who did not make it.

    Args:
        source: the configuration.
        parameters: how.
        show: called with what is being done.
        energy: the nodes' watts, if nodes shall be switched off; None: none is.
        decides: decides by the policy.

    Raises:
        OwnPolicyError: the policy is one of the site, and errs.
        OperationFailedError: there is no decision or no plan, or a fault of ours in it.
    """
    clock = _Clock(show, parameters.policy)
    found = propose(source, parameters, clock.step, time.monotonic, decides=decides)
    if isinstance(found, NoProposal):
        if found.missing is Missing.ORDER:
            _refuse([found.explanation])
        raise OperationFailedError(found.sentence)
    source = found.decided_about(source)
    with clock.step("planning"):
        if energy is not None:
            found = saving(source, found, energy, parameters)
        _refuse(check(source, found, cpu_in_plan=parameters.cpu_in_plan))
    return Solved(source, found, clock.seconds)


def _refuse(faults: list[str]) -> None:
    """Refuse a plan with a fault; it would be one of this program."""
    if faults:
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        raise OperationFailedError(
            f"internal error: the plan is wrong: {faults[0]}{more}; please report it, with the file"
        )


def durations(config: str | None) -> Mapping[str, float]:
    """Section [durations] of the settings; that of the papers where there are no settings and none were asked for.

    Raises:
        SettingsError: the settings are wrong, or those that --config or the environment names are not there.
    """
    path = settings_path(config)
    named = config is not None or os.environ.get("RMSPLUGIN_CONFIG")
    if not named and not os.access(path, os.R_OK):
        return DEFAULTS
    return load(path).durations.model_dump()


def graph(solved: Solved) -> str:
    """The reconfiguration graph in Graphviz's language."""
    return to_dot(reconfiguration_graph(solved.source, solved.proposal.plan.actions()), solved.proposal.plan)
