"""What the engine does when it is told that a VM has ended or stands still."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from patience import PATIENCE_S

from rmsplugin.engine.observe.absence import APART_S
from rmsplugin.engine.observe.vm_events import VMEvents, later


class Engine:
    """Counts cycles, and has what is to be done later."""

    def __init__(self) -> None:
        self.cycles = 0
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.events = VMEvents(lambda job: job == 8, self.wake, self.do_later)

    def wake(self) -> None:
        self.cycles += 1

    def do_later(self, seconds: float, act: Callable[[], None]) -> Callable[[], None]:
        entry = (seconds, act)
        self.later.append(entry)
        return lambda: self.later.remove(entry)


@pytest.mark.parametrize(
    ("vm", "woken"),
    [("vjob7-0", 1), ("vjob7-12", 1), ("vjob8-0", 0), ("somebody", 0), ("vjob7", 0)],
    ids=["a vjob's", "another one of it", "its vjob has an operation", "not ours", "no VM"],
)
def test_a_cycle_runs_if_a_vm_has_ended_that_nothing_of_ours_ends(vm: str, woken: int) -> None:
    engine = Engine()
    engine.events.heard("n1", vm)
    assert (engine.cycles, len(engine.later)) == (woken, woken)


def test_it_looks_again_when_two_looks_are_far_enough_apart_and_once_for_many_events() -> None:
    engine = Engine()
    for number in range(5):
        engine.events.heard("n1", f"vjob7-{number}")
    assert engine.cycles == 5
    ((seconds, act),) = engine.later
    assert seconds > APART_S
    act()
    assert engine.cycles == 6


def test_what_is_to_be_done_later_is_done_unless_it_is_called_off() -> None:
    done = threading.Event()
    others = set(threading.enumerate())
    call_off = later(PATIENCE_S, done.set)
    (waits,) = set(threading.enumerate()) - others
    call_off()
    waits.join(PATIENCE_S / 2)
    assert not waits.is_alive() and not done.is_set()
    later(0.0, done.set)
    assert done.wait(PATIENCE_S)
