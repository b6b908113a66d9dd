"""Several proposers: as many as are asked at the same time, within a bound; one where one is asked at a time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from unit.proposing.test_proposer import LIMITS, RJSP, SOURCE

from rmsplugin.errors import UnavailableError
from rmsplugin.proposer import pool
from rmsplugin.proposer.pool import Proposers
from rmsplugin.proposer.proposer import Proposed
from rmsplugin.proposing.proposal import Missing, NoProposal


class Meeting:
    """Stands for a proposer; answers with the number of those that are asked at this moment, once ``wanted`` are."""

    wanted, inside, most, made = 1, 0, 0, 0
    lock = threading.Condition()

    def __init__(self, *_: object) -> None:
        Meeting.made += 1
        self.closed = False

    def warm_up(self) -> None:
        """Nothing."""

    def close(self) -> None:
        self.closed = True

    def propose(self, *_: object) -> Proposed:
        if self.closed:
            raise UnavailableError("the proposer is closed")
        with Meeting.lock:
            Meeting.inside += 1
            Meeting.most = max(Meeting.most, Meeting.inside)
            Meeting.lock.notify_all()
            assert Meeting.lock.wait_for(lambda: Meeting.most >= Meeting.wanted, 60)
            Meeting.inside -= 1
        return Proposed(NoProposal(Missing.ANSWER, ""))


@pytest.fixture
def meeting(monkeypatch: pytest.MonkeyPatch) -> type[Meeting]:
    monkeypatch.setattr(pool, "Proposer", Meeting)
    Meeting.wanted, Meeting.inside, Meeting.most, Meeting.made = 1, 0, 0, 0
    return Meeting


def test_requests_at_the_same_time_have_processes_of_their_own(meeting: type[Meeting]) -> None:
    meeting.wanted = 3
    with Proposers(LIMITS, 4) as made, ThreadPoolExecutor(3) as threads:
        list(threads.map(lambda _: made.propose(SOURCE, RJSP), range(3)))
    assert (meeting.most, meeting.made) == (3, 3)


def test_there_are_never_more_processes_than_allowed(meeting: type[Meeting]) -> None:
    meeting.wanted = 2
    with Proposers(LIMITS, 2) as made, ThreadPoolExecutor(6) as threads:
        list(threads.map(lambda _: made.propose(SOURCE, RJSP), range(6)))
    assert (meeting.most, meeting.made) == (2, 2)


def test_requests_one_after_the_other_have_one_process(meeting: type[Meeting]) -> None:
    with Proposers(LIMITS, 4) as made:
        for _ in range(3):
            made.propose(SOURCE, RJSP)
    assert meeting.made == 1


def test_after_the_end_nobody_is_answered(meeting: type[Meeting]) -> None:
    made = Proposers(LIMITS, 1)
    made.close()
    with pytest.raises(UnavailableError):
        made.propose(SOURCE, RJSP)


def test_after_the_end_no_process_is_started(meeting: type[Meeting]) -> None:
    """A request that finds no idle proposer, since another one is under way."""
    made = Proposers(LIMITS, 2)
    made._idle.clear()
    made.close()
    with pytest.raises(UnavailableError):
        made.propose(SOURCE, RJSP)
    assert meeting.made == 1


def test_no_process_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="one process at least"):
        Proposers(LIMITS, 0)


def test_the_real_one_answers() -> None:
    with Proposers(replace(LIMITS, memory_mib=2048), 1) as made:
        made.warm_up()
        assert made.propose(SOURCE, RJSP.without_solver()).failure == ""
