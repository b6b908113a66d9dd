"""Isolated: a solver in a process of its own, so that its crash and its memory touch nothing else."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

Result = TypeVar("Result")
Parameters = ParamSpec("Parameters")


class Isolated:
    """One process that does one call after the other; a crash costs the call, not the benchmark."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None
        self.crashes = 0

    def call(
        self, work: Callable[Parameters, Result], *arguments: Parameters.args, **named: Parameters.kwargs
    ) -> Result | None:
        """What ``work`` returns; None if the process did not survive it."""
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(1, mp_context=context, initializer=_quiet)
        try:
            return self._pool.submit(work, *arguments, **named).result()
        except BrokenProcessPool:
            self.crashes += 1
            self._close()
            return None

    def _close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()


def _quiet() -> None:
    """Solvers print diagnostics (a crash of Choco's: hundreds of lines); the result says all that is wanted."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
