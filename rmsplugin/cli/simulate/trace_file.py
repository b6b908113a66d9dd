"""Trace file: the workload in an SWF file, compressed or not, read as it comes."""

from __future__ import annotations

from rmsplugin.errors import WorkloadError
from rmsplugin.input_file import MAX_BYTES, Tell, blocks, named
from rmsplugin.latency import uncollected
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
    # Jobs are in no cycles, and each look for some is at all that are read.
    with named(path, WorkloadError), uncollected():
        return read_workload(blocks(path, WorkloadError, "trace", tell, limit_bytes), memory_unit)
