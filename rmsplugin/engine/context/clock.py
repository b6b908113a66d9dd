"""Clock: the engine's time, which tests and simulations replace."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    """Time, injected: seconds since the epoch, a way to let time pass, and a way to wait for an event meanwhile.

    The time of ``now`` never goes back, and never jumps forward (``steady_clock``).
    """

    now: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    wait: Callable[[threading.Event, float], object] = threading.Event.wait
    ahead_s: Callable[[], float] = lambda: 0.0  # by how much ``now`` is ahead of the RMS's clock, which is the host's
    problem: Callable[[], str] = lambda: ""  # a sentence about a fault of the host's clock; empty: none

    def of_the_host(self) -> float:
        """The time of the host's clock, which may jump: for times of day, as people mean them."""
        return self.now() - self.ahead_s()
