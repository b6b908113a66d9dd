"""Of which vjobs a checkpoint is due, where copies go, and how much room one needs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rmsplugin.engine.execute.checkpoint_rules import Covered, choose_targets, due, room_needed

VJOB = Covered(1, frozenset({"n1"}), interval_s=100, ran_s=0, saved_s=0, took_s=0, copies=2)


@pytest.mark.parametrize(
    ("ran_s", "saved_s", "took_s", "cycle_s", "expected"),
    [
        (89, 0, 0, 10, False),
        (90, 0, 0, 10, True),  # in the next cycle it would be too late
        (150, 60, 0, 10, True),
        (149, 60, 0, 10, False),
        (130, 60, 20, 10, True),  # the last one took 20 s
        (129, 60, 20, 10, False),
        (50, 0, 500, 10, True),  # however long it takes, it is not taken more often than twice in an interval
        (49, 0, 500, 10, False),
    ],
)
def test_one_is_due_so_early_that_it_is_whole_within_the_interval(
    ran_s: float, saved_s: float, took_s: float, cycle_s: float, expected: bool
) -> None:
    vjob = replace(VJOB, ran_s=ran_s, saved_s=saved_s, took_s=took_s)
    assert due([vjob], (), cycle_s) == ([1] if expected else [])


def test_none_is_due_without_an_interval() -> None:
    assert due([replace(VJOB, interval_s=0, ran_s=1000)], (), 10) == []


def test_one_whose_copy_is_gone_is_made_anew_at_once() -> None:
    vjob = replace(VJOB, ran_s=61, saved_s=60)
    assert due([vjob], (), 1) == []
    assert due([replace(vjob, copies=1)], (), 1) == [1]


def test_who_has_most_to_lose_goes_first_and_each_node_takes_one_at_a_time() -> None:
    vjobs = [
        replace(VJOB, job_id=1, ran_s=200),
        replace(VJOB, job_id=2, ran_s=300),
        replace(VJOB, job_id=3, ran_s=250, nodes=frozenset({"n2", "n3"})),
        replace(VJOB, job_id=4, ran_s=240, nodes=frozenset({"n3", "n4"})),
        replace(VJOB, job_id=5, ran_s=150, nodes=frozenset({"n4"})),
    ]
    assert due(vjobs, (), 1) == [2, 3, 5]
    assert due(vjobs, {"n2"}, 1) == [2, 4]


def test_a_copy_goes_to_another_node_that_has_room() -> None:
    free = {"n1": 1 << 40, "n2": 300 << 20, "n3": 1 << 40}
    hosts = {"a": "n1", "b": "n2", "c": "n3"}
    assert choose_targets(hosts, 200, free) == {"a": "n2", "b": "n1", "c": "n1"}
    assert choose_targets({"a": "n1", "b": "n1"}, 200, free) == {"a": "n2", "b": "n3"}
    assert choose_targets({"a": "n1"}, 200, {"n1": 1 << 40}) is None
    assert choose_targets({"a": "n1"}, 400, {"n2": 300 << 20}) is None


def test_room_is_kept_for_the_saves_of_all_vms() -> None:
    assert room_needed([], []) == 0
    assert room_needed([100], [100, 300]) > (500 << 20)
