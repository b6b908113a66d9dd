"""Level: a cost of a plan's first pool, and all that it can be.

Late actions wait for the first pool, whose cost depends on which actions are early: a product. Given that cost
everything is linear. Every plan lies in one of the levels, so that the least of their bounds is one for all plans.
"""

from __future__ import annotations

from dataclasses import dataclass

from rmsplugin.planning.target.replacement import Replacement

#: With more different costs, several share a level, which is as valid, only weaker.
_MOST_LEVELS = 6


@dataclass(frozen=True, slots=True)
class Level:
    """The cost of the first pool: a late action waits so long (MiB), and no early one costs more than ``dearest_mib``.

    Every plan lies in some level with the two equal; with ``dearest_mib`` None it stands for all plans whose first pool
    costs ``wait_mib`` or more.
    """

    wait_mib: int
    dearest_mib: int | None = None

    def is_too_dear(self, cost_mib: float) -> bool:
        """Whether an action of that cost cannot be early."""
        return self.dearest_mib is not None and cost_mib > self.dearest_mib


def first_costs(problem: Replacement) -> list[int]:
    """All possible costs of the first pool, the least first, in MiB."""
    classes, least = problem.classes, problem.wait_mib
    costs = {least} | {mover.cost for mover in problem.movers}
    costs |= {classes[k].memory_mib for place in problem.places for k in place.residents}
    costs |= {times * classes[k].memory_mib for place in problem.places for k, _ in place.images for times in (1, 2)}
    return sorted(cost for cost in costs if cost >= least)


def levels(problem: Replacement) -> list[Level]:
    """Levels that hold all plans, the cheapest first."""
    ordered = first_costs(problem)
    size = -(-len(ordered) // _MOST_LEVELS)
    parts = [ordered[at : at + size] for at in range(0, len(ordered), size)]
    return [Level(part[0], part[-1]) for part in parts]
