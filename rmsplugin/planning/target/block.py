"""Block: the program of some nodes, while all others keep what they have in an answer that is known."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from ortools.math_opt.python import mathopt

from rmsplugin.packing.search import Search
from rmsplugin.planning.target.counts import Counts
from rmsplugin.planning.target.keep import Kept
from rmsplugin.planning.target.node_terms import Level, NodeTerms, Term
from rmsplugin.planning.target.replacement import Replacement
from rmsplugin.planning.target.solver import solve


@dataclass(slots=True)
class Spare:
    """Sums over all nodes by class, kept up to date: arrivals beyond those that have to be early, or late.

    A resume has to be as early as its vjob is; any other arrival may be early or late.
    """

    early: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    late: dict[int, int] = field(default_factory=lambda: defaultdict(int))

    @classmethod
    def of(cls, problem: Replacement, counts: Counts) -> Spare:
        """Count all nodes."""
        spare = cls()
        for i in range(len(problem.places)):
            spare.count(problem, counts, i, 1)
        for mover in problem.movers:
            if mover.group is not None:
                spare._of_group(counts, mover.group)[mover.vm_class] -= 1
        return spare

    def count(self, problem: Replacement, counts: Counts, i: int, sign: int) -> None:
        """Add what one node has (``sign`` 1), or take it off (-1)."""
        for spare, arrivals in ((self.early, counts.early[i]), (self.late, counts.late[i])):
            for k, count in arrivals.items():
                spare[k] += sign * count
        for (k, group), names in problem.places[i].images.items():
            remote = len(names) - counts.kept[i].images.get((k, group), 0)
            self._of_group(counts, group)[k] -= sign * remote

    def _of_group(self, counts: Counts, group: int) -> dict[int, int]:
        return self.early if group in counts.early_groups else self.late


class Block:
    """Builds the program of a few nodes. A vjob all of whose saved states lie on these may become early or late."""

    def __init__(
        self,
        problem: Replacement,
        kept: list[Kept],
        level: Level,
        counts: Counts,
        spare: Spare,
        nodes: Sequence[int],
        no_more_nodes: bool = False,
    ) -> None:
        """Build it.

        Args:
            problem: the whole problem.
            kept: of each place, with its bound.
            level: what the first pool costs.
            counts: what is known; changed by ``solve``.
            spare: of these counts; changed by ``solve``.
            nodes: indices of the places that are free to change.
            no_more_nodes: no more of these nodes than now may have VMs in the end.
        """
        self._problem, self._counts, self._spare, self._nodes = problem, counts, spare, nodes
        self._model = mathopt.Model(name="vmrp-block")
        inside = self._groups_inside()
        flags: dict[int, Term] = {group: int(group in counts.early_groups) for group in self._groups()}
        self._free = {group: self._model.add_binary_variable() for group in sorted(inside)}
        used = self._used() if no_more_nodes else None
        self._terms = NodeTerms(
            self._model, problem, kept, level, {**flags, **self._free}, self._most(), used, detours=False
        )
        for i in nodes:
            self._terms.add(i)
        self._add_balances()
        self._model.minimize(self._terms.cost())

    def solve(self, search: Search) -> float:
        """Change the counts (and what is spare) to the best found, which is as good as before; the seconds it took."""
        flags = {variable: float(group in self._counts.early_groups) for group, variable in self._free.items()}
        found = solve(self._model, search, {**self._terms.hint(self._counts), **flags})
        if found.values is not None and found.objective is not None and found.objective <= self._cost_now():
            for i in self._nodes:
                self._spare.count(self._problem, self._counts, i, -1)
            early = {group for group, variable in self._free.items() if round(found.values[variable])}
            self._counts.early_groups = self._counts.early_groups - self._free.keys() | early
            self._terms.read(found.values, self._counts, self._nodes)
            for i in self._nodes:
                self._spare.count(self._problem, self._counts, i, 1)
        return found.seconds

    @property
    def variables(self) -> int:
        """How many variables the program has."""
        return int(self._model.get_num_variables())

    def _cost_now(self) -> int:
        """The objective of what is there, in memory units."""
        wait_mib = self._terms.wait * self._terms.unit
        return sum(cost_of(self._problem, self._counts, i, wait_mib) for i in self._nodes) // self._terms.unit

    def _groups(self) -> set[int]:
        return {group for i in self._nodes for _, group in self._problem.places[i].images}

    def _groups_inside(self) -> set[int]:
        """Vjobs whose saved states are all on these nodes."""
        found: dict[int, int] = defaultdict(int)
        for i in self._nodes:
            for (_, group), names in self._problem.places[i].images.items():
                found[group] += len(names)
        return {group for group, count in found.items() if count == self._problem.group_sizes[group]}

    def _used(self) -> dict[int, Term]:
        used: dict[int, Term] = {i: self._model.add_binary_variable() for i in self._nodes}
        now = sum(self._counts.are_on(i) for i in self._nodes)
        self._model.add_linear_constraint(mathopt.fast_sum(used.values()) <= now)
        return used

    def _most(self) -> list[int]:
        """How many VMs of each class can arrive at one of the nodes: those that are on any of them, or could be."""
        most = [0] * len(self._problem.classes)
        for i in self._nodes:
            for arrivals in (self._counts.early[i], self._counts.late[i]):
                for k, count in arrivals.items():
                    most[k] += count
            for k, names in self._problem.places[i].residents.items():
                most[k] += len(names)
            for (k, _), names in self._problem.places[i].images.items():
                most[k] += len(names)
        return most

    def _add_balances(self) -> None:
        """As many arrivals as there were, and as many as leave more; and as early as the vjobs need them."""
        counts, terms = self._counts, self._terms
        change: dict[int, list[Term]] = defaultdict(list)
        early: dict[int, list[Term]] = defaultdict(list)
        late: dict[int, list[Term]] = defaultdict(list)
        for sums, variables, arrivals in ((early, terms.early, counts.early), (late, terms.late, counts.late)):
            for (_, k), variable in variables.items():
                sums[k].append(variable)
                change[k].append(variable)
            for i in self._nodes:
                for k, count in arrivals[i].items():
                    sums[k].append(-count)
                    change[k].append(-count)
        for (i, k), leaving in terms.leave.items():
            before = len(self._problem.places[i].residents[k]) - counts.kept[i].residents.get(k, 0)
            change[k].append(before - leaving)
        for (i, k, group), remote in terms.remote.items():
            before = len(self._problem.places[i].images[k, group]) - counts.kept[i].images.get((k, group), 0)
            change[k].append(before - remote)
            was_early = group in counts.early_groups
            (early if was_early else late)[k].append(before)
            if group not in self._free:
                (early if was_early else late)[k].append(-remote)
            else:
                first, later = self._split(len(self._problem.places[i].images[k, group]), group, remote)
                early[k].append(-first)
                late[k].append(-later)
        for k in change:
            self._model.add_linear_constraint(mathopt.fast_sum(change[k]) == 0)
            for sums, spare in ((early, self._spare.early), (late, self._spare.late)):
                if any(isinstance(term, mathopt.LinearBase) for term in sums[k]):
                    self._model.add_linear_constraint(mathopt.fast_sum(sums[k]) >= -spare.get(k, 0))

    def _split(self, size: int, group: int, remote: mathopt.Variable) -> tuple[mathopt.Variable, mathopt.Variable]:
        """The remote resumes of one node, class and vjob, early and late: one of the two is 0."""
        first, later = (self._model.add_integer_variable(lb=0, ub=size) for _ in range(2))
        self._model.add_linear_constraint(first + later == remote)
        self._model.add_linear_constraint(first <= size * self._free[group])
        self._model.add_linear_constraint(later <= size * (1 - self._free[group]))
        return first, later


def cost_of(problem: Replacement, counts: Counts, i: int, wait_mib: int) -> int:
    """What one node costs in MiB: what leaves it or resumes elsewhere, and what waits for the first pool."""
    place, kept = problem.places[i], counts.kept[i]
    cost = wait_mib * sum(counts.late[i].values())
    for k, names in place.residents.items():
        cost += problem.classes[k].memory_mib * (len(names) - kept.residents.get(k, 0))
    for (k, group), names in place.images.items():
        local = kept.images.get((k, group), 0)
        cost += problem.classes[k].memory_mib * (len(names) - local)
        cost += wait_mib * local if group not in counts.early_groups else 0
    return cost
