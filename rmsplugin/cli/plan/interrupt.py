"""Interrupt: Ctrl-C ends a search at once. Solvers take the signal for themselves, or keep it from the interpreter."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: Tells the thread that waits that there is nothing to wait for any more.
_ENOUGH = signal.SIGUSR1


@contextmanager
def ends_at_once(last: Callable[[], None]) -> Iterator[None]:
    """While this lasts an interrupt ends the program, after ``last``, with the status of an interrupted one.

    A solver runs in the main thread, where the interpreter would raise KeyboardInterrupt only when it returns; and its
    own handler makes it return early, with an answer nobody asked for any more. So the signal is blocked in this thread
    and in all that are started while this lasts, and one of them waits for it.
    """

    def wait() -> None:
        if signal.sigwait({signal.SIGINT, _ENOUGH}) == signal.SIGINT:
            try:
                last()
            finally:
                os._exit(130)

    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, _ENOUGH})
    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    try:
        yield
    finally:
        if waiting.ident is not None:
            signal.pthread_kill(waiting.ident, _ENOUGH)
        waiting.join()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
