"""ah. Whole cycles of the engine with placement rules beside those without, and the look at each VM that comes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.measure import Report, progress, ratio


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured: nodes, VMs and waiting vjobs of each site."""

    cases: Sequence[tuple[int, int, int]] = ((200, 1000, 1000), (1000, 5000, 5000))
    cycles: int = 5
    arrivals: int = 200


SIZES = {
    "full": Sizes(),
    "quick": Sizes(cases=((200, 1000, 1000),), cycles=3, arrivals=50),
    "tiny": Sizes(cases=((32, 160, 20),), cycles=1, arrivals=4),
}

_KEYS = ("cycle_s", "propose_s", "first_ms", "later_ms", "anew_ms")


def run(sizes: Sizes, report: Report) -> None:
    """Measure each site with and without rules, each in a process of its own."""
    report.title("ah", "cycles with placement rules: nodes / running VMs / waiting vjobs, on simulated neighbours")
    rows = []
    for case in sizes.cases:
        name = " / ".join(f"{number:,}" for number in case)
        progress(f"ah: {name}")
        plain, ruled = (_measured(each, case, sizes) for each in (0, 1))
        for what, found in (("without", plain), ("with", ruled)):
            report.record(**found)
            rows.append([f"{name}, {what} rules", *(found[key] for key in _KEYS)])
        both = [found["cycle_s"] + found["propose_s"] for found in (plain, ruled)]
        report.ratio(f"{name}: CPU of a cycle that changes nothing, with rules / without", ratio(both[0], both[1]))
        proposing = ratio(plain["propose_s"], ruled["propose_s"])
        report.ratio(f"{name}: CPU of the proposing process, with rules / without", proposing)
        report.ratio(
            f"{name}: a look at an arrival, of kept VMs / of all anew", ratio(ruled["anew_ms"], ruled["later_ms"])
        )
    progress("")
    heads = ["", "cycle: engine, CPU s", "proposing, CPU s", "first arrival, ms", "a later one, ms", "all anew, ms"]
    report.table(heads, rows)


def _measured(ruled: int, case: Sequence[int], sizes: Sizes) -> dict[str, Any]:
    words = [str(number) for number in (ruled, *case, sizes.cycles, sizes.arrivals)]
    command = [sys.executable, "-m", "bench.ruled_case", *words]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        raise RuntimeError(f"the site could not be measured: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found
