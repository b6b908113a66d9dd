"""Parts: what the planner consists of, and what stands in the place of each while it is switched off.

The planner has no switches: another function, or another value of a constant, is put in the place of a part from here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from rmsplugin.planning.order import ends, improve, remaining, small
from rmsplugin.planning.order.bypass import _Outlook
from rmsplugin.planning.order.ends import Ends
from rmsplugin.planning.order.improve import _Search
from rmsplugin.planning.order.pools import ASLEEP, Step
from rmsplugin.planning.order.ranking import Ranking
from rmsplugin.planning.order.remaining import Remaining
from rmsplugin.planning.target import (
    generation,
    incumbent,
    keep,
    master,
    neighbourhood,
    partners,
    placement,
    whole,
)
from rmsplugin.planning.target import level as target_level
from rmsplugin.planning.target.counts import Counts
from rmsplugin.planning.target.level import Level, levels
from rmsplugin.planning.target.levels import _Levels
from rmsplugin.planning.target.master import Master
from rmsplugin.planning.target.neighbourhood import Neighbourhoods
from rmsplugin.planning.target.partners import Partners
from rmsplugin.planning.target.replacement import Replacement
from rmsplugin.planning.target.whole import _Whole


@dataclass(frozen=True, slots=True)
class Off:
    """What is put in the place of something that a module or a class has."""

    owner: Any
    name: str
    instead: Any


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _zero(*_: Any) -> int:
    return 0


def _none_of_them(*_: Any) -> list[Any]:
    return []


def _no_bounds(problem: Replacement, *_: Any) -> dict[Level, int]:
    return dict.fromkeys(levels(problem), 0)


def _no_bounds_of(search: _Whole) -> dict[Level, int]:
    return dict.fromkeys(levels(search._problem), 0)


def _bounds_as_they_are(*arguments: Any) -> int:
    bounds: dict[Level, int] = arguments[-1]
    return min(bounds.values())


def _others_as_they_come(orders: Partners, _: Counts, chosen: Collection[int]) -> list[int]:
    places = orders._problem.places
    return [i for i, place in enumerate(places) if place.takes and i not in chosen]


def _at_no_other_cost(search: Neighbourhoods, part: Any, size: int) -> bool:
    return search._solve_some(part, size)


def _answered_once(search: _Whole) -> dict[Level, int]:
    search._answer(Level(search._problem.wait_mib), search._budget.part(0.9))
    return search._bounds()


def _all_columns(_: Master, values: Any) -> Any:
    return range(len(values))


def _kept_without_waiting(problem: Replacement) -> list[keep.Kept]:
    return [keep.keep(place, problem.classes, 0) for place in problem.places]


def _ranked_without_preference(ranking: Ranking, moves: Any, _: Any) -> None:
    _rank(ranking, moves, frozenset())


_rank = Ranking.__init__


def _none_left_out(search: _Search, ways: dict[int, int], movers: list[int]) -> Iterator[dict[int, int]]:
    return (changed for changed in _neighbours(search, ways, movers) if len(changed) >= len(ways))


def _none_asleep(search: _Search, ways: dict[int, int], movers: list[int]) -> Iterator[dict[int, int]]:
    asleep = list(ways.values()).count(ASLEEP)
    return (each for each in _neighbours(search, ways, movers) if list(each.values()).count(ASLEEP) <= asleep)


_neighbours = _Search._neighbours


def _all_that_leave_a_node(outlook: _Outlook) -> list[Step]:
    """As in VEE'09, 4.1: over pivots go all that leave a node, that node first whose leaving VMs are smallest together.

    A node that nobody waits for is passed over, as it is on no cycle.
    """
    memory, schedule = outlook.moves.memory, outlook._schedule
    leaving: dict[int, list[int]] = {}
    for unit in sorted(outlook.blocked):
        if schedule.may_pivot(unit):
            leaving.setdefault(schedule.place(unit), []).append(unit)
    found = []
    for place in sorted(leaving, key=lambda place: (sum(memory[unit] for unit in leaving[place]), place)):
        if outlook._lacking(place) is None:
            continue
        for unit in leaving[place]:
            pivot = outlook._pivot(unit) if unit in outlook.blocked else None
            if pivot is not None:
                found.append(outlook.take(unit, pivot))
    return found


#: By name of the part: what is put in the place of what. The first half are whole searches, the other what is in them.
PARTS: Mapping[str, Sequence[Off]] = {
    "repair": [Off(placement, "_repair", _nothing)],
    "exact search": [Off(placement, "settle", _zero)],
    "nearby": [Off(Neighbourhoods, "improve_small", _nothing)],
    "columns": [Off(placement, "search_whole", _no_bounds)],
    "levels": [Off(placement, "search_levels", _bounds_as_they_are)],
    "neighbourhoods": [Off(Neighbourhoods, "improve", _nothing)],
    "nearby and neighbourhoods": [
        Off(Neighbourhoods, "improve_small", _nothing),
        Off(Neighbourhoods, "improve", _nothing),
    ],
    "caps": [Off(_Search, "caps", _nothing)],
    "unblocking first": [Off(_Search, "orders", _nothing)],
    "early bypasses": [Off(_Search, "early_bypasses", _nothing)],
    "other bypasses": [Off(_Search, "other_bypasses", _nothing)],
    "exact order": [Off(placement, "reorder", _nothing)],
    "who acts, alone": [Off(placement, "_place_acting", _nothing)],
    "waits for suspends": [Off(placement, "waits_mib", _zero)],
    # within the search for targets
    "knapsacks wait": [Off(placement, "keep_all", _kept_without_waiting)],
    "partners": [Off(Partners, "of", _others_as_they_come)],
    "partners that lose least": [Off(Partners, "_by_loss", _none_of_them)],
    "partners with room": [Off(partners, "_roomy", _none_of_them)],
    "each first cost": [Off(Neighbourhoods, "_solve_all", _at_no_other_cost)],
    "answers of columns": [Off(_Whole, "_answer", _nothing)],
    "answered again": [Off(_Whole, "improve", _answered_once)],
    "bounds of columns": [Off(_Whole, "_bounds", _no_bounds_of)],
    "columns dropped": [Off(Master, "_prune", _all_columns)],
    "levels' answers": [Off(_Levels, "improve", _nothing)],
    "levels' bounds": [Off(_Levels, "bound", _zero)],
    "early arrivals": [Off(Ranking, "__init__", _ranked_without_preference)],
    # within the search for orders
    "the smallest VM of a cycle": [Off(_Outlook, "pivots", _all_that_leave_a_node)],
    "none left out": [Off(_Search, "_neighbours", _none_left_out)],
    "none asleep": [Off(_Search, "_neighbours", _none_asleep)],
    "who stays makes room": [Off(small, "_stayers", _none_of_them)],
    "bound of ends": [Off(Ends, "of", _zero)],
    "who must leave": [Off(Remaining, "_must_leave", _nothing)],
    "waiting": [Off(remaining, "wait_for", _zero), Off(ends, "wait_for", _zero)],
}


@dataclass(frozen=True, slots=True)
class Constant:
    """A number that somebody chose, and the part that has it."""

    owner: Any
    name: str
    part: str

    def times(self, factor: float) -> Sequence[Off]:
        """The part with another value; whole numbers stay whole."""
        now = getattr(self.owner, self.name)
        return [Off(self.owner, self.name, max(1, round(now * factor)) if isinstance(now, int) else now * factor)]


#: How many times a constant is made as large.
FACTORS = (0.5, 2)

#: By name: those that steer; what things take and what is too large for an algorithm is measured elsewhere.
CONSTANTS: Mapping[str, Constant] = {
    "share of small clusters' columns": Constant(placement, "_SMALL_SHARE", "columns"),
    "pairs of one program": Constant(placement, "_MOST_PAIRS", "columns"),
    "exact share": Constant(placement, "_EXACT_SHARE", "exact search"),
    "order's share": Constant(incumbent, "_ORDER_SHARE", "unblocking first"),
    "passes": Constant(improve, "_PASSES", "unblocking first"),
    "first nodes": Constant(neighbourhood, "NODES", "neighbourhoods"),
    "nearly solved": Constant(whole, "_NEARLY", "columns"),
    "share of the linear program": Constant(whole, "_SHARE", "columns"),
    "share of answers": Constant(whole, "_ANSWERS_SHARE", "columns"),
    "columns of a group": Constant(master, "_PER_GROUP", "columns"),
    "groups": Constant(generation, "_GROUPS", "columns"),
    "share of a choice": Constant(generation, "_CHOICE_SHARE", "columns"),
    "levels": Constant(target_level, "_MOST_LEVELS", "columns"),
    "left over": Constant(master, "_LEFT_OVER", "columns"),
    "ways to ends": Constant(ends, "_MOST_WAYS", "bound of ends"),
}


@contextmanager
def watched(called: set[str]) -> Iterator[None]:
    """Note which parts are called; beside a constant is a function that is called where it is used."""
    with ExitStack() as stack:
        for part, offs in PARTS.items():
            for off in offs:
                now = getattr(off.owner, off.name)
                if callable(now):
                    stack.enter_context(patch.object(off.owner, off.name, _noting(now, part, called)))
        yield


def changes(called: Collection[str]) -> Iterator[tuple[str, Sequence[Off]]]:
    """By name, all that can be put in a place that was called: each part left out, each constant halved and doubled."""
    yield from ((part, offs) for part, offs in PARTS.items() if part in called)
    for name, constant in CONSTANTS.items():
        if constant.part in called:
            yield from ((f"{name} x {factor:g}", constant.times(factor)) for factor in FACTORS)


def _noting(function: Callable[..., Any], part: str, called: set[str]) -> Callable[..., Any]:
    def noting(*arguments: Any, **named: Any) -> Any:
        called.add(part)
        return function(*arguments, **named)

    return noting


@contextmanager
def instead(offs: Sequence[Off]) -> Iterator[None]:
    """Put all of these in the place of what is there."""
    with ExitStack() as stack:
        for off in offs:
            stack.enter_context(patch.object(off.owner, off.name, off.instead))
        yield
