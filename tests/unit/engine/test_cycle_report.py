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
