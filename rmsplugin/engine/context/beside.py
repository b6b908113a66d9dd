"""Beside: the same work on many things, by threads that take the next one.

Not by the pools of ``concurrent.futures``: these start each thread with a lock held that all pools of the process
share, so that a request waits meanwhile until it may be handed to a thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def each_beside(things: Sequence[T], work: Callable[[T], R], most: int, name: str) -> list[R]:
    """Do the work on each thing, on ``most`` of them at a time; the results are in the order of the things.

    Args:
        things: what there is.
        work: an error in it ends that thread; it is raised when the others have ended, too.
        most: the number of threads.
        name: the begin of the names of the threads.
    """
    left = iter(enumerate(things))
    found: dict[int, R] = {}
    errors: list[BaseException] = []

    def take_next() -> None:
        try:
            for number, thing in left:
                found[number] = work(thing)
        except BaseException as error:  # raised in the thread that waits
            errors.append(error)

    threads = [threading.Thread(target=take_next, name=f"{name}_{number}") for number in range(min(most, len(things)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [found[number] for number in range(len(things))]


def begun_beside(work: Callable[[], R], name: str) -> Future[R]:
    """Begin the work in a thread of its own, of that name, which does not keep the process from ending."""
    future: Future[R] = Future()

    def do_work() -> None:
        try:
            result = work()
        except BaseException as error:  # raised in the thread that asks for the result
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=do_work, name=name, daemon=True).start()
    return future
