"""Previews: the context switch that the next cycle would make, for all callers, at a bounded price.

A preview keeps cycles waiting, and may take as long as a cycle. So only one is made at a time, and callers that come
meanwhile share its result. The result is reused for as long as it took to make: previews never take more than half of
the time.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from rmsplugin.engine.context.clock import Clock
from rmsplugin.engine.cycle import Cycle
from rmsplugin.engine.decide.deciding import Found
from rmsplugin.engine.serve.turns import Turns

#: Reuse a result for at least this long.
_FRESH_S = 1.0


@dataclass(frozen=True, slots=True)
class Preview:
    """A result.

    Attributes:
        found: the context switch that the next cycle would make.
        time: when it was asked for, in seconds since the epoch.
        fresh_until: of the monotonic clock.
    """

    found: Found
    time: float
    fresh_until: float


class Previews:
    """Makes previews. Used in one event loop; the work is done in one thread of ``turns``."""

    def __init__(self, clock: Clock, cycle: Cycle, turns: Turns) -> None:
        self._clock = clock
        self._cycle = cycle
        self._turns = turns
        self._last: Preview | None = None
        self._coming: asyncio.Task[Preview] | None = None

    async def newest(self) -> Preview:
        """A preview that is fresh enough, or the next one.

        Raises:
            RmspluginError: the preview could not be made.
        """
        if self._last is not None and time.monotonic() < self._last.fresh_until:
            return self._last
        if self._coming is None or self._coming.done():
            self._coming = asyncio.create_task(self._turns.take("preview", self._make))
            self._coming.add_done_callback(self._ended)
        # A caller that breaks off its request must not take the result from the others.
        return await asyncio.shield(self._coming)

    def _make(self) -> Preview:
        asked, began = self._clock.now(), time.monotonic()
        found = self._cycle.preview()
        ended = time.monotonic()
        return Preview(found, asked, ended + max(_FRESH_S, ended - began))

    def _ended(self, task: asyncio.Task[Preview]) -> None:
        self._coming = None
        if not task.cancelled() and task.exception() is None:
            self._last = task.result()
