"""Ruled program: an integer program with a variable for each VM and node, which knows all rules.

It is for few VMs and nodes: the packing in classes of equal VMs cannot tell which VM is where.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import singledispatchmethod

from ortools.sat.python import cp_model

from rmsplugin.model.elements import VM, Node, NodeState
from rmsplugin.model.joint import Capacity, Gather, Joint, Lonely, Online, Part, Root, Split, Spread
from rmsplugin.model.resources import NOTHING
from rmsplugin.model.rules import admit
from rmsplugin.packing.budget import Budget
from rmsplugin.packing.item import Item

#: The most pairs of a VM and a node in one program.
MOST_PAIRS = 20_000


@dataclass(frozen=True, slots=True)
class Wish:
    """What a program is asked for.

    Attributes:
        cost: by VM and node, the cost of the VM there; 0 where there is none.
        a_node: the cost of each node that hosts VMs.
        hint: a node by VM, with which the search begins.
    """

    cost: Mapping[tuple[str, str], int] = field(default_factory=dict)
    a_node: int = 0
    hint: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """The node of each VM, or None if none was found; and the proven bound, None if there can be no answer."""

    hosts: dict[str, str] | None
    bound: int | None


def nodes_without(nodes: Iterable[Node], fixed: Mapping[str, str], vms: Mapping[str, VM]) -> list[Node]:
    """The nodes that are up, with the resources that VMs leave which stay there; below 0 if these overload them."""
    left = {node.name: node for node in nodes if node.state is NodeState.UP}
    for vm, node in fixed.items():
        if node in left:
            left[node] = replace(left[node], capacity=left[node].capacity - vms[vm].demand)
    return list(left.values())


def is_small(items: Sequence[Item], nodes: Sequence[Node]) -> bool:
    """Whether a program can have a variable for each VM and node."""
    return len(items) * len(nodes) <= MOST_PAIRS


def solve(
    items: Sequence[Item],
    nodes: Iterable[Node],
    rules: Sequence[Joint],
    homes: Mapping[str, str],
    fixed: Mapping[str, str],
    wish: Wish,
    budget: Budget,
    share: float = 1.0,
) -> Answer | None:
    """Place all VMs, at the least cost; None if there are too many.

    Args:
        items: the VMs to be placed, with their vjobs' rules.
        nodes: nodes with the resources that are left for these VMs; only those that are up and not overloaded are used.
        rules: all rules about VMs beside each other.
        homes: the node of each VM that has memory at present.
        fixed: the node of each VM that stays where it is, whatever the rules say.
        wish: the objective.
        budget: the limits.
        share: the part of it that may be used.
    """
    up = [node for node in nodes if node.state is NodeState.UP and node.capacity.holds(NOTHING)]
    if not is_small(items, up):
        return None
    program = _Program(items, up, homes, fixed)
    for rule in rules:
        program.obey(rule)
    return program.answer(wish, budget, share)


class _Program:
    def __init__(
        self, items: Sequence[Item], nodes: Sequence[Node], homes: Mapping[str, str], fixed: Mapping[str, str]
    ) -> None:
        self._model = cp_model.CpModel()
        self._items, self._nodes, self._homes = items, nodes, homes
        self._names = [node.name for node in nodes]
        self._there = {
            (item.vm.name, node.name): self._model.new_bool_var("")
            for item in items
            for node in nodes
            if admit(item.rules, node.name)
        }
        self._fixed = fixed
        self._hosting: dict[str, cp_model.IntVar] = {}
        for item in items:
            self._model.add_exactly_one(self._of(item.vm.name).values())
        for node in nodes:
            for amounts, most in (
                ([item.vm.demand.centi_cpus for item in items], node.capacity.centi_cpus),
                ([item.vm.demand.memory_mib for item in items], node.capacity.memory_mib),
            ):
                self._at_most(node.name, amounts, most)

    def _at_most(self, node: str, amounts: Sequence[int], most: int) -> None:
        here = [
            (self._there.get((item.vm.name, node)), amount) for item, amount in zip(self._items, amounts, strict=True)
        ]
        some = [(variable, amount) for variable, amount in here if variable is not None and amount]
        self._model.add(cp_model.LinearExpr.weighted_sum([v for v, _ in some], [a for _, a in some]) <= most)

    def _of(self, vm: str) -> dict[str, cp_model.IntVar]:
        found = {node: self._there.get((vm, node)) for node in self._names}
        return {node: variable for node, variable in found.items() if variable is not None}

    def _on(self, vms: Iterable[str], node: str) -> list[cp_model.LiteralT]:
        """Whether each of these VMs is on a node, for those that can be there."""
        found: list[cp_model.LiteralT] = []
        for vm in sorted(vms):
            if self._fixed.get(vm) == node:
                found.append(self._model.new_constant(1))
            elif (vm, node) in self._there:
                found.append(self._there[vm, node])
        return found

    def _all(self) -> list[str]:
        return [*(item.vm.name for item in self._items), *self._fixed]

    def _places(self) -> list[str]:
        """The nodes that take VMs, and those where VMs stay."""
        return list(dict.fromkeys([*self._names, *self._fixed.values()]))

    def _hosts(self, node: str) -> cp_model.IntVar:
        """Whether a node hosts any VM."""
        if node not in self._hosting:
            found = self._hosting[node] = self._model.new_bool_var("")
            for each in self._on(self._all(), node):
                self._model.add_implication(each, found)
        return self._hosting[node]

    def _bar(self, vms: Iterable[str], nodes: Iterable[str]) -> None:
        for vm in vms:
            for node in nodes:
                if (vm, node) in self._there:
                    self._model.add(self._there[vm, node] == 0)

    @singledispatchmethod
    def obey(self, rule: Joint) -> None:
        """State a rule. One of a type without a constraint here would be broken in silence."""
        raise NotImplementedError(f"no program knows the rule {rule}")

    @obey.register
    def _spread(self, rule: Spread) -> None:
        for node in self._places():
            self._model.add_at_most_one(self._on(rule.vms, node))

    @obey.register
    def _gather(self, rule: Gather) -> None:
        somewhere = {node: self._model.new_bool_var("") for node in self._places()}
        self._model.add_at_most_one(somewhere.values())
        for node, there in somewhere.items():
            for each in self._on(rule.vms, node):
                self._model.add_implication(each, there)

    @obey.register
    def _lonely(self, rule: Lonely) -> None:
        self._apart([rule.vms, frozenset(self._all()) - rule.vms - rule.friends])

    @obey.register
    def _split(self, rule: Split) -> None:
        self._apart(rule.groups)

    def _apart(self, groups: Sequence[frozenset[str]]) -> None:
        for node in self._places():
            whose = [self._model.new_bool_var("") for _ in groups]
            self._model.add_at_most_one(whose)
            for group, its in zip(groups, whose, strict=True):
                for each in self._on(group, node):
                    self._model.add_implication(each, its)

    @obey.register
    def _root(self, rule: Root) -> None:
        for vm in rule.vms & self._homes.keys():
            self._bar([vm], [node for node in self._names if node != self._homes[vm]])

    @obey.register
    def _capacity(self, rule: Capacity) -> None:
        there = [each for node in sorted(rule.nodes) for each in self._on(rule.vms, node)]
        self._model.add(cp_model.LinearExpr.sum(there) <= rule.most)

    @obey.register
    def _online(self, rule: Online) -> None:
        self._model.add(cp_model.LinearExpr.sum([self._hosts(node) for node in sorted(rule.nodes)]) <= rule.most)

    @obey.register
    def _part(self, rule: Part) -> None:
        self._bar(rule.vms, [node for node in self._names if not rule.rule.admits(node)])

    def answer(self, wish: Wish, budget: Budget, share: float) -> Answer:
        """The best answer within the limits."""
        terms: list[cp_model.IntVar] = []
        prices: list[int] = []
        for pair, variable in self._there.items():
            if wish.cost.get(pair):
                terms.append(variable)
                prices.append(wish.cost[pair])
            if wish.hint:
                self._model.add_hint(variable, wish.hint.get(pair[0]) == pair[1])
        if wish.a_node:
            hosting = [self._hosts(node) for node in self._places()]
            terms += hosting
            prices += [wish.a_node] * len(hosting)
        if terms:
            self._model.minimize(cp_model.LinearExpr.weighted_sum(terms, prices))
        solver, status = budget.solve(self._model, share)
        if status == cp_model.INFEASIBLE:
            return Answer(None, None)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return Answer(None, 0)
        bound = math.ceil(solver.best_objective_bound - 1e-6) if terms else 0
        hosts = {vm: node for (vm, node), variable in self._there.items() if solver.value(variable)}
        return Answer(hosts, bound)
