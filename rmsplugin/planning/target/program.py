"""Program: the replacement problem as an integer program over counts, with a proven bound on the cost of every plan.

Variables count, node by node, the VMs of each class that leave, resume locally, and arrive: early (in the first pool)
or late. The program is a relaxation of the plan's cost (RR-6929 section 4.2), and so its optimum a lower bound, for
these reasons:

- every action costs at least what table 1 says;
- an arrival is in the first pool only if its node has the memory free before any other action: its demand and that of
  the other early arrivals is free at the start (invariant I3);
- the first pool holds all suspends, so later actions wait for the dearest of them at least; without suspends they
  wait for the cheapest action there is. Early actions may be dearer: a ``Level`` has the cost of the first pool, and
  the least over all levels bounds every plan;
- the resumes of a vjob are in one pool: all early, or all late. A VM that cannot stay anywhere early may make a detour:
  resume early elsewhere, so that its vjob is early, and migrate late.

Later pools, and all other bypasses, can only add cost. The bound is rounded up to a possible sum of demands.

With ``Scope.DIRECT`` it is the other way round: only plans without detours, in which late actions find their room
after the early ones. Each of its solutions is a plan of two pools, of that cost in the level of its first pool.

The program of a ``Part`` chooses for some nodes; all others hold the VMs that they do in a known answer.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field

from ortools.math_opt.python import mathopt

from rmsplugin.packing.search import Search
from rmsplugin.planning.target.counts import Counts
from rmsplugin.planning.target.keep import Kept
from rmsplugin.planning.target.level import Level
from rmsplugin.planning.target.node_terms import NodeTerms, Scope, Term
from rmsplugin.planning.target.replacement import Replacement
from rmsplugin.planning.target.solver import solve

#: All detours together weigh less than this in the objective, whose costs are whole numbers.
_TIE = 0.5


@dataclass(frozen=True, slots=True)
class Solved:
    """The counts found (None: none), the proven lower bound in MiB, and the seconds of the search."""

    counts: Counts | None
    cost: int | None  # of the counts, by the relaxation
    lower_bound: int
    infeasible: bool  # proven: nothing meets the constraints
    seconds: float
    units: float  # the same, deterministic

    @property
    def is_optimal(self) -> bool:
        """Whether it is proven that nothing is cheaper."""
        return self.infeasible or (self.cost is not None and self.cost <= self.lower_bound)


@dataclass(frozen=True, slots=True)
class Part:
    """The nodes that may change, by their index among the places; all others hold their VMs of the counts."""

    nodes: Collection[int]
    counts: Counts


def variables(problem: Replacement, part: Part | None = None) -> int:
    """The approximate number of variables of the program, by which building it takes long."""
    nodes = range(len(problem.places)) if part is None else part.nodes
    classes = sum(map(bool, _most(problem, part)))
    stay = sum(len(problem.places[i].residents) + 4 * len(problem.places[i].images) for i in nodes)
    resume = {key for i in nodes for key in problem.places[i].images}
    return stay + 3 * len(resume) + 2 * classes * len(nodes)


def _most(problem: Replacement, part: Part | None) -> list[int]:
    """The number of VMs of each class on the nodes that may change: no other VM can arrive at any of them."""
    if part is None:
        return problem.totals()
    most = [0] * len(problem.classes)
    for i in part.nodes:
        for k, count in part.counts.hosted(i):
            most[k] += count
    return most


@dataclass(slots=True)
class _Balance:
    """The events of VMs of one class, as terms whose sums are numbers of VMs.

    Attributes:
        early: arrivals in the first pool, less the resumes among them.
        late: arrivals after it, less the resumes among them.
        out: VMs that leave a node or run for the first time, and so arrive early or late.
        early_out: those of them that leave in the first pool; only of direct plans.
        runs: the number of VMs that run for the first time, which costs nothing.
        resumes: whether some resume remotely.
    """

    early: list[Term] = field(default_factory=list)
    late: list[Term] = field(default_factory=list)
    out: list[Term] = field(default_factory=list)
    early_out: list[Term] = field(default_factory=list)
    runs: int = 0
    resumes: bool = False


@dataclass(slots=True)
class _Resumes:
    """Remote resumes of one class and vjob: terms whose sum is their number, and the cost in MiB of the cheapest."""

    counts: list[Term] = field(default_factory=list)
    cheapest_mib: float = math.inf

    def add(self, count: Term, cost_mib: int) -> None:
        self.counts.append(count)
        self.cheapest_mib = min(self.cheapest_mib, cost_mib)


class Program:
    """Builds the integer program of a replacement problem, or of a part of it, and solves it."""

    def __init__(
        self,
        problem: Replacement,
        kept: list[Kept],
        level: Level,
        most_nodes: int | None = None,
        most_mib: int | None = None,
        scope: Scope = Scope.ALL,
        part: Part | None = None,
    ) -> None:
        """Build the program.

        Args:
            problem: the problem.
            kept: the kept VMs of each place, with its bound.
            level: the cost of the first pool.
            most_nodes: the most nodes; None: any number.
            most_mib: the most cost that is of interest; None: any.
            scope: the plans that it is about.
            part: the nodes that may change; None: all.
        """
        self._problem, self._level, self._scope, self._part = problem, level, scope, part
        self._model = mathopt.Model(name="vmrp")
        self._totals = problem.totals()
        self._terms = NodeTerms(self._model, problem, level, scope)
        self._add_nodes(kept, most_nodes)
        self._copied: list[tuple[int, mathopt.Variable]] = []  # class, detours by way of another node
        self._detours = list(self._terms.detour.values())
        self._add_balances()
        copied = [problem.classes[k].memory_mib // self._terms.unit * each for k, each in self._copied]
        cost = self._terms.cost() + mathopt.fast_sum(copied)
        if most_mib is not None:
            units = (most_mib - problem.fixed_cost) // self._terms.unit
            self._model.add_linear_constraint(cost <= units)
        most = sum(each.upper_bound for each in self._detours)
        self._model.minimize(cost + _TIE / (1 + most) * mathopt.fast_sum(self._detours))

    def _add_nodes(self, kept: list[Kept], most_nodes: int | None) -> None:
        problem, part, terms = self._problem, self._part, self._terms
        nodes: Collection[int] = range(len(problem.places))
        others = frozenset[int]()
        for group in range(len(problem.groups)):
            terms.group_early[group] = self._model.add_binary_variable()
        if part is not None:
            nodes, others = part.nodes, frozenset(nodes).difference(part.nodes)
            terms.fix(others, part.counts)
        used: dict[int, Term] = {}
        if most_nodes is not None:
            used = {i: self._model.add_binary_variable() for i in nodes}
            elsewhere = sum(part.counts.are_on(i) for i in others) if part else 0
            self._model.add_linear_constraint(mathopt.fast_sum(used.values()) <= most_nodes - elsewhere)
        most = _most(problem, part)
        for i in nodes:
            terms.add(i, most, kept[i].bound_mib, used.get(i))

    def _integer(self, upper: int) -> mathopt.Variable:
        return self._model.add_integer_variable(lb=0, ub=upper)

    def _add_balances(self) -> None:
        """Every VM that leaves a node, or has no place yet, arrives; a resume is as early as its whole vjob."""
        balances = self._balances()
        for (k, group), resumes in self._resumes().items():
            first, later, detour = self._split(k, group, resumes)
            balances[k].early.append(-first)
            balances[k].late += [-later, -detour]
            balances[k].resumes = True
        for k, balance in enumerate(balances):
            self._add_balance(k, balance)

    def _balances(self) -> list[_Balance]:
        """The balance of each class, without remote resumes."""
        terms = self._terms
        found = [_Balance() for _ in self._totals]
        for (_, k), variable in terms.early.items():
            found[k].early.append(variable)
        for (_, k), variable in terms.late.items():
            found[k].late.append(variable)
        for (_, k, _), variable in terms.detour.items():
            found[k].late.append(-variable)
        for (i, k), variable in terms.leave.items():
            found[k].out.append(variable)
            if (i, k) in terms.leave_late:
                found[k].early_out.append(variable - terms.leave_late[i, k])
        for mover in self._problem.movers:
            if mover.group is None:
                found[mover.vm_class].out.append(1)
                found[mover.vm_class].runs += mover.cost == 0
        return found

    def _resumes(self) -> dict[tuple[int, int], _Resumes]:
        """The remote resumes, by class and vjob."""
        found: dict[tuple[int, int], _Resumes] = defaultdict(_Resumes)
        for (_, k, group), variable in self._terms.remote.items():
            found[k, group].add(variable, 2 * self._problem.classes[k].memory_mib)
        for mover in self._problem.movers:
            if mover.group is not None:
                found[mover.vm_class, mover.group].add(1, mover.cost)
        return found

    def _add_balance(self, k: int, balance: _Balance) -> None:
        model, early, late = self._model, mathopt.fast_sum(balance.early), mathopt.fast_sum(balance.late)
        # Arrivals beyond the resumes, early and late together, are the migrations and runs.
        model.add_linear_constraint(mathopt.fast_sum(balance.early + balance.late) == mathopt.fast_sum(balance.out))
        if balance.resumes:
            model.add_linear_constraint(early >= 0)
            model.add_linear_constraint(late >= 0)
        if balance.early_out:
            # A VM that leaves early arrives early.
            model.add_linear_constraint(mathopt.fast_sum(balance.early_out) <= early)
        if balance.early and self._level.is_too_dear(self._problem.classes[k].memory_mib):
            model.add_linear_constraint(early <= balance.runs)

    def _split(self, k: int, group: int, resumes: _Resumes) -> tuple[Term, Term, Term]:
        """The remote resumes of one class and vjob: early, late, or early on a detour, from which they migrate late."""
        is_early, too_dear = self._terms.group_early[group], self._level.is_too_dear(resumes.cheapest_mib)
        known = [each for each in resumes.counts if isinstance(each, int)]
        if isinstance(is_early, int) and len(known) == len(resumes.counts):
            return is_early * sum(known), (1 - is_early) * sum(known), 0
        size = min(self._totals[k], self._problem.group_sizes[group])
        most_early = 0 if too_dear else size
        first, later = self._integer(most_early), self._integer(size)
        detour = self._integer(0 if self._scope is Scope.DIRECT else most_early)
        self._detours.append(detour)
        self._copied.append((k, detour))
        self._model.add_linear_constraint(first + later + detour == mathopt.fast_sum(resumes.counts))
        self._model.add_linear_constraint(first + detour <= size * is_early)
        self._model.add_linear_constraint(later <= size * (1 - is_early))
        return first, later, detour

    def solve(self, search: Search, start: Counts | None = None) -> Solved:
        """Search for the cheapest counts, from a known answer if there is one."""
        problem, terms, part = self._problem, self._terms, self._part
        hint = None if start is None else terms.hint(start)
        found = solve(self._model, search, hint, 0.0 if self._scope is Scope.DIRECT else _TIE)
        bound = problem.fixed_cost + found.lower_bound * terms.unit
        if found.values is None or found.objective is None:
            return Solved(None, None, bound, found.infeasible, found.seconds, found.units)
        everything = range(len(problem.places))
        counts = Counts.empty(len(everything)) if part is None else part.counts.copy()
        terms.read(found.values, counts, everything if part is None else part.nodes)
        cost = problem.fixed_cost + found.objective * terms.unit
        return Solved(counts, cost, bound, False, found.seconds, found.units)
