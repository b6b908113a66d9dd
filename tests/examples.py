"""How many examples the tests of properties try, which are others each time."""

from __future__ import annotations

#: Set by ``--whole`` before tests are read.
whole = False


def few(number: int) -> int:
    """That many with ``--whole``; in CI, which runs often, a quarter of them, and not fewer than 25."""
    return number if whole else min(number, max(25, number // 4))
