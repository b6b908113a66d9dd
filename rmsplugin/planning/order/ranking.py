"""Ranking: which arrivals are considered first if not all are feasible."""

from __future__ import annotations

from rmsplugin.planning.order.moves import NOWHERE, Moves


class Ranking:
    """The order in which the units of a reconfiguration are considered, for each kind of steering.

    Every later action pays the cost of all pools before, whatever its own size: smallest first takes up most actions.
    """

    def __init__(self, moves: Moves, early: frozenset[str]) -> None:
        self._moves = moves
        self._early = early
        self._by_kind: dict[bool, tuple[list[int], dict[int, int]]] = {}

    def of(self, unblock_first: bool) -> tuple[list[int], dict[int, int]]:
        """All units in order, and the place of each."""
        if unblock_first not in self._by_kind:
            order = sorted(self._moves.units, key=lambda unit: self._key(unit, unblock_first))
            self._by_kind[unblock_first] = (order, {unit: place for place, unit in enumerate(order)})
        return self._by_kind[unblock_first]

    def _key(self, unit: int, unblock_first: bool) -> tuple[bool, bool, float, bool, str]:
        moves, members = self._moves, self._moves.members(unit)
        early = bool(self._early) and any(moves.actions[each].vm.name in self._early for each in members)
        origin = moves.origin[unit]
        unblocks = unblock_first and origin != NOWHERE and moves.wanted(origin) > moves.free[origin]
        mean = sum(moves.memory[each] for each in members) / len(members)
        return not early, not unblocks, mean, origin == NOWHERE, moves.actions[unit].vm.name
