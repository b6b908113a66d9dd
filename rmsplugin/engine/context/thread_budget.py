"""Thread budget: the threads that act on the VMs of vjobs; a bounded number of them for all operations together."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

#: With the threads of the executor, of looks at nodes and of the service these are fewer than 200 by default settings.
THREADS = 48


class ThreadBudget:
    """Says how many threads an operation may start; no operation waits for threads."""

    def __init__(self, threads: int = THREADS) -> None:
        self._free = threads
        self._lock = threading.Lock()

    @contextmanager
    def lend(self, wanted: int) -> Iterator[int]:
        """Lend up to ``wanted`` threads for the time of the block: at most half of those left, perhaps none.

        An operation without threads acts on one VM after the other in its own thread: the last one to come is slower,
        but waits behind no other.
        """
        with self._lock:
            lent = min(wanted, (self._free + 1) // 2)
            self._free -= lent
        try:
            yield lent
        finally:
            with self._lock:
                self._free += lent
