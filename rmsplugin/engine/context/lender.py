"""Lender: the threads in which VMs of vjobs are acted on; a bounded number of them for all operations together."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

#: With those of the executor, of looks at nodes and of the service fewer than 200, with default settings.
THREADS = 48


class Lender:
    """Says how many threads an operation may start; nobody waits for any."""

    def __init__(self, threads: int = THREADS) -> None:
        self._free = threads
        self._lock = threading.Lock()

    @contextmanager
    def lend(self, wanted: int) -> Iterator[int]:
        """So many of the threads that are wanted, for as long as this lasts: half of what is left at most, maybe none.

        With none an operation acts on one VM after the other in its own thread: whoever comes last is slower, and
        waits behind nobody.
        """
        with self._lock:
            lent = min(wanted, (self._free + 1) // 2)
            self._free -= lent
        try:
            yield lent
        finally:
            with self._lock:
                self._free += lent
