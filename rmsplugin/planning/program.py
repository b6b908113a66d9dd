"""Program: the replacement problem as an integer program over counts, with a proven bound on the cost of every plan.

Variables count, node by node, the VMs of each class that leave, resume locally, and arrive: early (in the first pool)
or late. What makes it a relaxation of the plan's cost (RR-6929 section 4.2), and so its optimum a lower bound:

- every action costs at least what table 1 says, and a VM that takes a detour costs more;
- an arrival is in the first pool only if its node has the memory free before anything else has happened: what it
  demands together with the other early arrivals is free at the start (invariant I3);
- the first pool holds all suspends, so what is not in it waits for the dearest of them at least; without suspends it
  waits for the cheapest action there is. What is early may be dearer: a ``Level`` says what the first pool costs, and
  the least over all levels bounds every plan;
- the resumes of a vjob are in one pool: all early, or all late.

Later pools, and cycles, can only add. The bound is rounded up to what a sum of demands can be.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol, TypeAlias

from ortools.math_opt.python import mathopt

from rmsplugin.model.elements import Location
from rmsplugin.packing.search import Search
from rmsplugin.planning.counts import Counts
from rmsplugin.planning.keep import Kept
from rmsplugin.planning.replacement import Place, Replacement

#: Nodes of the search tree for one unit of a deterministic limit: about a second's worth on the papers' clusters.
_TREE_NODES_PER_UNIT = 200

#: What floating point may have added to a bound of the solver, relative to its size.
_BOUND_TOLERANCE = 1e-6

Term: TypeAlias = int | float | mathopt.LinearBase


@dataclass(frozen=True, slots=True)
class Level:
    """What the first pool costs: a late action waits so long (MiB), and no early one costs more than ``dearest_mib``.

    Every plan lies in some level with the two equal; with ``dearest_mib`` None the program is a relaxation of all plans
    whose first pool costs ``wait_mib`` or more.
    """

    wait_mib: int
    dearest_mib: int | None = None


class Start(Protocol):
    """An answer that is known: where each VM ends, and which VMs arrive in the first pool."""

    @property
    def target(self) -> Mapping[str, Location]:
        """By VM name."""
        ...

    @property
    def early(self) -> frozenset[str]:
        """VM names."""
        ...


@dataclass(frozen=True, slots=True)
class Solved:
    """The best counts found (None if none were), the proven lower bound in MiB, and the seconds it took."""

    counts: Counts | None
    cost: int | None  # of the counts, by the relaxation
    lower_bound: int
    infeasible: bool  # proven: nothing meets the constraints
    seconds: float


class Program:
    """Builds the integer program of a replacement problem, and solves it."""

    def __init__(
        self,
        problem: Replacement,
        kept: list[Kept],
        level: Level,
        most_nodes: int | None = None,
        below_mib: int | None = None,
    ) -> None:
        self._problem = problem
        self._bounds = [each.bound_mib for each in kept]
        self._level = level
        self._model = mathopt.Model(name="vmrp")
        self._unit = self._memory_unit()
        self._wait = level.wait_mib // self._unit
        self._leave: dict[tuple[int, int], mathopt.Variable] = {}
        self._local_early: dict[tuple[int, int, int], mathopt.Variable] = {}
        self._local_late: dict[tuple[int, int, int], mathopt.Variable] = {}
        self._remote: dict[tuple[int, int, int], mathopt.Variable] = {}
        self._early: dict[tuple[int, int], mathopt.Variable] = {}
        self._late: dict[tuple[int, int], mathopt.Variable] = {}
        self._used: list[mathopt.Variable] | None = None
        if most_nodes is not None:
            self._used = [self._model.add_binary_variable() for _ in problem.places]
            self._model.add_linear_constraint(mathopt.fast_sum(self._used) <= most_nodes)
        self._group_early = [self._model.add_binary_variable() for _ in problem.groups]
        self._totals = self._count_classes()
        for i, place in enumerate(problem.places):
            self._add_place(i, place)
        self._add_balances()
        cost = self._cost()
        if below_mib is not None:
            # Only what is better than what is known: infeasible means that there is nothing better.
            self._model.add_linear_constraint(cost <= (below_mib - problem.fixed_cost) // self._unit - 1)
        self._model.minimize(cost)

    def _memory_unit(self) -> int:
        """The greatest common divisor of all costs: capacities are cut to it, and coefficients become small."""
        return math.gcd(self._level.wait_mib, *(k.memory_mib for k in self._problem.classes)) or 1

    def _count_classes(self) -> list[int]:
        totals = [0] * len(self._problem.classes)
        for place in self._problem.places:
            for k, names in place.residents.items():
                totals[k] += len(names)
            for (k, _), names in place.images.items():
                totals[k] += len(names)
        for mover in self._problem.movers:
            totals[mover.vm_class] += 1
        return totals

    def _is_too_dear(self, cost_mib: int) -> bool:
        return self._level.dearest_mib is not None and cost_mib > self._level.dearest_mib

    def _integer(self, upper: int) -> mathopt.Variable:
        return self._model.add_integer_variable(lb=0, ub=upper)

    # -- one node ------------------------------------------------------------------------------------------------

    def _add_place(self, i: int, place: Place) -> None:
        hosted: list[tuple[int, Term]] = []  # class, how many in the end
        early: list[tuple[int, Term]] = []
        lost: list[Term] = []  # what it costs that the node does not keep, or keeps waiting
        for k, names in place.residents.items():
            leave = self._leave[i, k] = self._integer(len(names))
            hosted.append((k, len(names) - leave))
            lost.append(self._problem.classes[k].memory_mib // self._unit * leave)
        for (k, group), names in place.images.items():
            too_dear = self._is_too_dear(self._problem.classes[k].memory_mib)
            first, later, remote = (self._integer(most) for most in (0 if too_dear else len(names), *[len(names)] * 2))
            self._local_early[i, k, group], self._local_late[i, k, group] = first, later
            self._remote[i, k, group] = remote
            self._model.add_linear_constraint(first + later + remote == len(names))
            self._model.add_linear_constraint(first <= len(names) * self._group_early[group])
            self._model.add_linear_constraint(later <= len(names) * (1 - self._group_early[group]))
            hosted += [(k, first), (k, later)]
            early.append((k, first))
            lost += [self._problem.classes[k].memory_mib // self._unit * remote, self._wait * later]
        for k in range(len(self._totals)):
            self._add_arrivals(i, place, k, hosted, early)
        self._add_limits(i, place, hosted, early, lost)

    def _add_arrivals(
        self, i: int, place: Place, k: int, hosted: list[tuple[int, Term]], early: list[tuple[int, Term]]
    ) -> None:
        each = self._problem.classes[k]
        if not place.takes or not each.may_go(i):
            return
        most = min(
            self._totals[k],
            place.capacity_m // each.memory_mib if each.memory_mib else self._totals[k],
            place.capacity_c // each.centi_cpus if each.centi_cpus else self._totals[k],
        )
        most_early = min(most, place.early_m // each.memory_mib if each.memory_mib else most)
        if most_early > 0:
            self._early[i, k] = self._integer(most_early)
            hosted.append((k, self._early[i, k]))
            early.append((k, self._early[i, k]))
        if most > 0:
            self._late[i, k] = self._integer(most)
            hosted.append((k, self._late[i, k]))

    def _add_limits(
        self,
        i: int,
        place: Place,
        hosted: list[tuple[int, Term]],
        early: list[tuple[int, Term]],
        lost: list[Term],
    ) -> None:
        """The node is viable in the end (memory, CPUs), and takes no more memory early than is free now."""
        model, classes, unit = self._model, self._problem.classes, self._unit
        used: Term = 1 if self._used is None else self._used[i]
        if hosted:
            cpus = mathopt.fast_sum(classes[k].centi_cpus / 100 * count for k, count in hosted)
            memory = mathopt.fast_sum(classes[k].memory_mib // unit * count for k, count in hosted)
            model.add_linear_constraint(cpus - place.capacity_c / 100 * used <= 0)
            model.add_linear_constraint(memory - place.capacity_m // unit * used <= 0)
        if early:
            memory = mathopt.fast_sum(classes[k].memory_mib // unit * count for k, count in early)
            model.add_linear_constraint(memory <= place.early_m // unit)
        if self._bounds[i]:
            # Implied by the rest for whole numbers only, and what makes the bound of the linear relaxation strong.
            model.add_linear_constraint(mathopt.fast_sum(lost) >= -(-self._bounds[i] // unit))

    # -- between nodes -------------------------------------------------------------------------------------------

    def _add_balances(self) -> None:
        """Whatever leaves a node, or has no place yet, arrives; what resumes is as early as its whole vjob."""
        early: dict[int, list[Term]] = defaultdict(list)
        late: dict[int, list[Term]] = defaultdict(list)
        free: dict[int, list[Term]] = defaultdict(list)  # arrivals that may be early or late
        for (_, k), variable in self._early.items():
            early[k].append(variable)
        for (_, k), variable in self._late.items():
            late[k].append(variable)
        for (_, k), variable in self._leave.items():
            free[k].append(variable)
        resumes: dict[tuple[int, int], list[Term]] = defaultdict(list)
        cheapest: dict[tuple[int, int], int] = {}  # of those resumes
        runs = [0] * len(self._totals)
        for (_, k, group), variable in self._remote.items():
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
            first, later = self._split(k, group, parts, self._is_too_dear(cheapest[k, group]))
            grouped[k] += [first, later]
            early[k].append(-first)
            late[k].append(-later)
        for k in range(len(self._totals)):
            # Arrivals beyond the resumes, early and late together, are the migrations and runs.
            self._model.add_linear_constraint(mathopt.fast_sum(early[k] + late[k]) == mathopt.fast_sum(free[k]))
            if grouped[k]:
                self._model.add_linear_constraint(mathopt.fast_sum(early[k]) >= 0)
                self._model.add_linear_constraint(mathopt.fast_sum(late[k]) >= 0)
            if early[k] and self._is_too_dear(self._problem.classes[k].memory_mib):
                self._model.add_linear_constraint(mathopt.fast_sum(early[k]) <= runs[k])

    def _split(
        self, k: int, group: int, parts: list[Term], too_dear: bool
    ) -> tuple[mathopt.Variable, mathopt.Variable]:
        """The remote resumes of one class and vjob, early and late: one of the two is 0."""
        size = min(self._totals[k], self._problem.group_sizes[group])
        first, later = self._integer(0 if too_dear else size), self._integer(size)
        self._model.add_linear_constraint(first + later == mathopt.fast_sum(parts))
        self._model.add_linear_constraint(first <= size * self._group_early[group])
        self._model.add_linear_constraint(later <= size * (1 - self._group_early[group]))
        return first, later

    def _cost(self) -> mathopt.LinearExpression:
        """In memory units: what leaves or resumes remotely costs its memory; what is late waits."""
        classes, unit = self._problem.classes, self._unit
        moved = [classes[k].memory_mib // unit * variable for (_, k), variable in self._leave.items()]
        copied = [classes[k].memory_mib // unit * variable for (_, k, _), variable in self._remote.items()]
        late = [self._wait * each for each in (*self._late.values(), *self._local_late.values())]
        return mathopt.fast_sum(moved + copied + late)

    # -- solving -------------------------------------------------------------------------------------------------

    def solve(self, search: Search, start: Start | None = None) -> Solved:
        """Search for the cheapest counts, from an answer that is known if there is one.

        HiGHS, single-threaded: on this program it closes gaps that CP-SAT leaves open (docs/benchmarks.md).
        """
        limit = search.deterministic_limit
        parameters = mathopt.SolveParameters(
            time_limit=timedelta(seconds=search.time_limit_s) if limit is None else None,
            node_limit=None if limit is None else max(1, round(limit * _TREE_NODES_PER_UNIT)),
            random_seed=search.seed,
            relative_gap_tolerance=0.0,
            absolute_gap_tolerance=0.0,
            enable_output=False,
        )
        hints = mathopt.ModelSolveParameters(solution_hints=[] if start is None else [self._hint(start)])
        result = mathopt.solve(self._model, mathopt.SolverType.HIGHS, params=parameters, model_params=hints)
        infeasible = result.termination.reason is mathopt.TerminationReason.INFEASIBLE
        seconds = result.solve_time().total_seconds()
        bound = self._round_up(result.best_objective_bound())
        if not result.has_primal_feasible_solution():
            return Solved(None, None, bound, infeasible, seconds)
        cost = self._problem.fixed_cost + round(result.objective_value() * self._unit)
        return Solved(self._counts(result.variable_values()), cost, min(bound, cost), False, seconds)

    def _hint(self, start: Start) -> mathopt.SolutionHint:
        """The counts of an answer that is known; what is late or early in it is only taken where it can be so."""
        problem, target = self._problem, start.target
        at = {place.node.name: i for i, place in enumerate(problem.places)}
        values: dict[mathopt.Variable, float] = dict.fromkeys((*self._early.values(), *self._late.values()), 0.0)
        whole = self._whole_groups(start.early)
        values |= {variable: float(group in whole) for group, variable in enumerate(self._group_early)}

        def arrive(name: str, k: int) -> None:
            key = (at[target[name].node or ""], k)
            variable = self._early.get(key) if name in start.early else None
            variable = self._late.get(key) if variable is None else variable
            if variable is not None:
                values[variable] += 1

        for i, place in enumerate(problem.places):
            for k, names in place.residents.items():
                gone = [name for name in names if target[name].node != place.node.name]
                values[self._leave[i, k]] = len(gone)
                for name in gone:
                    arrive(name, k)
            for (k, group), names in place.images.items():
                gone = [name for name in names if target[name].node != place.node.name]
                values[self._remote[i, k, group]] = len(gone)
                local = len(names) - len(gone)
                values[self._local_early[i, k, group]] = local if group in whole else 0
                values[self._local_late[i, k, group]] = 0 if group in whole else local
                for name in gone:
                    arrive(name, k)
        for mover in problem.movers:
            arrive(mover.name, mover.vm_class)
        # HiGHS fails on a hint beyond a variable's bounds, which differ from level to level.
        return mathopt.SolutionHint(
            variable_values={variable: min(value, variable.upper_bound) for variable, value in values.items()}
        )

    def _whole_groups(self, early: frozenset[str]) -> set[int]:
        """The vjobs whose resumes are all early."""
        late = {mover.group for mover in self._problem.movers if mover.name not in early}
        for place in self._problem.places:
            late |= {group for (_, group), names in place.images.items() if not early.issuperset(names)}
        return set(range(len(self._problem.groups))) - late

    def _round_up(self, bound: float) -> int:
        """A bound in MiB: no cost lies between two multiples of the unit (all costs are sums of demands)."""
        if not math.isfinite(bound):
            return self._problem.fixed_cost
        whole = math.ceil(bound - _BOUND_TOLERANCE * max(1.0, abs(bound)))
        return self._problem.fixed_cost + max(0, whole) * self._unit

    def _counts(self, values: dict[mathopt.Variable, float]) -> Counts:
        places = self._problem.places
        kept = [Kept() for _ in places]
        early: list[dict[int, int]] = [{} for _ in places]
        late: list[dict[int, int]] = [{} for _ in places]
        for (i, k), variable in self._leave.items():
            kept[i].residents[k] = len(places[i].residents[k]) - round(values[variable])
        for (i, k, group), variable in self._remote.items():
            kept[i].images[k, group] = len(places[i].images[k, group]) - round(values[variable])
        for arrivals, variables in ((early, self._early), (late, self._late)):
            for (i, k), variable in variables.items():
                if round(values[variable]):
                    arrivals[i][k] = round(values[variable])
        groups = frozenset(g for g, variable in enumerate(self._group_early) if round(values[variable]))
        return Counts(kept, early, late, groups)
