"""`rmsplugin schedule`: what is done at times of day, by the real command and the real service."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from scenarios import world
from unit.cli.json_documents import answer_of
from unit.cli.test_cli import SETTINGS
from unit.cli.test_cli_calibrate import Site
from unit.served import Served

from rmsplugin.cli.main import main
from rmsplugin.engine.ledger.site_ledgers import SiteLedger
from rmsplugin.engine.schedule.calibration import propose_durations
from rmsplugin.model.durations import DEFAULTS

JOBS = ["ledger-backup", "ledger-retention", "report", "calibration", "sweep", "gate"]


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    served = Served(tmp_path)
    path = tmp_path / "rmsplugin.toml"
    path.write_text(SETTINGS.format(socket=served.socket))
    monkeypatch.setenv("RMSPLUGIN_CONFIG", str(path))
    yield served
    served.close()


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["schedule", *words]) == 0
    return capsys.readouterr().out


def test_each_job_is_shown_with_its_next_and_last_run(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    backup = served.timetable.jobs[0]
    served.runs.do_job(backup)
    rows = {row["job"]: row for row in answer_of(said(capsys, "--json"))["schedule"]}
    assert list(rows) == JOBS
    done = rows["ledger-backup"]
    assert (done["state"], done["failures"], done["cron"]) == ("done", 0, "15 2 * * *")
    assert done["last"] == pytest.approx(served.context.clock.now(), abs=60) and done["took_s"] >= 0
    assert done["result"].endswith("whole; 1 are kept")
    coming = datetime.fromtimestamp(done["next"])
    assert (coming.hour, coming.minute) == (2, 15)
    assert (rows["report"]["state"], rows["report"]["next"]) == ("off", None)
    assert rows["report"]["result"] == "schedule.report_to names nobody"
    assert rows["sweep"]["state"] == "waiting" and rows["sweep"]["last"] is None


def test_a_failure_is_shown_with_its_reason(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    gate = served.timetable.jobs[-1]
    served.runs.do_job(gate)  # no cycle has looked yet
    line = next(line for line in said(capsys).splitlines() if line.startswith("gate "))
    assert "failed" in line and line.endswith("no cycle has looked at Slurm yet")
    [event] = [event for event in served.ledger.events() if event.kind == "schedule-failed"]
    assert event.message == "gate: no cycle has looked at Slurm yet"


def test_it_is_a_table_like_all(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(capsys).splitlines()
    assert lines[0].split() == ["JOB", "CRON", "NEXT", "LAST", "TOOK", "STATE", "RESULT"]
    assert [line.split()[0] for line in lines[1:]] == JOBS
    at = lines[0].index("STATE")
    assert {line[at - 1] for line in lines} == {" "}
    assert said(capsys, "--noheader", "--parsable2", "--format", "job,state").splitlines()[2] == "report|off"


def test_quiet_hours_are_shown_while_they_last_and_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    windows = [{"begins": "0 13 * * *", "ends": "0 18 * * *"}, {"begins": "0 22 * * *", "ends": "0 6 * * *"}]
    settings = {"timezone": "UTC", "quiet": windows}
    monkeypatch.setitem(world._SETTINGS, "schedule", settings)
    served = Served(tmp_path)
    path = tmp_path / "rmsplugin.toml"
    path.write_text(SETTINGS.format(socket=served.socket))
    monkeypatch.setenv("RMSPLUGIN_CONFIG", str(path))
    try:
        rows = [row for row in answer_of(said(capsys, "--json"))["schedule"] if row["job"] == "quiet-hours"]
        assert [(row["state"], row["result"]) for row in rows] == [("running", "until Mon 18:00"), ("waiting", "")]
        assert [f"{datetime.fromtimestamp(row['next'], UTC):%d %H}" for row in rows] == ["13 13", "12 22"]
        assert main(["status"]) == 0
        assert "quiet hours until 18:00\n" in capsys.readouterr().out
    finally:
        served.close()


def test_durations_that_miss_are_proposed_and_those_that_hit_are_not(tmp_path: Path) -> None:
    site = Site(tmp_path)
    for number, memory_mib in enumerate([256, 512, 1024, 2048] * 4, start=1):
        site.suspend(number, memory_mib, 40 + 0.01 * memory_mib)
    sentence = propose_durations(site.ledger, [SiteLedger(site.path)], site.now, DEFAULTS)
    assert sentence == "proposed for [durations]: suspend_s = 40 (now 10), suspend_s_per_mib = 0.01 (now 0.039)"
    assert [event.kind for event in site.ledger.events()].count("durations-proposed") == 1
    better = {**DEFAULTS, "suspend_s": 40.0, "suspend_s_per_mib": 0.01}
    assert propose_durations(site.ledger, [SiteLedger(site.path)], site.now, better).startswith(
        "the durations stay as they are: 16"
    )
    later = site.now + 40 * 86400.0
    assert propose_durations(site.ledger, [SiteLedger(site.path)], later, DEFAULTS).startswith(
        "the durations stay as they are: 0"
    )
    assert [event.kind for event in site.ledger.events()].count("durations-proposed") == 1


def test_durations_are_proposed_by_what_all_groups_have_measured_together(tmp_path: Path) -> None:
    sites = {}
    for first, name in ((1, "left"), (101, "right")):
        (tmp_path / name).mkdir()
        sites[name] = Site(tmp_path / name)
        sites[name].now += first * 1000
        for number, memory_mib in enumerate([256, 512, 1024, 2048] * 2, start=first):
            sites[name].suspend(number, memory_mib, 40 + 0.01 * memory_mib)
    left, ledgers = sites["left"], [SiteLedger(each.path, name) for name, each in sites.items()]
    now = sites["right"].now
    alone = propose_durations(left.ledger, ledgers[:1], now, DEFAULTS)
    assert alone == "the durations stay as they are: 8 actions of 30 days were measured", "too few are no fit"
    both = propose_durations(left.ledger, ledgers, now, DEFAULTS)
    assert both == "proposed for [durations]: suspend_s = 40 (now 10), suspend_s_per_mib = 0.01 (now 0.039)"
    assert [event.kind for event in sites["right"].ledger.events()] == []


def test_a_job_of_a_closed_schedule_does_nothing(served: Served) -> None:
    served.timetable.close()
    served.runs.do_job(served.timetable.jobs[0])
    assert served.ledger.schedule.last("ledger-backup") is None
