"""b. Plan cost on the configurations of RR-6929, figure 10 (VEE'09, figure 12b): against FFD and the proven bound."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bench import verify
from bench.families import rr6929
from bench.measure import Report, gap, mean, median, progress, share, timed
from bench.samples import hosts, samples
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.policies import decide
from rmsplugin.decision.result import Decision
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.search import Search
from rmsplugin.planning.order.builder import build_plan
from rmsplugin.planning.order.improve import Tries
from rmsplugin.planning.plan import Unreachable
from rmsplugin.planning.target.placement import Objective, Placed, place, place_sample


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured: each number of nodes with each number of VMs, for each objective."""

    nodes: Sequence[int] = (200,)
    vms: Sequence[int] = tuple(range(54, 487, 54))
    objectives: Sequence[Objective] = ("cost", "nodes")
    configurations: int = 30
    time_limit_s: float = 5.0
    idle_cpus: float = 0.0  # what a VM demands that does not compute


#: What it demands by RR-6929's French version, section 5.1.
IDLE_CPUS = 0.05

SIZES = {
    "full": Sizes(),
    "quick": Sizes(vms=(54, 270, 486), configurations=5),
    "tiny": Sizes(nodes=(9,), vms=(27,), configurations=2, time_limit_s=1.0),
}

#: FFD: the decision's own sample as the target, ordered by our planner; plain: the same, ordered by the papers' greedy.
#: "at most %": how far below FFD the proven bound is, so that nothing can be further below.
HEADERS = {
    "cost": [
        *("family", "n", "plain", "FFD", "ours", "bound", "below plain %", "below FFD %", "at most %"),
        *("gap %", "worst gap %", "proven %"),
    ],
    "nodes": ["family", "n", "FFD nodes", "ours", "bound", "FFD cost", "ours", "bound", "gap %", "proven %"],
}


def run(sizes: Sizes, report: Report) -> None:
    """Measure all families of the size."""
    report.title("b", "plan cost (RR-6929, figure 10): nodes of 2 CPUs and 4 GiB, vjobs of 9 or 18 VMs")
    measure(sizes, report)
    report.say(f"the same configurations, VMs that do not compute demand {IDLE_CPUS:g} CPUs:")
    measure(replace(sizes, objectives=("cost",), idle_cpus=IDLE_CPUS), report)


def measure(sizes: Sizes, report: Report) -> None:
    """Measure the families of either this benchmark or the overloaded one."""
    for objective in sizes.objectives:
        rows = []
        for nodes in sizes.nodes:
            for vms in sizes.vms:
                _family(nodes, vms, objective, sizes, report)
                rows.append(_row(report.of(objective=objective, nodes=nodes, vms=vms, idle_cpus=sizes.idle_cpus)))
        report.say(f"objective {objective}:")
        report.table([*HEADERS[objective], "median s", "worst s"], rows)
        found = report.of(objective=objective, idle_cpus=sizes.idle_cpus)
        _sum_up(f"objective {objective}{', idle VMs' if sizes.idle_cpus else ''}", found, report)
        if objective == "nodes":
            report.ratio("nodes used, ours / FFD, of the sums", _of_sums(found, "nodes_used", "ffd_nodes_used"))


def _sum_up(what: str, found: Sequence[Mapping[str, Any]], report: Report) -> None:
    gaps = [gap(r["cost"], r["lower_bound"]) for r in found]
    report.say(
        f"gap to the proven bound: mean {mean(gaps):.2f} %, worst {max(gaps):.2f} %; {len(found)} configurations"
    )
    report.ratio(f"plan cost, ours / FFD, mean of each ({what})", mean(_ratios(found, "ffd_cost")))
    report.ratio(f"plan cost, ours / FFD, of the sums ({what})", _of_sums(found, "cost", "ffd_cost"))
    plain = f"plan cost, ours / FFD with the papers' greedy plan, of the sums ({what})"
    report.ratio(plain, _of_sums(found, "cost", "plain_cost"))


def _ratios(found: Sequence[Mapping[str, Any]], theirs: str, ours: str = "cost") -> list[float]:
    """Ours / theirs; where their plan costs nothing there is nothing to compare."""
    return [r[ours] / r[theirs] for r in found if r[theirs]]


def _of_sums(found: Sequence[Mapping[str, Any]], ours: str, theirs: str) -> float:
    compared = [r for r in found if r[theirs] is not None]
    return sum(r[ours] for r in compared) / max(1, sum(r[theirs] for r in compared))


def decided(configuration: Configuration) -> Decision:
    """The paper's decision."""
    decision = decide("rjsp", configuration, Parameters())
    if not isinstance(decision, Decision):
        raise verify.WrongAnswerError(f"no decision: {decision.explanation}")
    return decision


def placed(
    configuration: Configuration, decision: Decision, objective: Objective, search: Search
) -> tuple[Placed, float]:
    """Our target and plan, checked, and the seconds that it took to find them."""
    found, seconds = timed(
        lambda: place(
            configuration,
            decision.states,
            sample=decision.placement,
            objective=objective,
            search=search,
            clock=time.monotonic,
        )
    )
    if isinstance(found, Unreachable):
        raise verify.WrongAnswerError(f"no plan: {found.explanation}")
    verify.placement(configuration, decision.states, hosts(found.target))
    verify.plan(configuration, found.target, found.plan)
    if found.lower_bound > found.plan.cost or found.nodes_lower_bound > found.nodes_used:
        raise verify.WrongAnswerError(f"a bound above what was found: {found.lower_bound} > {found.plan.cost}")
    return found, seconds


def _family(nodes: int, vms: int, objective: Objective, sizes: Sizes, report: Report) -> None:
    search = Search(time_limit_s=sizes.time_limit_s)
    for seed, configuration in samples(lambda seed: rr6929(nodes, vms, seed, sizes.idle_cpus), sizes.configurations):
        progress(f"{report.benchmark}: {nodes} nodes, {vms} VMs, {objective}, {seed}")
        decision, decision_s = timed(lambda c=configuration: decided(c))
        found, seconds = placed(configuration, decision, objective, search)
        plain_cost, ffd_cost = _baselines(configuration, decision)
        report.record(
            objective=objective,
            nodes=nodes,
            vms=vms,
            idle_cpus=sizes.idle_cpus,
            seed=seed,
            decision_s=decision_s,
            seconds=seconds,
            cost=found.plan.cost,
            lower_bound=found.lower_bound,
            pools=len(found.plan.pools),
            plain_cost=plain_cost,
            ffd_cost=ffd_cost,
            nodes_used=found.nodes_used,
            nodes_lower_bound=found.nodes_lower_bound,
            ffd_nodes_used=len(set(decision.placement.values())),
            **_actions(configuration, decision.states),
        )
    progress("")


def _baselines(configuration: Configuration, decision: Decision) -> tuple[int | None, int | None]:
    """What the plan to FFD's sample costs: by the papers' greedy, and by our planner."""
    baseline = place_sample(configuration, decision.states, decision.placement)
    if isinstance(baseline, Unreachable):
        return None, None
    plain = build_plan(configuration, baseline.target, tries=Tries(0))
    return None if isinstance(plain, Unreachable) else plain.cost, baseline.plan.cost


def _actions(configuration: Configuration, states: Mapping[str, VJobState]) -> dict[str, int]:
    """How many vjobs change in which way, so that one sees what a family asks for."""
    before = {vjob.name: configuration.state(vjob) for vjob in configuration.vjobs}
    changes = [(before[name], after) for name, after in states.items()]
    return {
        "suspended": changes.count((VJobState.RUNNING, VJobState.SLEEPING)),
        "resumed": changes.count((VJobState.SLEEPING, VJobState.RUNNING)),
        "started": changes.count((VJobState.WAITING, VJobState.RUNNING)),
    }


def _row(found: Sequence[Mapping[str, Any]]) -> list[Any]:
    gaps = [gap(r["cost"], r["lower_bound"]) for r in found]
    proven = share(r["cost"] == r["lower_bound"] for r in found)
    keys = ("plain_cost", "ffd_cost", "cost", "lower_bound")
    costs = [round(mean(r[key] or 0 for r in found)) for key in keys]
    times = [median(r["seconds"] for r in found), max(r["seconds"] for r in found)]
    name = f"{found[0]['nodes']} nodes, {found[0]['vms']} VMs"
    if found[0]["objective"] == "cost":
        below = [_ratios(found, "plain_cost"), _ratios(found, "ffd_cost"), _ratios(found, "ffd_cost", "lower_bound")]
        percent = [100 * (1 - mean(each)) for each in below]
        return [name, len(found), *costs, *percent, mean(gaps), max(gaps), proven, *times]
    nodes = [mean(r[key] for r in found) for key in ("ffd_nodes_used", "nodes_used", "nodes_lower_bound")]
    return [name, len(found), *nodes, *costs[1:], mean(gaps), proven, *times]
