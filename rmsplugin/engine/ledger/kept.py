"""Kept: a table's rows by job, as they were last read; after changes the rows of changed jobs alone are read again.

A large site has tens of thousands of rows, of which a cycle changes a few, one after the other, and asks for all of
them after each. Whoever changes a row says which job it belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import islice
from typing import Any, Generic, TypeVar

T = TypeVar("T")

#: By job id, what the table has of a job.
Found = Mapping[int, T]


class Kept(Generic[T]):
    """The rows by job, in a fixed order. What it gives is shared: nobody changes it, and a change makes another one."""

    def __init__(self, read: Callable[[Collection[int] | None], Found[T]], key: Callable[[int, T], Any]) -> None:
        """Keep nothing yet.

        Args:
            read: reads what the table has of these jobs, or of all.
            key: by which all are sorted, from a job's id and what is kept of it.
        """
        self._read = read
        self._key = key
        self._found: dict[int, T] | None = None
        self._stale: set[int] = set()
        self._ahead: dict[int, T | None] = {}  # read since the last question; None: there is nothing any more

    def changed(self, job_ids: Collection[int]) -> None:
        """Note that rows of these jobs may have changed."""
        self._stale.update(job_ids)

    def read_ahead(self, most: int) -> None:
        """Read what the table has of at most so many jobs that have changed: the next question has less to read."""
        if self._found is not None:
            part = set(islice(self._stale, most))
            read = self._read(part)
            self._ahead.update((job_id, read.get(job_id)) for job_id in part)
            self._stale -= part

    def all(self, unfinished: Collection[int] = ()) -> Found[T]:
        """The rows as they are now; the same object as before if nothing has changed.

        Args:
            unfinished: jobs that an open transaction has changed: at its end they are said to have changed.
        """
        stale = self._stale.union(unfinished)
        if self._found is None or 2 * len(stale) > len(self._found):
            self._found = self._sorted(self._read(None))
        elif stale or self._ahead:
            ahead = {job_id: row for job_id, row in self._ahead.items() if job_id not in stale}
            read = {job_id: row for job_id, row in ahead.items() if row is not None}
            if stale:
                read |= self._read(stale)
            self._found = self._with(self._found, stale | ahead.keys(), read)
        self._stale, self._ahead = set(), {}
        return self._found

    def _with(self, before: dict[int, T], stale: Collection[int], read: Found[T]) -> dict[int, T]:
        """What is kept, with what was read of the stale jobs in place of what was kept of them."""
        stay = {job_id: read[job_id] for job_id in stale if self._stays(job_id, before, read)}
        found = {**before, **stay}
        for job_id in stale:
            if job_id not in stay:
                found.pop(job_id, None)
        others = read.keys() - stay.keys()
        return self._sorted({**found, **{job_id: read[job_id] for job_id in others}}) if others else found

    def _stays(self, job_id: int, before: Found[T], read: Found[T]) -> bool:
        """Whether a job has the place that it had."""
        if job_id not in before or job_id not in read:
            return False
        return bool(self._key(job_id, before[job_id]) == self._key(job_id, read[job_id]))

    def _sorted(self, found: Found[T]) -> dict[int, T]:
        return dict(sorted(found.items(), key=lambda each: self._key(*each)))
