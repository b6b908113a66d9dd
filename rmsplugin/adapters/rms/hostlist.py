"""Host list: Slurm's short form of several node names, such as ``n[1-3,07],gpu1``."""

from __future__ import annotations

import itertools
import re

_PIECE = re.compile(r"\[([0-9,-]*)\]|([^\[\],]+)")


def expand(text: str) -> tuple[str, ...]:
    """Return the names that a host list stands for, in its order; none for Slurm's words for "no nodes"."""
    if text in ("", "(null)", "n/a", "None assigned"):
        return ()
    names: list[str] = []
    for part in _split(text):
        choices = [_numbers(match[1]) if match[2] is None else [match[2]] for match in _PIECE.finditer(part)]
        names += ("".join(pieces) for pieces in itertools.product(*choices))
    return tuple(names)


def _split(text: str) -> list[str]:
    """Split at the commas outside of brackets."""
    return re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", text)


def _numbers(ranges: str) -> list[str]:
    numbers: list[str] = []
    for each in ranges.split(","):
        low, dash, high = each.partition("-")
        if not dash:
            numbers.append(low)
        else:
            numbers += (str(number).zfill(len(low)) for number in range(int(low), int(high) + 1))
    return numbers
