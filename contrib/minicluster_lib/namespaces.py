"""Namespaces of a minicluster's hosts, held open while they are compared.

The kernel gives the number of a namespace that is gone to the next one that is made. A number that was noted before may
be another cluster's, or any container's. A namespace that a file descriptor holds keeps its number to itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from types import TracebackType
from typing import Self

#: Those that every process of a host is in, and in which none of its interfaces or processes outlives it.
KINDS = ("pid", "net")


class HeldNamespaces:
    """Namespaces that keep their numbers until they are let go of.

    Args:
        kinds: the kinds of namespaces that are held and compared, as ``/proc/PID/ns`` names them.
    """

    def __init__(self, kinds: Iterable[str] = KINDS) -> None:
        self._kinds = tuple(kinds)
        self._held: dict[tuple[int, int], int] = {}
        self._own = {self._number(f"/proc/self/ns/{kind}") for kind in self._kinds}

    @staticmethod
    def _number(path: str | int) -> tuple[int, int]:
        status = os.stat(path)
        return status.st_dev, status.st_ino

    def hold(self, pid: int) -> None:
        """Hold the namespaces of a process, but for those that are ours; one that has ended has none."""
        for kind in self._kinds:
            try:
                descriptor = os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                continue
            number = self._number(descriptor)
            if number in self._own or number in self._held:
                os.close(descriptor)
            else:
                self._held[number] = descriptor

    def has(self, pid: int) -> bool:
        """Whether a process is in one of the namespaces that are held."""
        for kind in self._kinds:
            try:
                if self._number(f"/proc/{pid}/ns/{kind}") in self._held:
                    return True
            except OSError:
                continue
        return False

    def __len__(self) -> int:
        return len(self._held)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for descriptor in self._held.values():
            os.close(descriptor)
        self._held.clear()
