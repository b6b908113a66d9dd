"""d. Scale: seconds of decision, placement and plan, and peak memory, at 1,000 and 5,000 nodes; cost against FFD's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.measure import Report, gap, mean, median, progress


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    clusters: Sequence[tuple[int, int, float]] = ((1000, 5000, 5.0), (5000, 30000, 20.0))  # nodes, VMs, limit in s
    seeds: int = 3


SIZES = {
    "full": Sizes(),
    "quick": Sizes(clusters=((1000, 5000, 5.0),), seeds=1),
    "tiny": Sizes(clusters=((6, 36, 1.0),), seeds=1),
}


def run(sizes: Sizes, report: Report) -> None:
    """Measure all clusters of the size."""
    report.title("d", "scale: nodes of 16 CPUs and 64 GiB or 32 and 128, vjobs of 1 to 32 VMs")
    rows = []
    for nodes, vms, limit_s in sizes.clusters:
        for seed in range(sizes.seeds):
            progress(f"d: {nodes} nodes, {vms} VMs, {seed}")
            report.record(limit_s=limit_s, **_measured(nodes, vms, seed, limit_s))
        progress("")
        rows.append(_row(report.of(nodes=nodes, vms=vms)))
    header = [
        "cluster",
        "n",
        "decide s",
        "place+plan s",
        "worst whole s",
        "peak MiB",
        "actions",
        "gap %",
        "worst gap %",
    ]
    report.table([*header, "ours / FFD cost"], rows)
    found = [r for r in report.of() if r["ffd_cost"]]
    report.ratio("plan cost, ours / FFD", sum(r["cost"] for r in found) / max(1, sum(r["ffd_cost"] for r in found)))


def _measured(nodes: int, vms: int, seed: int, limit_s: float) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.scale_case", str(nodes), str(vms), str(seed), str(limit_s)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


def _row(found: Sequence[dict[str, Any]]) -> list[Any]:
    gaps = [gap(r["cost"], r["lower_bound"]) for r in found]
    against = [r["cost"] / r["ffd_cost"] for r in found if r["ffd_cost"]]
    return [
        f"{found[0]['nodes']} nodes, {found[0]['vms']} VMs",
        len(found),
        median(r["decision_s"] for r in found),
        median(r["placement_s"] for r in found),
        max(r["decision_s"] + r["placement_s"] for r in found),
        round(max(r["peak_mib"] for r in found)),
        round(mean(r["actions"] for r in found)),
        mean(gaps),
        max(gaps),
        mean(against),
    ]
