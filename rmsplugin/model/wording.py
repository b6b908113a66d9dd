"""Wording: numbers in the sentences that people read."""

from __future__ import annotations


def counted(number: float, singular: str) -> str:
    """A number of things: "1 action", "2 actions", "0.5 CPUs"."""
    return f"{number:.12g} {singular}{'' if number == 1 else 's'}"
