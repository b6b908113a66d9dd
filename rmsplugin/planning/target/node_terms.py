"""Node terms: the variables and limits of single nodes in an integer program over counts (see ``program``)."""

from __future__ import annotations

import enum
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias, TypeVar

from ortools.math_opt.python import mathopt

from rmsplugin.planning.target.counts import Counts
from rmsplugin.planning.target.keep import Kept
from rmsplugin.planning.target.level import Level
from rmsplugin.planning.target.replacement import Replacement

Term: TypeAlias = int | float | mathopt.LinearBase
Key = TypeVar("Key")

#: The index of all unchanged nodes together.
_ELSEWHERE = -1


class Scope(enum.Enum):
    """The plans that a program is about."""

    DIRECT = enum.auto()  # plans of two pools without detours: those that the planner makes, at that cost
    ALL = enum.auto()  # all; its counts may need detours, which larger plans are made without; of equal ones the fewest


class NodeTerms:
    """The events at some nodes: how many VMs leave, resume, stay asleep elsewhere, and arrive early and late.

    Variables for the nodes that may change (``add``), and numbers for all others (``fix``). Memory is counted in units:
    the greatest common divisor of all costs; capacities are cut to it, and coefficients become small.
    """

    def __init__(self, model: mathopt.Model, problem: Replacement, level: Level, scope: Scope) -> None:
        """Begin without any term in the model.

        Args:
            model: the model to which terms are added.
            problem: the whole problem.
            level: the cost of the first pool.
            scope: ``ALL``: a VM may resume where it cannot stay, as early as its vjob, and migrate late. ``DIRECT``:
                all late actions find their room after the early ones.
        """
        self.group_early: dict[int, Term] = {}  # whether the vjob is early; to be set before a node of it is added
        self.leave: dict[tuple[int, int], Term] = {}
        self.leave_late: dict[tuple[int, int], Term] = {}  # of those the late ones; only of direct plans
        self.local_early: dict[tuple[int, int, int], Term] = {}
        self.local_late: dict[tuple[int, int, int], Term] = {}
        self.remote: dict[tuple[int, int, int], Term] = {}
        self.detour: dict[tuple[int, int, int], mathopt.Variable] = {}
        self.early: dict[tuple[int, int], Term] = {}
        self.late: dict[tuple[int, int], Term] = {}
        self.unit = math.gcd(level.wait_mib, *(k.memory_mib for k in problem.classes)) or 1
        self.wait = level.wait_mib // self.unit
        self._model, self._problem, self._level, self._scope = model, problem, level, scope

    def add(self, i: int, most: Sequence[int], bound_mib: int, used: Term | None) -> None:
        """Add variables for a node.

        Args:
            i: the node's index among the places.
            most: the most VMs of each class that can arrive there.
            bound_mib: its least cost.
            used: whether it may have VMs in the end; None: it may.
        """
        problem, place = self._problem, self._problem.places[i]
        hosted: list[tuple[int, Term]] = []  # class, number in the end
        early: list[tuple[int, Term]] = []
        lost: list[Term] = []  # the cost of VMs that the node does not keep, or keeps waiting
        for k, names in place.residents.items():
            leave = self.leave[i, k] = self._integer(len(names))
            hosted.append((k, len(names) - leave))
            if self._scope is Scope.DIRECT:
                later = self.leave_late[i, k] = self._integer(len(names))
                self._model.add_linear_constraint(later <= leave)
            lost.append(problem.classes[k].memory_mib // self.unit * leave)
        for (k, group), names in place.images.items():
            too_dear, is_early = self._level.is_too_dear(problem.classes[k].memory_mib), self.group_early[group]
            first, later, remote = (self._integer(most) for most in (0 if too_dear else len(names), *[len(names)] * 2))
            self.local_early[i, k, group], self.local_late[i, k, group] = first, later
            self.remote[i, k, group] = remote
            makes_detours = self._scope is Scope.ALL and not too_dear
            detour = self.detour[i, k, group] = self._integer(len(names) if makes_detours else 0)
            self._model.add_linear_constraint(first + later + remote + detour == len(names))
            self._model.add_linear_constraint(detour <= len(names) * is_early)
            self._model.add_linear_constraint(first <= len(names) * is_early)
            self._model.add_linear_constraint(later <= len(names) * (1 - is_early))
            hosted += [(k, first), (k, later)]
            early += [(k, first), (k, detour)]
            lost += [problem.classes[k].memory_mib // self.unit * (remote + detour), self.wait * later]
        for k, arrivals in enumerate(most):
            self._add_arrivals(i, k, arrivals, hosted, early)
        self._add_limits(i, hosted, early, 1 if used is None else used)
        if used is not None:
            self._count_those_that_demand_nothing(hosted, used)
        if bound_mib:
            # It follows from the rest for whole numbers only, and makes the bound of the linear relaxation strong.
            self._model.add_linear_constraint(mathopt.fast_sum(lost) >= -(-bound_mib // self.unit))

    def fix(self, others: Iterable[int], counts: Counts) -> None:
        """Add the numbers of unchanged nodes: their VMs in these counts, all as if on one node."""
        leave, early_out, early, late = (defaultdict[int, int](int) for _ in range(4))  # by class
        remote, local_late = (defaultdict[tuple[int, int], int](int) for _ in range(2))  # by class and vjob
        for i in others:
            place, kept = self._problem.places[i], counts.kept[i]
            for k, names in place.residents.items():
                leave[k] += len(names) - kept.residents.get(k, 0)
                early_out[k] += counts.early_out.get((i, k), 0)
            for (k, group), names in place.images.items():
                local = kept.images.get((k, group), 0)
                remote[k, group] += len(names) - local
                local_late[k, group] += 0 if group in counts.early_groups else local
                self.group_early[group] = int(group in counts.early_groups)
            for arrived, arrivals in ((early, counts.early[i]), (late, counts.late[i])):
                for k, count in arrivals.items():
                    arrived[k] += count
        self.leave |= {(_ELSEWHERE, k): count for k, count in leave.items()}
        if self._scope is Scope.DIRECT:
            self.leave_late |= {(_ELSEWHERE, k): count - early_out[k] for k, count in leave.items()}
        self.remote |= {(_ELSEWHERE, *key): count for key, count in remote.items()}
        self.local_late |= {(_ELSEWHERE, *key): count for key, count in local_late.items()}
        self.early |= {(_ELSEWHERE, k): count for k, count in early.items()}
        self.late |= {(_ELSEWHERE, k): count for k, count in late.items()}

    def cost(self) -> mathopt.LinearExpression:
        """In memory units: VMs that leave or resume remotely cost their memory; late ones wait."""
        classes = self._problem.classes
        moved = [classes[k].memory_mib // self.unit * variable for (_, k), variable in self.leave.items()]
        copied = [
            classes[k].memory_mib // self.unit * variable
            for variables in (self.remote, self.detour)
            for (_, k, _), variable in variables.items()
        ]
        late = [self.wait * each for each in (*self.late.values(), *self.local_late.values())]
        return mathopt.fast_sum(moved + copied + late)

    def hint(self, counts: Counts) -> dict[mathopt.Variable, float]:
        """The values of the variables in a known answer.

        HiGHS fails on a hint beyond a variable's bounds, which differ from level to level.
        """
        places, kept, early = self._problem.places, counts.kept, counts.early_groups
        values: dict[mathopt.Variable, float] = {}
        for (i, k), leave in _variables(self.leave):
            values[leave] = len(places[i].residents[k]) - kept[i].residents.get(k, 0)
        for (i, k, group), remote in _variables(self.remote):
            values[remote] = len(places[i].images[k, group]) - kept[i].images.get((k, group), 0)
        for is_early, terms in ((True, self.local_early), (False, self.local_late)):
            for (i, k, group), local in _variables(terms):
                values[local] = kept[i].images.get((k, group), 0) if (group in early) is is_early else 0
        for arrivals, terms_of in ((counts.early, self.early), (counts.late, self.late)):
            values |= {arrive: arrivals[i].get(k, 0) for (i, k), arrive in _variables(terms_of)}
        values |= {flag: group in early for group, flag in _variables(self.group_early)}
        return {variable: min(value, variable.upper_bound) for variable, value in values.items()}

    def read(self, values: Mapping[mathopt.Variable, float], counts: Counts, places: Iterable[int]) -> None:
        """Write the values of a solution into the counts of the added places."""
        for i in places:
            counts.kept[i], counts.early[i], counts.late[i] = Kept(), {}, {}
        for (i, k), leave in _variables(self.leave):
            counts.kept[i].residents[k] = len(self._problem.places[i].residents[k]) - round(values[leave])
            counts.early_out[i, k] = round(values[leave])
        for key, later in _variables(self.leave_late):
            counts.early_out[key] -= round(values[later])
        for (i, k, group), remote in _variables(self.remote):
            gone = round(values[remote]) + round(values[self.detour[i, k, group]])
            counts.kept[i].images[k, group] = len(self._problem.places[i].images[k, group]) - gone
        for arrivals, terms in ((counts.early, self.early), (counts.late, self.late)):
            for (i, k), arrive in _variables(terms):
                if round(values[arrive]):
                    arrivals[i][k] = round(values[arrive])
        early = set(counts.early_groups)
        for group, flag in _variables(self.group_early):
            (early.add if round(values[flag]) else early.discard)(group)
        counts.early_groups = frozenset(early)

    def _integer(self, upper: int) -> mathopt.Variable:
        return self._model.add_integer_variable(lb=0, ub=upper)

    def _add_arrivals(
        self, i: int, k: int, most: int, hosted: list[tuple[int, Term]], early: list[tuple[int, Term]]
    ) -> None:
        place, each = self._problem.places[i], self._problem.classes[k]
        if not place.takes or not each.may_go(i):
            return
        if each.memory_mib:
            most = min(most, place.capacity_m // each.memory_mib)
        if each.centi_cpus:
            most = min(most, place.capacity_c // each.centi_cpus)
        most_early = min(most, place.early_m // each.memory_mib if each.memory_mib else most)
        if most_early > 0:
            self.early[i, k] = self._integer(most_early)
            hosted.append((k, self.early[i, k]))
            early.append((k, self.early[i, k]))
        if most > 0:
            self.late[i, k] = self._integer(most)
            hosted.append((k, self.late[i, k]))

    def _add_limits(self, i: int, hosted: list[tuple[int, Term]], early: list[tuple[int, Term]], used: Term) -> None:
        """The node is viable in the end (memory, CPUs), and takes no more memory early than is free now.

        A direct plan also keeps it viable while late leaving VMs are still there beside the arriving ones.
        """
        model, classes, place = self._model, self._problem.classes, self._problem.places[i]
        if hosted:
            cpus = mathopt.fast_sum(classes[k].centi_cpus / 100 * count for k, count in hosted)
            memory = self._memory(hosted)
            model.add_linear_constraint(cpus - place.capacity_c / 100 * used <= 0)
            model.add_linear_constraint(memory - place.capacity_m // self.unit * used <= 0)
            there = [(k, self.leave_late[i, k]) for k in place.residents if (i, k) in self.leave_late]
            if there:
                model.add_linear_constraint(memory + self._memory(there) <= place.capacity_m // self.unit)
        if early:
            model.add_linear_constraint(self._memory(early) <= place.early_m // self.unit)

    def _memory(self, counted: list[tuple[int, Term]]) -> mathopt.LinearExpression:
        """The memory of so many VMs of some classes, in units."""
        classes = self._problem.classes
        return mathopt.fast_sum(classes[k].memory_mib // self.unit * count for k, count in counted)

    def _count_those_that_demand_nothing(self, hosted: list[tuple[int, Term]], used: Term) -> None:
        """VMs without demand fit everywhere, but not on a node that has no VMs."""
        classes = self._problem.classes
        free = [count for k, count in hosted if not classes[k].centi_cpus and not classes[k].memory_mib]
        if free:
            self._model.add_linear_constraint(mathopt.fast_sum(free) <= sum(self._problem.totals()) * used)


def _variables(terms: Mapping[Key, Term]) -> Iterator[tuple[Key, mathopt.Variable]]:
    """The variables among the terms; the others are numbers."""
    return ((key, term) for key, term in terms.items() if isinstance(term, mathopt.Variable))
