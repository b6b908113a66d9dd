"""Host list: Slurm's short form of several node names, such as ``n[1-3,07],gpu1``."""

from __future__ import annotations

import itertools
import math
import re

#: What Slurm prints where there are no nodes.
_NO_NODES = ("", "(null)", "n/a", "None assigned")

#: The most names that a host list may stand for. Users write some of them, and a short one may stand for billions.
MAX_NAMES = 65536

_RANGE = r"[0-9]{1,9}(?:-[0-9]{1,9})?"
_TERM = re.compile(rf"(?:[^\[\],;=\s]|\[{_RANGE}(?:,{_RANGE})*\])+")
_PIECE = re.compile(r"\[([0-9,-]*)\]|([^\[\],]+)")


def split(text: str) -> tuple[str, ...]:
    """The parts of a host list, which commas outside of brackets separate; none for Slurm's words for "no nodes".

    Raises:
        ValueError: the text is no host list.
    """
    if text in _NO_NODES:
        return ()
    parts = tuple(re.split(r",(?![^\[]*\])", text))
    for part in parts:
        if not _TERM.fullmatch(part):
            raise ValueError(f"not a list of nodes: {text!r}")
    return parts


def expand(text: str) -> tuple[str, ...]:
    """The names that a host list stands for, in its order; none for Slurm's words for "no nodes".

    Raises:
        ValueError: the text is no host list, or stands for more than MAX_NAMES names.
    """
    names: list[str] = []
    for part in split(text):
        pieces = [_ranges(match[1]) if match[2] is None else match[2] for match in _PIECE.finditer(part)]
        count = math.prod(sum(len(numbers) for numbers, _ in piece) for piece in pieces if not isinstance(piece, str))
        if len(names) + count > MAX_NAMES:
            raise ValueError(f"a list of more than {MAX_NAMES} nodes: {text!r}")
        choices = [[piece] if isinstance(piece, str) else _numbers(piece) for piece in pieces]
        names += ("".join(chosen) for chosen in itertools.product(*choices))
    return tuple(names)


def _ranges(text: str) -> list[tuple[range, int]]:
    """The numbers in brackets, range by range, with the width of each; not made yet, for they may be billions.

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
    return ranges


def _numbers(ranges: list[tuple[range, int]]) -> list[str]:
    return [str(number).zfill(width) for numbers, width in ranges for number in numbers]
