"""The search for the fewest nodes: heuristics, the relaxation over patterns, integer programs, until bound = answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rmsplugin.packing.bounds import fewest, impossible
from rmsplugin.packing.budget import Budget
from rmsplugin.packing.classes import Classes, Loads
from rmsplugin.packing.diving import dive
from rmsplugin.packing.greedy import heuristics
from rmsplugin.packing.integer import Wanted, combine, spread, spread_size
from rmsplugin.packing.patterns import Pricer
from rmsplugin.packing.relaxation import Column, Relaxation, relax
from rmsplugin.packing.search import Search

#: The number of classes up to which patterns are of use: with more, each pattern occurs once, and there are too many.
_MOST_CLASSES = 600

#: The most patterns of one integer program.
_MOST_PATTERNS = 20_000

#: The most variables of the integer program over nodes.
_MOST_VARIABLES = 60_000


@dataclass
class Found:
    """The best packing so far, and a bound on how much better it could be."""

    nodes: int  # the number of nodes
    lower_bound: int = 0
    loads: Loads | None = None
    impossible: str | None = None  # the reason why there is none, if that is proven
    ffd_nodes_used: int | None = None  # the nodes of first fit decreasing; None: it finds no packing

    @property
    def nodes_used(self) -> int:
        """The number of nodes of the best packing; one more than there are if there is none yet."""
        return self.nodes + 1 if self.loads is None else sum(self.loads.values())

    @property
    def settled(self) -> bool:
        """Whether there is nothing left to find."""
        return self.impossible is not None or self.lower_bound >= self.nodes_used

    def offer(self, loads: Loads | None) -> None:
        """Keep a packing if it is better."""
        if loads is not None and sum(loads.values()) < self.nodes_used:
            self.loads = loads

    def prove(self, bound: int) -> None:
        """Take a bound: there is no packing on fewer nodes."""
        self.lower_bound = max(self.lower_bound, min(bound, self.nodes_used))
        if self.loads is None and self.lower_bound > self.nodes:
            count = f"the {self.nodes} nodes that are up" if self.nodes > 1 else "the one node that is up"
            self.impossible = f"no way to place the VMs on {count} leaves none over, although their sums would fit"


def search_packing(classes: Classes, search: Search, any_will_do: bool = False) -> Found:
    """Look for a packing on the fewest nodes, or for any at all."""
    found = Found(len(classes.kind_of))
    for _ in _steps(classes, search, found, any_will_do):
        if found.settled or (any_will_do and found.loads is not None):
            break
    return found


def _steps(classes: Classes, search: Search, found: Found, any_will_do: bool) -> Iterator[None]:
    """Improve the result, step by step; the caller may stop after each."""
    budget = Budget(search)
    found.impossible = impossible(classes)
    yield
    found.prove(fewest(classes))
    start: dict[Column, None] = {}
    for i, loads in enumerate(heuristics(classes, budget)):
        if i == 0 and loads is not None:
            found.ffd_nodes_used = sum(loads.values())
        found.offer(loads)
        start.update(dict.fromkeys(loads or ()))
        yield
    pricer = None
    if len(classes.count) <= _MOST_CLASSES:
        pricer = Pricer(classes, budget)
        usable = classes.usable(found.nodes_used - 1)
        relaxation = relax(classes, pricer, start, usable, budget)
        found.prove(found.nodes_used if relaxation.infeasible else relaxation.bound)
        yield
        if relaxation.values:
            for step in (_around, _dive, _anywhere):
                if not budget.exhausted:
                    found.offer(step(classes, relaxation, _wanted(found, any_will_do), pricer, budget))
                    yield
    if budget.exhausted:
        return
    wanted = _wanted(found, any_will_do)
    if pricer is not None and pricer.complete is not None and pricer.complete <= _MOST_PATTERNS:
        columns = [(kind, _load(row)) for kind, rows in pricer.listed.items() for row in rows.tolist()]
        answer = combine(classes, columns, [], wanted, budget, 1.0)
    elif spread_size(classes, wanted.at_most) <= _MOST_VARIABLES:
        answer = spread(classes, wanted, budget)
    else:
        return
    found.offer(answer.loads)
    found.prove(answer.bound)
    yield


def _around(classes: Classes, relaxation: Relaxation, wanted: Wanted, pricer: Pricer, budget: Budget) -> Loads | None:
    """Try whole numbers near the fractions: finds the optimum where many nodes host the same load."""
    return combine(classes, relaxation.columns, relaxation.values, wanted, budget, 0.1).loads


def _dive(classes: Classes, relaxation: Relaxation, wanted: Wanted, pricer: Pricer, budget: Budget) -> Loads | None:
    """Fix some loads, and relax again: good where nearly every node hosts another load."""
    return dive(classes, pricer, relaxation, classes.usable(wanted.at_most), budget)


def _anywhere(classes: Classes, relaxation: Relaxation, wanted: Wanted, pricer: Pricer, budget: Budget) -> Loads | None:
    """Try any whole numbers of the patterns that the relaxation found."""
    return combine(classes, relaxation.columns, [], wanted, budget, 0.4).loads


def _wanted(found: Found, any_will_do: bool) -> Wanted:
    return Wanted(found.lower_bound, found.nodes_used - 1, any_will_do)


def _load(row: list[int]) -> tuple[tuple[int, int], ...]:
    return tuple((c, n) for c, n in enumerate(row) if n)
