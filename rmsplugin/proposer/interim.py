"""Interim: the best proposal so far goes to the engine while the search goes on, so that no failure costs all of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rmsplugin.proposing.proposal import NoProposal, Proposal

Make = Callable[[], Proposal | NoProposal]

#: Most searches end before that, and nothing has to be sent.
_FIRST_S = 0.2

#: After each sending, nothing is sent for so many times its duration: the search has to have the time.
_REST = 9.0


class Interim:
    """Sends offered proposals from a thread of its own, the newest first; older offers are forgotten."""

    def __init__(self, send: Callable[[Proposal], None]) -> None:
        """Take the function that sends one proposal."""
        self._send = send
        self._changed = threading.Condition()
        self._newest: Make | None = None
        self._over = False
        self._thread: threading.Thread | None = None

    def offer(self, make: Make) -> None:
        """Offer a better proposal, which ``make`` makes; returns at once."""
        with self._changed:
            self._newest = make
            self._changed.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._send_results, name="interim", daemon=True)
            self._thread.start()

    def _send_results(self) -> None:
        self._pause(_FIRST_S)
        while (make := self._next()) is not None:
            started = time.monotonic()
            found = make()
            if isinstance(found, Proposal):
                self._send(found)
            self._pause(_REST * (time.monotonic() - started))

    def _pause(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._over, seconds)

    def _next(self) -> Make | None:
        """The last offer; None if there will be no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._over or self._newest is not None)
            make, self._newest = self._newest, None
            return None if self._over else make

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Send nothing more; returns when the thread has ended."""
        with self._changed:
            self._over = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
