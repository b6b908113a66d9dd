"""Cycle report: the actions of a cycle, and its faults; a fault ends only the part of the cycle where it happens."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

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

    @contextmanager
    def alone(self, what: str) -> Iterator[None]:
        """Let an error, even one of our own, end only the body of the block; it becomes a problem, named ``what``."""
        try:
            yield
        except RmspluginError as error:
            self.problems.append(f"{what}: {error}")
        except Exception as bug:
            log.exception("%s", what)
            self.problems.append(f"{what}: internal error: {bug!r}")
