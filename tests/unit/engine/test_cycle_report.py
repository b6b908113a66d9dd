"""A fault ends only its own part of a cycle, and is in the report; the engine's end ends all."""

from __future__ import annotations

import logging

import pytest

from rmsplugin.engine.context.cycle_report import CycleReport
from rmsplugin.errors import RefusedError


def test_a_fault_ends_its_own_block_and_is_told_with_its_name() -> None:
    report = CycleReport()
    with report.alone("vjob 1"):
        raise RefusedError("no room")
    with report.alone("vjob 2"):
        report.begun.append("went on")
    assert report.problems == ["vjob 1: no room"]
    assert report.begun == ["went on"]


def test_a_fault_of_our_own_is_logged_with_its_place(caplog: pytest.LogCaptureFixture) -> None:
    report = CycleReport()
    with caplog.at_level(logging.ERROR), report.alone("vjob 1"):
        raise KeyError("lost")
    assert report.problems == ["vjob 1: internal error: KeyError('lost')"]
    assert "Traceback" in caplog.text


def test_what_is_to_end_the_engine_is_not_kept() -> None:
    report = CycleReport()
    with pytest.raises(KeyboardInterrupt), report.alone("vjob 1"):
        raise KeyboardInterrupt
    assert report.problems == []


def test_a_fault_in_one_of_many_ends_its_own_act_and_is_told_with_its_name(caplog: pytest.LogCaptureFixture) -> None:
    report, done = CycleReport(), []

    def act(number: int) -> None:
        if number == 1:
            raise RefusedError("no room")
        if number == 2:
            raise KeyError("lost")
        done.append(number)

    with caplog.at_level(logging.ERROR):
        report.each_alone(range(4), act, lambda number: f"vjob {number}")
    assert done == [0, 3]
    assert report.problems == ["vjob 1: no room", "vjob 2: internal error: KeyError('lost')"]
    assert caplog.text.count("Traceback") == 1


def test_what_is_to_end_the_engine_ends_the_acts_on_many() -> None:
    report, done = CycleReport(), []

    def act(number: int) -> None:
        done.append(number)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        report.each_alone(range(4), act, str)
    assert done == [0] and report.problems == []
