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
from rmsplugin.engine.ledger.ledger_file import read_only


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many jobs ran in the year, of each ledger; of those with many samples jobs, and samples of each VM."""

    jobs: Sequence[int]
    sampled: Sequence[tuple[int, int]]


SIZES = {
    "full": Sizes(jobs=(100_000, 1_000_000), sampled=((100_000, 60), (10_000, 600))),
    "quick": Sizes(jobs=(10_000, 100_000), sampled=((10_000, 60), (1000, 600))),
    "tiny": Sizes(jobs=(100, 200), sampled=((100, 6), (10, 60))),
}

#: What is measured: totals, every job, and every job with its whole life. CPUs are scarce, so that jobs queue.
_FORMS = {
    "--by week": ("--by", "week", "--csv"),
    "--csv": ("--csv",),
    "--parsable2": ("--parsable2",),
    "--json": ("--json",),
}
_NODE_CPUS = 16
_SCARCE = 0.91
_NODES = str(int(_SCARCE * PROCESSORS) // _NODE_CPUS)
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
                if lines < (52 if form == "--by week" else jobs):
                    raise verify.WrongAnswerError(f"{form} of {jobs} jobs: {lines} lines")
                size_mib = path.stat().st_size / 2**20
                report.record(jobs=jobs, form=form, ledger_mib=size_mib, cpu_s=cpu_s, peak_mib=peak_mib, read_s=read_s)
            path.unlink()
        for jobs, samples in sizes.sampled:
            _measure_sampled(Path(name) / f"{jobs}-{samples}.sqlite", jobs, samples, report)
    progress("")
    found = report.of()
    keys = ("jobs", "form", "ledger_mib", "cpu_s", "peak_mib")
    report.table(
        ["jobs", "form", "ledger MiB", "CPU s", "peak MiB", "jobs/s"],
        [[*(each[key] for key in keys), each["jobs"] / each["cpu_s"]] for each in found],
    )
    totals = [each for each in found if each["form"] == "--by week"]
    few, many = totals[-2:]
    report.ratio("CPU of --by week / of reading every row of the same tables", ratio(many["read_s"], many["cpu_s"]))
    report.ratio(
        "CPU of a job in the larger ledger / in the smaller one",
        ratio(few["cpu_s"] / few["jobs"], many["cpu_s"] / many["jobs"]),
    )


def _measure_sampled(path: Path, jobs: int, samples: int, report: Report) -> None:
    """A report that tells what sharing CPUs cost, of a ledger with so many samples of each VM."""
    progress(f"q: a ledger of {jobs} jobs with {samples} samples of each VM")
    make_year(path, jobs, samples)
    read_s = _read(path)
    module = (sys.executable, "-m", "bench.shared", str(path), str(_NODE_CPUS), _NODES)
    lines, cpu_s, peak_mib = _run(module)
    if lines < jobs:
        raise verify.WrongAnswerError(f"{path.name}: {lines} lines")
    size_mib = path.stat().st_size / 2**20
    form = f"shared CPUs, {samples} samples a VM"
    report.record(jobs=jobs, form=form, ledger_mib=size_mib, cpu_s=cpu_s, peak_mib=peak_mib, read_s=read_s)
    path.unlink()


def _read(path: Path) -> float:
    """CPU seconds in which SQLite gives every row of these tables to Python."""
    began = time.process_time()
    with closing(read_only(path)) as connection:
        for table in _TABLES:
            for _ in connection.execute(f"select * from {table}"):
                pass
    return time.process_time() - began


def _report(path: Path, words: Sequence[str]) -> tuple[int, float, float]:
    """Lines, CPU seconds and peak MiB of the command."""
    site = ("--without-slurm", "--nodes", _NODES, "--cpus-per-node", str(_NODE_CPUS))
    return _run((sys.executable, "-m", "rmsplugin.cli.main", "report", "--ledger", str(path), *site, *words))


def _run(command: Sequence[str]) -> tuple[int, float, float]:
    """Lines, CPU seconds and peak MiB of a report in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment)
    assert process.stdout is not None
    lines = sum(1 for _ in process.stdout)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise verify.WrongAnswerError(f"{' '.join(command)}: status {process.returncode}")
    return lines, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
