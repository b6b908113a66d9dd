"""a. VMPP on the configurations of VEE'09, figures 10 to 12: solved to the proven optimum, time, nodes against FFD."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench import verify
from bench.families import vee09
from bench.measure import Report, mean, median, progress, ratio, share, timed
from bench.samples import items, running_vms, samples
from rmsplugin.model.configuration import Configuration
from rmsplugin.packing.search import Search
from rmsplugin.packing.vmpp import NoPacking, pack

#: Seconds within which the share of proven configurations is told.
MARKS_S = (0.1, 0.5, 1.0, 5.0)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    vms: Sequence[int] = (200, 300, 400)
    classes: Sequence[int] = (2, 4, 8)
    nodes: int = 200
    configurations: int = 100
    time_limit_s: float = 5.0


SIZES = {
    "full": Sizes(),
    "quick": Sizes(configurations=10),
    "tiny": Sizes(vms=(12,), classes=(4,), nodes=12, configurations=2),
}


def run(sizes: Sizes, report: Report) -> None:
    """Measure all families of the size."""
    report.title("a", f"VMPP (VEE'09, figures 10 to 12): {sizes.nodes} nodes of 2 CPUs and 3 GiB")
    rows = []
    for vms in sizes.vms:
        for classes in sizes.classes:
            generate = partial(vee09, vms, classes, nodes=sizes.nodes)
            rows.append(_family(f"{vms} VMs, {classes} classes", generate, sizes, report))
    marks = [f"%<{mark:g}s" for mark in MARKS_S]
    report.table(["family", "n", *marks, "median s", "worst s", "nodes", "FFD", "bound", "saved %"], rows)
    found = report.of()
    report.say(f"proven optimal: {sum(r['optimal'] for r in found)} of {len(found)}")
    report.ratio("nodes of FFD / ours, mean over all", ratio(_sum(found, "nodes_used"), _sum(found, "ffd_nodes_used")))


def _sum(found: list[dict[str, Any]], name: str) -> float:
    return float(sum(record[name] for record in found))


def _family(name: str, generate: Callable[[int], Configuration], sizes: Sizes, report: Report) -> list[Any]:
    for seed, configuration in samples(generate, sizes.configurations):
        progress(f"a: {name}, {seed}")
        vms = running_vms(configuration)
        search = Search(time_limit_s=sizes.time_limit_s)
        found, seconds = timed(partial(pack, items(vms), configuration.nodes, search))
        if isinstance(found, NoPacking):
            raise verify.WrongAnswerError(f"{name}, {seed}: no packing, and the configuration itself is one by memory")
        verify.packing(vms, configuration.nodes, found.assignment, found.nodes_used)
        report.record(
            family=name,
            seed=seed,
            seconds=seconds,
            nodes_used=found.nodes_used,
            lower_bound=found.lower_bound,
            optimal=found.optimal,
            ffd_nodes_used=found.ffd_nodes_used,
        )
    progress("")
    found_here = report.of(family=name)
    proven_in = [r["seconds"] if r["optimal"] else float("inf") for r in found_here]
    nodes, ffd = (mean(r[key] or sizes.nodes for r in found_here) for key in ("nodes_used", "ffd_nodes_used"))
    return [
        name,
        len(found_here),
        *(share(seconds <= mark for seconds in proven_in) for mark in MARKS_S),
        median(r["seconds"] for r in found_here),
        max(r["seconds"] for r in found_here),
        nodes,
        ffd,
        mean(r["lower_bound"] for r in found_here),
        100 * (ffd - nodes) / ffd,
    ]
