"""Turns: the few threads in which requests are worked on, shared fairly between the callers.

Each user has at most two threads at a time. Further requests of this user wait in line, and no other user waits behind
them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_THREADS = 8
_EACH = 2


class Turns:
    """The threads; used in one event loop."""

    def __init__(self, name: str) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix=name)
        self._lines: dict[Hashable, _Line] = {}

    async def take(self, who: Hashable, work: Callable[[], T]) -> T:
        """Do the work in a thread when it is the turn of ``who``, and return its result."""
        loop = asyncio.get_running_loop()
        line = self._lines.setdefault(who, _Line())
        line.length += 1
        try:
            await line.gate.acquire()
            future = self._threads.submit(work)
        except BaseException:
            self._leave(who, line)
            raise

        def ended(_: object) -> None:
            with contextlib.suppress(RuntimeError):  # the engine ends: the event loop is closed
                loop.call_soon_threadsafe(self._end, who, line)

        # A caller that breaks off a request keeps its thread until the work is done: so no caller gets a third one.
        future.add_done_callback(ended)
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Begin no more work."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _end(self, who: Hashable, line: _Line) -> None:
        line.gate.release()
        self._leave(who, line)

    def _leave(self, who: Hashable, line: _Line) -> None:
        line.length -= 1
        if not line.length:
            del self._lines[who]


class _Line:
    def __init__(self) -> None:
        self.gate = asyncio.Semaphore(_EACH)
        self.length = 0
