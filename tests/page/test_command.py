"""`rmsplugin report --html`: the page of a real ledger, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from page.browser import browser
from page.documents import document
from page.reading import lasting, rows
from unit.cli.json_documents import answer_of
from unit.reported import Told

from rmsplugin.cli.main import main
from rmsplugin.errors import ReportError
from rmsplugin.report.page import html

REPLAYED = ("--without-slurm", "--nodes", "2", "--cpus-per-node", "2")


@pytest.fixture
def told(tmp_path: Path) -> Told:
    """Two jobs that ended, and one that runs."""
    told = Told(tmp_path)
    for job_id, user, vms, run_s in ((1, "alice", 2, 990), (2, "bob", 4, 490)):
        told.at(0).start(told.submit(job_id, user=user, vms=vms), *["n1"] * vms)
        told.at(10 + run_s).end(job_id)
    told.at(1500).start(told.submit(3), "n2")
    told.at(2000)
    return told


def report(told: Told, *words: str) -> int:
    times = ("--until", "2025-11-03T13:00:00")
    return main(["report", "--config", str(told.settings), *REPLAYED, *times, *words])


def test_the_page_has_the_numbers_of_the_json(told: Told, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "report.html"
    assert report(told, "--html", str(file)) == 0
    assert capsys.readouterr().out == ""
    assert report(told, "--json") == 0
    printed = answer_of(capsys.readouterr().out)
    with browser() as window:
        window.open(file)
        jobs, schedules = rows(window, "jobs"), rows(window, "schedules")
        notes = window.value("[...document.querySelectorAll('#notes li')].map((note) => note.textContent)")
        assert window.console == []
    assert [(row[0], row[4], *row[9:12]) for row in jobs] == [
        (job["id"], job["state"], *(lasting(job[name]) for name in ("wait_s", "run_s", "asleep_s")))
        for job in printed["jobs"]
    ]
    own, *others = schedules
    total = printed["totals"]["all"][0]
    assert own[2:5] == [lasting(total["worth"]["completion_s"][name]) for name in ("mean", "p50", "p95")]
    for row, name in zip(others, printed["others"], strict=True):
        there = total["without"][name]
        assert row[2:5] == [lasting(there["worth"]["completion_s"][part]) for part in ("mean", "p50", "p95")]
        assert row[5] == lasting(there["own"]["completion_s"]["mean"])
        assert row[7:] == [str(there["sooner"]), str(there["later"])]
    assert notes == [note["sentence"] for note in printed["notes"]]


def test_a_page_goes_with_no_other_form(told: Told, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "report.html"
    with pytest.raises(SystemExit) as ended:
        report(told, "--html", str(file), "--json")
    assert ended.value.code == 2
    assert "--json and --html do not go together" in capsys.readouterr().err
    assert not file.exists()


def test_a_page_that_cannot_be_written_is_refused(
    told: Told, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(told, "--html", str(tmp_path / "nowhere" / "report.html")) == 1
    assert "--html: there is no directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "name", "message"),
    [
        (("--ledger", "copy"), "./copy", "--html would replace the ledger copy"),
        ((), "ledger.sqlite", "--html would replace the ledger "),
        ((), "rmsplugin.toml", "--html would replace the settings"),
    ],
)
def test_a_page_replaces_nothing_that_is_read(
    words: tuple[str, ...],
    name: str,
    message: str,
    told: Told,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(told.path.parent)
    Path("copy").write_bytes(told.path.read_bytes())
    before = Path(name).read_bytes()
    with pytest.raises(SystemExit) as ended:
        report(told, *words, "--html", name)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
    assert Path(name).read_bytes() == before


def test_more_jobs_than_a_page_shows_are_refused(
    told: Told, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(html, "MAX_JOBS", 2)
    file = tmp_path / "report.html"
    file.write_text("of yesterday")
    assert report(told, "--html", str(file)) == 2
    assert "3 jobs are too many for a page, which shows 2 at most: choose fewer by" in capsys.readouterr().err
    assert file.read_text() == "of yesterday"


def test_without_bokeh_the_message_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bokeh", None)
    with pytest.raises(ReportError, match=r"install rmsplugin\[html\]"):
        html.page_text(document(1))
