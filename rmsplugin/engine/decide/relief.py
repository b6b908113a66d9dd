"""Relief: nodes that are short of memory, before it is decided which vjobs run (``decision.outgrown``)."""

from __future__ import annotations

from rmsplugin.decision.outgrown import MemoryFacts, Remedy, Shortage
from rmsplugin.decision.reservation import Note, ReservationLimits, Reservations
from rmsplugin.decision.traits import COMPARES, RESERVES
from rmsplugin.decision.unblocking import Prices
from rmsplugin.engine.capacity.memory_care import MemoryCare
from rmsplugin.engine.capacity.observed_memory import observing_hosts
from rmsplugin.engine.context.context import Context
from rmsplugin.engine.observe.observation import Observation

#: By note, the event that tells of it.
EVENTS = {
    "reserved": "node-reserved",
    "served": "node-reserved",
    "released": "node-released",
    "full": "cluster-full",
    "short": "memory-short",
}


class Relief:
    """Reserves nodes for VMs that have outgrown their own, and remembers the reservations in the ledger."""

    def __init__(self, context: Context, memory_care: MemoryCare) -> None:
        self._context = context
        self._memory_care = memory_care
        self._told: frozenset[tuple[str, str, str]] = frozenset()

    def asked(self, seen: Observation) -> Shortage | None:
        """The question about short nodes that comes before the decision; None if nodes are never reserved."""
        context, before = self._context, self._context.ledger.reservations.read()
        policy = context.settings.decision.policy
        observing = observing_hosts(context, seen)
        if policy not in RESERVES or not (observing or before.held):
            return None
        real_mib = {name: self._memory_care.bearable_mib(seen, name) for name in observing}
        prices = Prices.from_values(context.settings.durations.model_dump()) if policy in COMPARES else None
        return Shortage(MemoryFacts(real_mib), before, context.clock.now(), self._limits(), prices)

    def remember(self, remedy: Remedy | None) -> None:
        """Record reservations, and tell of each change once, not in each cycle that repeats it."""
        ledger = self._context.ledger
        notes = () if remedy is None else remedy.notes
        new = [note for note in notes if _key(note) not in self._told]
        self._told = frozenset(_key(note) for note in notes)
        reservations = Reservations() if remedy is None else remedy.reservations
        with ledger.transaction():
            if reservations != ledger.reservations.read():
                ledger.reservations.write(reservations)
            for note in new:
                self._tell(note)

    def _tell(self, note: Note) -> None:
        self._context.ledger.event(EVENTS[note.what], note.sentence, node=note.node, vm=str(note.numbers.get("vm", "")))

    def _limits(self) -> ReservationLimits:
        memory = self._context.settings.memory
        return ReservationLimits(
            most_share=memory.reserved_nodes, reserving_s=memory.reserving_s, until=memory.reserve_until
        )


def _key(note: Note) -> tuple[str, str, str]:
    return note.what, note.node, str(note.numbers.get("vm", ""))
