"""Measured: how what was done to vjobs on a cluster really went, for a replay of just these vjobs.

What slows actions down in a crowd (boots beside each other, a busy machine) is in what was measured; no model knows it.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rmsplugin.model.operation import OperationKind


class Went(NamedTuple):
    """How an operation went: how long it took, and whether it failed in the end."""

    seconds: float
    failed: bool = False


class Measured:
    """How operations went, each in its turn."""

    def __init__(self, of_jobs: Mapping[tuple[int, OperationKind], Sequence[Went]] | None = None) -> None:
        """Take what was measured.

        Args:
            of_jobs: by job id and kind, how each operation went, in their order.
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
        """How an operation goes: as just this one went, else as is usual for its kind; None if nobody knows.

        Args:
            job_id: of the vjob.
            kind: of the operation.
            number: how many of this kind there were on the vjob before.
        """
        own = self._of_jobs.get((job_id, kind), ())
        return own[number] if number < len(own) else self._usual.get(kind)
