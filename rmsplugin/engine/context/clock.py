"""Clock: time as the engine takes it, which tests and simulations replace."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    """Time, injected: seconds since the epoch, a way to let some pass, and one to wait for an event meanwhile.

    What ``now`` tells never goes back, nor forward faster than time passes (``steady_clock``).
    """

    now: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    wait: Callable[[threading.Event, float], object] = threading.Event.wait
    ahead_s: Callable[[], float] = lambda: 0.0  # of the RMS's clock, which is the host's
    problem: Callable[[], str] = lambda: ""  # what is to be said of the host's clock
