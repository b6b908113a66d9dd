"""Watchdog: tells the service manager from the event loop that this process lives; a loop that stands still is silent.

The service manager kills and starts again a process that is silent for the unit's WatchdogSec. The engine of a group
has no unit: it kills itself where the rest of it stands still, and its manager starts it again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable

import sdnotify

log = logging.getLogger(__name__)

#: Of the time after which the process is killed: one word that is late kills nobody.
_PART = 5


class Watchdog:
    """Feeds the watchdog of this process's unit; without one, it does nothing."""

    def __init__(self) -> None:
        """Read from the environment whether there is one, for this process and not for its parent."""
        self._notifier = sdnotify.SystemdNotifier()
        usec, process = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
        watched = usec.isdecimal() and process in ("", str(os.getpid()))
        self._period_s = int(usec) / 1e6 / _PART if watched else 0.0

    def feed(self) -> None:
        """Say once that this process lives."""
        if self._period_s:
            self._notifier.notify("WATCHDOG=1")

    async def feed_while(self, is_well: Callable[[], bool]) -> None:
        """Say so again and again, in this event loop, as long as it turns and the rest of the process is well."""
        while self._period_s:
            if is_well():
                self.feed()
            await asyncio.sleep(self._period_s)


async def kill_unless(is_well: Callable[[], bool], look_s: float) -> None:
    """Kill this process as soon as the rest of it is not well: for one that its parent starts again.

    A thread that hangs cannot be ended, and would keep a process that ends in order from ending.

    Args:
        is_well: asked again and again, in this event loop.
        look_s: seconds between two questions.
    """
    while is_well():
        await asyncio.sleep(look_s)
    log.error("no cycle has begun or ended for too long: this process is killed, to be started again")
    os.kill(os.getpid(), signal.SIGKILL)
