"""Node terms: the variables and limits of single nodes in an integer program over counts (see ``program``)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ortools.math_opt.python import mathopt

from rmsplugin.planning.target.counts import Counts
from rmsplugin.planning.target.keep import Kept
from rmsplugin.planning.target.replacement import Place, Replacement

Term: TypeAlias = int | float | mathopt.LinearBase


@dataclass(frozen=True, slots=True)
class Level:
    """What the first pool costs: a late action waits so long (MiB), and no early one costs more than ``dearest_mib``.

    Every plan lies in some level with the two equal; with ``dearest_mib`` None the program is a relaxation of all plans
    whose first pool costs ``wait_mib`` or more.
    """

    wait_mib: int
    dearest_mib: int | None = None

    def is_too_dear(self, cost_mib: int) -> bool:
        """Whether an action of that cost cannot be early."""
        return self.dearest_mib is not None and cost_mib > self.dearest_mib


class NodeTerms:
    """What happens at some nodes: how many VMs leave, resume, stay asleep elsewhere, and arrive early and late.

    Memory is counted in units: the greatest common divisor of all costs; capacities are cut to it, and coefficients
    become small.
    """

    def __init__(
        self,
        model: mathopt.Model,
        problem: Replacement,
        kept: Sequence[Kept],
        level: Level,
        group_early: Mapping[int, Term],
        totals: Sequence[int],
        used: Mapping[int, Term] | None = None,
        detours: bool = True,
        two_pools: bool = False,
    ) -> None:
        """Nothing is added to the model yet.

        Args:
            model: what to add to.
            problem: the whole problem.
            kept: of each place, with its bound.
            level: what the first pool costs.
            group_early: for each vjob that resumes, whether it is early: a binary variable, or 0 or 1.
            totals: how many VMs of each class arrive at a node at most.
            used: for each place, whether it may have VMs in the end; None: all may.
            detours: whether a VM may resume where it cannot stay, as early as its vjob, and migrate late.
            two_pools: whether all that is late must find its room when what is early has been done.
        """
        self.leave: dict[tuple[int, int], mathopt.Variable] = {}
        self.leave_late: dict[tuple[int, int], mathopt.Variable] = {}  # of those; only with ``two_pools``
        self.local_early: dict[tuple[int, int, int], mathopt.Variable] = {}
        self.local_late: dict[tuple[int, int, int], mathopt.Variable] = {}
        self.remote: dict[tuple[int, int, int], mathopt.Variable] = {}
        self.detour: dict[tuple[int, int, int], mathopt.Variable] = {}
        self.early: dict[tuple[int, int], mathopt.Variable] = {}
        self.late: dict[tuple[int, int], mathopt.Variable] = {}
        self.unit = math.gcd(level.wait_mib, *(k.memory_mib for k in problem.classes)) or 1
        self.wait = level.wait_mib // self.unit
        self._model, self._problem, self._kept, self._level = model, problem, kept, level
        self._group_early, self._totals, self._used, self._detours = group_early, totals, used, detours
        self._two_pools = two_pools

    def add(self, i: int) -> None:
        """Add a node, by its index among the places."""
        problem, place = self._problem, self._problem.places[i]
        hosted: list[tuple[int, Term]] = []  # class, how many in the end
        early: list[tuple[int, Term]] = []
        lost: list[Term] = []  # what it costs that the node does not keep, or keeps waiting
        for k, names in place.residents.items():
            leave = self.leave[i, k] = self._integer(len(names))
            hosted.append((k, len(names) - leave))
            if self._two_pools:
                later = self.leave_late[i, k] = self._integer(len(names))
                self._model.add_linear_constraint(later <= leave)
            lost.append(problem.classes[k].memory_mib // self.unit * leave)
        for (k, group), names in place.images.items():
            too_dear = self._level.is_too_dear(problem.classes[k].memory_mib)
            first, later, remote = (self._integer(most) for most in (0 if too_dear else len(names), *[len(names)] * 2))
            self.local_early[i, k, group], self.local_late[i, k, group] = first, later
            self.remote[i, k, group] = remote
            detour = self.detour[i, k, group] = self._integer(len(names) if self._detours and not too_dear else 0)
            self._model.add_linear_constraint(first + later + remote + detour == len(names))
            self._model.add_linear_constraint(detour <= len(names) * self._group_early[group])
            self._model.add_linear_constraint(first <= len(names) * self._group_early[group])
            self._model.add_linear_constraint(later <= len(names) * (1 - self._group_early[group]))
            hosted += [(k, first), (k, later)]
            early += [(k, first), (k, detour)]
            lost += [problem.classes[k].memory_mib // self.unit * (remote + detour), self.wait * later]
        for k in range(len(self._totals)):
            self._add_arrivals(i, place, k, hosted, early)
        self._add_limits(i, place, hosted, early, lost)

    def cost(self) -> mathopt.LinearExpression:
        """In memory units: what leaves or resumes remotely costs its memory; what is late waits."""
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
        """The values of the variables in an answer that is known.

        HiGHS fails on a hint beyond a variable's bounds, which differ from level to level.
        """
        places = self._problem.places
        values: dict[mathopt.Variable, float] = {}
        for (i, k), variable in self.leave.items():
            values[variable] = len(places[i].residents[k]) - counts.kept[i].residents.get(k, 0)
        for (i, k, group), variable in self.remote.items():
            local = counts.kept[i].images.get((k, group), 0)
            values[variable] = len(places[i].images[k, group]) - local
            values[self.local_early[i, k, group]] = local if group in counts.early_groups else 0
            values[self.local_late[i, k, group]] = 0 if group in counts.early_groups else local
        for variables, arrivals in ((self.early, counts.early), (self.late, counts.late)):
            values |= {variable: arrivals[i].get(k, 0) for (i, k), variable in variables.items()}
        return {variable: min(value, variable.upper_bound) for variable, value in values.items()}

    def read(self, values: Mapping[mathopt.Variable, float], counts: Counts, places: Iterable[int]) -> None:
        """Write the values of a solution into the counts of these places, which were added."""
        for i in places:
            counts.kept[i], counts.early[i], counts.late[i] = Kept(), {}, {}
        for (i, k), variable in self.leave.items():
            leave = round(values[variable])
            counts.kept[i].residents[k] = len(self._problem.places[i].residents[k]) - leave
            if (i, k) in self.leave_late:
                counts.early_out[i, k] = leave - round(values[self.leave_late[i, k]])
        for (i, k, group), variable in self.remote.items():
            gone = round(values[variable]) + round(values[self.detour[i, k, group]])
            counts.kept[i].images[k, group] = len(self._problem.places[i].images[k, group]) - gone
        for arrivals, variables in ((counts.early, self.early), (counts.late, self.late)):
            for (i, k), variable in variables.items():
                if round(values[variable]):
                    arrivals[i][k] = round(values[variable])

    def _integer(self, upper: int) -> mathopt.Variable:
        return self._model.add_integer_variable(lb=0, ub=upper)

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
            self.early[i, k] = self._integer(most_early)
            hosted.append((k, self.early[i, k]))
            early.append((k, self.early[i, k]))
        if most > 0:
            self.late[i, k] = self._integer(most)
            hosted.append((k, self.late[i, k]))

    def _add_limits(
        self,
        i: int,
        place: Place,
        hosted: list[tuple[int, Term]],
        early: list[tuple[int, Term]],
        lost: list[Term],
    ) -> None:
        """The node is viable in the end (memory, CPUs), and takes no more memory early than is free now.

        With two pools it is viable as well while what leaves late is still there beside what comes.
        """
        model, classes = self._model, self._problem.classes
        used: Term = 1 if self._used is None else self._used[i]
        if hosted:
            cpus = mathopt.fast_sum(classes[k].centi_cpus / 100 * count for k, count in hosted)
            memory = mathopt.fast_sum(classes[k].memory_mib // self.unit * count for k, count in hosted)
            model.add_linear_constraint(cpus - place.capacity_c / 100 * used <= 0)
            model.add_linear_constraint(memory - place.capacity_m // self.unit * used <= 0)
            if there := [(k, self.leave_late[i, k]) for k in place.residents if (i, k) in self.leave_late]:
                memory += mathopt.fast_sum(classes[k].memory_mib // self.unit * count for k, count in there)
                model.add_linear_constraint(memory <= place.capacity_m // self.unit)
            self._count_those_that_demand_nothing(hosted, used)
        if early:
            memory = mathopt.fast_sum(classes[k].memory_mib // self.unit * count for k, count in early)
            model.add_linear_constraint(memory <= place.early_m // self.unit)
        if self._kept[i].bound_mib:
            # Implied by the rest for whole numbers only, and what makes the bound of the linear relaxation strong.
            model.add_linear_constraint(mathopt.fast_sum(lost) >= -(-self._kept[i].bound_mib // self.unit))

    def _count_those_that_demand_nothing(self, hosted: list[tuple[int, Term]], used: Term) -> None:
        """They fit everywhere, but not on a node that has no VMs."""
        classes = self._problem.classes
        free = [count for k, count in hosted if not classes[k].centi_cpus and not classes[k].memory_mib]
        if free and self._used is not None:
            self._model.add_linear_constraint(mathopt.fast_sum(free) <= sum(self._problem.totals()) * used)
