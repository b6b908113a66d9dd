"""Ranges of bytes that an owner has locked: a later lock, or an unlock, takes from those before, as POSIX has it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

#: NFS has the end of a file as a length of all ones, the kernel as the greatest offset.
_KERNELS_END, TO_END = (1 << 63) - 1, (1 << 64) - 1


@dataclass(frozen=True)
class Range:
    """Bytes from the first one to the last one, as the kernel numbers them."""

    first: int
    last: int

    @property
    def length(self) -> int:
        """Their number, as NFS has it."""
        return TO_END if self.last >= _KERNELS_END else self.last - self.first + 1

    def without(self, other: Range) -> list[Range]:
        """What is left of it."""
        parts = [Range(self.first, min(self.last, other.first - 1)), Range(max(self.first, other.last + 1), self.last)]
        return [each for each in parts if each.first <= each.last]


ALL = Range(0, _KERNELS_END)

#: Each with whether it is locked for writing.
Locked = list[tuple[Range, bool]]


def unlocked(before: Iterable[tuple[Range, bool]], what: Range) -> Locked:
    """What is locked when these bytes are unlocked."""
    return [(left, writes) for each, writes in before for left in each.without(what)]


def locked(before: Iterable[tuple[Range, bool]], what: Range, *, writes: bool) -> Locked:
    """What is locked when these bytes are locked, too."""
    return [*unlocked(before, what), (what, writes)]
