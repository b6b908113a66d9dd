"""q. Reports: `rmsplugin report` over a year as a whole process; next to SQLite's own reading of the same tables."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from bench import verify
from bench.measure import Report, progress, ratio
from bench.year import PROCESSORS, make_year
from rmsplugin.engine.ledger_file import read_only


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many jobs ran in the year, of each ledger."""

    jobs: Sequence[int]


SIZES = {
    "full": Sizes(jobs=(100_000, 1_000_000)),
    "quick": Sizes(jobs=(10_000, 100_000)),
    "tiny": Sizes(jobs=(100, 200)),
}

#: What is measured: totals, and every job with its whole life. CPUs are scarce, so that jobs queue.
_FORMS = {"--by week": ("--by", "week", "--csv"), "--json": ("--json",)}
_NODE_CPUS = 16
_SCARCE = 0.91
#: The tables that a report reads, each row of them.
_TABLES = ("vjobs", "operations", "actions", "samples", "events")


def run(sizes: Sizes, report: Report) -> None:
    """Measure generated ledgers."""
    report.title("q", "reports over a ledger of a year: whole process, CPU seconds, without accounting")
    with tempfile.TemporaryDirectory() as name:
        for jobs in sizes.jobs:
            progress(f"q: a ledger of {jobs} jobs")
            path = Path(name) / f"{jobs}.sqlite"
            make_year(path, jobs)
            read_s = _read(path)
            for form, words in _FORMS.items():
                progress(f"q: {form} of {jobs} jobs")
                lines, cpu_s, peak_mib = _report(path, words)
                if lines < (jobs if form == "--json" else 52):
                    raise verify.WrongAnswerError(f"{form} of {jobs} jobs: {lines} lines")
                size_mib = path.stat().st_size / 2**20
                report.record(jobs=jobs, form=form, ledger_mib=size_mib, cpu_s=cpu_s, peak_mib=peak_mib, read_s=read_s)
            path.unlink()
    progress("")
    found = report.of()
    keys = ("jobs", "form", "ledger_mib", "cpu_s", "peak_mib")
    report.table(
        ["jobs", "form", "ledger MiB", "CPU s", "peak MiB", "jobs/s"],
        [[*(each[key] for key in keys), each["jobs"] / each["cpu_s"]] for each in found],
    )
    *_, few, _, many, _ = found
    report.ratio("CPU of --by week / of reading every row of the same tables", ratio(many["read_s"], many["cpu_s"]))
    report.ratio(
        "CPU of a job in the larger ledger / in the smaller one",
        ratio(few["cpu_s"] / few["jobs"], many["cpu_s"] / many["jobs"]),
    )


def _read(path: Path) -> float:
    """CPU seconds in which SQLite gives every row of these tables to Python."""
    began = time.process_time()
    with closing(read_only(path)) as connection:
        for table in _TABLES:
            for _ in connection.execute(f"select * from {table}"):
                pass
    return time.process_time() - began


def _report(path: Path, words: Sequence[str]) -> tuple[int, float, float]:
    """Lines, CPU seconds and peak MiB of a report in a process of its own."""
    nodes = str(max(1, int(_SCARCE * PROCESSORS) // _NODE_CPUS))
    site = ("--without-slurm", "--nodes", nodes, "--cpus-per-node", str(_NODE_CPUS))
    command = [sys.executable, "-m", "rmsplugin.cli.main", "report", "--ledger", str(path), *site, *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    lines = sum(1 for _ in process.stdout)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise verify.WrongAnswerError(f"{path.name} {' '.join(words)}: status {process.returncode}")
    return lines, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
