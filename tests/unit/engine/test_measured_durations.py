"""What was measured often enough is used in place of [durations], where the site has it so."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from unit.cli.test_cli_calibrate import Site

from rmsplugin.engine.context.durations import DurationsInUse
from rmsplugin.engine.schedule.calibration import Calibrating
from rmsplugin.model.durations import DEFAULTS

DAY_S = 86400.0


class Measured:
    """A site whose suspends take 40 s and a hundredth of a second for each MiB."""

    def __init__(self, directory: Path, *, wanted: bool = True) -> None:
        self.site, self.later_s, self._job = Site(directory), 0.0, 0
        self.durations = DurationsInUse(dict(DEFAULTS))
        settings: Any = SimpleNamespace(planning=SimpleNamespace(measured_durations=wanted), territory="")
        self.calibrating = Calibrating(settings, self.site.ledger, lambda: self.site.now + self.later_s, self.durations)

    def suspend(self, times: int) -> None:
        for number in range(times):
            self._job += 1
            memory_mib = (256, 512, 1024, 2048)[number % 4]
            self.site.suspend(self._job, memory_mib, 40 + 0.01 * memory_mib)

    @property
    def told(self) -> list[str]:
        return [each.message for each in self.site.ledger.events() if each.kind == "durations-measured"]


def test_ten_of_an_action_take_the_place_of_the_settings_and_other_actions_keep_theirs(tmp_path: Path) -> None:
    here = Measured(tmp_path)
    here.suspend(9)
    assert here.calibrating.is_due
    here.calibrating.measure()
    assert here.durations.values() == DEFAULTS and here.told == []
    here.suspend(3)
    assert not here.calibrating.is_due, "once a day"
    here.later_s = DAY_S
    assert here.calibrating.is_due
    here.calibrating.measure()
    changed = {"suspend_s": 40.0, "suspend_s_per_mib": 0.01}
    assert here.durations.values() == {**DEFAULTS, **changed}
    [told] = here.told
    assert told.startswith("durations in use: suspend_s = 40 (set: 10), suspend_s_per_mib = 0.01 (set: 0.039), by 12 ")
    assert here.durations.measured["suspend"].since == here.site.now + DAY_S


def test_since_when_stays_while_they_are_measured_again_and_old_ones_count_no_more(tmp_path: Path) -> None:
    here = Measured(tmp_path)
    here.suspend(12)
    here.calibrating.measure()
    since = here.durations.measured["suspend"].since
    here.later_s = 2 * DAY_S
    here.calibrating.measure()
    assert here.durations.measured["suspend"].since == since and len(here.told) == 1
    here.later_s = 40 * DAY_S
    here.calibrating.measure()
    assert here.durations.values() == DEFAULTS
    assert here.told[1] == "durations in use: none was measured often enough: those of the settings count"


def test_a_site_that_does_not_want_it_measures_nothing(tmp_path: Path) -> None:
    assert not Measured(tmp_path, wanted=False).calibrating.is_due


def test_a_ledger_that_cannot_be_read_changes_nothing_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Measured(tmp_path)
    here.suspend(12)
    with monkeypatch.context() as broken:
        broken.setattr(here.site.ledger, "path", tmp_path / "none.sqlite")
        here.calibrating.measure()
    assert here.durations.values() == DEFAULTS and not here.calibrating.is_due
    here.later_s = 60.0
    assert here.calibrating.is_due
    here.calibrating.measure()
    assert here.durations.values()["suspend_s"] == 40.0
