"""Clocked: the lease of an engine that leads, by its own clock."""

from __future__ import annotations

import time
from collections.abc import Callable

from rmsplugin.adapters.coordination.base import NEVER, Coordination
from rmsplugin.errors import UnavailableError


def steady_s() -> float:
    """Seconds that pass, while the process stands still and while the host sleeps, too; they are never set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class ClockedLease:
    """A ``Lease`` that is held while the clock is before the coordination's ``valid_until``."""

    def __init__(self, coordination: Coordination, clock: Callable[[], float] = steady_s) -> None:
        """Hold nothing yet; ``clock``: that of ``coordination``."""
        self._coordination, self._clock = coordination, clock

    def acquire(self) -> None:
        """See ``Lease``."""
        if not self.held():
            self._coordination.campaign()

    def renew(self) -> None:
        """See ``Lease``: a service that does not answer ends no lease before its time."""
        if self.lost():
            raise UnavailableError("this engine does not lead")
        try:
            self._coordination.campaign()
        except UnavailableError:
            if not self.held():
                raise

    def held(self) -> bool:
        """See ``Lease``."""
        until = self.held_until()
        return self._clock() < until

    def held_until(self) -> float:
        """See ``Lease``."""
        return self._coordination.valid_until()

    def lost(self) -> bool:
        """See ``Lease``."""
        return self._coordination.valid_until() == NEVER

    @property
    def epoch(self) -> int:
        """See ``Lease``."""
        if not self.held():
            raise UnavailableError("this engine does not lead")
        return self._coordination.epoch

    def release(self, *, at_rest: bool = True) -> None:
        """See ``Lease``."""
        self._coordination.resign(at_rest=at_rest)
