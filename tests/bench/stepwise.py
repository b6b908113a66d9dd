"""ag. CPUs at each step (``planning.cpu_in_plan``): how many plans obey all the same, and what it costs the others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.families import rr6929
from bench.measure import Report, mean, progress, share, timed
from bench.samples import samples
from bench.switching import decided, placed
from bench.verify import WrongAnswerError
from rmsplugin.model.action import ActionKind
from rmsplugin.packing.search import Search
from rmsplugin.planning.checker import check_plan
from rmsplugin.planning.order.with_cpus import plan_with_cpus
from rmsplugin.planning.plan import Plan, Unreachable


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured: clusters as (nodes, VMs)."""

    clusters: Sequence[tuple[int, int]] = ((200, 54), (200, 270), (200, 486), (60, 270), (60, 486))
    configurations: int = 30
    deterministic_limit: float = 2.0  # of each search, in the solver's own unit: about a second of CPU


SIZES = {
    "full": Sizes(),
    "quick": Sizes(configurations=5),
    "tiny": Sizes(clusters=((9, 27),), configurations=2, deterministic_limit=0.2),
}


def run(sizes: Sizes, report: Report) -> None:
    """Measure all clusters."""
    report.title("ag", "CPUs at each step of a plan (RR-6929, section 4.1): nodes of 2 CPUs and 4 GiB")
    rows = []
    for nodes, vms in sizes.clusters:
        name = f"{nodes} nodes, {vms} VMs"
        _measure(name, nodes, vms, sizes, report)
        rows.append(_row(name, report.of(family=name)))
    titles = ["family", "n", "obey %", "cost", "with CPUs", "dearer %", "pools", "with CPUs", "detours", "with CPUs"]
    report.table(titles, rows)
    costs = [(r["plain_cost"], r["cost"]) for r in report.of()]
    ratio = sum(ours for _, ours in costs) / max(1, sum(plain for plain, _ in costs))
    report.ratio("plan cost, CPUs at each step / in the end only, of the sums", ratio)


def _measure(name: str, nodes: int, vms: int, sizes: Sizes, report: Report) -> None:
    search = Search(time_limit_s=math.inf, deterministic_limit=sizes.deterministic_limit)
    for seed, configuration in samples(lambda seed: rr6929(nodes, vms, seed), sizes.configurations):
        progress(f"ag: {name}, {seed}")
        found, _ = placed(configuration, decided(configuration), "cost", search)
        plan, seconds = timed(lambda c=configuration, f=found: plan_with_cpus(c, f.target, f.plan))
        if isinstance(plan, Unreachable):
            raise WrongAnswerError(f"no plan: {plan.explanation}")
        if faults := check_plan(configuration, found.target, plan.pools, plan.cost, cpu_in_plan=True):
            raise WrongAnswerError(str(faults[0]))
        report.record(
            family=name,
            seed=seed,
            seconds=seconds,
            obeys=plan is found.plan,
            plain_cost=found.plan.cost,
            cost=plan.cost,
            plain_pools=len(found.plan.pools),
            pools=len(plan.pools),
            plain_detours=_detours(found.plan),
            detours=_detours(plan),
        )
    progress("")


def _detours(plan: Plan) -> int:
    """The VMs that go over a pivot, or are saved on the way."""
    away = (ActionKind.MIGRATE, ActionKind.SUSPEND)
    return sum(action.bypass and action.kind in away for action in plan.actions())


def _row(name: str, records: Sequence[Mapping[str, Any]]) -> list[Any]:
    plain, ours = (sum(r[key] for r in records) for key in ("plain_cost", "cost"))
    means = [mean(r[key] for r in records) for key in ("plain_pools", "pools", "plain_detours", "detours")]
    n = len(records)
    return [name, n, share(r["obeys"] for r in records), plain // n, ours // n, 100 * (ours / plain - 1), *means]
