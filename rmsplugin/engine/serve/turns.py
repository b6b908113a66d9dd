"""Turns: the few threads in which requests are worked on, shared fairly between the callers.

Each user has at most two threads at a time. Further requests of this user wait in line, and no other user waits behind
them.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, TypeVar

from rmsplugin.latency import answer_requests

T = TypeVar("T")

_THREADS = 8
_EACH = 2


class _Work(NamedTuple):
    """Something to be done, and where its result goes."""

    do: Callable[[], Any]
    result: asyncio.Future[Any]
    ended: Callable[[Any, BaseException | None], None]  # is called in the event loop


class Turns:
    """The threads; used in one event loop.

    They are none of ``concurrent.futures``: whatever pool starts a thread, all others wait for it there. What one of
    them does when the process ends is cut off, as by a kill.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._threads: list[threading.Thread] = []
        self._left: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._closed = False
        self._lines: dict[Hashable, _Line] = {}

    async def take(self, who: Hashable, work: Callable[[], T]) -> T:
        """Do the work in a thread when it is the turn of ``who``, and return its result.

        Raises:
            RuntimeError: no more work is begun.
        """
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        line = self._lines.setdefault(who, _Line())
        line.length += 1
        try:
            await line.gate.acquire()
            self._require_open()
        except BaseException:
            self._leave(who, line)
            raise

        def ended(found: Any, error: BaseException | None) -> None:
            # A caller that breaks off a request keeps its thread until the work is done: so none gets a third one.
            line.gate.release()
            self._leave(who, line)
            if result.done():
                return
            if isinstance(error, asyncio.CancelledError):
                result.cancel()
            elif error is not None:
                result.set_exception(error)
            else:
                result.set_result(found)

        self._left.put(_Work(work, result, ended))
        return await result

    def close(self) -> None:
        """Begin no more work: what has not begun ends as if its caller had broken it off."""
        self._closed = True
        for _ in self._threads:
            self._left.put(None)

    def _require_open(self) -> None:
        """Raise RuntimeError if the turns are closed; have threads if they are not."""
        if self._closed:
            raise RuntimeError("no work is begun after the end")
        if not self._threads:
            self._threads = [
                threading.Thread(target=self._do_work, name=f"{self._name}_{number}", daemon=True)
                for number in range(_THREADS)
            ]
            for thread in self._threads:
                thread.start()

    def _do_work(self) -> None:
        answer_requests()
        while (work := self._left.get()) is not None:
            found: Any = None
            error: BaseException | None = None
            try:
                if self._closed or work.result.cancelled():
                    raise asyncio.CancelledError
                found = work.do()
            except BaseException as raised:  # raised where the result is awaited
                error = raised
            with contextlib.suppress(RuntimeError):  # the engine ends: the event loop is closed
                work.result.get_loop().call_soon_threadsafe(work.ended, found, error)
            del work, found, error

    def _leave(self, who: Hashable, line: _Line) -> None:
        line.length -= 1
        if not line.length:
            del self._lines[who]


class _Line:
    def __init__(self) -> None:
        self.gate = asyncio.Semaphore(_EACH)
        self.length = 0
