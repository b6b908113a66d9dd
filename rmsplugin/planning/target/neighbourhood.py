"""Neighbourhood: a large cluster's placement is improved block by block, each the integer program of a few nodes.

Nodes that cost more than their own bound are brought together with nodes that have room for what is early, and solved
anew while all others keep what they have (large neighbourhood search). The bound is not touched by this.
"""

from __future__ import annotations

from rmsplugin.packing.budget import MATHOPT_VARIABLE, Budget
from rmsplugin.packing.search import Search
from rmsplugin.planning.target.block import Block, Spare, cost_of
from rmsplugin.planning.target.counts import Counts, counts_of, with_names
from rmsplugin.planning.target.incumbent import Incumbent
from rmsplugin.planning.target.keep import Kept
from rmsplugin.planning.target.node_terms import Level
from rmsplugin.planning.target.replacement import Replacement

#: Nodes of a block: larger ones find little more, and take far longer.
BLOCK = 10

#: A vjob whose saved states lie on more nodes stays as late as it is.
_MOST_NODES = 20

#: What a block may take of the limits, in seconds; and in deterministic units, all of which count.
_SECONDS = 0.5
_UNITS = 0.1

#: Partners are taken from so many times the nodes that are needed, those with the most room.
_CHOICE = 4

#: A round over all nodes that saves less than this share of the cost above the bound is the last one.
_WORTHWHILE = 0.02


def improve_by_blocks(
    problem: Replacement,
    kept: list[Kept],
    incumbent: Incumbent,
    budget: Budget,
    search: Search,
) -> None:
    """Improve the incumbent until the budget is used up or nothing more is found.

    Args:
        problem: what is asked.
        kept: of each place, with its bound.
        incumbent: the best answer so far; there is one.
        budget: what may be used of the limits.
        search: its seed decides which nodes are brought together.
    """
    while True:
        best = incumbent.best()
        counts = counts_of(problem, best.target, best.plan.early_arrivals())
        level = Level(max(problem.wait_mib, best.plan.first_cost))
        _Neighbourhood(problem, kept, level, counts, budget, search, incumbent.most_nodes is not None).settle()
        if not incumbent.offer(with_names(problem, counts)) or budget.exhausted:
            return


class _Neighbourhood:
    def __init__(
        self,
        problem: Replacement,
        kept: list[Kept],
        level: Level,
        counts: Counts,
        budget: Budget,
        search: Search,
        no_more_nodes: bool,
    ) -> None:
        self._problem, self._kept, self._level, self._counts = problem, kept, level, counts
        self._budget, self._no_more_nodes = budget, no_more_nodes
        self._spare = Spare.of(problem, counts)
        self._turn = search.seed
        self._all = range(len(problem.places))

    def settle(self) -> None:
        """Round after round, until one is not worth its time."""
        self._hasten()
        before = self._excess()
        while before and not self._budget.exhausted:
            self._round()
            after = self._excess()
            if before - after < _WORTHWHILE * before:
                return
            before = after

    def _excess(self) -> int:
        return sum(self._excess_of(i) for i in self._all)

    def _excess_of(self, i: int) -> int:
        """What a node costs more than it must, in MiB."""
        return cost_of(self._problem, self._counts, i, self._level.wait_mib) - self._kept[i].bound_mib

    def _hasten(self) -> None:
        """Free each vjob that resumes late once: all nodes that hold saved states of it, and some that have room."""
        images: dict[int, list[int]] = {}
        for i in self._all:
            for _, group in self._problem.places[i].images:
                if group not in self._counts.early_groups and i not in images.setdefault(group, []):
                    images[group].append(i)
        for group in sorted(images, key=lambda group: (len(images[group]), group)):
            if self._budget.exhausted:
                return
            if len(images[group]) <= _MOST_NODES and group not in self._counts.early_groups:
                roomy = sorted(self._all, key=lambda i: (-self._early_room(i), i))
                self._solve(self._draw(images[group], roomy, set(), len(images[group]) + BLOCK // 2))

    def _round(self) -> None:
        """Free every node that costs too much once: the dearest with other dear ones and with those that have room."""
        excess = {i: self._excess_of(i) for i in self._all}
        dear = sorted((i for i in self._all if excess[i] > 0), key=lambda i: (-excess[i], i))
        roomy = sorted(self._all, key=lambda i: (-self._early_room(i), i))
        done: set[int] = set()
        for first in dear:
            if self._budget.exhausted:
                return
            if first not in done:
                block = self._draw([first], dear, done, BLOCK // 2)
                block = self._draw(block, roomy, done, BLOCK)
                done |= set(block)
                self._solve(block)

    def _draw(self, block: list[int], ordered: list[int], done: set[int], size: int) -> list[int]:
        """Fill a block up with nodes from near the front of an order: others in each turn."""
        self._turn += 1
        taken = done | set(block)
        choice: list[int] = []
        for i in ordered:
            if len(choice) == _CHOICE * (size - len(block)):
                break
            if i not in taken:
                choice.append(i)
        turned = sorted(range(len(choice)), key=lambda at: (at + self._turn) % _CHOICE)
        return block + [choice[at] for at in turned[: size - len(block)]]

    def _solve(self, nodes: list[int]) -> None:
        block = Block(self._problem, self._kept, self._level, self._counts, self._spare, nodes, self._no_more_nodes)
        self._budget.charge(MATHOPT_VARIABLE * block.variables)
        limit = max(0.0, min(_UNITS if self._budget.deterministic else _SECONDS, self._budget.left))
        self._budget.charge_run(limit, block.solve(self._budget.limits(limit)))

    def _early_room(self, i: int) -> int:
        """Memory that more early arrivals could take, in MiB."""
        classes, counts = self._problem.classes, self._counts
        taken = sum(classes[k].memory_mib * count for k, count in counts.early[i].items())
        for (k, group), count in counts.kept[i].images.items():
            taken += classes[k].memory_mib * count if group in counts.early_groups else 0
        return self._problem.places[i].early_m - taken
