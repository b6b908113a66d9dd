"""Ruled program: an integer program that knows all rules: how many VMs of each kind are on each node.

VMs are of one kind if no rule tells them apart, either. So most vjobs with a rule of their own are a kind by
themselves: it is for few VMs and nodes.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, singledispatchmethod

from ortools.sat.python import cp_model

from rmsplugin.model.elements import VM, Node, NodeState
from rmsplugin.model.joint import Capacity, Gather, Joint, Lonely, Online, Part, Root, Split, Spread, Within
from rmsplugin.model.resources import NOTHING
from rmsplugin.model.rules import admit
from rmsplugin.packing import remembered
from rmsplugin.packing.budget import CP_SAT_UNIT, Budget
from rmsplugin.packing.item import Item
from rmsplugin.packing.telling_apart import named

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
    """Whether a program can have a variable for each VM and node: of those that are up and not overloaded."""
    return len(items) * len(_roomy(nodes)) <= MOST_PAIRS


def _roomy(nodes: Iterable[Node]) -> list[Node]:
    """The nodes that take VMs."""
    return [node for node in nodes if node.state is NodeState.UP and node.capacity.holds(NOTHING)]


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
    up = _roomy(nodes)
    if not is_small(items, up):
        return None
    return _Program(kinds_of(items, up, rules, homes, wish), up, rules, homes, fixed).answer(wish, budget, share)


def kinds_of(
    items: Sequence[Item], nodes: Sequence[Node], rules: Sequence[Joint], homes: Mapping[str, str], wish: Wish
) -> list[list[Item]]:
    """The VMs, those together that no rule and no cost tells apart: they can change places."""
    found: dict[Hashable, list[Item]] = {}
    for item in items:
        vm = item.vm
        parts = tuple(part for rule in rules if (part := part_in(rule, vm.name, homes)) is not None)
        cost = tuple(wish.cost.get((vm.name, node.name), 0) for node in nodes) if wish.cost else ()
        key = (vm.demand.centi_cpus, vm.demand.memory_mib, item.rules, parts, cost)
        found.setdefault(key, []).append(item)
    return list(found.values())


def part_in(rule: Joint, vm: str, homes: Mapping[str, str]) -> Hashable | None:
    """The part of a VM in a rule; None if it is no other than that of most VMs."""
    match rule:
        case Online():
            return None  # all VMs have the same one
        case Lonely():
            return (id(rule), vm in rule.vms) if vm in rule.vms or vm in rule.friends else None
        case Split():
            return None if vm not in rule.group_of else (id(rule), rule.group_of[vm])
        case Root():
            return (id(rule), homes.get(vm)) if vm in rule.vms else None
        case _:
            return id(rule) if rule.concerns(vm) else None


class _Program:
    """The program: a variable for each kind of VMs and node.

    VMs that stay may break a rule among themselves. That is no reason against a place for others, where none of these
    breaks it further.
    """

    def __init__(
        self,
        kinds: Sequence[Sequence[Item]],
        nodes: Sequence[Node],
        rules: Iterable[Joint],
        homes: Mapping[str, str],
        fixed: Mapping[str, str],
    ) -> None:
        self._model = cp_model.CpModel()
        self._kinds, self._nodes, self._homes, self._fixed = kinds, nodes, homes, fixed
        self._names = [node.name for node in nodes]
        self._there = {
            (kind, node.name): self._model.new_int_var(0, len(items), "")
            for kind, items in enumerate(kinds)
            for node in nodes
            if admit(items[0].rules, node.name)
        }
        self._hosting: dict[str, cp_model.IntVar] = {}
        for kind, items in enumerate(kinds):
            here = [self._there[kind, node] for node in self._names if (kind, node) in self._there]
            self._model.add(_sum(here) == len(items))
        demands = [items[0].vm.demand for items in kinds]
        for node in nodes:
            self._at_most(node.name, [demand.centi_cpus for demand in demands], node.capacity.centi_cpus)
            self._at_most(node.name, [demand.memory_mib for demand in demands], node.capacity.memory_mib)
        for rule in rules:
            self.obey(rule)

    def _at_most(self, node: str, amounts: Sequence[int], most: int) -> None:
        here = [(self._there.get((kind, node)), amount) for kind, amount in enumerate(amounts)]
        some = [(variable, amount) for variable, amount in here if variable is not None and amount]
        self._model.add(cp_model.LinearExpr.weighted_sum([v for v, _ in some], [a for _, a in some]) <= most)

    def _of(self, vms: Collection[str]) -> list[int]:
        """The kinds of these VMs: all VMs of a kind are among them, or none."""
        return [kind for kind, items in enumerate(self._kinds) if items[0].vm.name in vms]

    def _on(self, kinds: Iterable[int], node: str) -> list[tuple[cp_model.IntVar, int]]:
        """The number of VMs of each of these kinds on a node, for those that can be there, and the most it can be."""
        found = ((self._there.get((kind, node)), len(self._kinds[kind])) for kind in kinds)
        return [(variable, most) for variable, most in found if variable is not None]

    def _staying(self, vms: Collection[str], node: str) -> int:
        """The number of these VMs that stay on a node."""
        return sum(where == node and vm in vms for vm, where in self._fixed.items())

    @cached_property
    def _all(self) -> frozenset[str]:
        return frozenset((*(item.vm.name for items in self._kinds for item in items), *self._fixed))

    @cached_property
    def _places(self) -> list[str]:
        """The nodes that take VMs, and those where VMs stay."""
        return list(dict.fromkeys([*self._names, *self._fixed.values()]))

    def _implies(self, kinds: Iterable[int], vms: Collection[str], node: str, fact: cp_model.IntVar) -> None:
        """If a VM of these kinds, or one of these that stay, is on a node, the fact is true."""
        for variable, most in self._on(kinds, node):
            self._model.add(variable <= most * fact)
        if self._staying(vms, node):
            self._model.add(fact == 1)

    def _hosts(self, node: str) -> cp_model.IntVar:
        """Whether a node hosts any VM."""
        if node not in self._hosting:
            found = self._hosting[node] = self._model.new_bool_var("")
            self._implies(range(len(self._kinds)), self._all, node, found)
        return self._hosting[node]

    def _bar(self, kinds: Iterable[int], nodes: Iterable[str]) -> None:
        for kind in kinds:
            for node in nodes:
                if (kind, node) in self._there:
                    self._model.add(self._there[kind, node] == 0)

    @singledispatchmethod
    def obey(self, rule: Joint) -> None:
        """State a rule. One of a type without a constraint here would be broken in silence."""
        raise NotImplementedError(f"no program knows the rule {rule}")

    @obey.register
    def _spread(self, rule: Spread) -> None:
        kinds = self._of(rule.vms)
        for node in self._places:
            there = [variable for variable, _ in self._on(kinds, node)]
            self._model.add(_sum(there) <= max(0, 1 - self._staying(rule.vms, node)))

    @obey.register
    def _gather(self, rule: Gather) -> None:
        kinds = self._of(rule.vms)
        if sum(self._staying(rule.vms, node) > 0 for node in self._places) > 1:
            self._bar(kinds, self._names)
            return
        somewhere = {node: self._model.new_bool_var("") for node in self._places}
        self._model.add_at_most_one(somewhere.values())
        for node, there in somewhere.items():
            self._implies(kinds, rule.vms, node, there)

    @obey.register
    def _lonely(self, rule: Lonely) -> None:
        self._apart([rule.vms, self._all - rule.vms - rule.friends])

    @obey.register
    def _split(self, rule: Split) -> None:
        self._apart([group & self._all for group in rule.groups if not group.isdisjoint(self._all)])

    def _apart(self, groups: Sequence[frozenset[str]]) -> None:
        kinds = [self._of(group) for group in groups]
        for node in self._places:
            if sum(self._staying(group, node) > 0 for group in groups) > 1:
                self._bar(itertools.chain.from_iterable(kinds), [node])
                continue
            whose = [self._model.new_bool_var("") for _ in groups]
            self._model.add_at_most_one(whose)
            for group, its, here in zip(groups, kinds, whose, strict=True):
                self._implies(its, group, node, here)

    @obey.register
    def _root(self, rule: Root) -> None:
        for kind in self._of(rule.vms & self._homes.keys()):
            home = self._homes[self._kinds[kind][0].vm.name]
            self._bar([kind], [node for node in self._names if node != home])

    @obey.register
    def _capacity(self, rule: Capacity) -> None:
        kinds, nodes = self._of(rule.vms), sorted(rule.nodes)
        there = [variable for node in nodes for variable, _ in self._on(kinds, node)]
        self._model.add(_sum(there) <= max(0, rule.most - sum(self._staying(rule.vms, node) for node in nodes)))

    @obey.register
    def _online(self, rule: Online) -> None:
        kept = rule.nodes.intersection(self._fixed.values())
        more = [self._hosts(node) for node in sorted(rule.nodes - kept)]
        self._model.add(_sum(more) <= max(0, rule.most - len(kept)))

    @obey.register
    def _within(self, rule: Within) -> None:
        kinds = self._of(rule.vms)
        kept = {rule.set_of(node) for node in self._places if self._staying(rule.vms, node)}
        used = {each: self._model.new_bool_var("") for each in dict.fromkeys(map(rule.set_of, self._places))}
        for node in self._places:
            self._implies(kinds, rule.vms, node, used[rule.set_of(node)])
        self._model.add(_sum(list(used.values())) <= max(rule.most, len(kept)))

    @obey.register
    def _part(self, rule: Part) -> None:
        self._bar(self._of(rule.vms), [node for node in self._names if not rule.rule.admits(node)])

    def answer(self, wish: Wish, budget: Budget, share: float) -> Answer:
        """The best answer within the limits."""
        terms: list[cp_model.IntVar] = []
        prices: list[int] = []
        for (kind, node), variable in self._there.items():
            items = self._kinds[kind]
            price = wish.cost.get((items[0].vm.name, node))
            if price:
                terms.append(variable)
                prices.append(price)
            if wish.hint:
                self._model.add_hint(variable, sum(wish.hint.get(item.vm.name) == node for item in items))
        if wish.a_node:
            hosting = [self._hosts(node) for node in self._places]
            terms += hosting
            prices += [wish.a_node] * len(hosting)
        if terms:
            self._model.minimize(cp_model.LinearExpr.weighted_sum(terms, prices))
        # The text of the program has no names: an equal one has the same answer, whichever VMs and nodes these are.
        text = hashlib.sha256(str(self._model.proto).encode()).digest()
        answer = remembered.answers().within(budget.determines(share), text)
        if answer is None:
            answer = self._solve(text, budget, share, bool(terms))
        else:
            budget.charge_run(answer.units, 0.0)
        return Answer(None if answer.counts is None else self._named(answer.counts, wish.hint), answer.bound)

    def _solve(self, text: bytes, budget: Budget, share: float, is_priced: bool) -> remembered.Answer:
        """The answer of the solver; it is kept if another run would give it again."""
        limits = budget.determines(share)
        solver, status = budget.solve(self._model, share)
        answer = self._read(solver, status, is_priced)
        is_proven = status in (cp_model.OPTIMAL, cp_model.INFEASIBLE)
        if is_proven or budget.is_repeatable:
            remembered.answers().learn(limits, text, answer, is_proven=is_proven)
        return answer

    def _read(self, solver: cp_model.CpSolver, status: cp_model.CpSolverStatus, is_priced: bool) -> remembered.Answer:
        """The answer, by the positions of VMs and nodes."""
        units = CP_SAT_UNIT * solver.response_proto.deterministic_time
        if status == cp_model.INFEASIBLE:
            return remembered.Answer(None, units)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return remembered.Answer(None, units, 0)
        bound = math.ceil(solver.best_objective_bound - 1e-6) if is_priced else 0
        nodes = {name: at for at, name in enumerate(self._names)}
        counts = {(kind, nodes[node]): solver.value(variable) for (kind, node), variable in self._there.items()}
        return remembered.Answer({at: count for at, count in counts.items() if count}, units, bound)

    def _named(self, counts: remembered.Counts, hint: Mapping[str, str]) -> dict[str, str]:
        """The node of each VM: first those stay that can, then others are where the caller has them, or would."""
        nodes = {name: at for at, name in enumerate(self._names)}
        found: dict[str, str] = {}
        for kind, items in enumerate(self._kinds):
            hosted = {node: count for (of, node), count in counts.items() if of == kind}
            vms = [item.vm.name for item in items]
            wanted = {vm: nodes.get(self._homes.get(vm) or hint.get(vm, "")) for vm in vms}
            here = [(vm, node) for vm, node in wanted.items() if node is not None]
            coming = [vm for vm, node in wanted.items() if node is None]
            found |= {vm: self._names[node] for vm, node in named(here, coming, hosted).items()}
        return found


def _sum(variables: Sequence[cp_model.IntVar]) -> cp_model.LinearExpr:
    return cp_model.LinearExpr.sum(variables)
