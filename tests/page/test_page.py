"""The page of a report in a real browser: what a reader sees, reads and presses."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from page.browser import Browser, browser
from page.documents import HOSTILE, SINCE, document
from page.reading import brief, clock, colour, drawn, lasting, rows, tab_to

from rmsplugin.report.page.html import page_text

CHARTS = ("completion", "distribution", "allocation", "utilisation", "memory", "queue", "switches")
SHOWN = "document.getElementById('count').textContent"
CALM = "document.getElementById('main').ariaBusy === 'false'"


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    return document(60)


@pytest.fixture(scope="module")
def file(report: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page_text(report), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def opened(window: Browser, file: Path) -> Browser:
    window.open(file)
    return window


@pytest.fixture
def page(opened: Browser) -> Iterator[Browser]:
    """The page without filters, which has complained of nothing when the test is over."""
    if not opened.value(f"{SHOWN}.startsWith('60 of 60')"):
        opened.value("document.querySelector('button[type=reset]').click()")
    opened.wait_for(f"{SHOWN}.startsWith('60 of 60') && {CALM}")
    yield opened
    assert opened.console == []


def test_nothing_is_asked_of_the_network(page: Browser, file: Path) -> None:
    assert [url for url in page.requested if not url.startswith("data:")] == [file.as_uri()]


def test_the_security_policy_stops_what_is_not_of_the_page(opened: Browser) -> None:
    opened.value(
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.owned = 1'}))"
    )
    opened.value("fetch('http://127.0.0.1:9/').catch(() => 0)")
    assert opened.value("window.owned") is None
    complaints = " ".join(opened.console)
    opened.console.clear()
    assert "script-src" in complaints
    assert "default-src" in complaints


@pytest.mark.parametrize("chart", CHARTS)
def test_each_chart_is_drawn(page: Browser, chart: str) -> None:
    colours = drawn(page, chart)
    assert colours.get(colour(page, "muted"), 0) > 20  # its axes have labels
    marks = {
        "completion": "orange",
        "distribution": "blue",
        "allocation": "run3",
        "utilisation": "blue",
        "memory": "blue",
        "queue": "purple",
        "switches": "red",
    }
    if chart == "completion":  # its marks are translucent: only their edges have the colour itself
        assert len(colours) > 10
    else:
        assert colours.get(colour(page, marks[chart]), 0) > 20


def test_suspends_resumes_and_migrations_are_drawn(page: Browser, report: dict[str, Any]) -> None:
    before = drawn(page, "allocation")
    for name, role in (("Suspend", "orange"), ("Resume", "teal"), ("Migration", "purple")):
        assert before.get(colour(page, role), 0) > 20
        page.value(
            "[...document.querySelectorAll('#allocation .legend button')]"
            f".find((button) => button.textContent === '{name}').click()"
        )
    time.sleep(0.2)
    after = drawn(page, "allocation")
    assert not any(after.get(colour(page, role)) for role in ("orange", "teal", "purple"))
    page.value("document.querySelectorAll('#allocation .legend button[aria-pressed=false]').forEach((b) => b.click())")
    label = page.value("document.querySelector('#allocation [role=img]').getAttribute('aria-label')")
    suspended = sum(job["vms"] for job in report["jobs"] if job["suspends"])
    moved = sum(job["migrations"] for job in report["jobs"])
    assert f"{suspended} suspends, {suspended} resumes, {moved} migrations" in label


def test_the_summary_says_what_the_document_does(page: Browser, report: dict[str, Any]) -> None:
    jobs = report["jobs"]
    own = [job["completion_s"] for job in jobs]
    tiles = page.value("Object.fromEntries([...document.querySelectorAll('#tiles div')].map(d => "
                       "[d.children[0].textContent, d.children[1].firstChild.textContent]))")  # fmt: skip
    assert tiles == {
        "Jobs": "60",
        "Mean completion": lasting(statistics.fmean(own)),
        "Waited": lasting(sum(job["wait_s"] for job in jobs)),
        "Ran": lasting(sum(job["run_s"] for job in jobs)),
        "Asleep": lasting(sum(job["asleep_s"] for job in jobs)),
        "Migrations": str(sum(job["migrations"] for job in jobs)),
    }
    for row, name in zip(rows(page, "schedules")[1:], ("fcfs", "easy"), strict=True):
        other = [job["without"][name]["end"] - job["submit"] for job in jobs]
        gains = [there - here for here, there in zip(own, other, strict=True)]
        percent = 100 * (sum(own) - sum(other)) / sum(other)
        assert row == [
            f"{name.upper()} without context switches",
            "60",
            lasting(statistics.fmean(other)),
            lasting(statistics.median(other)),
            lasting(statistics.quantiles(other, n=20, method="inclusive")[-1]),
            lasting(statistics.fmean(own)),
            f"−{-percent:.1f} %".replace(".0 %", " %"),
            str(sum(gain >= 1 for gain in gains)),
            str(sum(gain <= -1 for gain in gains)),
        ]


def test_the_table_of_jobs_is_that_of_the_document(page: Browser, report: dict[str, Any]) -> None:
    expected = [
        [
            *(job[name] for name in ("id", "user", "account", "partition", "state")),
            str(job["vms"]),
            *(brief(job[name]) for name in ("submit", "start", "end")),
            *(lasting(job[name]) for name in ("wait_s", "run_s", "asleep_s")),
            str(job["migrations"]),
            lasting(job["completion_s"]),
            *(lasting(job["without"][name]["end"] - job["submit"]) for name in ("fcfs", "easy")),
            f"{job['slowdown']:.1f}".removesuffix(".0"),
        ]
        for job in report["jobs"]
    ]
    assert rows(page, "jobs") == expected


def test_each_chart_has_a_table_with_its_numbers(page: Browser, report: dict[str, Any]) -> None:
    for chart in CHARTS:
        page.value(f"document.querySelector('#{chart}-table').closest('details').open = true")
        page.wait_for(f"document.querySelectorAll('#{chart}-table tbody tr').length > 0")
    jobs = report["jobs"]
    completions = [
        [
            *(job["id"], job["user"], lasting(job["completion_s"])),
            *(lasting(job["without"][name]["end"] - job["submit"]) for name in ("fcfs", "easy")),
            lasting(job["run_s"]),
        ]
        for job in jobs
    ]
    assert rows(page, "completion-table") == completions
    assert [row[:2] for row in rows(page, "distribution-table")][3] == [
        "50 %",
        lasting(statistics.median(job["completion_s"] for job in jobs)),
    ]
    assert [row[:4] for row in rows(page, "allocation-table")] == [
        [job["id"], each["state"], brief(each["from"]), brief(each["until"])]
        for job in jobs
        for each in job["intervals"]
    ]
    used = [round(float(row[1].replace(",", "")), 1) for row in rows(page, "utilisation-table")]
    assert used == [pytest.approx(point["cpu_used"], abs=0.051) for point in report["utilisation"]]
    for name, values in (
        (
            "memory",
            [(each["mem_booked_mib"], each["mem_total_mib"], each["store_mib"]) for each in report["utilisation"]],
        ),
        ("queue", [(1024 * each["waiting"], 1024 * each["asleep"]) for each in report["utilisation"]]),
    ):
        told = [[float(cell.replace(",", "")) for cell in row[1:]] for row in rows(page, f"{name}-table")]
        assert told == [pytest.approx([each / 1024 for each in step], abs=0.051) for step in values]
    switches = [
        [
            str(each["number"]),
            brief(each["at"]),
            each["state"],
            f"{each['cost_mib']:,}",
            f"{each['seconds']:,.1f}".removesuffix(".0"),
        ]
        for each in report["switches"]
    ]
    assert [row[:5] for row in rows(page, "switches-table")] == switches


def test_totals_by_user_are_sums_of_their_jobs(page: Browser, report: dict[str, Any]) -> None:
    waited = {row[0]: (row[1], row[6]) for row in rows(page, "totals")}
    for user in ("alice", "bob", "carol", "dave", HOSTILE):
        jobs = [job for job in report["jobs"] if job["user"] == user]
        assert waited[user] == (str(len(jobs)), lasting(sum(job["wait_s"] for job in jobs)))


def test_the_energy_of_nodes_is_a_table(page: Browser) -> None:
    titles = page.value("[...document.querySelectorAll('#energy th[scope=col]')].map((each) => each.textContent)")
    beside = ["With all nodes on", "With no node emptied", "By an oracle"]
    assert titles == ["Schedule", "kWh", *beside, "Cost", "Switched off"]
    assert rows(page, "energy") == [["nodes as they were", "12.5", "20.3", "13.0", "11.8", "3.13", "14"]]
    assert not page.value("document.getElementById('energy').closest('section').hidden")


def test_whose_energy_it_was_is_told_the_most_first(page: Browser) -> None:
    assert rows(page, "energy-users") == [[HOSTILE, "6.0", "1.50"], ["(nobody)", "4.5", "1.13"], ["bob", "2.0", "0.50"]]
    assert rows(page, "energy-accounts") == [["physics", "8.0", "2.00"], ["(nobody)", "4.5", "1.13"]]
    assert [row[1:] for row in rows(page, "energy-nodes")] == [["8.0", "2.00"], ["4.5", "1.13"]]


def test_what_was_lost_is_told_by_job(page: Browser, report: dict[str, Any]) -> None:
    kinds = {"lost": "began anew", "went-back": "went back to a checkpoint"}
    lost = [[brief(each["at"]), each["id"], kinds[each["kind"]], each["sentence"]] for each in report["losses"]]
    assert len(lost) == 7 and rows(page, "losses") == lost
    assert page.value("document.getElementById('losses-says').textContent").startswith(
        "VMs of jobs were lost 7 times: 4 b"
    )
    page.value("[...document.querySelectorAll('#losses td button')].find((b) => b.textContent === '106').click()")
    page.wait_for(f"{SHOWN}.startsWith('1 of 60')")
    assert [row[1] for row in rows(page, "losses")] == ["106"]
    page.value("document.querySelector('button[type=reset]').click()")
    page.wait_for(f"{SHOWN}.startsWith('60 of 60')")
    page.value(
        "{ const j = document.getElementById('job'); j.value = '150';"
        " j.dispatchEvent(new Event('input', {bubbles: true})); }"
    )
    page.wait_for(f"{SHOWN}.startsWith('1 of 60')")
    assert page.value("document.getElementById('losses-says').textContent") == "No VMs of these jobs were lost."


def test_the_axis_of_time_follows_the_jobs_that_are_shown(page: Browser, report: dict[str, Any]) -> None:
    job = report["jobs"][10]
    page.value(f"{{ const j = document.getElementById('job'); j.value = '{job['id']}';"
               " j.dispatchEvent(new Event('input', {bubbles: true})); }")  # fmt: skip
    page.wait_for(f"{SHOWN}.startsWith('1 of 60') && {CALM}")
    begin, until = times(page)
    end = max(job["end"], *(there["end"] for there in job["without"].values()))
    assert begin <= job["submit"] and end <= until
    assert until - begin < 1.03 * (end - job["submit"])


def times(page: Browser) -> list[float]:
    """The begin and the end of the axis of time, in seconds since the epoch."""
    ranges = "[...Bokeh.documents[0].roots()].map((figure) => figure.x_range).find((range) => range.end > 1e12)"
    found: list[float] = page.value(f"(({{start, end}}) => [start / 1000, end / 1000])({ranges})")
    return found


def test_names_stay_text(page: Browser) -> None:
    assert page.value("document.title") == "Context switches: what they cost, what they gained"
    assert page.value("document.querySelectorAll('img, b').length") == 0
    assert page.value("[...document.querySelectorAll('#user option')].map((o) => o.textContent)").count(HOSTILE) == 1
    assert HOSTILE in page.value("document.getElementById('notes').textContent")


def test_filters_work_by_keyboard(page: Browser, report: dict[str, Any]) -> None:
    jobs = report["jobs"]
    page.value("document.querySelector('.skip').focus()")
    tab_to(page, "user")
    page.press("b")  # a list goes to what begins so
    bobs = [job["id"] for job in jobs if job["user"] == "bob"]
    page.wait_for(f"{SHOWN}.startsWith('{len(bobs)} of 60')")
    assert [row[0] for row in rows(page, "jobs")] == bobs
    page.wait_for(CALM)
    assert len(drawn(page, "completion")) > 10
    tab_to(page, "job")
    for key in f"{bobs[0]}, 10*":
        page.press(key)
    wanted = [job_id for job_id in bobs if job_id == bobs[0] or job_id.startswith("10")]
    page.wait_for(f"{SHOWN}.startsWith('{len(wanted)} of 60')")
    assert [row[0] for row in rows(page, "jobs")] == wanted
    tab_to(page, "All jobs")
    page.press("Enter")
    page.wait_for(f"{SHOWN}.startsWith('60 of 60')")


def test_the_filter_of_time_keeps_jobs_that_were_there(page: Browser, report: dict[str, Any]) -> None:
    middle = SINCE + 3600
    page.value(
        f"document.getElementById('before').value = '{clock(middle).replace(' ', 'T')}';"
        "document.getElementById('before').dispatchEvent(new Event('input', {bubbles: true}))"
    )
    there = [job["id"] for job in report["jobs"] if job["submit"] <= middle]
    page.wait_for(f"{SHOWN}.startsWith('{len(there)} of 60')")
    assert [row[0] for row in rows(page, "jobs")] == there


def test_tables_are_sorted_by_keyboard(page: Browser, report: dict[str, Any]) -> None:
    page.value("[...document.querySelectorAll('#jobs th button')].find((b) => b.textContent === 'Completion').focus()")
    page.press("Enter")
    ascending = sorted(report["jobs"], key=lambda job: job["completion_s"])
    assert [row[0] for row in rows(page, "jobs")] == [job["id"] for job in ascending]
    assert page.value("document.querySelector('#jobs th[aria-sort]').ariaSort") == "ascending"
    page.press(" ")
    assert [row[0] for row in rows(page, "jobs")] == [job["id"] for job in reversed(ascending)]


def test_what_the_mouse_is_on_is_told(page: Browser, report: dict[str, Any]) -> None:
    page.value("document.getElementById('allocation').scrollIntoView()")
    box = page.value(
        "(({left, top}) => [left, top])(document.querySelector('#allocation [role=img]').getBoundingClientRect())"
    )
    told = set()
    for step in range(60):
        page.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0] + 100 + 18 * step, y=box[1] + 30 + 2 * step)
        told.add(page.value("document.getElementById('tip').hidden ? '' : document.getElementById('tip').textContent"))
    owners = {job["id"]: job["user"] for job in report["jobs"]}
    first_lines = [text.split("\n")[0] for text in told if " of " in text]
    assert first_lines
    assert set(first_lines) <= {f"Job {job_id} of {user}" for job_id, user in owners.items()}


def test_a_screen_reader_finds_its_way(page: Browser) -> None:
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    heard = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node["ignored"]]
    roles = [role for role, _ in heard]
    assert {"banner", "main", "search"} <= set(roles)
    assert sum(role == "region" for role in roles) == 13
    assert sum(role == "image" and len(name) > 40 for role, name in heard) == len(CHARTS)
    controls = ("button", "combobox", "textbox", "radio", "DisclosureTriangle", "columnheader")
    assert [role for role, name in heard if role in controls and not name] == []
    # The drawings themselves hold nothing for the keyboard: their tables do.
    reached = """(() => {
        const own = (each) => (each.tabIndex >= 0 ? [each.className] : []);
        const inside = (root) => [...root.querySelectorAll('*')].flatMap(
            (each) => [...own(each), ...(each.shadowRoot ? inside(each.shadowRoot) : [])]);
        return [...document.querySelectorAll('[role=img]')].flatMap(inside);
    })()"""
    assert page.value(reached) == []


def test_light_and_dark(page: Browser) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    light, light_lines = page.value(background), colour(page, "blue")
    page.prefer("dark")
    dark, dark_lines = page.value(background), colour(page, "blue")
    assert dark != light
    page.wait_for(CALM)
    time.sleep(0.2)  # the next frame
    assert drawn(page, "distribution").get(dark_lines, 0) > 20
    page.value("document.querySelector('input[value=light]').focus()")
    page.press(" ")
    assert page.value(background) == light
    page.wait_for(CALM)
    time.sleep(0.2)  # the next frame
    assert drawn(page, "distribution").get(light_lines, 0) > 20
    page.prefer("light")
    page.value("document.querySelector('input[value=auto]').click()")


def test_a_report_of_a_month_of_which_little_is_known_is_no_blank_chart(window: Browser, tmp_path: Path) -> None:
    made = document(20)
    file = tmp_path / "month.html"
    file.write_text(page_text({**made, "since": SINCE - 30 * 86400}), encoding="utf-8")
    window.open(file)
    begin, until = times(window)
    first, last = min(job["submit"] for job in made["jobs"]), made["until"]
    assert begin <= first and last <= until
    assert until - begin < 1.03 * (last - first)


def test_nothing_is_cut_at_1400_pixels(window: Browser, tmp_path: Path) -> None:
    """Also where names, and durations, are as long as they become."""
    made = document(60)
    late = 12 * 86400.0
    for number, job in enumerate(made["jobs"]):
        job |= {"id": f"5001{number}_{37 * number}", "user": "maximilian.hohenstein", "account": "astrophysics-group"}
        job |= {"partition": "vjob-long", "vms": 128, "slowdown": 12345.6, "end": job["end"] + late}
        job |= {name: job[name] + late for name in ("wait_s", "run_s", "asleep_s", "completion_s")}
        for there in job["without"].values():
            there["end"] += late
    file = tmp_path / "wide.html"
    file.write_text(page_text({**made, "until": made["until"] + late}), encoding="utf-8")
    window.open(file, width=1400)
    assert window.value("document.documentElement.scrollWidth") <= 1400
    for group in ("user", "class"):
        window.value(f"{{ const by = document.getElementById('group'); by.value = '{group}';"
                     " by.dispatchEvent(new Event('change')); }")  # fmt: skip
        cut = "[...document.querySelectorAll('.scroll')].filter((each) => each.scrollWidth > each.clientWidth)"
        assert window.value(f"{cut}.map((each) => each.getAttribute('aria-label'))") == []
    numbers = "[...document.querySelectorAll('td.number')].filter((each) => each.scrollWidth > each.clientWidth + 1)"
    assert window.value(f"{numbers}.map((each) => each.textContent)") == []


def test_a_simulation_on_a_telephone(window: Browser, tmp_path: Path) -> None:
    simulated = document(5)
    shift = {"kind": "simulation", "policy": "rjsp", "others": [], "since": 0.0, "until": simulated["until"] - SINCE}
    for job in simulated["jobs"]:
        for name in ("submit", "start", "end"):
            job[name] -= SINCE
        for interval in job["intervals"]:
            interval["from"] -= SINCE
            interval["until"] -= SINCE
    for row, name in [(row, "t") for row in simulated["utilisation"]] + [(row, "at") for row in simulated["switches"]]:
        row[name] -= SINCE
    file = tmp_path / "simulation.html"
    file.write_text(page_text({**simulated, **shift}), encoding="utf-8")
    window.open(file, width=420)
    assert window.console == []
    assert window.value("document.documentElement.scrollWidth") <= 420
    assert [row[6] for row in rows(window, "jobs")] == [lasting(job["submit"]) for job in simulated["jobs"]]
    assert all(drawn(window, chart).get(colour(window, "muted"), 0) > 20 for chart in CHARTS)
