"""The lock of the ledger: one thread at a time, several times over; who answers a request does not wait for many."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from patience import PATIENCE_S

from rmsplugin.engine.ledger.fair_lock import FairLock
from rmsplugin.latency import answer_requests


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


def test_who_answers_a_request_goes_before_those_that_wait() -> None:
    lock, order = FairLock(), list[str]()

    def take(name: str) -> None:
        with lock:
            order.append(name)

    def answer() -> None:
        answer_requests()
        take("request")

    with lock:
        others = [started(lambda: take("other")) for _ in range(8)]
        while not lock._next.locked():
            pass
        request = started(answer)
        while not lock._first.locked():
            pass
    for thread in (request, *others):
        thread.join(PATIENCE_S)
    assert order.index("request") <= 1  # behind the one that had waited for the lock itself, if at all
    assert len(order) == 9
