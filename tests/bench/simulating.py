"""o. Simulation: `rmsplugin simulate` as a whole process, EASY; next to a pass over all that waits at each instant."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from unit.replayed import DATA, counting, replay

from bench import verify
from bench.measure import Report, progress, ratio
from rmsplugin.simulation.short_way import start_times
from rmsplugin.workload.jobs import read_workload


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    #: Traces that may lie beside this checkout, and the processors of their machines.
    traces: Sequence[tuple[str, int]] = (
        ("kth_sp2_full.swf.gz", 100),
        ("ctc_sp2_full.swf.gz", 338),
        ("hpc2n_full.swf.gz", 240),
        ("sdsc_blue_full.swf.gz", 1152),
    )
    #: Jobs of generated ones, on a cluster of so many processors, with more work than it can do: the queue grows on.
    generated: Sequence[int] = (10_000, 40_000, 160_000)
    processors: int = 240
    first: int = 5000  # jobs of the comparison: passes take as long as the queue is


SIZES = {
    "full": Sizes(),
    "quick": Sizes(traces=(("hpc2n_full.swf.gz", 240),), generated=(10_000, 40_000), first=2000),
    "tiny": Sizes(traces=(), generated=(50, 100), processors=16, first=50),
}


def generated(jobs: int, processors: int, seed: int, load: float = 1.1) -> Iterator[str]:
    """Lines of a trace with so much of the work that the processors can do (1.1: the queue grows on).

    No two estimates are alike.
    """
    random = Random(seed)
    yield "; Version: 2.2"
    now_s = 0.0
    for number in range(1, jobs + 1):
        size = min(processors, 2 ** random.choice((0, 0, 0, 1, 2, 3, 4, 5)))
        run_s = int(random.lognormvariate(7, 1.5)) + 1
        now_s += size * run_s / processors / load
        estimate_s = int(run_s * random.uniform(1, 20)) + 1
        yield f"{number} {int(now_s)} -1 {run_s} {size} -1 -1 {size} {estimate_s} -1 1" + " -1" * 7


def run(sizes: Sizes, report: Report) -> None:
    """Measure the traces that there are, and generated ones."""
    report.title("o", "simulation: `rmsplugin simulate --policy easy --jobs-out`, whole process, CPU seconds")
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        traces = [(DATA / "swf" / trace, processors) for trace, processors in sizes.traces]
        cases = [case for case in traces if case[0].exists()]
        for jobs in sizes.generated:
            path = place / f"generated-{jobs}.swf"
            path.write_text("\n".join(generated(jobs, sizes.processors, seed=1)) + "\n", encoding="ascii")
            cases.append((path, sizes.processors))
        for path, processors in cases:
            progress(f"o: {path.name}")
            told, cpu_s, peak_mib = simulate(
                path, processors, "--policy", "easy", "--jobs-out", str(place / "jobs.csv")
            )
            report.record(trace=path.name, jobs=told["jobs"], cpu_s=cpu_s, peak_mib=peak_mib)
        progress("")
        found = report.of()
        keys = ("trace", "jobs", "cpu_s", "peak_mib")
        report.table(
            ["trace", "jobs", "CPU s", "peak MiB", "jobs/s"],
            [[*(each[key] for key in keys), each["jobs"] / each["cpu_s"]] for each in found],
        )
        few, many = (each["cpu_s"] / each["jobs"] for each in found[-len(sizes.generated) :: len(sizes.generated) - 1])
        report.ratio("CPU of a job where most wait / where fewest wait (generated)", ratio(few, many))
        for path, processors in dict.fromkeys((cases[0], cases[-1])):
            _beside_passes(path, processors, sizes.first, report)


def simulate(path: Path, processors: int, *options: str) -> tuple[dict[str, Any], float, float]:
    """Simulate a trace in a process of its own: its summary, CPU seconds, peak MiB."""
    words = ["simulate", "--workload", str(path), "--nodes", str(processors), "--cpus-per-node", "1", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "rmsplugin.cli.main", *words, *options], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    told = json.load(process.stdout)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode or told["trace"]["not_simulated"]:
        raise verify.WrongAnswerError(f"{path.name}: status {process.returncode}, {told['trace']['reasons']}")
    return told, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def _beside_passes(path: Path, processors: int, first: int, report: Report) -> None:
    """The first jobs of a trace: the schedule of passes over the queue at each instant, and how much faster."""
    progress(f"o: {path.name}, pass by pass")
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        jobs = read_workload(islice((line for line in file if not line.startswith(b";")), first)).jobs
    began = time.process_time()
    ours = start_times(jobs, processors, backfill=True)
    passes_began = time.process_time()
    theirs = replay(jobs, counting(processors, backfill=True))
    passes_s, ours_s = time.process_time() - passes_began, passes_began - began
    progress("")
    if ours != theirs:
        raise verify.WrongAnswerError(f"{path.name}: not the schedule of the passes")
    report.ratio(
        f"first {len(jobs)} jobs of {path.name}, pass by pass / ours, without reading", ratio(ours_s, passes_s)
    )
