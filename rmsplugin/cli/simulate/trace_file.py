"""Trace file: the workload in an SWF file, gzipped or not, read as it comes."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from rmsplugin.errors import WorkloadError
from rmsplugin.input_file import MAX_BYTES, Tell, blocks, named
from rmsplugin.workload.jobs import MemoryUnit, Workload, read_workload


def read(
    path: str,
    tell: Tell = lambda _: None,
    limit_bytes: int = MAX_BYTES,
    memory_unit: MemoryUnit = MemoryUnit.KIB_PER_PROCESSOR,
) -> Workload:
    """Read the trace in a file; ``-`` is standard input.

    Raises:
        WorkloadError: the file cannot be read, or is no trace.
    """
    with named(path, WorkloadError), _uncollected():
        return read_workload(blocks(path, WorkloadError, "trace", tell, limit_bytes), memory_unit)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Let nobody look for cycles of objects meanwhile: jobs are in none, and each look is at all that are read."""
    collected = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collected:
            gc.enable()
