"""n. Crowded clusters: the gap of a plan to the proven bound, by VMs a node, within short limits and longer ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench import switching
from bench.families import crowded
from bench.measure import Report, gap, mean, progress
from bench.samples import samples
from rmsplugin.packing.search import Search
from rmsplugin.planning.plan import Plan
from rmsplugin.planning.target.placement import place_sample


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured: each number of nodes with each number of VMs a node, by each limit."""

    nodes: Sequence[int] = (200, 500, 1000, 2000)
    vms_a_node: Sequence[float] = (2.5, 3.0, 3.5, 4.0, 4.5)
    limits_s: Sequence[float] = (6.0, 30.0)
    sizes: Sequence[int | None] = (None, 10)  # of memory: the four of the paper, or so many random ones
    configurations: int = 3


SIZES = {
    "full": Sizes(),
    "quick": Sizes(nodes=(200, 1000), vms_a_node=(3.0, 4.5), limits_s=(6.0,), configurations=1),
    "tiny": Sizes(nodes=(9,), vms_a_node=(4.0,), limits_s=(1.0,), configurations=1),
}


def run(sizes: Sizes, report: Report) -> None:
    """Measure all clusters of the size."""
    report.title("n", "crowded clusters: nodes of 2 CPUs and 4 GiB, vjobs of 9 or 18 VMs")
    for classes in sizes.sizes:
        report.say(f"memory: {'256 to 2048 MiB, four sizes' if classes is None else f'{classes} random sizes'}")
        for limit_s in sizes.limits_s:
            rows = []
            for nodes in sizes.nodes:
                for density in sizes.vms_a_node:
                    _measure(nodes, density, classes, limit_s, sizes.configurations, report)
                    rows.append(_row(report.of(nodes=nodes, density=density, classes=classes, limit_s=limit_s)))
            report.table(
                ["cluster", "n", "FFD", "ours", "bound", "gap %", "worst gap %", f"worst s of {limit_s}"], rows
            )
            found = report.of(classes=classes, limit_s=limit_s)
            report.say(f"mean gap: {mean(gap(r['cost'], r['lower_bound']) for r in found):.2f} %")
            report.ratio("plan cost, ours / FFD", sum(r["cost"] for r in found) / sum(r["ffd_cost"] for r in found))


def _measure(
    nodes: int, density: float, classes: int | None, limit_s: float, configurations: int, report: Report
) -> None:
    for seed, configuration in samples(lambda seed: crowded(nodes, density, seed, classes), configurations):
        progress(f"n: {nodes} nodes, {density} VMs a node, {limit_s} s, {seed}")
        decision = switching.decided(configuration)
        found, seconds = switching.placed(configuration, decision, "cost", Search(time_limit_s=limit_s))
        baseline = place_sample(configuration, decision.states, decision.placement)
        ffd = getattr(baseline, "plan", Plan(())).cost
        report.record(
            nodes=nodes,
            density=density,
            classes=classes,
            limit_s=limit_s,
            seed=seed,
            cost=found.plan.cost,
            lower_bound=found.lower_bound,
            ffd_cost=ffd,
            seconds=seconds,
        )
    progress("")


def _row(found: Sequence[dict[str, Any]]) -> list[Any]:
    gaps = [gap(r["cost"], r["lower_bound"]) for r in found]
    costs = [round(mean(r[key] for r in found)) for key in ("ffd_cost", "cost", "lower_bound")]
    name = f"{found[0]['nodes']} nodes, {found[0]['density']} VMs each"
    return [name, len(found), *costs, mean(gaps), max(gaps), max(r["seconds"] for r in found)]
