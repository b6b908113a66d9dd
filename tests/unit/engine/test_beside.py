"""The same work on many things, by threads that take the next one."""

from __future__ import annotations

import threading

import pytest
from patience import PATIENCE_S

from rmsplugin.engine.context.beside import each_beside


def test_results_are_in_the_order_of_the_things() -> None:
    second = threading.Event()
    assert each_beside([0, 1], lambda number: second.set() if number else second.wait(PATIENCE_S), 2, "test") == [
        True,
        None,
    ]
    assert each_beside([*range(100)], lambda number: number * number, 7, "test") == [each * each for each in range(100)]
    assert each_beside([], str, 7, "test") == []


def test_so_many_are_worked_on_at_a_time() -> None:
    meet = threading.Barrier(3)
    names = each_beside("abcdef", lambda _: (meet.wait(PATIENCE_S), threading.current_thread().name)[1], 3, "some")
    assert {*names} == {"some_0", "some_1", "some_2"}


def test_an_error_is_raised_when_all_others_have_ended() -> None:
    done = []

    def work(number: int) -> None:
        if number == 0:
            raise ValueError("none")
        done.append(number)

    with pytest.raises(ValueError, match="none"):
        each_beside(range(5), work, 2, "test")
    assert done == [1, 2, 3, 4]
