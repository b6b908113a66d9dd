"""`rmsplugin simulate --html` and `compare --html`: pages of what was really simulated, and what is refused."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from page.browser import Browser, browser
from page.reading import colour, drawn, lasting, rows
from unit.cli.json_documents import answer_of
from unit.cli.test_cli_compare import CLUSTER, TRACE
from unit.simulation.test_workload import line

from rmsplugin.cli.main import main
from rmsplugin.report.page import html

SIMULATE = ("simulate", *CLUSTER, "--policy", "rjsp")
COMPARE = ("compare", *CLUSTER, "--policies", "fcfs,easy,rjsp")


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with browser() as started:
        yield started


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory of its own for each test, with a trace in it."""
    monkeypatch.chdir(tmp_path)
    Path("t.swf").write_text(TRACE)


def opened(window: Browser, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """Show the page of a command; returns the answer in JSON that it gives with it."""
    assert main([*words, "--html", "page.html", "--json"]) == 0
    window.open(Path("page.html").resolve())
    assert window.console == []
    answer: dict[str, Any] = answer_of(capsys.readouterr().out)
    return answer


def schedules(answers: list[dict[str, Any]]) -> list[list[str]]:
    """The beginnings of the page's rows of schedules, by the answers in JSON."""
    found = []
    for answer in answers:
        name = {"fcfs": "FCFS", "easy": "EASY"}.get(answer["policy"], answer["policy"])
        completion = answer["completion_s"]
        found.append([name, str(answer["jobs"]), *(lasting(completion[part]) for part in ("mean", "p50", "p95"))])
    return found


def test_a_simulation_beside_fcfs_and_easy(window: Browser, capsys: pytest.CaptureFixture[str]) -> None:
    answer = opened(window, capsys, *SIMULATE)
    assert [row[0] for row in rows(window, "schedules")] == ["rjsp", "FCFS", "EASY"]
    assert rows(window, "schedules")[0][:5] == schedules([answer])[0]
    label = window.value("document.querySelector('#allocation [role=img]').getAttribute('aria-label')")
    assert "1 suspend, 1 resume, 0 migrations of VMs" in label
    assert all(drawn(window, "allocation").get(colour(window, role), 0) > 10 for role in ("orange", "teal", "run3"))
    # Nobody's name is in this trace, so there is nothing to filter by, and nothing in the table.
    assert window.value(
        "['user', 'account', 'partition'].every((id) => !document.getElementById(id).checkVisibility())"
    )
    assert [row[0:2] for row in rows(window, "jobs")] == [["1", "ended"], ["2", "ended"], ["3", "ended"]]


@pytest.mark.parametrize("words", [SIMULATE, COMPARE])
def test_the_users_groups_and_queues_of_a_trace_are_filters_and_totals(
    window: Browser, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    jobs = (("7", "3", "1"), ("8", "3", "1"), ("7", "4", "2"))
    Path("t.swf").write_text(
        "".join(
            line(job_id=number, submit_s=0, run_s=60 * number, user=user, group=group, queue=queue) + "\n"
            for number, (user, group, queue) in enumerate(jobs, start=1)
        )
    )
    opened(window, capsys, *words)
    listed = {
        kind: window.value(f"[...document.getElementById('{kind}').options].map((each) => each.text).slice(1)")
        for kind in ("user", "account", "partition")
    }
    assert listed == {"user": ["7", "8"], "account": ["3", "4"], "partition": ["1", "2"]}
    assert {row[0]: row[1] for row in rows(window, "totals")} == {"7": "2", "8": "1"}
    window.value(
        "{ const by = document.getElementById('group'); by.value = 'class'; by.dispatchEvent(new Event('change')); }"
    )
    against = [[row[0], row[1], row[2]] for row in rows(window, "paid")]
    assert ["short and narrow", "EASY", "3"] in against
    assert "are of 2 partitions: tiers of partitions" in window.value("document.getElementById('left-out').textContent")
    assert [row[:3] for row in rows(window, "totals")] == [["short and narrow", "3", "3"]]


def test_a_comparison_has_the_completions_under_each_policy(
    window: Browser, capsys: pytest.CaptureFixture[str]
) -> None:
    fcfs, easy, rjsp = opened(window, capsys, *COMPARE)["policies"]
    assert [row[:5] for row in rows(window, "schedules")] == schedules([rjsp, fcfs, easy])
    curves = drawn(window, "distribution")
    assert all(curves.get(colour(window, role), 0) > 10 for role in ("blue", "orange", "purple"))
    titles = window.value("[...document.querySelectorAll('h1, #allocation-title')].map((title) => title.textContent)")
    assert titles == ["Policies compared: rjsp, fcfs, easy", "Allocation of nodes, rjsp"]


@pytest.mark.parametrize("command", [SIMULATE, COMPARE])
def test_what_a_page_cannot_show_is_refused_before_it_is_simulated(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmsplugin.cli.simulate.simulated.simulate", None)
    Path("page.html").write_text("of yesterday")
    assert main([*command, "--html", "nowhere/page.html"]) == 1
    assert "--html: there is no directory" in capsys.readouterr().err
    with monkeypatch.context() as patched:
        patched.setattr(html, "MAX_JOBS", 2)
        assert main([*command, "--html", "page.html"]) == 2
        assert "3 jobs are too many for a page, which shows 2 at most: simulate a part" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "bokeh", None)
    assert main([*command, "--html", "page.html"]) == 2
    assert "install rmsplugin[html]" in capsys.readouterr().err
    assert Path("page.html").read_text() == "of yesterday"


@pytest.mark.parametrize("command", [SIMULATE, COMPARE])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "argument --html: the name of a file is empty"),
        ("-", "--html needs a file"),
        ("./t.swf", "--html would replace the trace of --workload"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused(
    command: tuple[str, ...], name: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command, "--html", name])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
    assert Path("t.swf").read_text() == TRACE


def test_pages_and_other_files_are_not_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([*SIMULATE, "--html", "same", "--events", "same"])
    assert "--events and --html are the same file" in capsys.readouterr().err
