"""r. The page: a report of many jobs in a real browser; next to the page of a tenth of them.

Times are CPU milliseconds of the page's own thread: while it works, the page does not answer its reader.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from page.browser import Browser, browser
from page.documents import document

from bench.measure import Report, progress, ratio
from rmsplugin.report.page.html import page_text


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many jobs there are, on how many nodes."""

    jobs: int
    nodes: int = 64


SIZES = {"full": Sizes(10_000), "quick": Sizes(2000), "tiny": Sizes(20, nodes=4)}

#: What a reader does, as a script does it.
_DONE = {
    "filter by user": "const list = document.getElementById('user'); list.value = '=alice';"
    "list.dispatchEvent(new Event('input', {bubbles: true}))",
    "all jobs again": "document.querySelector('button[type=reset]').click()",
    "zoom in": "document.querySelector('#allocation-controls button').click()",
    "sort the jobs": "document.querySelector('#jobs th button').click()",
    "dark": "document.querySelector('input[value=dark]').click()",
}
_SETTLED_S = 0.5  # a filter waits for further keys, marks for the end of a zoom


def run(sizes: Sizes, report: Report) -> None:
    """Measure both pages."""
    report.title("r", "the page of a report in a browser: CPU ms of its thread for what a reader does")
    few = sizes.jobs // 10
    with tempfile.TemporaryDirectory() as name, browser() as window:
        for jobs in (few, sizes.jobs):
            progress(f"r: a page of {jobs} jobs")
            file = Path(name) / f"{jobs}.html"
            began = time.process_time()
            file.write_text(page_text(document(jobs, sizes.nodes)), encoding="utf-8")
            made_s = time.process_time() - began
            report.record(jobs=jobs, mib=file.stat().st_size / 2**20, made_s=made_s, **dict(_measured(window, file)))
    progress("")
    one, other = report.of()
    rows = [key for key in one if key not in ("benchmark", "jobs")]
    report.table(["", f"{few} jobs", f"{sizes.jobs} jobs"], [[key, one[key], other[key]] for key in rows])
    for what in ("open", *_DONE):
        report.ratio(f"{what}, per job: of many / of few", ratio(one[what] / few, other[what] / sizes.jobs))


def _measured(window: Browser, file: Path) -> Iterator[tuple[str, float]]:
    """What was done, and the CPU ms that it took."""
    window.call("Performance.enable")
    before = 0.0
    window.open(file)
    for what, script in {"open": "0", **_DONE}.items():
        window.value(f"(() => {{ {script} }})()")
        time.sleep(_SETTLED_S)
        window.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))")
        metrics = {each["name"]: each["value"] for each in window.call("Performance.getMetrics")["metrics"]}
        yield what, 1000 * (metrics["ThreadTime"] - before)
        before = metrics["ThreadTime"]
    window.call("Performance.disable")
