"""Engines on two hosts under faults: no two act, no vjob is lost or runs twice."""

from __future__ import annotations

import examples
import pytest
from scenarios.faults import live
from scenarios.faulty_day import FAULTS, course_of

#: One course for each fault. `contrib/run-campaign faults` lives others.
SEEDS = range(len(FAULTS), 2 * len(FAULTS)) if examples.whole else (12, 13, 14, 15)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_in_a_course_of_faults_no_two_engines_act_and_every_vjob_runs_once(seed: int) -> None:
    day, wrong = live(seed, course_of(seed))
    assert not wrong, "\n".join([wrong, *day.happened])


def test_what_a_node_does_that_has_not_heard_of_the_next_engine_breaks_nothing() -> None:
    day, wrong = live(121, course_of(121))
    assert not wrong, "\n".join([wrong, *day.happened])
    assert day.judged().unheard, "a stopped engine's configuration of a VM was taken by a node that was cut off"
