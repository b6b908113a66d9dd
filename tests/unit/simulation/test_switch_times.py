"""How long context switches took beside their critical path, and beside pool after pool."""

from __future__ import annotations

from rmsplugin.calibration.switches import MeasuredStep, SwitchTimes, times_of


def test_steps_that_wait_for_nobody_take_as_long_as_the_longest() -> None:
    found = times_of([MeasuredStep(10, 14), MeasuredStep(11, 12)])
    assert found == SwitchTimes(makespan_s=4, critical_path_s=4, by_pools_s=4)


def test_the_critical_path_has_no_time_between_a_step_and_the_one_that_waited_for_it() -> None:
    found = times_of([MeasuredStep(0, 4), MeasuredStep(7, 10, (0,))])
    assert found == SwitchTimes(makespan_s=10, critical_path_s=7, by_pools_s=7)


def test_pool_after_pool_a_step_waits_for_others_than_those_that_it_needs() -> None:
    slow, quick = MeasuredStep(0, 10), MeasuredStep(0, 1)
    after_quick = MeasuredStep(1, 11, (1,))
    found = times_of([slow, quick, after_quick])
    assert found == SwitchTimes(makespan_s=11, critical_path_s=11, by_pools_s=20)


def test_a_step_is_in_the_pool_after_the_last_of_those_that_it_waits_for() -> None:
    steps = [MeasuredStep(0, 1), MeasuredStep(1, 3, (0,)), MeasuredStep(3, 6, (0, 1)), MeasuredStep(1, 2, (0,))]
    assert times_of(steps) == SwitchTimes(makespan_s=6, critical_path_s=6, by_pools_s=6)


def test_a_step_that_the_clock_made_end_before_it_began_took_no_time() -> None:
    assert times_of([MeasuredStep(5, 3), MeasuredStep(5, 6, (0,))]).critical_path_s == 1


def test_no_steps_take_no_time() -> None:
    assert times_of([]) == SwitchTimes(0.0, 0.0, 0.0)
