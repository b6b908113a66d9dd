"""Cycle report: the actions of a cycle, and its faults; a fault ends only the part of the cycle where it happens."""

from __future__ import annotations

import enum
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import TypeVar

from rmsplugin.errors import RmspluginError

log = logging.getLogger(__name__)

T = TypeVar("T")


class Phase(enum.StrEnum):
    """A part of a cycle."""

    LOOK = "look"  # at Slurm and the nodes
    FOLLOW = "follow"  # meet new jobs, and bring vjobs in line with what was seen
    DECIDE = "decide"  # assess, propose, check, begin
    CARE = "care"  # rooms and checkpoints


@dataclass
class CycleReport:
    """The actions of a cycle, in a sentence, and the problems of the site.

    Attributes:
        phases: seconds of each part.
        proposed_s: seconds that the proposals took, the solver's among them.
        solver_s: seconds that solvers took for them; those of proposals beside each other are added up.
        waits: by code of the reason, how many vjobs wait for it.
        failed: the cycle ended early, for what it needs did not answer.
    """

    time: float = 0.0
    seconds: float = 0.0
    begun: list[str] = field(default_factory=list)
    waiting: int = 0
    problems: list[str] = field(default_factory=list)
    phases: dict[Phase, float] = field(default_factory=dict)
    proposed_s: float = 0.0
    solver_s: float = 0.0
    waits: Counter[str] = field(default_factory=Counter)
    failed: bool = False
    _entered: tuple[Phase, float] | None = None

    def enter(self, phase: Phase | None) -> None:
        """End the part of the cycle that is under way, and begin another; None: begin none."""
        now = time.monotonic()
        if self._entered is not None:
            before, since = self._entered
            self.phases[before] = self.phases.get(before, 0.0) + now - since
        self._entered = None if phase is None else (phase, now)

    @property
    def sentence(self) -> str:
        """For a person."""
        begun = "; ".join(self.begun) or "nothing to do"
        return f"{begun}; {self.waiting} waiting" if self.waiting else begun

    def alone(self, what: str) -> Alone:
        """Let an error, even one of our own, end only the body of the block; it becomes a problem, named ``what``."""
        return Alone(self.problems, what)

    def each_alone(self, everything: Iterable[T], act: Callable[[T], None], what: Callable[[T], str]) -> None:
        """Act on each; an error ends only its own act, as in ``alone``. ``what`` names one whose act has failed.

        A cycle acts on tens of thousands: a block around each costs more than most of the acts.
        """
        for each in everything:
            try:
                act(each)
            except Exception as error:
                take_error(self.problems, what(each), error)


class Alone:
    """A block whose errors become problems. It is entered often: a generator would take three times as long."""

    __slots__ = ("_problems", "_what")

    def __init__(self, problems: list[str], what: str) -> None:
        self._problems = problems
        self._what = what

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Keep an error here, but none that is to end the engine."""
        if not isinstance(error, Exception):
            return False
        take_error(self._problems, self._what, error)
        return True


def take_error(problems: list[str], what: str, error: Exception) -> None:
    """Let an error of ``what`` become one of the problems; one of our own is logged, too."""
    if isinstance(error, RmspluginError):
        problems.append(f"{what}: {error}")
    else:
        log.error("%s", what, exc_info=error)
        problems.append(f"{what}: internal error: {error!r}")
