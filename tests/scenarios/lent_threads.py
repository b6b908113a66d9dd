"""Lent threads: what the engine does in threads of one look, it does in threads that are there already.

A world runs thousands of cycles, of which each begins some threads for its looks at nodes, and ends them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from functools import cache
from types import TracebackType
from typing import Any, Self
from unittest import mock

#: Where the engine makes a pool for each look; inside of such a look it makes no other one.
_LOOKS = (
    "rmsplugin.engine.capacity.memory_care.ThreadPoolExecutor",
    "rmsplugin.engine.context.bounds.ThreadPoolExecutor",
)


@cache
def _threads() -> ThreadPoolExecutor:
    """Those of this process: more than there are nodes in any world of which looks are under way at the same time."""
    return ThreadPoolExecutor(200, thread_name_prefix="lent")


class LentThreads(ThreadPoolExecutor):
    """A pool that has no threads of its own; when it ends, all that was submitted to it has ended."""

    def __init__(self, *_: object, **__: object) -> None:
        """Borrow none yet."""
        self._under_way: list[Future[Any]] = []

    def submit(self, act: Callable[..., Any], /, *words: Any, **options: Any) -> Future[Any]:
        """Do it in a lent thread."""
        future = _threads().submit(act, *words, **options)
        self._under_way.append(future)
        return future

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        wait([future for future in self._under_way if not future.done()])


def _each_beside(things: Sequence[Any], work: Callable[[Any], Any], *_: object) -> list[Any]:
    """As ``each_beside`` of the engine does."""
    return list(_threads().map(work, things))


@contextmanager
def lent_threads() -> Iterator[None]:
    """Have the engine's looks use them."""
    with ExitStack() as stack:
        for where in _LOOKS:
            stack.enter_context(mock.patch(where, LentThreads))
        stack.enter_context(mock.patch("rmsplugin.engine.observe.observation.each_beside", _each_beside))
        yield
