"""Those that act on the VMs of a vjob wait for each other, and for nobody who does not come."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from patience import PATIENCE_S

from rmsplugin.engine.execute.meeting import Meeting

NEVER_S = 10 * PATIENCE_S


class Comers:
    """VMs that come to a meeting, each in a thread of its own."""

    def __init__(self, meeting: Meeting, pool: ThreadPoolExecutor) -> None:
        self.meeting = meeting
        self.gone: set[str] = set()
        self._pool = pool
        self._changed = threading.Condition()

    def come(self, *names: str, timeout_s: float = NEVER_S) -> None:
        for name in names:
            self._pool.submit(self._come, name, timeout_s)

    def _come(self, name: str, timeout_s: float) -> None:
        self.meeting.wait(name, timeout_s)
        with self._changed:
            self.gone.add(name)
            self._changed.notify_all()

    def all_go(self, *names: str) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self.gone >= set(names), PATIENCE_S)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as found:
        yield found


def test_nobody_goes_before_the_last_one_is_here(pool: ThreadPoolExecutor) -> None:
    comers = Comers(Meeting(("a", "b", "c"), 3), pool)
    comers.come("a", "b")
    comers.come("late", timeout_s=0.0)  # not one of them: it goes at once
    assert comers.all_go("late")
    assert comers.gone == {"late"}
    comers.come("c")
    assert comers.all_go("a", "b", "c")


def test_nobody_waits_for_one_that_has_failed(pool: ThreadPoolExecutor) -> None:
    meeting = Meeting(("a", "b", "c"), 3)
    comers = Comers(meeting, pool)
    comers.come("a", "b")
    meeting.drop("c")
    assert comers.all_go("a", "b")
    comers.come("c")
    assert comers.all_go("c")


def test_groups_meet_where_fewer_can_be_acted_on_at_a_time_and_the_last_one_may_be_smaller(
    pool: ThreadPoolExecutor,
) -> None:
    comers = Comers(Meeting(("a", "b", "c"), 2), pool)
    comers.come("a", "b")
    assert comers.all_go("a", "b")
    comers.come("c")
    assert comers.all_go("c")


def test_one_after_the_other_waits_for_nobody(pool: ThreadPoolExecutor) -> None:
    comers = Comers(Meeting(("a", "b"), 1), pool)
    comers.come("a")
    assert comers.all_go("a")


def test_who_waited_in_vain_goes_alone_and_is_awaited_by_nobody(pool: ThreadPoolExecutor) -> None:
    comers = Comers(Meeting(("a", "b", "c"), 3), pool)
    comers.come("a", timeout_s=0.01)
    assert comers.all_go("a")
    comers.come("b", "c")
    assert comers.all_go("b", "c")
