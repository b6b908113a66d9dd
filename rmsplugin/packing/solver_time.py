"""Solver time: the seconds that solvers take in this process, where somebody has given it a clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class SolverTime:
    """A sum that only grows. Searches depend on nothing of it; one thread at a time runs solvers.

    Attributes:
        seconds: of all runs of solvers.
        clock: seconds; one that stands still counts nothing.
    """

    def __init__(self) -> None:
        """No solver has run yet, and there is no clock."""
        self.seconds = 0.0
        self.clock: Callable[[], float] = float

    @contextmanager
    def running(self) -> Iterator[None]:
        """While a solver runs."""
        began = self.clock()
        yield
        self.seconds += self.clock() - began


#: Of this process.
SPENT = SolverTime()
