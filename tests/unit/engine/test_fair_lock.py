"""The lock of the ledger: one thread at a time, several times over; a thread that goes first does not wait for many."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from patience import PATIENCE_S

from rmsplugin.engine.ledger.fair_lock import FairLock
from rmsplugin.latency import answer_requests, goes_first, going_first


def started(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_one_thread_has_it_at_a_time_and_as_often_as_it_likes() -> None:
    lock, inside, most = FairLock(), 0, 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(300):
            with lock, lock:
                inside += 1
                with lock:
                    most = max(most, inside)
                inside -= 1

    def answer() -> None:
        answer_requests()
        work()

    threads = [started(each) for each in (work, answer) * 3]
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert most == 1


def test_what_fails_inside_gives_it_back() -> None:
    lock = FairLock()
    with pytest.raises(ValueError, match="no"), lock, lock:
        raise ValueError("no")
    started(lambda: lock.__enter__()).join(PATIENCE_S)
    assert lock._lock.locked()


def a_request(work: Callable[[], None]) -> None:
    answer_requests()
    work()


def a_cycle(work: Callable[[], None]) -> None:
    with going_first():
        work()


@pytest.mark.parametrize("as_one", [a_request, a_cycle])
def test_a_request_and_the_cycle_go_before_those_that_wait(as_one: Callable[[Callable[[], None]], None]) -> None:
    lock, order = FairLock(), list[str]()

    def take(name: str) -> None:
        with lock:
            order.append(name)

    with lock:
        others = [started(lambda: take("other")) for _ in range(8)]
        while not lock._next.locked():
            pass
        first = started(lambda: as_one(lambda: take("first")))
        while not lock._first.locked():
            pass
    for thread in (first, *others):
        thread.join(PATIENCE_S)
    assert order.index("first") <= 1  # behind the one that had waited for the lock itself, if at all
    assert len(order) == 9


def test_a_thread_goes_first_for_a_time() -> None:
    with going_first():
        with going_first():
            assert goes_first()
        assert goes_first()
    assert not goes_first()
