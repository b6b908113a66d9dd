"""The munged of the tests' own: none is left behind."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from unit import munged

pytestmark = pytest.mark.skipif(shutil.which("munged") is None, reason="munged is not installed")


def test_one_that_does_not_come_up_in_time_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[munged.Munged] = []
    stop = munged.Munged.stop
    monkeypatch.setattr(munged, "PATIENCE_S", -1.0)

    def stop_in_time(self: munged.Munged) -> None:
        munged.PATIENCE_S = 60.0
        stop(self)
        ended.append(self)

    monkeypatch.setattr(munged.Munged, "stop", stop_in_time)
    with tempfile.TemporaryDirectory() as name, pytest.raises(AssertionError, match="made no socket"):
        munged.Munged(Path(name))
    assert [each._process.returncode is not None for each in ended] == [True]
