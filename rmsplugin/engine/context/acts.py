"""Acts: what the engine does to its neighbours. It begins none when it does not lead, and knows those under way.

An engine whose lease has run out stands still: what it is about to begin waits until it leads again, or has lost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar, cast

from rmsplugin.errors import DeposedError

T = TypeVar("T")

#: Seconds between two looks of an engine that stands still whether it leads again.
_LOOK_S = 0.05


def _pause() -> None:
    time.sleep(_LOOK_S)


class Acts:
    """The acts of one engine. Several threads may call."""

    def __init__(
        self,
        leads: Callable[[], bool] = lambda: True,
        deposed: Callable[[str], None] = lambda why: None,
        *,
        until: Callable[[], float | None] = lambda: None,
        lost: Callable[[], bool] = lambda: True,
        pause: Callable[[], object] = _pause,
    ) -> None:
        """None is under way.

        Args:
            leads: whether the engine may act now. It is asked before each act.
            deposed: called with the reason before an act is refused. An engine ends there: a caller that went on would
                take the refusal for a failure of its neighbour, and write it down.
            until: the moment until which it may, as ``one`` gives it.
            lost: whether an engine that may not act now will lead no more with this epoch: only then it is deposed.
            pause: waits for a moment.
        """
        self._leads, self._until, self._lost, self._pause = leads, until, lost, pause
        self._deposed = deposed
        self._under_way = 0
        self._ended = False
        self._lock = threading.Lock()

    @contextmanager
    def one(self) -> Iterator[float | None]:
        """Do one act. Raises DeposedError, before it begins, if the engine does not lead any more.

        Gives the moment until which it may be begun, in seconds of ``lease.clocked.steady_s``; None: for ever. An
        engine may be stopped between this look at its lease and the act.

        It blocks while the engine stands still. After ``end`` it blocks for good: a refusal would be taken for a
        failure, and written down for the next engine.
        """
        while True:
            with self._counted():
                if self._leads():
                    yield self._until()
                    return
            if self._lost():
                why = "the turn of this engine is over: its lease has ended"
                self._deposed(why)
                raise DeposedError(why)
            self._pause()

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Be one of those under way; or wait for good, if none is to begin any more."""
        with self._lock:
            ended = self._ended
            self._under_way += not ended
        if ended:
            _wait_for_the_end()
        try:
            yield
        finally:
            with self._lock:
                self._under_way -= 1

    def end(self, *, now: bool = False) -> bool:
        """Begin none any more, if none is under way, or else ``now``. Returns whether it is so."""
        with self._lock:
            self._ended = self._ended or now or not self._under_way
            return self._ended

    def at_rest(self) -> bool:
        """Whether no act is under way."""
        with self._lock:
            return not self._under_way


def _wait_for_the_end() -> NoReturn:
    """Wait until the process has ended."""
    while True:
        threading.Event().wait()


def only_led(adapter: T, acts: Acts) -> T:
    """The adapter with methods that are acts, each of which is refused when the engine does not lead any more."""
    return cast(T, _Led(adapter, acts))


class _Led:
    def __init__(self, adapter: object, acts: Acts) -> None:
        self._adapter = adapter
        self._acts = acts

    def __getattr__(self, name: str) -> Any:
        method: Callable[..., Any] = getattr(self._adapter, name)

        def call(*arguments: Any, **options: Any) -> Any:
            with self._acts.one():
                return method(*arguments, **options)

        return call if callable(method) else method
