"""Operations that wait for their jobs at the same time share their questions to Slurm, and get fresh answers."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from patience import PATIENCE_S

from rmsplugin.engine.context.job_reader import JobReader
from rmsplugin.errors import NotFoundError, UnavailableError


class SlowRms:
    """Answers when it is let; each answer tells when its question was asked."""

    def __init__(self) -> None:
        self.asked: list[set[int]] = []
        self.single: list[int] = []
        self.known = set(range(1, 40))
        self.failures = 0
        self.may_answer = threading.Semaphore(0)

    def jobs(self, job_ids: set[int]) -> dict[int, Any]:
        self.asked.append(set(job_ids))
        number = len(self.asked)
        assert self.may_answer.acquire(timeout=PATIENCE_S)
        if self.failures:
            self.failures -= 1
            raise UnavailableError("slurmctld does not answer")
        return {job_id: SimpleNamespace(job_id=job_id, number=number, batch_host="") for job_id in job_ids & self.known}

    def job(self, job_id: int) -> Any:
        self.single.append(job_id)
        return SimpleNamespace(job_id=job_id, number=0)


@pytest.fixture
def rms() -> SlowRms:
    return SlowRms()


def until(condition: Any) -> None:
    event = threading.Event()
    for _ in range(2000):
        if condition():
            return
        event.wait(0.005)
    raise AssertionError("never came")


def test_all_who_ask_while_a_question_is_under_way_share_the_next(rms: SlowRms) -> None:
    reader = JobReader(rms)  # type: ignore[arg-type]
    with ThreadPoolExecutor(40) as pool:
        first = pool.submit(reader.read, 1)
        until(lambda: rms.asked == [{1}])
        others = [pool.submit(reader.read, job_id) for job_id in range(2, 32)]
        until(lambda: len(reader._wanted.get(2, ())) == 30)
        rms.may_answer.release(2)
        assert first.result().number == 1
        assert {other.result().number for other in others} == {2}, "asked after they had come"
        assert [other.result().job_id for other in others] == list(range(2, 32))
    assert rms.asked == [{1}, set(range(2, 32))]


def test_a_job_that_does_not_exist_is_told_to_its_asker_only(rms: SlowRms) -> None:
    reader = JobReader(rms)  # type: ignore[arg-type]
    rms.may_answer.release(9)
    with pytest.raises(NotFoundError, match="99"):
        reader.read(99)
    assert reader.read(1).job_id == 1


def test_a_question_that_fails_proves_nothing_about_the_jobs_of_others(rms: SlowRms) -> None:
    reader = JobReader(rms)  # type: ignore[arg-type]
    rms.failures = 2
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(reader.read, 1)
        until(lambda: len(rms.asked) == 1)
        others = [pool.submit(reader.read, job_id) for job_id in (2, 3, 4)]
        until(lambda: len(reader._wanted.get(2, ())) == 3)
        rms.may_answer.release(9)
        assert isinstance(first.exception(), UnavailableError)
        outcomes = [other.exception() or other.result().job_id for other in others]
    assert sum(isinstance(outcome, UnavailableError) for outcome in outcomes) == 1
    assert all(outcome in (2, 3, 4) or isinstance(outcome, UnavailableError) for outcome in outcomes)
