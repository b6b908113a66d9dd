"""Relief: relieves nodes that are short of memory before each decision; remembers reservations between cycles."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rmsplugin.decision.outgrown import MemoryFacts, Shortage, bearable, outgrown
from rmsplugin.decision.reservation import Reservations
from rmsplugin.decision.traits import COMPARES, RESERVES
from rmsplugin.model.configuration import Configuration
from rmsplugin.simulation.observed_memory import MemoryParameters
from rmsplugin.simulation.outcome import NoteRun

#: Notes of what is done. The other notes tell what else would have relieved a node: that is left to the policy and
#: the planner, which may know better.
_DONE = frozenset({"reserved", "served", "released", "full"})


class Relief:
    """Reserves nodes for VMs that have outgrown theirs, cycle after cycle.

    Attributes:
        notes: the course of reservations so far.
    """

    def __init__(
        self,
        policy: str,
        parameters: MemoryParameters,
        real_mib: Mapping[str, int],
        remind: Callable[[float], None],
    ) -> None:
        """Begin without reservations.

        Args:
            policy: the policy of the decision that follows.
            parameters: when nodes are reserved.
            real_mib: all memory of each node, by name.
            remind: asks for another decision at a time.
        """
        self._reserves, self._prices = policy in RESERVES, parameters.prices if policy in COMPARES else None
        self._parameters, self._facts, self._remind = parameters, MemoryFacts(real_mib), remind
        self._reservations = Reservations()
        self.notes: list[NoteRun] = []

    def relieved(self, configuration: Configuration, now: float) -> Configuration:
        """Return the input of the decision as relief leaves it."""
        configuration = bearable(configuration)
        if not self._reserves:
            return configuration
        limits = self._parameters.limits
        shortage = Shortage(self._facts, self._reservations, now, limits, self._prices)
        remedy = outgrown(configuration, shortage)
        done = [note for note in remedy.notes if note.what in _DONE]
        self.notes += [NoteRun(now, note) for note in done]
        if done:  # a reserved node is given up after a while, and a full cluster is looked at again
            self._remind(now + limits.reserving_s)
        self._reservations = remedy.reservations
        return remedy.applied_to(configuration)
