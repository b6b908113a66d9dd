"""The engine of a group knows when the queue has changed, as long as its manager tells it; one thread listens."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, cast

import pytest
from patience import PATIENCE_S

from rmsplugin.engine.territory import leaders_pulse
from rmsplugin.engine.territory.leaders_pulse import LeadersPulse
from rmsplugin.errors import RmspluginError, UnavailableError


class Manager:
    """Tells what a test says, each time that it changes."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.says: Mapping[str, Any] | RmspluginError = {"epoch": 5, "pulse": "a"}
        self.asked: list[str] = []
        self.pulse = LeadersPulse(cast(Any, self))

    def request(self, method: str, path: str, *, timeout_s: float) -> Mapping[str, Any]:
        known = path.partition("=")[2]
        self.asked.append(known)
        with self.changed:
            self.changed.wait_for(lambda: isinstance(self.says, RmspluginError) or self.says.get("pulse") != known, 0.2)
            if isinstance(self.says, RmspluginError):
                raise self.says
            return self.says

    def tells(self, says: Mapping[str, Any] | RmspluginError) -> None:
        with self.changed:
            self.says = says
            self.changed.notify_all()

    def comes(self, value: str | None) -> bool:
        until = time.monotonic() + PATIENCE_S
        while self.pulse.latest() != value:
            assert time.monotonic() < until
            time.sleep(0.005)
        return True


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    monkeypatch.setattr(leaders_pulse, "_AGAIN_S", 0.01)
    monkeypatch.setattr(leaders_pulse, "_FIRST_S", PATIENCE_S)
    made = Manager()
    yield made
    made.pulse.close()


def test_the_first_look_waits_for_an_answer_and_later_ones_do_not(manager: Manager) -> None:
    assert manager.pulse.latest() == "a"
    manager.tells({"epoch": 5, "pulse": "b"})
    assert manager.comes("b")
    assert manager.asked[0] == "" and "a" in manager.asked


def test_one_answer_that_is_missing_changes_nothing(manager: Manager, monkeypatch: pytest.MonkeyPatch) -> None:
    assert manager.pulse.latest() == "a"
    failed, again = threading.Event(), threading.Event()

    def rest(_seconds: float) -> None:
        failed.set()
        again.wait(PATIENCE_S)

    monkeypatch.setattr(manager.pulse._closed, "wait", rest)
    manager.tells(UnavailableError("silent"))
    assert failed.wait(PATIENCE_S)
    assert manager.pulse.latest() == "a"
    manager.tells({"epoch": 5, "pulse": "b"})
    again.set()
    assert manager.comes("b")


def test_nobody_tells_where_the_manager_is_silent_and_again_when_it_is_back(manager: Manager) -> None:
    assert manager.pulse.latest() == "a"
    manager.tells(UnavailableError("silent"))
    assert manager.comes(None)
    manager.tells({"epoch": 6, "pulse": "b"})
    assert manager.comes("b")


@pytest.mark.parametrize("answer", [{"epoch": 4, "pulse": "b"}, {"epoch": 5}, {"epoch": "5", "pulse": "b"}, {}])
def test_neither_a_leader_from_before_nor_another_answer_counts(manager: Manager, answer: Mapping[str, Any]) -> None:
    assert manager.pulse.latest() == "a"
    manager.tells(answer)
    assert manager.comes(None)
