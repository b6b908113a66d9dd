"""Processes that may have few descriptors open, as on a front where something else has taken them."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
from collections.abc import Callable, Iterator

from patience import PATIENCE_S


def open_now() -> set[int]:
    """Descriptors of this process."""
    return {int(name) for name in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{name}")}


@contextlib.contextmanager
def at_most(more: int) -> Iterator[None]:
    """Let this process open so many more."""
    taken = open_now()
    unused = [number for number in range(len(taken) + more + 1) if number not in taken]
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (unused[more], before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def alone(check: Callable[..., None], *arguments: object) -> None:
    """Run a check in a process of its own: here, what other tests have left may be closed at any moment."""
    process = multiprocessing.get_context("spawn").Process(target=check, args=arguments)
    process.start()
    process.join(PATIENCE_S)
    assert process.exitcode == 0
