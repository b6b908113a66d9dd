"""Invariants I1-I6 hold on random days; and days on which they once did not are lived again."""

from __future__ import annotations

import examples
import pytest
from scenarios.day import live
from scenarios.random_day import OBSERVED, PAUSES, Event, events_of

#: The last one is decided with the solver. `contrib/run-campaign day` lives others, and `--whole` one more.
SEEDS = (1, 3, 10) if examples.whole else (3, 10)
OBSERVED_SEEDS = (1, 10)
PAUSES_SEEDS = (3, 10)
#: The events of a day; CI lives the first part of the same days.
EVENTS, LIVED = 80, 80 if examples.whole else 48


#: Days that were wrong: the seed, which is that of the interleaving, too, and the events that are enough.
ONCE_WRONG = {
    "no node was borrowed for what was resumed with rmsplugin": (
        43,
        [
            Event(6.7, "submit", (810, 847, 127, 129)),
            Event(79.6, "suspend", (791, 925, 841, 906)),
            Event(91.0, "release", (121, 734, 545, 510)),
        ],
    ),
    "no node was borrowed for what was resumed with scontrol": (
        11,
        [
            Event(58.8, "array", (391, 388, 596, 12)),
            Event(83.2, "slurm_suspend", (30, 317, 615, 89)),
            Event(39.3, "wait", (235, 980, 715, 115)),
            Event(41.3, "load", (629, 675, 942, 497)),
        ],
    ),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_on_a_random_day_every_vjob_runs_once_and_ends(seed: int) -> None:
    events: list[Event] = events_of(seed, EVENTS)[:LIVED]
    day, wrong = live(seed, events)
    assert not wrong, "\n".join([wrong, *day.happened])


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", OBSERVED_SEEDS)
def test_on_a_random_day_with_observed_memory_every_vjob_runs_once_and_ends(seed: int) -> None:
    day, wrong = live(seed, events_of(seed, EVENTS, OBSERVED)[:LIVED], observed=True)
    assert not wrong, "\n".join([wrong, *day.happened])


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", PAUSES_SEEDS)
def test_on_a_random_day_with_pauses_every_vjob_runs_once_and_ends(seed: int) -> None:
    day, wrong = live(seed, events_of(seed, EVENTS, PAUSES)[:LIVED], pauses=True)
    assert not wrong, "\n".join([wrong, *day.happened])
    assert any(call[0] == "pause" for call in day.world.hypervisor.calls)


@pytest.mark.parametrize("what", ONCE_WRONG)
def test_a_day_that_once_was_wrong_is_right(what: str) -> None:
    seed, events = ONCE_WRONG[what]
    day, wrong = live(seed, events)
    assert not wrong, "\n".join([wrong, *day.happened])
