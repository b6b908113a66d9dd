"""Quiet: nothing but the answer gets on standard output, whatever a solver's library prints there."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def solvers_keep_quiet() -> Iterator[None]:
    """While this lasts, standard output leads nowhere.

    HiGHS has a line that it prints now and then although its output is off, which no reader of JSON expects.
    """
    try:
        kept = os.dup(1)
    except OSError:  # closed: there is nothing to keep quiet
        yield
        return
    if sys.stdout is not None:
        sys.stdout.flush()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    try:
        yield
    finally:
        ctypes.CDLL(None).fflush(None)  # what the C library still holds back would come after the answer
        os.dup2(kept, 1)
        os.close(kept)
