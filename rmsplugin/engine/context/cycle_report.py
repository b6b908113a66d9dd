"""Cycle report: the actions of a cycle, and its faults; a fault ends only the part of the cycle where it happens."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from types import TracebackType

from rmsplugin.errors import RmspluginError

log = logging.getLogger(__name__)


@dataclass
class CycleReport:
    """The actions of a cycle, in a sentence, and the problems of the site."""

    time: float = 0.0
    seconds: float = 0.0
    begun: list[str] = field(default_factory=list)
    waiting: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def sentence(self) -> str:
        """For a person."""
        begun = "; ".join(self.begun) or "nothing to do"
        return f"{begun}; {self.waiting} waiting" if self.waiting else begun

    def alone(self, what: str) -> Alone:
        """Let an error, even one of our own, end only the body of the block; it becomes a problem, named ``what``."""
        return Alone(self.problems, what)


class Alone:
    """A block whose errors become problems. It is entered for each vjob: a generator would take three times as long."""

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
        if error is None:
            return False
        if isinstance(error, RmspluginError):
            self._problems.append(f"{self._what}: {error}")
        elif isinstance(error, Exception):
            log.error("%s", self._what, exc_info=error)
            self._problems.append(f"{self._what}: internal error: {error!r}")
        return isinstance(error, Exception)
