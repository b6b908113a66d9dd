"""How late vjobs are because nodes were off, and how many nodes stay on because of that."""

from __future__ import annotations

import pytest

from rmsplugin.energy.lateness import Lateness, LateSums, Sight, kept_from_s, sentence
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
    assert seen(Sight(1, 0, 0, [60.0, 500.0])).sums.kept_s == pytest.approx(40.0)


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
    assert lateness.sums.seen_s == 0.0
    lateness.see(Sight(10, 10, 5), 701.0, gap_s=600.0)
    assert lateness.sums.seen_s == pytest.approx(100.0)


def test_what_was_seen_before_counts_as_if_it_had_been_seen_by_this_engine() -> None:
    whole, first, second = Lateness(0.02), Lateness(0.02), Lateness(0.02)
    for now in range(0, 6):
        found = whole.see(Sight(10, now, 30), now * 86_400.0)
        (first if now < 3 else second).recall(found, (5 - now) * 86_400.0)
    second.recall(first.sums, 0.0)
    assert second.share == pytest.approx(whole.share)
    assert second.sums.off_s == pytest.approx(whole.sums.off_s)
    assert second.reserve == whole.reserve == 3


def test_what_is_taken_in_is_told_as_it_was() -> None:
    lateness = Lateness(None)
    assert lateness.see(Sight(10, 4, 3, [50.0]), 0.0) == LateSums()
    assert lateness.see(Sight(9, 9, 9), 100.0) == LateSums(400.0, 1000.0, 300.0, 50.0, 100.0)
    assert lateness.see(Sight(9, 9, 9), 1000.0, gap_s=600.0) == LateSums()


def test_the_sentence_says_of_what_the_share_is_and_what_is_allowed() -> None:
    told = (
        "vjobs spent 0.8 % of their time from submission to end waiting for nodes to come on, or behind vjobs that did"
    )
    assert sentence(0.008, 0.02) == f"{told}; power.late_at_most allows 2 %"
    assert sentence(0.008, None) == f"{told}; power.late_at_most is not set"
    assert sentence(0.0, 0.125).endswith("allows 12.5 %")
    assert sentence(0.0, 0.1).startswith("vjobs spent 0 % of")
