"""Hot group: tells the leader who is left without room in this group, and without which vjob there would be room.

Only where the settings have a migration domain with this group. Nothing moves for it yet: the leader wishes it
(``groups.relieving``), and then the vjob is suspended and handed over (``reconcile.handing_over``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rmsplugin.decision.result import ReasonCode
from rmsplugin.decision.unburdening import in_the_way, pays
from rmsplugin.engine.context.clock import Clock
from rmsplugin.engine.context.durations import DurationsInUse
from rmsplugin.engine.decide.telling import Told
from rmsplugin.engine.execute.one_step_plan import expected_s
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.rows import OperationKind, VJobRow
from rmsplugin.engine.territory.territory import Territory, number_of
from rmsplugin.groups.relieving import Hot
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VJob
from rmsplugin.settings import Settings

#: A vjob that has been the first one without room in so many cycles is told.
_CYCLES = 3
#: What a hand-over takes beside saving, copying and restoring, in seconds: measured in decision record 0202.
_HAND_OVER_S = 20.0
#: The reasons of a vjob for which there is no room beside those that the policy has run.
_NO_ROOM = frozenset({ReasonCode.NO_ROOM, ReasonCode.RESERVED})


@dataclass(frozen=True, slots=True)
class _Left:
    """The vjob that was the first one without room, in how many cycles, and since when."""

    name: str
    cycles: int
    since: float


class HotGroup:
    """Finds, once a cycle, who is in the way."""

    def __init__(
        self,
        settings: Settings,
        ledger: Ledger,
        clock: Clock,
        durations: DurationsInUse,
        territory: Territory,
        may_leave: Callable[[VJobRow], bool],
    ) -> None:
        """``may_leave``: whether a vjob that runs can be suspended to go."""
        self._settings, self._ledger, self._clock, self._durations = settings, ledger, clock, durations
        self._territory, self._may_leave = territory, may_leave
        self._is_in_a_domain = any(territory.group in domain for domain in settings.cluster.migration_domains)
        self._left: _Left | None = None

    def tell_who_is_in_the_way(self, after: Configuration, told: Mapping[str, Told], *, is_quiet: bool) -> None:
        """Tell the territory who is in the way.

        Args:
            after: the configuration as the decision of this cycle leaves it.
            told: by display id, in the order of the queue, why each vjob waits.
            is_quiet: whether it is a time at which no vjob that runs makes way.
        """
        hot = self._found(after, told) if self._is_in_a_domain else None
        self._territory.hot = None if is_quiet else hot

    def forget(self) -> None:
        """Tell the territory that nobody is in the way: nothing is decided now."""
        self._left = self._territory.hot = None

    def _found(self, after: Configuration, told: Mapping[str, Told]) -> Hot | None:
        self._left = left = self._counted(told)
        if left is None or left.cycles < _CYCLES:
            return None
        waits = next((vjob for vjob in after.vjobs if vjob.name == left.name), None)
        if waits is None:
            return None
        rows = {vjob.display_id: vjob for vjob in self._ledger.vjobs()}
        without_room_s = self._clock.now() - left.since

        def may_go(vjob: VJob) -> bool:
            row = rows.get(vjob.name)
            return (
                vjob.preemptible
                and row is not None
                and self._may_leave(row)
                and pays(waits, without_room_s, vjob, self._standstill_s(row))
            )

        found = in_the_way(after, waits, may_go)
        number = number_of(waits.name, rows[waits.name].job_id if waits.name in rows else 0)
        return Hot(number, tuple(rows[vjob.name].job_id for vjob in found)) if found else None

    def _counted(self, told: Mapping[str, Told]) -> _Left | None:
        """The first vjob of the queue that is left without room."""
        name = next((name for name, each in told.items() if each.code in _NO_ROOM), "")
        before = self._left
        if not name:
            return None
        if before is None or before.name != name:
            return _Left(name, 1, self._clock.now())
        return _Left(name, before.cycles + 1, before.since)

    def _standstill_s(self, row: VJobRow) -> float:
        """The seconds for which a vjob is expected to stand still when it goes to another group."""
        vms = self._ledger.vms(row.job_id)
        kinds = (OperationKind.SUSPEND, OperationKind.RESUME)
        return _HAND_OVER_S + sum(expected_s(self._settings, self._durations, kind, row, vms, {}) for kind in kinds)
