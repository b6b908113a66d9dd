"""The munged of the tests' own: none is left behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from unit import munged


def test_one_that_does_not_come_up_in_time_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    silent = tmp_path / "bin" / "munged"
    silent.parent.mkdir()
    silent.write_text("#!/bin/sh\nexec sleep 3600\n")
    silent.chmod(0o755)
    monkeypatch.setenv("PATH", f"{silent.parent}:{os.environ['PATH']}")
    ended: list[munged.Munged] = []
    stop = munged.Munged.stop
    monkeypatch.setattr(munged, "PATIENCE_S", -1.0)

    def stop_in_time(self: munged.Munged) -> None:
        munged.PATIENCE_S = 60.0
        stop(self)
        ended.append(self)

    monkeypatch.setattr(munged.Munged, "stop", stop_in_time)
    with pytest.raises(AssertionError, match="made no socket"):
        munged.Munged(tmp_path)
    assert [each._process.returncode is not None for each in ended] == [True]
