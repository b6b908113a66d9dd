"""Acts: what the engine does to its neighbours. It begins none when it does not lead, and knows those under way."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar, cast

from rmsplugin.errors import DeposedError

T = TypeVar("T")


class Acts:
    """The acts of one engine. Several threads may call."""

    def __init__(
        self, leads: Callable[[], bool] = lambda: True, deposed: Callable[[str], None] = lambda why: None
    ) -> None:
        """None is under way.

        Args:
            leads: whether the engine may act now. It is asked before each act.
            deposed: called with the reason before an act is refused. An engine ends there: a caller that went on would
                take the refusal for a failure of its neighbour, and write it down.
        """
        self._leads = leads
        self._deposed = deposed
        self._under_way = 0
        self._ended = False
        self._lock = threading.Lock()

    @contextmanager
    def one(self) -> Iterator[None]:
        """Do one act. Raises DeposedError, before it begins, if the engine does not lead any more.

        After ``end`` it blocks for good: a refusal would be taken for a failure, and written down for the next engine.
        """
        with self._lock:
            ended = self._ended
            self._under_way += not ended
        if ended:
            _wait_for_the_end()
        try:
            if not self._leads():
                why = "the turn of this engine is over: its lease has ended"
                self._deposed(why)
                raise DeposedError(why)
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
