"""Kept: a table's rows by job, as they were last read; after changes the rows of changed jobs alone are read again.

A large site has tens of thousands of rows, of which a cycle changes a few, one after the other, and asks for all of
them after each. Whoever changes a row says which job it belongs to.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Collection, Mapping
from itertools import islice
from typing import Any, Generic, TypeVar

T = TypeVar("T")

#: By job id, what the table has of a job.
Found = Mapping[int, T]

#: So few rows are put each into its place; with more, all are sorted.
_FEW = 50


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
        self._altered: set[int] | None = None  # since they were last asked for; None: all of them

    def changed(self, job_ids: Collection[int]) -> None:
        """Note that rows of these jobs may have changed."""
        self._stale.update(job_ids)

    def read_ahead(self, most: int) -> None:
        """Read what the table has of at most so many jobs that have changed: the next question has less to read."""
        if self._found is not None:
            self._read_some(set(islice(self._stale, most)))

    @property
    def is_read(self) -> bool:
        """Whether all rows have been read once."""
        return self._found is not None

    def of(self, job_id: int) -> T | None:
        """What the table has of one job; None: nothing. ``is_read``, and no transaction is open."""
        assert self._found is not None, "nothing is kept yet"
        if job_id in self._stale:
            self._read_some({job_id})
        return self.as_read(job_id)

    def as_read(self, job_id: int) -> T | None:
        """What the table had of one job when its rows were last read; None: nothing. ``is_read``."""
        assert self._found is not None, "nothing is kept yet"
        return self._ahead[job_id] if job_id in self._ahead else self._found.get(job_id)

    def put(self, rows: Mapping[int, T]) -> None:
        """Keep these rows of jobs, which the table is known to have: they need not be read. ``is_read``."""
        self._read_ahead_of_order(rows)

    def all(self, unfinished: Collection[int] = ()) -> Found[T]:
        """The rows as they are now; the same object as before if nothing has changed.

        Args:
            unfinished: jobs that an open transaction has changed: at its end they are said to have changed.
        """
        stale = self._stale.union(unfinished)
        if self._found is None or 2 * len(stale) > len(self._found):
            self._found = dict(sorted(self._read(None).items(), key=lambda each: self._key(*each)))
            self._altered = None
        elif stale or self._ahead:
            ahead = {job_id: row for job_id, row in self._ahead.items() if job_id not in stale}
            read = {job_id: row for job_id, row in ahead.items() if row is not None}
            if stale:
                read |= self._read(stale)
            changes = {job_id: read.get(job_id) for job_id in stale | ahead.keys()}
            self._found = with_changes(self._found, changes, self._key)
            if self._altered is not None:
                self._altered |= stale
        self._stale, self._ahead = set(), {}
        return self._found

    def take_altered(self, unfinished: Collection[int] = ()) -> set[int] | None:
        """The jobs whose rows may be others since this was last asked; None: those of any job.

        Their rows are read, and ``as_read`` tells them: to put them into the order of all others would go through all
        of these. ``unfinished`` as for ``all``.
        """
        stale = self._stale.union(unfinished)
        if self._found is None or 2 * len(stale) > len(self._found):
            self.all(unfinished)
        elif stale:
            self._read_some(stale)
        altered, self._altered = self._altered, set()
        return altered

    def _read_some(self, job_ids: Collection[int]) -> None:
        """Read what the table has of these jobs."""
        read = self._read(job_ids)
        self._read_ahead_of_order({job_id: read.get(job_id) for job_id in job_ids})

    def _read_ahead_of_order(self, rows: Mapping[int, T | None]) -> None:
        """Take what was read of some jobs; it is put into the order when all are asked for."""
        self._ahead.update(rows)
        self._stale -= rows.keys()
        if self._altered is not None:
            self._altered |= rows.keys()


def with_changes(before: dict[int, T], changes: Mapping[int, T | None], key: Callable[[int, T], Any]) -> dict[int, T]:
    """What is kept in an order, with what has changed: another mapping, in the same order.

    Of tens of thousands a few have changed: the others are neither compared nor sorted.

    Args:
        before: in the order of the key.
        changes: what is there now, by job id; None: there is nothing any more.
        key: by which all are sorted, from a job's id and what is kept of it.
    """
    found, moved = dict(before), []
    for job_id, now in changes.items():
        was = before.get(job_id)
        if now is not None and was is not None and key(job_id, was) == key(job_id, now):
            found[job_id] = now  # it has the place that it had
            continue
        if was is not None:
            del found[job_id]
        if now is not None:
            moved.append((job_id, now))
    if not moved:
        return found
    items = list(found.items())
    if len(moved) > _FEW:
        return dict(sorted([*items, *moved], key=lambda item: key(*item)))
    for each in moved:
        bisect.insort(items, each, key=lambda item: key(*item))
    return dict(items)
