"""Liveness: whether a process answers at all, so that one that is stopped, or whose host is gone, costs a second once.

The kernel of a stopped process takes connections on. So a *look* is a request that costs nothing, and that a process
answers whatever else it does: no byte of an answer within a second means that it is silent. A silent one is looked at
again and again in the background, and asked for nothing until it answers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import TypeVar

from rmsplugin.client import LOOK, LOOK_S
from rmsplugin.errors import UnreachableError

#: Of a unix socket its path, else host and port.
Way = str | tuple[str, int]
T = TypeVar("T")

#: A request that is not answered so soon has the process looked at; and again after so long. In seconds.
_SOON_S, _AGAIN_S = 0.25, 2.0
#: Seconds between two looks at one that is silent.
_SILENT_S = 1.0


class Liveness:
    """What is known of processes; in one event loop."""

    def __init__(self) -> None:
        """Take all for alive."""
        self._silent: dict[Way, asyncio.Task[None]] = {}

    def refuse_silent(self, way: Way, who: str) -> None:
        """Raise UnreachableError for one that was silent when it was looked at last."""
        if way in self._silent:
            raise _silent(who)

    async def require(self, way: Way, who: str) -> None:
        """Look at it. Raises UnreachableError if it is silent: nothing was asked of it."""
        self.refuse_silent(way, who)
        if not await self._looked_at(way, LOOK_S):
            raise _silent(who)

    async def answer(self, asking: Awaitable[T], way: Way, who: str) -> T:
        """Wait for an answer for as long as the process is alive. Raises UnreachableError if it is not, or as asked."""
        task = asyncio.ensure_future(asking)
        try:
            done, _ = await asyncio.wait({task}, timeout=_SOON_S)
            bound_s = LOOK_S - _SOON_S
            while not done:
                if not await self._looked_at(way, bound_s) and not task.done():
                    raise _silent(who)
                done, _ = await asyncio.wait({task}, timeout=_AGAIN_S)
                bound_s = LOOK_S
            return task.result()
        finally:
            # Also where it has failed in the instant in which this is given up: an error that nobody takes is logged.
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task

    async def close(self) -> None:
        """Look at nobody any more."""
        for task in list(self._silent.values()):
            task.cancel()
        self._silent.clear()

    async def _looked_at(self, way: Way, bound_s: float) -> bool:
        """Whether it answers in time; one that does not is watched from now on."""
        try:
            await await_first_byte(way, bound_s)
        except TimeoutError:
            if way not in self._silent:
                self._silent[way] = asyncio.get_running_loop().create_task(self._watch(way))
            return False
        except OSError:
            return True  # it listens no more: whoever asks it is told so at once
        return True

    async def _watch(self, way: Way) -> None:
        try:
            while True:
                await asyncio.sleep(_SILENT_S)
                with contextlib.suppress(TimeoutError):
                    await await_first_byte(way, LOOK_S)
                    return
        except OSError:
            return
        finally:
            self._silent.pop(way, None)


async def await_first_byte(way: Way, bound_s: float) -> None:
    """Look at a process. Raises TimeoutError if no byte came in time, OSError if there is no connection."""
    async with asyncio.timeout(bound_s):
        connecting = asyncio.open_unix_connection(way) if isinstance(way, str) else asyncio.open_connection(*way)
        reader, writer = await connecting
        try:
            writer.write(LOOK)
            await reader.read(1)
        finally:
            writer.close()


def _silent(who: str) -> UnreachableError:
    return UnreachableError(f"{who} does not answer: its process stands still, or its host cannot be reached")
