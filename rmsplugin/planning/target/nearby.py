"""Nearby: a small change in a large cluster is a small problem: the nodes that act, and some that have room for more.

All other VMs stay where they are (large neighbourhood search). The nodes with most room are taken first, by CPUs as
well as by memory; the neighbourhood doubles until it is too large. What the first pool costs is tried value by value:
where a handful of VMs moves, one that waits for a small VM or for a large one is what plans differ in.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

from rmsplugin.model.elements import running_on
from rmsplugin.packing.budget import MATHOPT_VARIABLE, Budget
from rmsplugin.planning.target.counts import with_names
from rmsplugin.planning.target.incumbent import Incumbent
from rmsplugin.planning.target.keep import Kept, keep
from rmsplugin.planning.target.node_terms import Level
from rmsplugin.planning.target.program import Program, Scope, variables
from rmsplugin.planning.target.replacement import Replacement, VMClass

#: Nodes of the first neighbourhood; each further one has twice as many.
_NODES = 16

#: The program of a neighbourhood has so many variables at most, which takes HiGHS a second.
_MOST_VARIABLES = 4_000

#: What the knapsack of one node costs, in steps: about 50 microseconds.
_KNAPSACK = 10_000

#: What one program may use of what is left.
_SHARE = 0.1


def improve_nearby(problem: Replacement, kept: list[Kept], incumbent: Incumbent, budget: Budget) -> None:
    """Improve the incumbent where few nodes act, until the neighbourhood is too large or the budget is used up.

    Args:
        problem: what is asked.
        kept: of each place, with its bound.
        incumbent: the best answer so far; there is one.
        budget: what may be used of the limits.
    """
    bound = problem.fixed_cost + sum(each.bound_mib for each in kept)
    partners = _Partners(problem, budget)
    size = _NODES
    while incumbent.best().plan.cost > bound and not budget.exhausted:
        acting, arriving = _acting(problem, incumbent)
        if 2 * len(acting) * len(arriving) > _MOST_VARIABLES:
            return
        nodes = sorted({*acting, *partners.of(acting, arriving)[: max(0, size - len(acting))]})
        part = limited(problem, nodes)
        if variables(part) > _MOST_VARIABLES:
            return
        _improve(part, [kept[i] for i in nodes], incumbent, budget)
        if len(nodes) == len(problem.places):
            return
        size = 2 * max(size, len(nodes))


def _improve(part: Replacement, kept: list[Kept], incumbent: Incumbent, budget: Budget) -> None:
    """Look for a better answer, whatever its first pool costs; only what is cheaper than the incumbent counts."""
    for cost_mib in _first_costs(part):
        most_mib = incumbent.best().plan.cost - 1
        budget.charge(MATHOPT_VARIABLE * variables(part))
        if budget.exhausted:
            return
        program = Program(part, kept, Level(cost_mib, cost_mib), None, most_mib, Scope.DIRECT)
        limit = budget.left * _SHARE
        solved = program.solve(budget.limits(limit))
        budget.charge_run(solved.units, solved.seconds)
        if solved.counts is not None:
            incumbent.offer(with_names(part, solved.counts))


def _first_costs(part: Replacement) -> list[int]:
    """All that the first pool can cost; nothing needs to wait for the dearest, so that comes first."""
    costs = {part.wait_mib} | {mover.cost for mover in part.movers}
    costs |= {part.classes[k].memory_mib for place in part.places for k in place.residents}
    costs |= {times * part.classes[k].memory_mib for place in part.places for k, _ in place.images for times in (1, 2)}
    ordered = sorted(cost for cost in costs if cost >= part.wait_mib)
    return [*ordered[-1:], *ordered[:-1]]


def _acting(problem: Replacement, incumbent: Incumbent) -> tuple[set[int], set[int]]:
    """The nodes on which anything happens, or may have to: VMs leave, arrive or resume; and the classes that arrive."""
    at = {place.node.name: i for i, place in enumerate(problem.places)}
    target = incumbent.best().target
    nodes = {at[target[mover.name].node or ""] for mover in problem.movers}
    arriving = {mover.vm_class for mover in problem.movers}
    for i, place in enumerate(problem.places):
        if place.images:
            nodes.add(i)
        here = [*place.residents.items(), *((k, names) for (k, _), names in place.images.items())]
        for k, names in here:
            hosts = {at[target[name].node or ""] for name in names}
            if hosts != {i}:
                nodes |= {i} | hosts
                arriving.add(k)
    return nodes, arriving


class _Partners:
    """The other nodes: those with most room, and for each class that arrives those that have to lose least for it."""

    def __init__(self, problem: Replacement, budget: Budget) -> None:
        self._problem, self._budget = problem, budget
        self._losses: dict[int, list[int]] = {}  # by class, the nodes that take it, those that lose least first

    def of(self, acting: set[int], arriving: set[int]) -> list[int]:
        """The best first: of each order in turn."""
        others = [i for i, place in enumerate(self._problem.places) if place.takes and i not in acting]
        orders = [_roomy(self._problem, others), *(self._by_loss(k) for k in sorted(arriving))]
        turns = itertools.zip_longest(*orders)
        return list(dict.fromkeys(i for turn in turns for i in turn if i is not None and i not in acting))

    def _by_loss(self, k: int) -> list[int]:
        if k not in self._losses:
            places = self._problem.places
            self._budget.charge(_KNAPSACK * len(places))
            takes = [i for i, place in enumerate(places) if place.takes and self._problem.classes[k].may_go(i)]
            loss = {i: self._loss_mib(i, k) for i in takes}
            self._losses[k] = sorted(loss, key=lambda i: (loss[i], i))
        return self._losses[k]

    def _loss_mib(self, i: int, k: int) -> float:
        """How much memory has to leave a node so that it takes one VM of a class; infinite if it is too small."""
        place, each = self._problem.places[i], self._problem.classes[k]
        cpus, memory = place.capacity_c - each.centi_cpus, place.capacity_m - each.memory_mib
        if min(cpus, memory) < 0:
            return math.inf
        return keep(replace(place, capacity_c=cpus, capacity_m=memory), self._problem.classes, None).bound_mib


def _roomy(problem: Replacement, nodes: list[int]) -> list[int]:
    """First those than which none has more room of both kinds, then those of which that is true without these, ..."""
    free = {}
    for i in nodes:
        place = problem.places[i]
        used = [(problem.classes[k], len(names)) for k, names in place.residents.items()]
        cpus = place.capacity_c - sum(each.centi_cpus * count for each, count in used)
        memory = place.capacity_m - sum(each.memory_mib * count for each, count in used)
        free[i] = (cpus, min(memory, place.early_m))
    left = sorted(free, key=lambda i: (*(-each for each in free[i]), i))
    ordered: list[int] = []
    while left:
        most, behind = -1, []
        for i in left:
            if free[i][1] > most:
                most = free[i][1]
                ordered.append(i)
            else:
                behind.append(i)
        left = behind
    return ordered


def limited(problem: Replacement, nodes: list[int]) -> Replacement:
    """The problem of some nodes alone (indices of places, in this order); what is on all others stays there.

    All movers are in it, so whatever resumes must have its saved states on these nodes.
    """
    chosen = set(nodes)
    at = {i: number for number, i in enumerate(nodes)}
    used = {mover.vm_class for mover in problem.movers}
    for i in nodes:
        used |= problem.places[i].residents.keys() | {k for k, _ in problem.places[i].images}
    number = {k: at_k for at_k, k in enumerate(sorted(used))}
    stays = {
        name: running_on(place.node.name)
        for i, place in enumerate(problem.places)
        if i not in chosen
        for names in place.residents.values()
        for name in names
    }
    return Replacement(
        places=[
            replace(
                problem.places[i],
                residents={number[k]: names for k, names in problem.places[i].residents.items()},
                images={(number[k], group): names for (k, group), names in problem.places[i].images.items()},
            )
            for i in nodes
        ],
        classes=[_limited_class(problem.classes[k], at) for k in sorted(used)],
        movers=[replace(mover, vm_class=number[mover.vm_class]) for mover in problem.movers],
        groups=problem.groups,
        group_sizes=problem.group_sizes,
        fixed={**problem.fixed, **stays},
        fixed_cost=problem.fixed_cost,
        suspend_mib=problem.suspend_mib,
    )


def _limited_class(each: VMClass, at: dict[int, int]) -> VMClass:
    return each if each.nodes is None else replace(each, nodes=frozenset(at[i] for i in each.nodes if i in at))
