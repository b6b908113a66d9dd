"""Ranks: which vjob goes first under ``slowdown``, and which the bound protects. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from rmsplugin.decision.expansion import expansion, overdue, part_of, protected, still_expected_s
from rmsplugin.decision.firm import in_slurms_order
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.reasons import seconds
from rmsplugin.decision.result import Reason, ReasonCode
from rmsplugin.decision.shares import beyond
from rmsplugin.decision.switching import KEPT
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import NodeState, VJob
from rmsplugin.model.resources import NOTHING, Resources
from rmsplugin.model.vjob import VJobState


@dataclass(frozen=True)
class Ranks:
    """The ranking as of the beginning of a decision.

    Attributes:
        expansions: those of the vjobs that are decided about, by name.
        due: the names of the vjobs that are protected because they are overdue.
        capacity: the resources of all nodes that are up.
        position: the place of each vjob in Slurm's order, by name.
        by_queue: whether no vjob makes way for one behind it in Slurm's order.
        beyond: the names of the vjobs with which their users have more than their share.
    """

    expansions: Mapping[str, float]
    due: frozenset[str]
    capacity: Resources
    position: Mapping[str, int]
    by_queue: bool
    beyond: frozenset[str] = frozenset()

    @classmethod
    def of(cls, configuration: Configuration, parameters: Parameters) -> Ranks:
        """Rank the vjobs of a configuration."""
        capacity = sum((node.capacity for node in configuration.nodes if node.state is NodeState.UP), NOTHING)
        expansions = {vjob.name: vjob_expansion(vjob, parameters) for vjob in configuration.vjobs}
        excess = _beyond(configuration, capacity, expansions, parameters.slowdown.user_share)
        due = _due(configuration, capacity, parameters, excess)
        position = {vjob.name: number for number, vjob in enumerate(configuration.vjobs)}
        return cls(expansions, due, capacity, position, parameters.slowdown.slurm_priority == "order", excess)

    def ranked(self, configuration: Configuration) -> Configuration:
        """The same configuration, with its vjobs in the order of the ranking.

        Each tier has the protected vjobs first, then the ready ones by their expansions, then the running ones: the one
        that has run longest is the last to make way. Vjobs beyond the share of their users come last.
        """

        def rank(vjob: VJob) -> tuple[int, bool, bool, bool, float]:
            runs = configuration.state(vjob) is VJobState.RUNNING
            first = vjob.ran_s if runs else 0.0 if self.by_queue else self.expansions[vjob.name]
            return -vjob.priority, vjob.name in self.beyond, vjob.name not in self.due, runs, -first

        def group(vjob: VJob) -> object:
            runs = configuration.state(vjob) is VJobState.RUNNING
            return None if runs or vjob.in_transit else (vjob.priority, vjob.name in self.beyond)

        vjobs = in_slurms_order(sorted(configuration.vjobs, key=rank), self.position, group)
        return configuration.in_order(vjobs)

    def why_kept(self, vjob: VJob) -> Reason:
        """The reason why a running vjob goes on: none ahead of it may take its room, or none of its tier may."""
        if vjob.name not in self.due:
            return KEPT
        waited = f"has waited {seconds(vjob.waited_s)} in all, longer than its bound"
        words = f"{waited}, and makes way for nobody of its tier"
        return Reason(ReasonCode.OVERDUE, words, {"waited_s": vjob.waited_s})


def vjob_expansion(vjob: VJob, parameters: Parameters, lost_s: float = 0.0, head_start_s: float = 0.0) -> float:
    """The expansion of a vjob, with the loss of a switch for it; and as if it had waited for so much longer."""
    needed_s = still_expected_s(vjob.time_limit_s, vjob.ran_s) + lost_s
    return expansion(vjob.waited_s + head_start_s, needed_s, weight_of(vjob, parameters))


def weight_of(vjob: VJob, parameters: Parameters) -> float:
    """The site's weight of a vjob, by which its expansion is multiplied."""
    return vjob.weight if parameters.slowdown.slurm_priority == "weight" else 1.0


def _beyond(
    configuration: Configuration, capacity: Resources, expansions: Mapping[str, float], share: float
) -> frozenset[str]:
    """The vjobs with which their users exceed their share: ready ones, then running ones that ran least."""
    if share >= 1:
        return frozenset()
    states = {vjob.name: configuration.state(vjob) for vjob in configuration.vjobs}
    counting = [
        vjob for vjob in configuration.vjobs if not vjob.leaves and states[vjob.name] is not VJobState.TERMINATED
    ]

    def kept(vjob: VJob) -> tuple[bool, bool, float]:
        runs = vjob.in_transit or states[vjob.name] is VJobState.RUNNING
        return not vjob.in_transit, not runs, -(vjob.ran_s if runs else expansions[vjob.name])

    counting.sort(key=kept)
    return frozenset(beyond(((vjob.name, vjob.user, part_of(vjob.demand, capacity)) for vjob in counting), share))


def _due(
    configuration: Configuration, capacity: Resources, parameters: Parameters, beyond: frozenset[str]
) -> frozenset[str]:
    """The vjobs that are protected because they are overdue: each tier by itself, for a lower one blocks nobody."""
    found: dict[int, list[tuple[str, float | None, float, float]]] = {}
    for vjob in configuration.vjobs:
        state = configuration.state(vjob)
        times = overdue(vjob.waited_s, vjob.time_limit_s, vjob.ran_s, parameters.slowdown)
        if times > 1 and not vjob.in_transit and state is not VJobState.TERMINATED and vjob.name not in beyond:
            known_s = math.inf if vjob.state_s is None else vjob.state_s
            runs_s = known_s if state is VJobState.RUNNING else None
            of_tier = found.setdefault(vjob.priority, [])
            of_tier.append((vjob.name, runs_s, times, part_of(vjob.demand, capacity)))
    return frozenset(name for tier in found.values() for name in protected(tier))
