"""Printable: text of other people, such as names and messages, as a terminal may have it."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""Text that cannot move the cursor or break the line, as ``\x1b``."""
    return text if text.isprintable() else "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()
