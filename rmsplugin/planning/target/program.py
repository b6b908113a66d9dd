"""Program: the replacement problem as an integer program over counts, with a proven bound on the cost of every plan.

Variables count, node by node, the VMs of each class that leave, resume locally, and arrive: early (in the first pool)
or late. What makes it a relaxation of the plan's cost (RR-6929 section 4.2), and so its optimum a lower bound:

- every action costs at least what table 1 says;
- an arrival is in the first pool only if its node has the memory free before anything else has happened: what it
  demands together with the other early arrivals is free at the start (invariant I3);
- the first pool holds all suspends, so what is not in it waits for the dearest of them at least; without suspends it
  waits for the cheapest action there is. What is early may be dearer: a ``Level`` says what the first pool costs, and
  the least over all levels bounds every plan;
- the resumes of a vjob are in one pool: all early, or all late. A VM that cannot stay anywhere early may make a detour:
  resume early elsewhere, so that its vjob is early, and migrate late.

Later pools, and all other bypasses, can only add. The bound is rounded up to what a sum of demands can be.

With ``Scope.DIRECT`` it is the other way round: only plans without detours, in which what is late finds its room when
what is early has been done. Each of its solutions is a plan of two pools, of that cost in the level of its first pool.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from dataclasses import dataclass

from ortools.math_opt.python import mathopt

from rmsplugin.packing.search import Search
from rmsplugin.planning.target.counts import Counts
from rmsplugin.planning.target.keep import Kept
from rmsplugin.planning.target.node_terms import Level, NodeTerms, Term
from rmsplugin.planning.target.replacement import Replacement
from rmsplugin.planning.target.solver import solve

#: All detours together weigh less than that in the objective, whose costs are whole numbers.
_TIE = 0.5


@dataclass(frozen=True, slots=True)
class Solved:
    """The best counts found (None if none were), the proven lower bound in MiB, and the seconds it took."""

    counts: Counts | None
    cost: int | None  # of the counts, by the relaxation
    lower_bound: int
    infeasible: bool  # proven: nothing meets the constraints
    seconds: float
    units: float  # the same, deterministic
    has_detours: bool = False  # the counts cost so little only with detours


class Scope(enum.Enum):
    """Which plans a program is about."""

    DIRECT = enum.auto()  # those of two pools in which nothing makes a detour: what the planner makes, at that cost
    ALL = enum.auto()  # all; its counts may need detours, which larger plans are made without; of equal ones the fewest


def variables(problem: Replacement) -> int:
    """About how many variables the program will have, which is what building it takes long for."""
    classes = len(problem.classes)
    stay = sum(len(place.residents) + 4 * len(place.images) for place in problem.places)
    resume = {key for place in problem.places for key in place.images}
    return stay + 3 * len(resume) + 2 * classes * len(problem.places)


class Program:
    """Builds the integer program of a replacement problem, and solves it."""

    def __init__(
        self,
        problem: Replacement,
        kept: list[Kept],
        level: Level,
        most_nodes: int | None = None,
        most_mib: int | None = None,
        scope: Scope = Scope.ALL,
    ) -> None:
        """Build it.

        Args:
            problem: what is asked.
            kept: of each place, with its bound.
            level: what the first pool costs.
            most_nodes: on so many nodes at most; None: on any number.
            most_mib: only what costs so much at most is of interest; None: all.
            scope: which plans it is about.
        """
        self._problem, self._level, self._scope = problem, level, scope
        self._model = mathopt.Model(name="vmrp")
        used: dict[int, Term] | None = None
        if most_nodes is not None:
            used = {i: self._model.add_binary_variable() for i in range(len(problem.places))}
            self._model.add_linear_constraint(mathopt.fast_sum(used.values()) <= most_nodes)
        self._group_early = {group: self._model.add_binary_variable() for group in range(len(problem.groups))}
        self._totals = problem.totals()
        detours = scope is not Scope.DIRECT
        self._terms = NodeTerms(
            *(self._model, problem, kept, level, dict(self._group_early), self._totals, used, detours),
            two_pools=scope is Scope.DIRECT,
        )
        for i in range(len(problem.places)):
            self._terms.add(i)
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

    def _integer(self, upper: int) -> mathopt.Variable:
        return self._model.add_integer_variable(lb=0, ub=upper)

    def _add_balances(self) -> None:
        """Whatever leaves a node, or has no place yet, arrives; what resumes is as early as its whole vjob."""
        early: dict[int, list[Term]] = defaultdict(list)
        late: dict[int, list[Term]] = defaultdict(list)
        free: dict[int, list[Term]] = defaultdict(list)  # arrivals that may be early or late
        for (_, k), variable in self._terms.early.items():
            early[k].append(variable)
        for (_, k), variable in self._terms.late.items():
            late[k].append(variable)
        early_out: dict[int, list[Term]] = defaultdict(list)
        for (i, k), variable in self._terms.leave.items():
            free[k].append(variable)
            if (i, k) in self._terms.leave_late:
                early_out[k].append(variable - self._terms.leave_late[i, k])
        resumes: dict[tuple[int, int], list[Term]] = defaultdict(list)
        cheapest: dict[tuple[int, int], int] = {}  # of those resumes
        runs = [0] * len(self._totals)
        for (_, k, _), variable in self._terms.detour.items():
            late[k].append(-variable)
        for (_, k, group), variable in self._terms.remote.items():
            resumes[k, group].append(variable)
            cheapest[k, group] = 2 * self._problem.classes[k].memory_mib
        for mover in self._problem.movers:
            k = mover.vm_class
            if mover.group is None:
                free[k].append(1)
                runs[k] += mover.cost == 0
            else:
                resumes[k, mover.group].append(1)
                cheapest[k, mover.group] = min(mover.cost, cheapest.get((k, mover.group), mover.cost))
        grouped: dict[int, list[Term]] = defaultdict(list)
        for (k, group), parts in resumes.items():
            first, later, detour = self._split(k, group, parts, self._level.is_too_dear(cheapest[k, group]))
            grouped[k] += [first, later, detour]
            early[k].append(-first)
            late[k] += [-later, -detour]
            self._detours.append(detour)
            self._copied.append((k, detour))
        for k in range(len(self._totals)):
            # Arrivals beyond the resumes, early and late together, are the migrations and runs.
            self._model.add_linear_constraint(mathopt.fast_sum(early[k] + late[k]) == mathopt.fast_sum(free[k]))
            if grouped[k]:
                self._model.add_linear_constraint(mathopt.fast_sum(early[k]) >= 0)
                self._model.add_linear_constraint(mathopt.fast_sum(late[k]) >= 0)
            if early_out[k]:
                # What leaves early arrives early.
                self._model.add_linear_constraint(mathopt.fast_sum(early_out[k]) <= mathopt.fast_sum(early[k]))
            if early[k] and self._level.is_too_dear(self._problem.classes[k].memory_mib):
                self._model.add_linear_constraint(mathopt.fast_sum(early[k]) <= runs[k])

    def _split(
        self, k: int, group: int, parts: list[Term], too_dear: bool
    ) -> tuple[mathopt.Variable, mathopt.Variable, mathopt.Variable]:
        """The remote resumes of one class and vjob: early, late, or early on a detour, from which they migrate late."""
        size = min(self._totals[k], self._problem.group_sizes[group])
        most_early = 0 if too_dear else size
        first, later = self._integer(most_early), self._integer(size)
        detour = self._integer(0 if self._scope is Scope.DIRECT else most_early)
        self._model.add_linear_constraint(first + later + detour == mathopt.fast_sum(parts))
        self._model.add_linear_constraint(first + detour <= size * self._group_early[group])
        self._model.add_linear_constraint(later <= size * (1 - self._group_early[group]))
        return first, later, detour

    def solve(self, search: Search, start: Counts | None = None) -> Solved:
        """Search for the cheapest counts, from an answer that is known if there is one."""
        problem = self._problem
        hint = None
        if start is not None:
            flags = {variable: float(group in start.early_groups) for group, variable in self._group_early.items()}
            hint = {**self._terms.hint(start), **flags}
        found = solve(self._model, search, hint, 0.0 if self._scope is Scope.DIRECT else _TIE)
        bound = problem.fixed_cost + found.lower_bound * self._terms.unit
        if found.values is None or found.objective is None:
            return Solved(None, None, bound, found.infeasible, found.seconds, found.units)
        counts = Counts.empty(len(problem.places))
        self._terms.read(found.values, counts, range(len(problem.places)))
        early = [group for group, variable in self._group_early.items() if round(found.values[variable])]
        counts.early_groups = frozenset(early)
        cost = problem.fixed_cost + found.objective * self._terms.unit
        has_detours = any(round(found.values[each]) for each in self._detours)
        return Solved(counts, cost, bound, False, found.seconds, found.units, has_detours)
