"""m. Small changes: what the live policy's plan costs, next to the target that moves least memory from where all is.

On a cluster on which all run, a VM demands 5 % more or less, a vjob arrives, or one ends. The reference is an integer
program over all nodes (``bench.reference``); its target is planned by our planner. Nobody is to be suspended where the
reference keeps everybody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bench.families import CHANGES, MANY_SIZES, RR6929_SIZES, changed, running
from bench.measure import Report, mean, median, progress, timed
from bench.reference import least_moved
from bench.switching import placed
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.policies import decide
from rmsplugin.decision.result import Decision
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.search import Search
from rmsplugin.planning.order.builder import build_plan
from rmsplugin.planning.plan import Plan


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured: each number of nodes, each so full (percent of the memory), each kind of VMs."""

    nodes: Sequence[int] = (20, 100, 200, 1000)
    full: Sequence[int] = (50, 80, 90, 98)
    vms: Sequence[str] = ("4 sizes", "29 sizes")
    configurations: int = 3
    time_limit_s: float = 5.0


SIZES = {
    "full": Sizes(),
    "quick": Sizes(nodes=(20, 100), full=(80, 98), configurations=2),
    "tiny": Sizes(nodes=(6,), full=(90,), configurations=1, time_limit_s=1.0),
}

#: MiB of the VMs.
KINDS = {"4 sizes": RR6929_SIZES, "29 sizes": MANY_SIZES}

HEADERS = ["family", "n", "same", "ours", "reference", "ours / reference", "more than 10 %", "suspended", "needlessly"]


def run(sizes: Sizes, report: Report) -> None:
    """Measure all families of the size."""
    report.title("m", "small changes: one demand, one arrival, one end; all else stays")
    rows = []
    for kind in sizes.vms:
        for nodes in sizes.nodes:
            for full in sizes.full:
                _family(kind, nodes, full, sizes, report)
            rows.append(_row(report.of(kind=kind, nodes=nodes)))
    report.table([*HEADERS, "median s", "worst s"], rows)
    found = [r for r in report.of() if r["reference"]]
    ours, theirs = (sum(r[key] for r in found) for key in ("cost", "reference"))
    report.ratio("plan cost, ours / reference, of the sums", ours / theirs if theirs else 1.0)


def _family(kind: str, nodes: int, full: int, sizes: Sizes, report: Report) -> None:
    for seed in range(sizes.configurations):
        base = running(nodes, full, seed, KINDS[kind])
        for change in CHANGES:
            progress(f"m: {nodes} nodes, {full} %, {kind}, {change}, {seed}")
            configuration = changed(base, change, seed)
            record = measured(configuration, Search(time_limit_s=sizes.time_limit_s))
            report.record(kind=kind, nodes=nodes, full=full, change=change, seed=seed, **record)
    progress("")


def measured(configuration: Configuration, search: Search, reference_work: float = 10.0) -> dict[str, Any]:
    """Decide, place and plan; and the reference for the same vjobs, or for all that ran if some are suspended."""
    by_work = replace(search, deterministic_limit=search.deterministic_limit or search.time_limit_s)
    decision, decision_s = timed(lambda: decide("mixed", configuration, Parameters(search=by_work)))
    assert isinstance(decision, Decision), decision
    found, seconds = placed(configuration, decision, "cost", search)
    before = {vjob.name for vjob in configuration.vjobs if configuration.state(vjob) is VJobState.RUNNING}
    after = {name for name, state in decision.states.items() if state is VJobState.RUNNING}
    reference = least_moved(configuration, before | after, reference_work)
    plan = None if reference is None else build_plan(configuration, reference.target)
    theirs = plan.cost if isinstance(plan, Plan) else None
    return {
        "cost": found.plan.cost,
        "lower_bound": found.lower_bound,
        "reference": theirs,
        "suspended": len(before - after),
        "started": len(after - before),
        "needless": len(before - after) if theirs is not None and theirs < found.plan.cost else 0,
        "decision_s": decision_s,
        "seconds": seconds,
    }


def _row(found: Sequence[Mapping[str, Any]]) -> list[Any]:
    compared = [r for r in found if r["reference"] is not None and not r["suspended"]]
    ours, theirs = (sum(r[key] for r in compared) for key in ("cost", "reference"))
    times = [r["decision_s"] + r["seconds"] for r in found]
    return [
        f"{found[0]['nodes']} nodes, {found[0]['kind']}",
        len(found),
        sum(r["cost"] == 0 for r in found),
        round(mean(r["cost"] for r in compared)),
        round(mean(r["reference"] for r in compared)),
        ours / theirs if theirs else 1.0,
        sum(r["cost"] > 1.1 * r["reference"] for r in compared),
        sum(r["suspended"] for r in found),
        sum(r["needless"] for r in found),
        median(times),
        max(times),
    ]
