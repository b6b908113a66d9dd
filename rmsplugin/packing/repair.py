"""Repair: a place for all VMs near where they are, so that little memory has to move.

VMs leave the overloaded nodes, as little memory as suffices, each for the node that it fills best. If that
finds no place for all, an integer program packs a neighbourhood anew: the overloaded nodes, and those with most room.
The neighbourhood grows until there is a place for all (large neighbourhood search).

VMs that need nodes of their own make a class of each few VMs, and the program large. It is asked first as if these VMs
could be together, and the VMs of its answer are told apart afterwards.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from ortools.sat.python import cp_model

from rmsplugin.model.elements import VM, Node, NodeState
from rmsplugin.model.joint import Spread
from rmsplugin.model.rules import Rules, confined_to
from rmsplugin.packing.budget import CP_SAT_UNIT, VARIABLE, Budget
from rmsplugin.packing.ffd import decreasing
from rmsplugin.packing.item import Item
from rmsplugin.packing.remembered import Answer, Counts, answers
from rmsplugin.packing.ruled import mask
from rmsplugin.packing.search import Search
from rmsplugin.packing.telling_apart import Member, Wanted, staying, tell_apart

_Ints = npt.NDArray[np.int64]
#: Demands (hundredths of a CPU, MiB), allowed nodes, and the rule by which no two of them are on one node.
ItemClass = tuple[int, int, Rules, Spread | None]
_Apart = set[tuple[Spread, int]]  # rules of VMs that need nodes of their own, and nodes that have one of these VMs

#: The number of nodes in the first neighbourhood besides the overloaded ones; each further one has so many times as
#: many.
_NEIGHBOURS, _GROWTH = 8, 4

#: With more pairs of a class and a node the integer program finds nothing within a second.
MOST_PAIRS = 20_000

#: With so few pairs, the program that tells all VMs apart takes so little time that it is asked for less to move.
_FEW_PAIRS = 500

#: The most that the program which takes VMs for equal may use of the limits that are left, if the one with all classes
#: may have to be asked after it.
_ALIKE = 0.75


@dataclass(frozen=True, slots=True)
class Repaired:
    """A place for all VMs, and the amount of memory that leaves its place for that."""

    assignment: Mapping[str, str]  # node by VM name
    moved_mib: int


class Repair:
    """A packing problem whose VMs have their places already, as far as these are good.

    A VM has no place if it has none now, or one on a node that is not up or not allowed for it. So has the second one
    on a node, of VMs that need nodes of their own.
    """

    def __init__(self, items: Sequence[Item], nodes: Sequence[Node], current: Mapping[str, str]) -> None:
        """State the problem.

        Args:
            items: the VMs, CPUs counted in hundredths, with their allowed nodes.
            nodes: the nodes, with their resources for these VMs (below 0: they accept none).
            current: node by VM name: where a VM runs, or may resume at the least cost.
        """
        self._nodes = [node for node in nodes if node.state is NodeState.UP and _is_sound(node)]
        self._index = {node.name: i for i, node in enumerate(self._nodes)}
        sizes = [(node.capacity.centi_cpus, node.capacity.memory_mib) for node in self._nodes]
        self.capacity: _Ints = np.array(sizes, dtype=np.int64).reshape(-1, 2)
        self._current = current
        self._masks: dict[Rules, npt.NDArray[np.bool_]] = {}
        self.on: list[list[Item]] = [[] for _ in self._nodes]
        self.homeless: list[Item] = []
        self._apart: _Apart = set()
        taken = [[0, 0] for _ in self._nodes]
        for item in items:
            here = self._index.get(current.get(item.vm.name, ""))
            if here is None or not self._may_be(item, here) or self._is_beside(item, here):
                self.homeless.append(item)
            else:
                self.on[here].append(item)
                taken[here][0] += item.vm.demand.centi_cpus
                taken[here][1] += item.vm.demand.memory_mib
                if item.apart is not None:
                    self._apart.add((item.apart, here))
        self.free = self.capacity - np.array(taken, dtype=np.int64).reshape(-1, 2)
        self.overloaded = np.flatnonzero((self.free < 0).any(axis=1))
        # An amount as a part of an average node: this makes CPUs and memory comparable.
        self.weights = 1 / np.maximum(self.capacity.mean(axis=0), 1) if self._nodes else np.ones(2)

    def _is_beside(self, item: Item, node: int) -> bool:
        """Whether a VM that needs a node of its own would be beside another one of its kind."""
        return item.apart is not None and (item.apart, node) in self._apart

    def _may_be(self, item: Item, node: int) -> bool:
        """Whether a VM may be on a node; nearly all may be anywhere, and there are tens of thousands of them."""
        return not item.rules or bool(self.mask(item.rules)[node])

    # -- greedily ------------------------------------------------------------------------------------------------------

    def by_best_fit(self) -> Repaired | None:
        """Move as little as possible from overloaded nodes, and place that, the largest first; None if it fails."""
        free, apart = self.free.copy(), self._apart.copy()
        moving = list(self.homeless)
        for node in self.overloaded.tolist():
            moving += self._leaving(node, free, apart)
        placed = {}
        for item in sorted(moving, key=lambda item: decreasing(item.vm)):
            best = self.best_fit(item, free, apart)
            if best is None:
                return None
            free[best] -= demand_of(item.vm)
            placed[item.vm.name] = best
            if item.apart is not None:
                apart.add((item.apart, best))
        return self._repaired(placed)

    def _leaving(self, node: int, free: _Ints, apart: _Apart) -> list[Item]:
        """The VMs that leave an overloaded node."""
        here, leaving = list(self.on[node]), []
        while (free[node] < 0).any():
            item = self._next_to_leave(here, free, node, apart)
            here.remove(item)
            leaving.append(item)
            free[node] += demand_of(item.vm)
            if item.apart is not None:
                apart.remove((item.apart, node))
        return leaving

    def _next_to_leave(self, here: list[Item], free: _Ints, node: int, apart: _Apart) -> Item:
        """The smallest VM that is enough, if it has a place to go to; else the VM that helps most for its memory."""
        short = np.maximum(-free[node], 0)
        enough = [item for item in here if (demand_of(item.vm) >= short).all()]
        if enough:
            return min(enough, key=lambda item: (self.best_fit(item, free, apart) is None, *_least(item)))

        def help_for_memory(item: Item) -> float:
            share = np.minimum(demand_of(item.vm), short) / np.maximum(short, 1)
            return float(share.sum()) / max(item.vm.demand.memory_mib, 1)

        return max(here, key=lambda item: (help_for_memory(item), item.vm.name))

    def best_fit(self, item: Item, free: _Ints, apart: Container[tuple[Spread, int]] = ()) -> int | None:
        """The node with the least room that is enough; ``apart``: rules, each with a node where one of its VMs is."""
        left = free - demand_of(item.vm)
        fitting = np.flatnonzero((left >= 0).all(axis=1) & self.mask(item.rules))
        if item.apart is not None:
            fitting = np.array([node for node in fitting.tolist() if (item.apart, node) not in apart], dtype=np.intp)
        return int(fitting[(left[fitting] @ self.weights).argmin()]) if len(fitting) else None

    def mask(self, rules: Rules) -> npt.NDArray[np.bool_]:
        """By node, whether VMs with these rules may be there."""
        if rules not in self._masks:
            self._masks[rules] = mask(rules, self._index)
        return self._masks[rules]

    # -- exactly -------------------------------------------------------------------------------------------------------

    def by_program(self, search: Search, worth_mib: float = math.inf) -> Repaired | None:
        """Pack a growing neighbourhood anew, moving as little memory as possible; None if that finds no place.

        It grows until there is a place for all, and no more than ``worth_mib`` moves for that.
        """
        budget, best = Budget(search), None
        ranked = self.ranked()
        size = len(self.overloaded) + _NEIGHBOURS
        while not budget.exhausted:
            program = _Program(self, ranked[:size], alike)
            if program.pairs > MOST_PAIRS:
                break
            is_last = size >= len(ranked)
            for found in self._answers(program, budget, 1.0 if is_last else 0.5, worth_mib):
                best = min(best or found, found, key=lambda each: each.moved_mib)
            if is_last or (best is not None and best.moved_mib <= worth_mib):
                break
            size += (size - len(self.overloaded)) * (_GROWTH - 1)
        return best

    def _answers(self, program: _Program, budget: Budget, share: float, worth_mib: float) -> Iterator[Repaired]:
        """Places for all VMs of a neighbourhood: of a program that takes VMs for equal, and of one with all classes.

        The second one is asked if the VMs of the first one's answer could not be told apart, or move more than is
        worth it. Where the first one finds nothing within its limits, the second one hardly ever does. So the second
        one has a part of the limits that the first one leaves alone.
        """
        precise = _Program(self, program.nodes, class_of) if program.has_groups else None
        may_follow = precise is not None and precise.pairs <= MOST_PAIRS
        found = program.solve(budget, min(share, _ALIKE) if may_follow else share)
        if found is None:
            return
        if found.placed is not None:
            yield self._repaired(found.placed)
        if found.is_best or precise is None or budget.exhausted:
            return
        is_good = found.placed is not None and self._repaired(found.placed).moved_mib <= worth_mib
        if precise.pairs <= (_FEW_PAIRS if is_good else MOST_PAIRS):
            found = precise.solve(budget, share)
            if found is not None and found.placed is not None:
                yield self._repaired(found.placed)

    def ranked(self) -> list[int]:
        """Overloaded nodes first; then those to which VMs without a place are confined; then by their room."""
        wanted = np.zeros(len(self._nodes), dtype=np.bool_)
        for rules in {item.rules for item in self.homeless if confined_to(item.rules) is not None}:
            wanted |= self.mask(rules)
        short = set(self.overloaded.tolist())
        room = self.free @ self.weights
        return sorted(range(len(self._nodes)), key=lambda i: (i not in short, not wanted[i], -room[i], i))

    def name(self, node: int) -> str:
        """The name of a node, by its number."""
        return self._nodes[node].name

    def number(self, name: str) -> int | None:
        """The number of a node, by its name; None if it accepts no VMs at all."""
        return self._index.get(name)

    def most(self, k: ItemClass, node: int, count: int) -> int:
        """The number of VMs, of so many of a class, for which an empty node has room; 0 if it may have none of them."""
        if not self.mask(k[2])[node]:
            return 0
        cpus, memory = self.capacity[node].tolist()
        rooms = [cpus // k[0]] if k[0] else []
        rooms += [memory // k[1]] if k[1] else []
        return int(min([count, *rooms]))

    def assignment(self, placed: Mapping[str, int]) -> dict[str, str]:
        """Node by VM name: for placed VMs, and for all others that have a place where they are."""
        found = {item.vm.name: self._nodes[i].name for i, here in enumerate(self.on) for item in here}
        return found | {name: self._nodes[i].name for name, i in placed.items()}

    def _repaired(self, placed: Mapping[str, int]) -> Repaired:
        assignment = self.assignment(placed)
        items = [*self.homeless, *(item for here in self.on for item in here if item.vm.name in placed)]
        moved = sum(
            item.vm.demand.memory_mib
            for item in items
            if self._current.get(item.vm.name, assignment[item.vm.name]) != assignment[item.vm.name]
        )
        return Repaired(assignment, moved)


@dataclass(frozen=True, slots=True)
class _Found:
    """The answer of a program.

    Attributes:
        placed: node by VM name, for all VMs in the neighbourhood; None if those that need nodes of their own got none.
        is_best: whether as many VMs of each class stay where they are as the program has said.
    """

    placed: dict[str, int] | None
    is_best: bool


class _Program:
    """The integer program of a neighbourhood: the numbers of each class that each of its nodes hosts, and keeps."""

    def __init__(self, repair: Repair, nodes: Sequence[int], of: Callable[[Item], ItemClass]) -> None:
        """State it; ``of``: the class of a VM."""
        self._repair, self.nodes = repair, nodes
        self._members: defaultdict[ItemClass, list[Member]] = defaultdict(list)
        for node in nodes:
            for item in repair.on[node]:
                self._members[of(item)].append(Member(item.vm.name, node, item.apart))
        for item in repair.homeless:
            self._members[of(item)].append(Member(item.vm.name, None, item.apart))
        self.pairs = len(self._members) * len(nodes)
        self.has_groups = any(each.apart is not None for its in self._members.values() for each in its)
        self._apart: defaultdict[Spread, list[ItemClass]] = defaultdict(list)
        for k in self._members:
            if k[3] is not None:
                self._apart[k[3]].append(k)
        # Of VMs of a class that need nodes of their own, a node may have one of each group.
        self._together = {k: len({each.apart or each.name for each in its}) for k, its in self._members.items()}

    def solve(self, budget: Budget, share: float) -> _Found | None:
        """Look for places with a share of the rest; None if none are found."""
        budget.charge(VARIABLE * self.pairs)
        limits, facts = budget.determines(share), self._facts()
        answer = answers().within(limits, facts)
        if answer is None:
            answer, is_proven = self._solve(budget, share)
            if is_proven or budget.is_repeatable:
                answers().learn(limits, facts, answer, is_proven=is_proven)
        else:
            budget.charge_run(answer.units, 0.0)
        return None if answer.counts is None else self._named(answer.counts)

    def _facts(self) -> tuple[Hashable, ...]:
        """The facts on which the program depends: not which node or VM it is, but how large, and where it is."""
        position = {node: at for at, node in enumerate(self.nodes)}
        rule = {spread: at for at, spread in enumerate(self._apart)}
        classes = []
        for k, members in self._members.items():
            here = Counter(position[each.node] for each in members if each.node is not None)
            usable = np.packbits(self._repair.mask(k[2])[self.nodes]).tobytes()
            apart = -1 if k[3] is None else rule[k[3]]
            classes.append((*k[:2], usable, apart, len(members), self._together[k], tuple(sorted(here.items()))))
        return (self._repair.capacity[self.nodes].tobytes(), *classes)

    def _solve(self, budget: Budget, share: float) -> tuple[Answer, bool]:
        """The answer of the solver, and whether it is proven."""
        model = cp_model.CpModel()
        hosted: dict[tuple[ItemClass, int], cp_model.IntVar] = {}
        kept = []
        total = sum(len(members) for members in self._members.values())
        for k, members in self._members.items():
            here = Counter(each.node for each in members)
            for node in self._usable(k):
                hosted[k, node] = variable = model.new_int_var(0, self._repair.most(k, node, self._together[k]), "")
                model.add_hint(variable, here.get(node, 0))
                if here.get(node, 0):
                    stays = model.new_int_var(0, here[node], "")
                    model.add(stays <= variable)
                    kept.append((k[1] * (total + 1) + 1) * stays)  # of equal memory, as few VMs as possible
            model.add(sum(hosted[k, node] for node in self._usable(k)) == len(members))
        for node in self.nodes:
            there = [(k, hosted[k, node]) for k in self._members if (k, node) in hosted]
            cpus, memory = self._repair.capacity[node].tolist()
            model.add(sum(k[0] * variable for k, variable in there) <= cpus)
            model.add(sum(k[1] * variable for k, variable in there) <= memory)
            for together in self._apart.values():
                if len(together) > 1:  # a single class has its limit
                    model.add(sum(hosted[k, node] for k in together if (k, node) in hosted) <= 1)
        model.maximize(sum(kept))
        solver, status = budget.solve(model, share)
        units = CP_SAT_UNIT * solver.response_proto.deterministic_time
        is_proven = status in (cp_model.OPTIMAL, cp_model.INFEASIBLE)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return Answer(None, units), is_proven
        classes = {k: at for at, k in enumerate(self._members)}
        nodes = {node: at for at, node in enumerate(self.nodes)}
        counts = {(classes[k], nodes[node]): solver.value(variable) for (k, node), variable in hosted.items()}
        return Answer({at: count for at, count in counts.items() if count}, units), is_proven

    def _usable(self, k: ItemClass) -> list[int]:
        return [node for node in self.nodes if self._repair.most(k, node, 1)]

    def _named(self, hosted: Counts) -> _Found:
        """Give the VMs of each class their nodes: first to VMs that can stay."""
        counts: dict[ItemClass, dict[int, int]] = defaultdict(dict)
        classes = list(self._members)
        for (at, node), count in hosted.items():
            counts[classes[at]][self.nodes[node]] = count
        wanted = [Wanted(members, counts[k]) for k, members in self._members.items()]
        placed = tell_apart(wanted)
        if placed is None:
            return _Found(None, is_best=False)
        return _Found(placed, staying(wanted, placed) == sum(each.most_stay for each in wanted))


def _is_sound(node: Node) -> bool:
    """Whether a node has no less than 0 left: an overloaded one accepts no VMs at all."""
    return node.capacity.centi_cpus >= 0 and node.capacity.memory_mib >= 0


def demand_of(vm: VM) -> _Ints:
    """The demand of a VM: hundredths of a CPU, MiB."""
    return np.array((vm.demand.centi_cpus, vm.demand.memory_mib), dtype=np.int64)


def _least(item: Item) -> tuple[int, float, str]:
    return (item.vm.demand.memory_mib, item.vm.demand.cpus, item.vm.name)


def class_of(item: Item) -> ItemClass:
    """The facts that make VMs equal."""
    return (*alike(item)[:3], item.apart)


def alike(item: Item) -> ItemClass:
    """The facts that make VMs equal, if they differ at most in the VMs that they may be beside."""
    return (item.vm.demand.centi_cpus, item.vm.demand.memory_mib, item.rules, None)
