"""Host list: Slurm's short form of several node names, such as ``n[1-3,07],gpu1``."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Set

#: Slurm's words where there are no nodes.
_NO_NODES = ("", "(null)", "n/a", "None assigned")

#: The most names that a host list may stand for. Users write some of them, and a short one may stand for billions.
MAX_NAMES = 65536

_RANGE = r"[0-9]{1,9}(?:-[0-9]{1,9})?"
_TERM = re.compile(rf"(?:[^\[\],;=\s]|\[{_RANGE}(?:,{_RANGE})*\])+")
_PIECE = re.compile(r"\[([0-9,-]*)\]|([^\[\],]+)")
_MARK = re.compile(r"[\[\],]")
_DIGITS = re.compile(r"[0-9]*")

#: The pieces of a part: text, or the numbers that may stand in its place, range by range, with the width of each.
_Ranges = tuple[tuple[range, int], ...]
_Piece = str | _Ranges


def split(text: str) -> tuple[str, ...]:
    """The parts of a host list, separated by commas outside of brackets; none for Slurm's words for "no nodes".

    Raises:
        ValueError: the text is no host list.
    """
    if text in _NO_NODES:
        return ()
    parts = _parts(text)
    for part in parts:
        if not _TERM.fullmatch(part):
            raise ValueError(f"not a list of nodes: {text!r}")
    return parts


def _parts(text: str) -> tuple[str, ...]:
    """The parts between commas after which no bracket closes, in one pass: a list may have ten thousand names."""
    found, end, closes = [], len(text), False
    for mark in reversed([*_MARK.finditer(text)]):
        at = mark.start()
        if mark[0] != ",":
            closes = mark[0] == "]"
        elif not closes:
            found.append(text[at + 1 : end])
            end = at
    return (text[:end], *reversed(found))


class HostList:
    """The names of a host list; they are not kept, for one line of a user's may stand for tens of thousands."""

    def __init__(self, text: str) -> None:
        """Read a host list.

        Raises:
            ValueError: the text is no host list, or stands for more than MAX_NAMES names.
        """
        self._parts = [_pieces(part) for part in split(text)]
        if sum(map(_count, self._parts)) > MAX_NAMES:
            raise ValueError(f"a list of more than {MAX_NAMES} nodes: {text!r}")

    def __iter__(self) -> Iterator[str]:
        """Make the names one by one, in the order of the list."""
        for part in self._parts:
            yield from _names(part)

    def among(self, names: Set[str]) -> set[str]:
        """Those of the given names that are in the list; the work depends on the number of given names."""
        found: set[str] = set()
        for part in self._parts:
            if _count(part) <= len(names):
                found.update(name for name in _names(part) if name in names)
            else:
                found.update(name for name in names if _stands_for(part, name))
        return found


def expand(text: str) -> tuple[str, ...]:
    """The names that a host list stands for, in its order; none for Slurm's words for "no nodes".

    Raises:
        ValueError: the text is no host list, or stands for more than MAX_NAMES names.
    """
    return tuple(HostList(text))


def _pieces(part: str) -> tuple[_Piece, ...]:
    """The pieces of a part. Raises ValueError."""
    return tuple(_ranges(match[1]) if match[2] is None else match[2] for match in _PIECE.finditer(part))


def _ranges(text: str) -> _Ranges:
    """The numbers in brackets as ranges; the numbers are not made, for they may be billions.

    Raises:
        ValueError: a range ends before it begins.
    """
    ranges = []
    for each in text.split(","):
        low, _, high = each.partition("-")
        numbers = range(int(low), int(high or low) + 1)
        if not numbers:
            raise ValueError(f"not a list of nodes: {each} ends before it begins")
        ranges.append((numbers, len(low)))
    return tuple(ranges)


def _count(part: tuple[_Piece, ...]) -> int:
    """The number of names of a part."""
    return math.prod(sum(len(numbers) for numbers, _ in piece) for piece in part if not isinstance(piece, str))


def _names(part: tuple[_Piece, ...]) -> Iterator[str]:
    choices = [[piece] if isinstance(piece, str) else _numbers(piece) for piece in part]
    return map("".join, itertools.product(*choices))


def _numbers(ranges: _Ranges) -> Iterator[str]:
    return (str(number).zfill(width) for numbers, width in ranges for number in numbers)


def _stands_for(part: tuple[_Piece, ...], name: str) -> bool:
    """Whether the pieces, one after the other, make up the name; adjacent brackets may share its digits in any way."""
    ends = {0}
    for piece in part:
        if isinstance(piece, str):
            ends = {begin + len(piece) for begin in ends if name.startswith(piece, begin)}
        else:
            ends = {end for begin in ends for end in _ends(piece, name, begin)}
        if not ends:
            return False
    return len(name) in ends


def _ends(ranges: _Ranges, name: str, begin: int) -> Iterator[int]:
    """The possible ends of a number of the ranges that begins there in the name."""
    digits = _DIGITS.match(name, begin)
    assert digits is not None
    for numbers, width in ranges:
        shortest = begin + width
        # A number that is longer than the width of its range has no leading zero.
        longest = shortest if name.startswith("0", begin) else digits.end()
        for end in range(shortest, min(longest, digits.end()) + 1):
            if int(name[begin:end]) in numbers:
                yield end
