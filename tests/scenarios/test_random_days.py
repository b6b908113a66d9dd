"""Invariants I1-I6 hold on random days; and days on which they once did not are lived again."""

from __future__ import annotations

import pytest
from scenarios.day import live
from scenarios.random_day import Event, events_of

#: The last one is decided with the solver.
SEEDS = (1, 2, 3, 4, 5, 10)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_on_a_random_day_every_vjob_runs_once_and_ends(seed: int) -> None:
    events: list[Event] = events_of(seed, 80)
    day, wrong = live(seed, events)
    assert not wrong, "\n".join([wrong, *day.happened])
