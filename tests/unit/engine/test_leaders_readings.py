"""The engine of a group asks its manager for readings, and believes none that is old, of another leader, or late."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from rmsplugin.adapters.rms.slurm_reading import SlurmTexts, packed
from rmsplugin.engine.territory.leaders_readings import LeadersReadings
from rmsplugin.errors import NotFoundError, RmspluginError, UnavailableError

TEXTS = SlurmTexts("site", "queue", "token", {7: 2}, "parts", "shares")


def told(whole: bytes = packed(TEXTS), **changes: Any) -> dict[str, Any]:
    return {"epoch": 5, "reading": 3, "parts": 1, "age_s": 0.0, "data": base64.b64encode(whole).decode()} | changes


class Manager:
    """Answers what a test says, each a moment after it was asked."""

    def __init__(self, *answers: Mapping[str, Any] | RmspluginError) -> None:
        self.answers, self.asked = list(answers), list[str]()
        self.now, self.word, self.takes_s = 100.0, 0, 0.1
        self.readings = LeadersReadings(cast(Any, self), lambda: self.word, lambda: self.now)

    def request(self, method: str, path: str, *, timeout_s: float) -> Mapping[str, Any]:
        assert (method, timeout_s) == ("GET", 1.0)
        self.asked.append(path.partition("?")[2])
        self.now += self.takes_s
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, RmspluginError):
            raise answer
        return answer

    def refuses(self, why: str) -> bool:
        with pytest.raises(UnavailableError, match=why):
            self.readings.texts()
        return True


def test_a_reading_in_one_part() -> None:
    manager = Manager(told())
    assert manager.readings.texts() == TEXTS
    assert manager.asked == ["reading=0&part=0"]


def test_a_reading_that_is_under_way_and_has_several_parts() -> None:
    whole = base64.b64encode(packed(TEXTS)).decode()
    under_way = told(parts=0, data="")
    manager = Manager(under_way, under_way, told(parts=2, data=whole[:8]), told(parts=2, data=whole[8:]))
    assert manager.readings.texts() == TEXTS
    assert manager.asked == ["reading=0&part=0", "reading=3&part=0", "reading=3&part=0", "reading=3&part=1"]


def test_one_that_was_begun_before_it_was_asked_for_is_refused() -> None:
    assert Manager(told(age_s=0.101)).refuses("before it was asked for")
    assert Manager(told(age_s=0.099)).readings.texts() == TEXTS


@pytest.mark.parametrize("change", [{"epoch": 6}, {"reading": 4}])
def test_parts_of_two_leaders_are_no_reading(change: Mapping[str, int]) -> None:
    assert Manager(told(parts=2), told(parts=2, **change)).refuses("another leader")


def test_a_leader_from_before_is_not_believed() -> None:
    manager = Manager(told(epoch=6), told(epoch=5))
    assert manager.readings.texts() == TEXTS
    assert manager.refuses("epoch 5 is that of a leader before")
    follows = Manager(told(epoch=5))
    follows.word = 6
    assert follows.refuses("epoch 5 is that of a leader before: 6 was seen")


def test_one_that_takes_too_long_is_given_up_and_so_are_others_for_nine_times_as_long() -> None:
    manager = Manager(told(parts=0, data=""))
    manager.takes_s = 0.4
    assert manager.refuses("takes more than 10 s")
    asked = len(manager.asked)
    began = manager.now
    while manager.now - began < 90:
        assert manager.refuses("takes more than 10 s")
        manager.now += 1.7
    assert len(manager.asked) == asked
    manager.answers, manager.now = [told()], manager.now + 2
    assert manager.readings.texts() == TEXTS


@pytest.mark.parametrize("error", [UnavailableError("silent"), NotFoundError("there is no such request")])
def test_a_manager_that_does_not_answer_is_asked_again_after_a_rest(error: RmspluginError) -> None:
    manager = Manager(error, told())
    with pytest.raises(type(error)):
        manager.readings.texts()
    assert manager.refuses(str(error))
    assert len(manager.asked) == 1
    manager.now += 9.5
    assert manager.readings.texts() == TEXTS


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data[:-1],
        lambda data: b"x" + data,
        lambda data: b"",
    ],
)
def test_what_is_no_reading_is_told_apart(spoil: Callable[[bytes], bytes]) -> None:
    with pytest.raises(ValueError):
        Manager(told(spoil(packed(TEXTS)))).readings.texts()


def test_text_that_is_not_base64_is_no_reading() -> None:
    with pytest.raises(ValueError):
        Manager(told(data="no base64!")).readings.texts()
