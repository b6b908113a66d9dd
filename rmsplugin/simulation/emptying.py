"""Emptying: in the replay, one node at a time that is little used is emptied, so that it can be switched off."""

from __future__ import annotations

import math
from collections.abc import Iterable

from rmsplugin.energy.emptying import Emptying, expected_rest_s
from rmsplugin.energy.parameters import EnergyParameters
from rmsplugin.model.configuration import Configuration
from rmsplugin.proposing.emptying import empty_one
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.prepared import Prepared
from rmsplugin.proposing.terms import Terms
from rmsplugin.simulation.parameters import STATIC, ReplayParameters
from rmsplugin.simulation.powering import Powering
from rmsplugin.simulation.vjob import SimulatedVJob


class Emptier:
    """Empties nodes where nobody waits for them."""

    def __init__(
        self, energy: EnergyParameters, emptying: Emptying, parameters: ProposalParameters, cycle_s: float
    ) -> None:
        """``cycle_s``: the least time between two looks."""
        self._energy, self._emptying, self._parameters, self._cycle_s = energy, emptying, parameters, cycle_s
        self._looked_s = -math.inf
        self._rests_s = cycle_s
        self._seen = (-1, -1)
        self.emptied = 0

    def is_due(self, vjobs: tuple[int, int], now: float) -> bool:
        """Whether it is time to look.

        Args:
            vjobs: how many were submitted, and have not ended.
            now: the time.
        """
        if vjobs != self._seen:
            self._seen, self._rests_s = vjobs, self._cycle_s
        return now >= self._looked_s + self._rests_s

    def find(
        self, source: Configuration, live: Iterable[SimulatedVJob], powering: Powering, now: float
    ) -> Prepared | None:
        """What empties a node; None if none is to be emptied.

        Args:
            source: the cluster.
            live: the vjobs that have not ended, all of which run.
            powering: its nodes.
            now: the time.
        """
        self._looked_s = now
        found = empty_one(source, self._terms(live, powering, now), self._parameters)
        self.emptied += found is not None
        if found is None:
            self._rests_s *= 2
        return None if found is None else found.prepared

    @property
    def again_s(self) -> float:
        """When to look again, if nothing happens: what a node saves grows with the age of its vjobs."""
        return self._looked_s + self._rests_s

    def _terms(self, live: Iterable[SimulatedVJob], powering: Powering, now: float) -> Terms:
        rests_s: dict[str, list[float]] = {}
        for vjob in live:
            ran_s = vjob.run_s + now - vjob.since_s
            rest_s = expected_rest_s(ran_s, vjob.job.estimate_s)
            for node in dict.fromkeys(vjob.hosts.values()):
                rests_s.setdefault(node, []).append(rest_s)
        idle_s = {name: powering.idle_after_s(name, rests, now) for name, rests in rests_s.items()}
        return Terms(self._emptying, self._energy.classes, idle_s)


def emptier_of(parameters: ReplayParameters) -> Emptier | None:
    """What empties nodes; None where nothing is moved, or if none is to be emptied."""
    energy, proposal = parameters.energy, parameters.proposal
    if energy is None or energy.emptying is None or proposal.policy in STATIC or not proposal.capabilities.migrate:
        return None
    return Emptier(energy, energy.emptying, proposal, parameters.cycle_s)
