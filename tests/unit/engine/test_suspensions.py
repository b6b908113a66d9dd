"""When Slurm may be told to let a suspended job go on, and which wrappers are overdue after that."""

from __future__ import annotations

from rmsplugin.engine.context.suspensions import Suspensions

JOB, OTHER = 7, 8


def test_two_seconds_pass_between_a_suspend_and_its_resume_also_across_a_restart() -> None:
    known = Suspensions(1000.0)
    assert known.left_s(JOB, 1000.5) == 1.5, "what the engine before has told is not known"
    assert known.left_s(JOB, 1002.0) == 0.0
    known.suspended(JOB, 1010.0)
    assert (known.left_s(JOB, 1010.5), known.left_s(OTHER, 1010.5)) == (1.5, 0.0)
    assert known.left_s(JOB, 1060.0) == 0.0


def test_a_wrapper_is_overdue_until_it_is_heard_of_and_is_waited_for_longer_each_time() -> None:
    known = Suspensions(0.0)
    assert not known.overdue(JOB, 0.0, 1000.0)
    known.goes_on(JOB, 1000.0)
    assert not known.overdue(JOB, 999.0, 1003.9)
    assert known.overdue(JOB, 999.0, 1004.0)
    known.goes_on(JOB, 1006.0, again=True)
    assert not known.overdue(JOB, 999.0, 1013.9)
    assert known.overdue(JOB, 999.0, 1014.0)
    assert known.since(JOB) == 1000.0, "its silence is as old as it was"
    assert known.awaits(JOB) and not known.awaits(OTHER)
    assert not known.overdue(JOB, 1014.5, 1015.0)
    assert known.since(JOB) == 0.0 and not known.awaits(JOB)


def test_each_overdue_wrapper_is_news_once() -> None:
    known = Suspensions(0.0)
    known.goes_on(JOB, 1000.0)
    known.goes_on(OTHER, 1000.0)
    heard = {JOB: 0.0, OTHER: 1001.0}
    assert not known.news(heard.__getitem__, 1003.0)
    assert [known.news(heard.__getitem__, at) for at in (1004.0, 1005.0, 1100.0)] == [True, False, False]
    known.goes_on(JOB, 1100.0, again=True)
    assert [known.news(heard.__getitem__, at) for at in (1101.0, 1108.0, 1109.0)] == [False, True, False]


def test_jobs_that_are_no_more_are_forgotten() -> None:
    known = Suspensions(0.0)
    for job in (JOB, OTHER):
        known.suspended(job, 1000.0)
        known.goes_on(job, 1000.0)
    known.retain([OTHER])
    assert (known.left_s(JOB, 1000.0), known.since(JOB)) == (0.0, 0.0)
    assert (known.left_s(OTHER, 1000.0), known.since(OTHER)) == (2.0, 1000.0)
