"""Cells: how much of a terminal's line a text takes: two cells for a wide character, none for a mark above another."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Iterator


def width_of(text: str) -> int:
    """The cells that the text takes."""
    return len(text) if text.isascii() else sum(map(_width, text))


def cut(text: str, width: int) -> str:
    """The text, or as much of its begin as has room in so many cells beside a ``+``, which is last then."""
    if width_of(text) <= width:
        return text
    return f"{_begin(text, width - 1)}+" if width > 1 else _begin(text, width)


def wrapped(text: str, width: int) -> list[str]:
    """The text in lines of at most so many cells, broken between words; within a word only where it is longer."""
    return textwrap.wrap(text, width) if text.isascii() else [*_wrapped(text, width)]


def _wrapped(text: str, width: int) -> Iterator[str]:
    line = ""
    for word in text.split():
        longer = f"{line} {word}" if line else word
        if width_of(longer) <= width:
            line = longer
            continue
        if line:
            yield line
        while width_of(word) > width:
            begin = _begin(word, width) or word[0]
            yield begin
            word = word[len(begin) :]
        line = word
    if line:
        yield line


def _begin(text: str, width: int) -> str:
    """As much of the begin of the text as has room."""
    taken = 0
    for number, character in enumerate(text):
        taken += _width(character)
        if taken > width:
            return text[:number]
    return text


def _width(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1
