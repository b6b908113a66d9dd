"""Threads for VMs are bounded, and nobody waits for them."""

from __future__ import annotations

import pytest

from rmsplugin.engine.context.thread_budget import ThreadBudget


def test_whoever_asks_gets_at_most_half_of_what_is_left_and_the_last_none() -> None:
    budget = ThreadBudget(8)
    with budget.lend(3) as first, budget.lend(9) as second, budget.lend(9) as third, budget.lend(9) as fourth:
        assert (first, second, third, fourth) == (3, 3, 1, 1)
        with budget.lend(1) as fifth:
            assert fifth == 0


def test_what_was_lent_comes_back_also_after_an_error() -> None:
    budget = ThreadBudget(8)
    with pytest.raises(ZeroDivisionError), budget.lend(4):
        raise ZeroDivisionError
    with budget.lend(4) as again:
        assert again == 4
