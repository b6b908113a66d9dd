"""Leaving: VMs leave the nodes that should have none, as many as there is room for; the others stay behind.

If not all have room elsewhere, the number that have is looked for. The first way is greedy, the smallest first, with
all other VMs where they are. The second is an integer program over a neighbourhood (the overloaded nodes, and those
with most room), in which other VMs move to make room. It maximises the number of leaving VMs, then the number of
relieved overloaded nodes, then the memory that stays where it is.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from ortools.sat.python import cp_model

from rmsplugin.packing.budget import VARIABLE, Budget
from rmsplugin.packing.ffd import decreasing
from rmsplugin.packing.item import Item
from rmsplugin.packing.repair import MOST_PAIRS, ItemClass, Repair, class_of, demand_of
from rmsplugin.packing.search import Search
from rmsplugin.packing.telling_apart import named

#: The part of the remaining limits that the first of the two questions may use: how many leave.
_FIRST_SHARE = 0.6


@dataclass(frozen=True, slots=True)
class Left:
    """The VMs with a place.

    Attributes:
        assignment: node by VM name, for all VMs that do not stay behind.
        closed: nodes that stay overloaded: no VM comes to them.
    """

    assignment: Mapping[str, str]
    closed: frozenset[str]


def leave(repair: Repair, may_stay: Mapping[str, str], search: Search | None) -> Left | None:
    """Find places for as many VMs as possible.

    Args:
        repair: the VMs and their places; those without one (``homeless``) leave, or have to arrive.
        may_stay: node by VM name: VMs without a place that may stay behind, with their nodes; all others have to
            get a place. A VM that stays on a node that accepts others takes room there.
        search: the limits of the solver; None: no solver is started.

    Returns:
        None if a VM that has to get a place gets none.
    """
    states = _Stays(repair, may_stay)
    greedy = _Greedy(states).let_leave()
    program = None if search is None else _program(states, Budget(search))
    if greedy is None or (program is not None and _worth(program) > _worth(greedy)):
        return program
    return greedy


class _Stays:
    """VMs that have to get a place, VMs that may stay behind, and the free room while these are where they are."""

    def __init__(self, repair: Repair, may_stay: Mapping[str, str]) -> None:
        self.repair = repair
        self.must = [item for item in repair.homeless if item.vm.name not in may_stay]
        self.may = [item for item in repair.homeless if item.vm.name in may_stay]
        nodes = ((item.vm.name, repair.number(may_stay[item.vm.name])) for item in self.may)
        self.at = {name: node for name, node in nodes if node is not None}
        self.free = repair.free.copy()
        for item in self.may:
            if item.vm.name in self.at:
                self.free[self.at[item.vm.name]] -= demand_of(item.vm)
        self.overloaded: list[int] = np.flatnonzero((self.free < 0).any(axis=1)).tolist()


def _worth(left: Left) -> tuple[int, int]:
    return len(left.assignment), -len(left.closed)


class _Greedy:
    """All VMs with a place keep it, but for those whose leaving relieves an overloaded node."""

    def __init__(self, stays: _Stays) -> None:
        self._stays, self._repair = stays, stays.repair
        self._free = stays.free.copy()
        self._placed: dict[str, int] = {}

    def let_leave(self) -> Left | None:
        stays, repair = self._stays, self._repair
        if not all(self._place(item) for item in sorted(stays.must, key=lambda item: decreasing(item.vm))):
            return None
        left = sorted(stays.may, key=lambda item: (float(demand_of(item.vm) @ repair.weights), item.vm.name))
        left = self._leave(left)
        closed = frozenset(repair.name(node) for node in stays.overloaded if not self._relieve(node))
        self._leave(left)
        return Left(repair.assignment(self._placed), closed)

    def _leave(self, items: list[Item]) -> list[Item]:
        """Let all leave that have room, including room made by those that leave; returns the ones that stay."""
        left = items
        while True:
            stay = [item for item in left if not self._leaves(item)]
            if len(stay) == len(left):
                return stay
            left = stay

    def _leaves(self, item: Item) -> bool:
        leaves, name = self._place(item), item.vm.name
        if leaves and name in self._stays.at:
            self._free[self._stays.at[name]] += demand_of(item.vm)
        return leaves

    def _place(self, item: Item) -> bool:
        best = self._repair.best_fit(item, self._free)
        if best is None:
            return False
        self._free[best] -= demand_of(item.vm)
        self._placed[item.vm.name] = best
        return True

    def _relieve(self, node: int) -> bool:
        """Let VMs leave an overloaded node while possible, the smallest first; returns whether it is viable then."""
        here = sorted(self._repair.on[node], key=lambda item: decreasing(item.vm), reverse=True)
        for item in here:
            if (self._free[node] >= 0).all():
                break
            if (demand_of(item.vm)[self._free[node] < 0] > 0).any() and self._place(item):
                self._free[node] += demand_of(item.vm)
        return bool((self._free[node] >= 0).all())


def _program(stays: _Stays, budget: Budget) -> Left | None:
    program = _Program(stays)
    budget.charge(VARIABLE * program.pairs)
    if budget.exhausted or not program.pairs:
        return None
    return program.solve(budget)


@dataclass(slots=True)
class _Members:
    """The VMs of a class: their places; those that have to get one; and those that may stay behind."""

    placed: list[tuple[str, int]] = field(default_factory=list)
    must: list[str] = field(default_factory=list)
    may: list[tuple[str, int | None]] = field(default_factory=list)  # where it takes room while it stays

    @property
    def count(self) -> int:
        return len(self.placed) + len(self.must) + len(self.may)


class _Program:
    """The numbers of VMs of each class on each node of a neighbourhood, and of those that stay behind."""

    def __init__(self, stays: _Stays) -> None:
        self._repair = repair = stays.repair
        self._members: dict[ItemClass, _Members] = defaultdict(_Members)
        for item in stays.must:
            self._members[class_of(item)].must.append(item.vm.name)
        for item in stays.may:
            self._members[class_of(item)].may.append((item.vm.name, stays.at.get(item.vm.name)))
        first = {*stays.overloaded, *stays.at.values()}
        ranked = sorted(repair.ranked(), key=lambda node: node not in first)
        classes = len({class_of(item) for here in repair.on for item in here} | self._members.keys())
        self._nodes = ranked[: MOST_PAIRS // max(1, classes)]
        self._outside = frozenset(stays.overloaded) - frozenset(self._nodes)
        for node in self._nodes:
            for item in repair.on[node]:
                self._members[class_of(item)].placed.append((item.vm.name, node))
        self.pairs = len(self._members) * len(self._nodes)
        self._model = cp_model.CpModel()
        self._hosted: dict[ItemClass, dict[int, cp_model.IntVar]] = defaultdict(dict)
        self._behind: dict[ItemClass, dict[int | None, cp_model.IntVar]] = defaultdict(dict)
        over = sorted(set(stays.overloaded) & set(self._nodes))
        self._closed = {node: self._model.new_bool_var("") for node in over}
        self._kept: list[cp_model.LinearExprT] = []
        self._build()

    def _build(self) -> None:
        model = self._model
        total = sum(members.count for members in self._members.values())
        on: dict[int | None, list[tuple[ItemClass, cp_model.IntVar]]] = defaultdict(list)
        for k, members in self._members.items():
            here = Counter(node for _, node in members.placed)
            for node in self._nodes:
                most = self._repair.most(k, node, members.count)
                if most or here[node]:
                    self._add_hosted(k, node, max(most, here[node]), here[node], total)
                    on[node].append((k, self._hosted[k][node]))
            for origin, count in Counter(origin for _, origin in members.may).items():
                behind = self._behind[k][origin] = model.new_int_var(0, count, "")
                on[origin].append((k, behind))
            model.add(sum(self._hosted[k].values()) + sum(self._behind[k].values()) == members.count)
        for node in self._nodes:
            self._add_limits(node, on[node])

    def _add_hosted(self, k: ItemClass, node: int, most: int, here: int, total: int) -> None:
        model = self._model
        hosted = self._hosted[k][node] = model.new_int_var(0, most, "")
        model.add_hint(hosted, here)
        if node in self._closed:
            model.add(hosted <= here).only_enforce_if(self._closed[node])
        if here:
            stays = model.new_int_var(0, here, "")
            model.add(stays <= hosted)
            self._kept.append((k[1] * (total + 1) + 1) * stays)  # of equal memory, as few VMs as possible

    def _add_limits(self, node: int, there: Sequence[tuple[ItemClass, cp_model.IntVar]]) -> None:
        cpus, memory = self._repair.capacity[node].tolist()
        limits = (
            self._model.add(sum(k[0] * variable for k, variable in there) <= cpus),
            self._model.add(sum(k[1] * variable for k, variable in there) <= memory),
        )
        for limit in limits:
            if node in self._closed:
                limit.only_enforce_if(self._closed[node].negated())

    def solve(self, budget: Budget) -> Left | None:
        """Answer the two questions: how many leave; and then, how little moves."""
        behind = [variable for by_origin in self._behind.values() for variable in by_origin.values()]
        stay = sum((len(self._closed) + 1) * each for each in behind) + sum(self._closed.values())
        self._model.minimize(stay)
        solver, status = budget.solve(self._model, _FIRST_SHARE)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None
        found = self._read(solver)
        if self._kept and not budget.exhausted:
            self._model.add(stay <= round(solver.objective_value))
            self._model.maximize(sum(self._kept))
            solver, status = budget.solve(self._model, 1.0)
            if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
                found = self._read(solver)
        return found

    def _read(self, solver: cp_model.CpSolver) -> Left:
        placed: dict[str, int] = {}
        for k, members in self._members.items():
            hosted = {node: solver.value(variable) for node, variable in self._hosted[k].items()}
            leaving = list(members.must)
            for origin, variable in self._behind[k].items():
                alike = sorted(name for name, at in members.may if at == origin)
                leaving += alike[: len(alike) - solver.value(variable)]
            placed |= named(members.placed, leaving, hosted)
        closed = {node for node, variable in self._closed.items() if solver.value(variable)} | self._outside
        return Left(self._repair.assignment(placed), frozenset(map(self._repair.name, closed)))
