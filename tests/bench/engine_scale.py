"""k. The engine at scale: what a cycle, a request and everything at once cost it, beside the bounds of its design."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.measure import Report, progress


@dataclass(frozen=True, slots=True)
class Case:
    """A site, and how many CPU seconds a cycle that changes nothing may take there."""

    nodes: int
    vms: int
    waiting: int
    cycle_s: float

    @property
    def name(self) -> str:
        """For the table."""
        return f"{self.nodes:,} / {self.vms:,} / {self.waiting:,}"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    cases: Sequence[Case] = (Case(200, 1000, 5000, 1.0), Case(1000, 5000, 20000, 5.0))
    cycles: int = 5


SIZES = {
    "full": Sizes(),
    "quick": Sizes(cases=(Case(200, 1000, 5000, 1.0),), cycles=3),
    "tiny": Sizes(cases=(Case(8, 40, 10, 1.0),), cycles=1),
}

#: Row of the table, what it is in the results, its unit, its bound; the bound of the first is that of the case.
_ROWS = (
    ("a cycle that changes nothing, without the solver: the engine", "cycle_s", "CPU s", None),
    ("the same: the proposing process", "propose_s", "CPU s", None),
    ("questions to Slurm in such a cycle", "questions", "", "constant"),
    ("transactions in such a cycle", "transactions", "", None),
    ("transactions for 300 signs of life", "sign_transactions", "", 0),
    ("threads, while vjobs of 16 VMs are suspended and ended at once", "threads", "", 200),
    ("memory, the simulated site and Python included", "peak_mib", "MiB", 500),
    ("a request while a plan is searched for: median", "answer_ms", "ms", None),
    ("a request while a plan is searched for: the slowest", "slowest_ms", "ms", 100),
    ("computed by the engine at worst before another thread has its turn", "waited_ms", "ms", 100),
)


def run(sizes: Sizes, report: Report) -> None:
    """Measure all sites of the size, each in a process of its own."""
    report.title("k", "the engine at scale: nodes / running VMs / waiting vjobs, on simulated neighbours")
    found = {}
    for case in sizes.cases:
        progress(f"k: {case.name}")
        found[case] = _measured(case, sizes.cycles)
        report.record(**found[case])
    progress("")
    rows = []
    for what, key, unit, bound in _ROWS:
        bounds = [case.cycle_s for case in found] if key == "cycle_s" else [bound]
        told = "-" if bound is None and key != "cycle_s" else ", ".join(str(each) for each in bounds)
        rows.append([what, *(results[key] for results in found.values()), unit, told])
    report.table(["", *(case.name for case in found), "unit", "bound"], rows)
    for case, results in found.items():
        report.ratio(f"{case.name}: CPU of a cycle that changes nothing / its bound", results["cycle_s"] / case.cycle_s)
        report.ratio(f"{case.name}: memory / its bound", results["peak_mib"] / 500)


def _measured(case: Case, cycles: int) -> dict[str, Any]:
    words = [str(number) for number in (case.nodes, case.vms, case.waiting, cycles)]
    command = [sys.executable, "-m", "bench.engine_case", *words]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        raise RuntimeError(f"the engine could not be measured: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    for name in ("answer", "slowest", "waited"):
        found[f"{name}_ms"] = 1000 * found[f"{name}_s"]
    return found
