"""Waiting: who sits at a terminal is told that the engine does not answer yet, and how long it is waited for."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from rmsplugin.cli.shared.printable import printable

#: An engine that has not answered for so many seconds is told of.
_SOON_S = 2.0


class Waiting:
    """Says so once in the life of a command."""

    def __init__(self, command: str) -> None:
        """``command``: in whose name it is said."""
        self._command, self._said = command, False

    def __call__(self, place: str, bound_s: float) -> AbstractContextManager[None]:
        """The time in which the engine at this place is asked, which is so many seconds at most."""
        if self._said or bound_s <= _SOON_S or not sys.stderr.isatty():
            return nullcontext()
        return self._watched(place, bound_s)

    @contextmanager
    def _watched(self, place: str, bound_s: float) -> Iterator[None]:
        import threading  # here: a command in a script needs none

        timer = threading.Timer(_SOON_S, self._say, (place, bound_s))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _say(self, place: str, bound_s: float) -> None:
        self._said = True
        sentence = f"the engine at {place} does not answer yet; it is waited for up to {bound_s:g} s"
        print(f"rmsplugin {self._command}: {printable(sentence)}", file=sys.stderr, flush=True)
