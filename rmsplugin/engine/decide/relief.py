"""Relief: nodes that are short of memory, before it is decided which vjobs run (``decision.outgrown``)."""

from __future__ import annotations

from rmsplugin.decision.outgrown import MemoryFacts, Remedy, Shortage
from rmsplugin.decision.reservation import Note, ReservationLimits, Reservations
from rmsplugin.decision.traits import COMPARES, RESERVES
from rmsplugin.decision.unblocking import Prices
from rmsplugin.engine.capacity.memory_care import MemoryCare
from rmsplugin.engine.capacity.observed_memory import observing_hosts
from rmsplugin.engine.context.clock import Clock
from rmsplugin.engine.context.durations import DurationsInUse
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.settings import Settings

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

    def __init__(
        self, settings: Settings, ledger: Ledger, clock: Clock, memory_care: MemoryCare, durations: DurationsInUse
    ) -> None:
        self._settings = settings
        self._durations = durations
        self._ledger = ledger
        self._clock = clock
        self._memory_care = memory_care
        self._told: frozenset[tuple[str, str, str]] = frozenset()

    def asked(self, seen: Observation) -> Shortage | None:
        """The question about short nodes that comes before the decision; None if nodes are never reserved."""
        before = self._ledger.reservations.read()
        policy = self._settings.decision.policy
        observing = observing_hosts(self._settings, seen)
        if policy not in RESERVES or not (observing or before.held):
            return None
        real_mib = {name: self._memory_care.bearable_mib(seen, name) for name in observing}
        prices = Prices.from_values(self._durations.values()) if policy in COMPARES else None
        return Shortage(MemoryFacts(real_mib), before, self._clock.now(), self._limits(), prices)

    def remember(self, remedy: Remedy | None) -> None:
        """Record reservations, and tell of each change once, not in each cycle that repeats it."""
        ledger = self._ledger
        notes = () if remedy is None else remedy.notes
        new = [note for note in notes if _key(note) not in self._told]
        self._told = frozenset(_key(note) for note in notes)
        reservations = Reservations() if remedy is None else remedy.reservations
        changed = reservations != ledger.reservations.read()
        if not changed and not new:
            return  # a transaction, even an empty one, has all be read anew
        with ledger.transaction():
            if changed:
                ledger.reservations.write(reservations)
            for note in new:
                self._tell(note)

    def _tell(self, note: Note) -> None:
        self._ledger.event(EVENTS[note.what], note.sentence, node=note.node, vm=str(note.numbers.get("vm", "")))

    def _limits(self) -> ReservationLimits:
        memory = self._settings.memory
        return ReservationLimits(
            most_share=memory.reserved_nodes, reserving_s=memory.reserving_s, until=memory.reserve_until
        )


def _key(note: Note) -> tuple[str, str, str]:
    return note.what, note.node, str(note.numbers.get("vm", ""))
