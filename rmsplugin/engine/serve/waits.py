"""Waits: requests that are answered when a vjob or an operation has changed. A waiting request costs no thread.

The ledger tells the subjects that have changed; only the requests that wait for these are woken, and look again. A
request stops waiting when its time is over, or when its connection ends, which cancels its handler.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rmsplugin.engine.ledger.ledger import Subject
from rmsplugin.errors import RmspluginError

T = TypeVar("T")

#: The most requests of one user that may wait for the same subject, besides the wrapper's own. So the waiting requests
#: of a user are bounded by the number of his vjobs.
_EACH = 8

#: The author of a wait: uid, and the kind of the request.
Caller = tuple[int, str]


class TooManyError(RmspluginError):
    """The caller has too many requests open already; there may be room later."""


class _Waiter:
    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.woken = asyncio.Event()
        self.superseded = False


class Waits:
    """All requests that wait, by their subject. Used in one event loop, except for ``changed``."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiters: defaultdict[Subject, list[_Waiter]] = defaultdict(list)

    def open(self) -> None:
        """Bind to the running event loop."""
        self._loop = asyncio.get_running_loop()

    def changed(self, subjects: frozenset[Subject]) -> None:
        """Wake the requests that wait for any of these subjects. May be called in any thread; waits for nothing."""
        # A request that begins to wait while this reads looks once more before it waits, and so misses nothing.
        awaited = [subject for subject in subjects if subject in self._waiters]
        loop = self._loop
        if awaited and loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._wake, awaited)

    def __len__(self) -> int:
        return sum(len(waiters) for waiters in self._waiters.values())

    async def until(
        self,
        subject: Subject,
        caller: Caller,
        seconds: float,
        ask: Callable[[], Awaitable[T]],
        enough: Callable[[T], bool],
        *,
        latest_only: bool = False,
    ) -> T:
        """Ask at once, and again after each change of the subject until the answer is enough or the time is over.

        Args:
            subject: of the ledger; the answer depends on it.
            caller: uid and kind of the request.
            seconds: the longest wait.
            ask: makes the answer.
            enough: whether an answer ends the wait.
            latest_only: a new request of the caller ends the wait of the one before, as its connection was lost.

        Returns:
            The last answer.

        Raises:
            TooManyError: the limit of this caller's requests that wait for the subject is reached.
        """
        answer = await ask()
        if seconds <= 0 or enough(answer):
            return answer
        with self._waiting(subject, caller, latest_only=latest_only) as waiter:
            try:
                async with asyncio.timeout(seconds):
                    while not waiter.superseded:
                        waiter.woken.clear()
                        answer = await ask()
                        if enough(answer):
                            break
                        await waiter.woken.wait()
            except TimeoutError:
                # The ledger does not tell of progress, so the last answer may be old.
                return await ask()
            return answer

    @contextmanager
    def _waiting(self, subject: Subject, caller: Caller, *, latest_only: bool) -> Iterator[_Waiter]:
        same = [waiter for waiter in self._waiters.get(subject, ()) if waiter.caller == caller]
        if latest_only:
            for waiter in same:
                waiter.superseded = True
                waiter.woken.set()
        elif len(same) >= _EACH:
            name, number = subject
            raise TooManyError(f"{len(same)} of your requests wait for {name} {number} already; end one of them first")
        waiter = _Waiter(caller)
        self._waiters[subject].append(waiter)
        try:
            yield waiter
        finally:
            waiters = self._waiters[subject]
            waiters.remove(waiter)
            if not waiters:
                del self._waiters[subject]

    def _wake(self, subjects: list[Subject]) -> None:
        for subject in subjects:
            for waiter in self._waiters.get(subject, ()):
                waiter.woken.set()
