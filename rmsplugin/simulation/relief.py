"""Relief: before it is decided who runs, nodes that are short of memory; reservations are remembered between cycles."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rmsplugin.decision.outgrown import MemoryFacts, Shortage, bearable, outgrown
from rmsplugin.decision.policies import COMPARES, RESERVES
from rmsplugin.decision.reservation import Reservations
from rmsplugin.model.configuration import Configuration
from rmsplugin.simulation.observed_memory import MemoryParameters
from rmsplugin.simulation.outcome import NoteRun

#: Notes of what is done. The others tell what else would have relieved a node: that is left to the policy and the
#: planner, who may know better.
_DONE = frozenset({"reserved", "served", "released", "full"})


class Relief:
    """Reserves nodes for VMs that have outgrown theirs, cycle after cycle.

    Attributes:
        notes: what has become of reservations so far.
    """

    def __init__(
        self,
        policy: str,
        parameters: MemoryParameters,
        real_mib: Mapping[str, int],
        remind: Callable[[float], None],
    ) -> None:
        """Nothing is reserved.

        Args:
            policy: by which it is decided then.
            parameters: when nodes are reserved.
            real_mib: all memory of each node, by name.
            remind: asked for another decision at a time.
        """
        self._reserves, self._prices = policy in RESERVES, parameters.prices if policy in COMPARES else None
        self._parameters, self._facts, self._remind = parameters, MemoryFacts(real_mib), remind
        self._reservations = Reservations()
        self.notes: list[NoteRun] = []

    def look(self, configuration: Configuration, now: float) -> Configuration:
        """What to decide about instead."""
        configuration = bearable(configuration)
        if not self._reserves:
            return configuration
        limits = self._parameters.limits
        shortage = Shortage(self._facts, self._reservations, now, limits, self._prices)
        remedy = outgrown(configuration, shortage)
        done = [note for note in remedy.notes if note.what in _DONE]
        self.notes += [NoteRun(now, note) for note in done]
        if done:  # a node that is reserved is given up after so long, and a full cluster is looked at again
            self._remind(now + limits.reserving_s)
        self._reservations = remedy.reservations
        return remedy.applied_to(configuration)
