"""Measured: the course of operations on a cluster as they were measured, for a replay of just these vjobs.

The slowdown of actions in a crowd (boots beside each other, a busy machine) is in the measurement; no model has it.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rmsplugin.model.operation import OperationKind


class Went(NamedTuple):
    """The course of an operation: its duration, and whether it failed in the end."""

    seconds: float
    failed: bool = False


class Measured:
    """The courses of operations, each in its turn."""

    def __init__(self, of_jobs: Mapping[tuple[int, OperationKind], Sequence[Went]] | None = None) -> None:
        """Take the measurements.

        Args:
            of_jobs: by job id and kind, the course of each operation, in their order.
        """
        self._of_jobs = of_jobs or {}
        of_kinds: dict[OperationKind, list[float]] = defaultdict(list)
        for (_, kind), own in self._of_jobs.items():
            of_kinds[kind] += [each.seconds for each in own if not each.failed]
        self._usual = {kind: Went(statistics.median(seconds)) for kind, seconds in of_kinds.items() if seconds}

    @property
    def fails(self) -> bool:
        """Whether any of them failed."""
        return any(each.failed for own in self._of_jobs.values() for each in own)

    def went(self, job_id: int, kind: OperationKind, number: int) -> Went | None:
        """The course of an operation: as this one was measured, else as is usual for its kind; None if unknown.

        Args:
            job_id: the job of the vjob.
            kind: the kind of the operation.
            number: the number of operations of this kind on the vjob before.
        """
        own = self._of_jobs.get((job_id, kind), ())
        return own[number] if number < len(own) else self._usual.get(kind)
