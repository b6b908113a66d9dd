"""Budget: the rest of a search's limits, shared by the parts that use it one after the other."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from ortools.sat.python import cp_model

from rmsplugin.packing.search import Search
from rmsplugin.packing.solver_time import SPENT

#: Simple steps (elements of arrays) that count as a second.
STEPS_A_SECOND = 2e8

#: The cost of handling one row, class or kind in Python, however short, in steps.
CALL = 6_000

#: The cost of giving a solver one variable, in steps.
VARIABLE = 2_000

#: The same for a program that goes to HiGHS, with the rows in which the variable is.
MATHOPT_VARIABLE = 6_000

#: The seconds of one unit of CP-SAT: 1.5 to 5 were measured in the small models of this package.
CP_SAT_UNIT = 3.0

#: Monotonic seconds.
Clock = Callable[[], float]


class Budget:
    """The seconds, or the deterministic units, that a search has left.

    With a clock the limit is a deadline, whatever takes the time. Without a clock solvers report their time, and
    other work is estimated by its steps. With a deterministic limit only deterministic amounts count, and no clock, so
    that the answer depends on nothing else; unless the search has a net, and that strikes.
    """

    def __init__(self, search: Search, clock: Clock | None = None) -> None:
        """Begin with all of the limits, from now on."""
        self._search = search
        self.deterministic = search.deterministic_limit is not None
        limit = search.deterministic_limit
        self._net = search.net if self.deterministic else None
        self._clock = None if self.deterministic else clock
        self._left = search.time_limit_s if limit is None else limit
        self._since = 0.0 if self._clock is None else self._clock()
        self._whole, self._reserved = self, 0.0  # for a part: the whole, and the amount left for others

    @property
    def left(self) -> float:
        """The remaining seconds or deterministic units."""
        whole = self._whole
        if whole is not self:
            return whole.left - self._reserved
        return self._left if self._clock is None else self._left - (self._clock() - self._since)

    @property
    def steps_left(self) -> float:
        """The number of simple steps for which the remaining time suffices."""
        return max(0.0, self.left) * STEPS_A_SECOND

    def charge(self, steps: float) -> None:
        """Subtract the time of work outside of a solver, estimated by its steps."""
        self._take(steps / STEPS_A_SECOND)

    def charge_seconds(self, seconds: float) -> None:
        """Subtract measured seconds; with a deterministic limit these do not count (charge steps as well)."""
        if not self.deterministic:
            self._take(seconds)

    def _take(self, amount: float) -> None:
        """Subtract an amount; time that a clock sees need not be subtracted."""
        if self._clock is None:
            self._whole._left -= amount

    def part(self, share: float) -> Budget:
        """A share of the rest, for a part that may use no more than that; its use is subtracted here."""
        part = Budget(self._search, self._clock)
        part._whole, part._reserved = self._whole, self._reserved + self.left * (1 - share)
        return part

    def limits(self, limit: float) -> Search:
        """The limits for one run of a solver: so many seconds, or deterministic units."""
        limit = max(0.0, limit)
        if self.deterministic:
            return replace(self._search, deterministic_limit=limit)
        return replace(self._search, time_limit_s=limit)

    def charge_run(self, units: float, seconds: float) -> None:
        """Subtract one run of a solver: its deterministic units, and its seconds."""
        self._take(units if self.deterministic else seconds)

    def determines(self, share: float) -> Search:
        """The limits on which the answer depends of a run with a share of the rest: what is proven needs no clock."""
        limit = max(self.left * share, 0.0) if self.deterministic else None
        return replace(self._search, time_limit_s=0.0, deterministic_limit=limit, net=None)

    @property
    def exhausted(self) -> bool:
        """Whether starting a solver is useless now."""
        return self.left <= 1e-3 or (self._net is not None and self._net.refuses())

    @property
    def is_repeatable(self) -> bool:
        """Whether another search would end where this one did: its limits are deterministic, and no net has struck."""
        return self.deterministic and not (self._net is not None and self._net.has_struck)

    @property
    def clock_s(self) -> float:
        """The seconds of the clock after which a solver has to end, whatever it has found."""
        if not self.deterministic:
            return max(self.left, 0.0)
        return math.inf if self._net is None else self._net.left_s

    def tell_net(self, seconds: float, is_proven: bool) -> None:
        """Tell the net, if there is one, of a run of a solver: see ``Net.take``."""
        if self._net is not None:
            self._net.take(seconds, is_proven)

    def solve(self, model: cp_model.CpModel, share: float = 1.0) -> tuple[cp_model.CpSolver, cp_model.CpSolverStatus]:
        """Run CP-SAT on a model for at most a share of the rest, and subtract its use."""
        solver = cp_model.CpSolver()
        parameters = solver.parameters
        parameters.random_seed = self._search.seed
        parameters.num_workers = self._search.workers
        limit = max(self.left * share, 0.0)
        if self.deterministic:
            parameters.max_deterministic_time = limit / CP_SAT_UNIT
            parameters.interleave_search = self._search.workers > 1  # else its threads race, and the fastest wins
            parameters.max_time_in_seconds = self.clock_s
        else:
            parameters.max_time_in_seconds = limit
        with SPENT.running():
            status = solver.solve(model)
        self.tell_net(solver.wall_time, status in (cp_model.OPTIMAL, cp_model.INFEASIBLE))
        units = CP_SAT_UNIT * solver.response_proto.deterministic_time
        self._take(units if self.deterministic else solver.wall_time)
        return solver, status
