"""Cycle report: what a cycle did, and what went wrong in it; one fault ends nothing but what it is a fault of."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rmsplugin.errors import RmspluginError

log = logging.getLogger(__name__)


@dataclass
class CycleReport:
    """What a cycle did, in a sentence, and what is wrong with the site."""

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
        """Let an error, be it one of our own, harm only what is done inside; it is among the problems as ``what``."""
        try:
            yield
        except RmspluginError as error:
            self.problems.append(f"{what}: {error}")
        except Exception as bug:
            log.exception("%s", what)
            self.problems.append(f"{what}: internal error: {bug!r}")
