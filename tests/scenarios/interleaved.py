"""The simulated world in one thread: what goes on at the same time is interleaved by dice, the same for one seed.

An operation gives way wherever virtual time passes in it: then another operation is carried out, a cycle is run, or
something happens to the world.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

from scenarios.world import World

from rmsplugin.engine.execute.executor import Executor

#: Operations inside each other, at most.
_DEPTH = 3
#: How often an operation gives way where time passes, and what is done meanwhile: a cycle, else an operation.
_GIVES_WAY, _CYCLE, _EVENT = 0.25, 0.4, 0.3


class AtOnce(ThreadPoolExecutor):
    """Does what is submitted before ``submit`` returns, and has no threads."""

    def __init__(self, *_: object, **__: object) -> None:
        """Make ready nothing: several are made in each cycle."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Nothing is under way."""

    def submit(self, act: Callable[..., Any], /, *words: Any, **options: Any) -> Future[Any]:
        """Do it; what kills the engine is not caught."""
        future: Future[Any] = Future()
        try:
            future.set_result(act(*words, **options))
        except Exception as error:
            future.set_exception(error)
        return future


class Later(ThreadPoolExecutor):
    """Keeps what is submitted, for the world to do it."""

    def __init__(self, queue: list[Callable[[], object]]) -> None:
        super().__init__(1)
        self._queue = queue

    def submit(self, act: Callable[..., Any], /, *words: Any, **options: Any) -> Future[Any]:
        """Keep it."""
        self._queue.append(lambda: act(*words, **options))
        return Future()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Forget all that was not begun."""
        self._queue.clear()
        super().shutdown(wait, cancel_futures=cancel_futures)


def _one_after_the_other(things: Sequence[Any], work: Callable[[Any], Any], *_: object) -> list[Any]:
    return [work(thing) for thing in things]


def _begun_at_once(work: Callable[[], Any], *_: object) -> Future[Any]:
    return AtOnce().submit(work)


@contextmanager
def one_thread() -> Iterator[None]:
    """What the engine does in threads inside an operation or a look, it does one after the other."""
    with (
        mock.patch("rmsplugin.engine.execute.task.ThreadPoolExecutor", AtOnce),
        mock.patch("rmsplugin.engine.execute.operations.allocation.ThreadPoolExecutor", AtOnce),
        mock.patch("rmsplugin.engine.observe.observation.each_beside", _one_after_the_other),
        mock.patch("rmsplugin.engine.upkeep.room_ends.begun_beside", _begun_at_once),
        mock.patch("rmsplugin.engine.capacity.memory_care.ThreadPoolExecutor", AtOnce),
        mock.patch("rmsplugin.engine.context.bounds.ThreadPoolExecutor", AtOnce),
    ):
        yield


class InterleavedWorld(World):
    """A world whose operations are carried out in the thread of the test, inside ``one_thread``."""

    def __init__(self, directory: Path, dice: Random, **options: Any) -> None:
        self._dice = dice
        self._queue: list[Callable[[], object]] = []
        self._depth = 0
        self._in_cycle = False
        #: Lets something happen to the world.
        self.happens: Callable[[], object] = lambda: None
        #: Called between two steps of the world.
        self.looks: Callable[[], object] = lambda: None
        super().__init__(directory, **options)

    def make_executor(self) -> Executor:
        """See World."""
        self._queue.clear()
        executor = super().make_executor()
        executor._groups = {name: Later(self._queue) for name in executor._groups}
        executor._aborts = AtOnce(1)
        return executor

    def pass_time(self, seconds: float) -> None:
        """See World; an operation may give way."""
        super().pass_time(seconds)
        may = 0 < self._depth < _DEPTH and not self._in_cycle and not self.life.dead
        if not may or self._dice.random() > _GIVES_WAY:
            return
        chosen = self._dice.random()
        if chosen < _CYCLE:
            self._run_cycle()
        elif chosen < _CYCLE + _EVENT:
            self.happens()
        elif self._queue:
            self._carry_out(self._dice.randrange(len(self._queue)))
        self.looks()

    def _run_cycle(self) -> None:
        self._in_cycle = True
        try:
            self.alive(self.cycle.run)
        finally:
            self._in_cycle = False

    def _carry_out(self, number: int) -> None:
        act = self._queue.pop(number)
        self._depth += 1
        try:
            self.alive(act)
        finally:
            self._depth -= 1

    def tick(self, seconds: float = 1.0) -> None:
        """See World."""
        if self.life.dead:
            self.start_engine()
        self._run_cycle()
        while self._queue and not self.life.dead:
            self._carry_out(self._dice.randrange(len(self._queue)))
        self.pass_time(seconds)
        self._give_signs_of_life()
