"""Managers of groups under faults: a vjob is one group's, no two decide in one epoch, and every vjob runs once."""

from __future__ import annotations

import examples
import pytest
from scenarios.managers import live

#: `contrib/run-campaign managers` lives others.
SEEDS = (*range(1, 25), 106) if examples.whole else (5, 18, 106)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_in_a_course_of_faults_no_vjob_is_two_groups_and_every_one_runs_once(seed: int) -> None:
    day, wrong = live(seed)
    assert not wrong, "\n".join([wrong, *day.happened])
