"""How late vjobs are because nodes were off, and how many nodes stay on because of that."""

from __future__ import annotations

import pytest

from rmsplugin.energy.lateness import Lateness, Sight, kept_from_s
from rmsplugin.energy.power import PowerClass
from rmsplugin.energy.prediction import Need
from rmsplugin.energy.switching import IdleNode

#: Its threshold is 198.75 s.
POWER = PowerClass(120.0, 300.0, 8.0, 150.0, 30.0, 120.0)
HEAD = [Need(1e6, 30)]


def seen(*sights: Sight, at_most: float | None = 0.02, each_s: float = 100.0) -> Lateness:
    """After as many sights, each of which holds for as many seconds."""
    lateness = Lateness(at_most)
    for number, sight in enumerate((*sights, Sight(0, 0, 0))):
        lateness.see(sight, number * each_s)
    return lateness


def test_vjobs_are_late_by_the_time_for_which_they_wait_for_a_node_and_behind_one_that_does() -> None:
    found = seen(Sight(10, 0, 0), Sight(10, 4, 0), Sight(20, 0, 0))
    assert found.share == pytest.approx(4 / 40, rel=1e-3)


def test_nobody_is_late_before_anything_was_seen() -> None:
    assert (Lateness(0.02).share, Lateness(0.02).reserve, Lateness(0.02).held(HEAD)) == (0.0, 0, 0)


def test_nodes_stay_on_from_half_of_the_bound_on() -> None:
    below, above = Sight(1000, 9, 50), Sight(1000, 11, 50)
    assert (seen(below).reserve, seen(below).held(HEAD)) == (0, 0)
    assert (seen(above).reserve, seen(above).held(HEAD)) == (5, 30)


def test_without_a_bound_none_does() -> None:
    found = seen(Sight(10, 10, 50), at_most=None)
    assert (found.reserve, found.held(HEAD)) == (0, 0)


def test_the_reserve_is_a_tenth_of_the_nodes_that_could_be_off() -> None:
    kept = [0.0] * 10  # idle, and on although they could have been off
    assert seen(Sight(10, 10, 39)).reserve == 3
    assert seen(Sight(10, 10, 30, kept)).reserve == 4
    assert seen(Sight(10, 10, 9)).reserve == 0, "a whole node would be more than a tenth"


def test_nothing_is_held_for_the_first_vjob_once_a_tenth_is_spent() -> None:
    assert seen(Sight(10, 10, 91, [0.0] * 9)).held(HEAD) == 30
    assert seen(Sight(10, 10, 89, [0.0] * 11)).held(HEAD) == 0
    assert seen(Sight(10, 10, 91)).held([]) == 0, "nobody waits"


def test_a_node_that_is_idle_is_kept_only_from_its_threshold_on() -> None:
    assert kept_from_s(IdleNode("a", POWER, 1000.0, 0.0)) == 1198.75
    assert kept_from_s(IdleNode("a", POWER, 1000.0, 5000.0)) == 5198.75, "it came on after it had had nothing"
    assert seen(Sight(1, 0, 0, [60.0, 500.0])).kept_s == pytest.approx(40.0)


def test_what_was_long_ago_counts_for_less() -> None:
    week_s = 7 * 86400.0
    once, later = Sight(10, 10, 0), Sight(10, 0, 0)
    lateness = Lateness(0.02)
    for sight, at_s in ((once, 0.0), (later, 1000.0), (later, week_s), (later, 2 * week_s)):
        lateness.see(sight, at_s)
    assert lateness.share < 1000 / (2 * week_s), "less than its part of all the time"
    assert lateness.share > 0


def test_a_gap_is_left_out() -> None:
    lateness = Lateness(0.02)
    lateness.see(Sight(10, 10, 5), 0.0)
    lateness.see(Sight(10, 10, 5), 601.0, gap_s=600.0)
    assert lateness.seen_s == 0.0
    lateness.see(Sight(10, 10, 5), 701.0, gap_s=600.0)
    assert lateness.seen_s == pytest.approx(100.0)
