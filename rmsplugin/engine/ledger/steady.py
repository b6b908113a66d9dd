"""Steady: one answer of the ledger that seldom changes and is asked for all the time; read anew after a change alone.

Each call of a platform asks which nodes are gone. At a large site that is thousands of questions in each look, by many
threads, which waited for each other and for requests at the ledger's lock.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

T = TypeVar("T")


class Steady(Generic[T]):
    """The answer is shared: nobody changes it. It is never None."""

    def __init__(self, lock: AbstractContextManager[None], in_transaction: Callable[[], bool]) -> None:
        """Keep nothing yet.

        Args:
            lock: of the ledger, which a transaction holds until its end.
            in_transaction: asked by the thread that holds the lock, whether it has begun a transaction.
        """
        self._lock = lock
        self._in_transaction = in_transaction
        self._found: T | None = None

    def get(self, read: Callable[[], T]) -> T:
        """The answer as it is now; without the lock if it is kept."""
        found = self._found
        if found is not None:
            return found
        with self._lock:
            found = read()
            if not self._in_transaction():  # what an open transaction has changed may be undone
                self._found = found
            return found

    def changes(self) -> None:
        """Note that the open transaction, of this thread, changes the answer."""
        self._found = None
