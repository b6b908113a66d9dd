"""e. The papers' models on Choco, the papers' solver, next to ours: same configurations, same limit, one at a time.

Every search of Choco's is one row, and "best" is the best of them for each configuration: as if somebody knew in
advance which one to choose. Choco's plans are made from its placements by our planner, and its clock stops meanwhile.
The sample of FFD or VMPP counts as found (equation 11); "found %" says how often the search found something itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from bench import verify
from bench.choco_vmpp import FORMULATIONS, pack_on_choco
from bench.choco_vmrp import WAYS, replace_on_choco
from bench.families import rr6929, scale, vee09
from bench.isolated import Isolated
from bench.measure import Report, gap, mean, median, progress, ratio, share, timed
from bench.samples import items, samples
from bench.switching import decided, placed
from rmsplugin.decision.result import Decision
from rmsplugin.model.configuration import Configuration
from rmsplugin.packing.search import Search
from rmsplugin.packing.vmpp import NoPacking, pack
from rmsplugin.planning.plan import Unreachable
from rmsplugin.planning.target.placement import Objective, place_sample

Generate = Callable[[int], Configuration]

OURS = "ours"
BEST = "Choco, best"


@dataclass(frozen=True, slots=True)
class Family:
    """Configurations, and with which objective they are placed."""

    name: str
    generate: Generate
    objective: Objective = "cost"


def _vee09(vms: int, classes: int, objective: Objective = "cost", nodes: int = 200) -> Family:
    name = f"vee09 {nodes}/{vms}, {classes} classes"
    return Family(name, partial(vee09, vms, classes, nodes=nodes), objective)


def _rr6929(nodes: int, vms: int, objective: Objective = "cost") -> Family:
    return Family(f"rr6929 {nodes}/{vms}", partial(rr6929, nodes, vms), objective)


def _scale(nodes: int, vms: int) -> Family:
    return Family(f"scale {nodes}/{vms}", partial(scale, nodes, vms))


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    packing: Sequence[Family] = (
        *(_vee09(vms, classes) for vms in (200, 300, 400) for classes in (2, 4, 8)),
        _rr6929(200, 486),
        _scale(100, 600),
    )
    replacing: Sequence[Family] = (
        *(_rr6929(200, vms) for vms in (54, 162, 270, 378, 486)),
        *(_rr6929(nodes, 486) for nodes in (60, 80, 110)),
        _scale(100, 600),
        _vee09(200, 4, "nodes"),
        _vee09(400, 4, "nodes"),
    )
    configurations: int = 5
    time_limit_s: float = 10.0
    formulations: Sequence[str] = field(default=FORMULATIONS)
    ways: Sequence[str] = field(default=tuple(WAYS))


SIZES = {
    "full": Sizes(),
    "quick": Sizes(
        packing=(_vee09(200, 8), _vee09(400, 4), _scale(100, 600)),
        replacing=(_rr6929(200, 270), _rr6929(200, 486), _rr6929(80, 486), _vee09(200, 4, "nodes")),
        configurations=2,
        time_limit_s=5.0,
    ),
    "tiny": Sizes(
        packing=(_vee09(12, 4, nodes=12), _scale(4, 24)),
        replacing=(_rr6929(9, 27), _vee09(12, 4, "nodes", nodes=12)),
        configurations=1,
        time_limit_s=1.0,
    ),
}


def run(sizes: Sizes, report: Report) -> None:
    """Measure both problems."""
    much = f"{sizes.configurations} configurations each, {sizes.time_limit_s:g} s"
    report.title("e", f"Choco on the papers' models, next to ours: {much}")
    with Isolated() as choco:
        choco.call(_warm_up)
        for family in sizes.packing:
            _pack(family, sizes, choco, report)
        _tell("VMPP (nodes)", "vmpp", sizes.packing, sizes, report)
        for family in sizes.replacing:
            _replace(family, sizes, choco, report)
        _tell("VMRP (plan cost)", "vmrp", sizes.replacing, sizes, report)
        if choco.crashes:
            report.say(f"Choco crashed {choco.crashes} times")


def _warm_up() -> None:
    """Load Choco, whose first search is slower than those that follow."""
    configuration = vee09(20, 4, 0, 20)
    for formulation in FORMULATIONS:
        pack_on_choco(list(configuration.vm_by_name.values()), configuration.nodes, 1.0, formulation)


def _pack(family: Family, sizes: Sizes, choco: Isolated, report: Report) -> None:
    for seed, configuration in samples(family.generate, sizes.configurations):
        progress(f"e: VMPP, {family.name}, {seed}")
        decision = decided(configuration)
        vms = [configuration.vm_by_name[name] for name in decision.placement]
        nodes = configuration.nodes
        same = {"problem": "vmpp", "family": family.name, "seed": seed}
        ours, seconds = timed(partial(pack, items(vms), nodes, Search(time_limit_s=sizes.time_limit_s)))
        if isinstance(ours, NoPacking):
            raise verify.WrongAnswerError(f"{family.name}, {seed}: no packing, and the decision has one")
        verify.packing(vms, nodes, ours.assignment, ours.nodes_used)
        bound = ours.lower_bound
        report.record(**same, solver=OURS, value=ours.nodes_used, bound=bound, proven=ours.optimal, seconds=seconds)
        for formulation in sizes.formulations:
            found = choco.call(pack_on_choco, vms, list(nodes), sizes.time_limit_s, formulation)
            if found is None or found.assignment is None:
                report.record(**same, solver=_named(formulation), value=None, bound=bound, proven=False, seconds=None)
                continue
            verify.packing(vms, nodes, found.assignment, found.nodes_used)
            if found.nodes_used < bound or (found.optimal and found.nodes_used > ours.nodes_used):
                raise verify.WrongAnswerError(f"{family.name}, {seed}: {formulation} contradicts a proof")
            report.record(
                **same,
                solver=_named(formulation),
                value=found.nodes_used,
                bound=bound,
                proven=found.optimal,
                seconds=found.seconds,
            )


def _named(search: str) -> str:
    return f"Choco, {search}"


def _replace(family: Family, sizes: Sizes, choco: Isolated, report: Report) -> None:
    for seed, configuration in samples(family.generate, sizes.configurations):
        progress(f"e: VMRP, {family.name}, {seed}")
        decision = decided(configuration)
        ours, seconds = placed(configuration, decision, family.objective, Search(time_limit_s=sizes.time_limit_s))
        same = {"problem": "vmrp", "family": family.name, "seed": seed}
        cost, bound = ours.plan.cost, ours.lower_bound
        report.record(**same, solver=OURS, value=cost, bound=bound, proven=cost == bound, seconds=seconds)
        limit = ours.nodes_used if family.objective == "nodes" else None
        sample = _sample(configuration, decision, family.objective, sizes)
        for way in sizes.ways:
            found = choco.call(replace_on_choco, configuration, decision.states, sizes.time_limit_s, way, limit)
            placements = [sample, *([] if found is None else found.placements)]
            costs = list(_plan_costs(configuration, decision, placements))
            best = min(costs, default=None)
            if best is not None and best < bound:
                raise verify.WrongAnswerError(
                    f"{family.name}, {seed}: Choco's plan costs {best}, below our bound {bound}"
                )
            report.record(
                **same,
                solver=_named(way),
                value=best,
                # Its own may be the better one where the machine is busy.
                bound=bound if found is None else max(bound, found.lower_bound),
                proven=found is not None and best == found.lower_bound,
                seconds=None if found is None else found.seconds,
                solutions=None if found is None else found.solutions,
            )


def _sample(configuration: Configuration, decision: Decision, objective: Objective, sizes: Sizes) -> Mapping[str, str]:
    """The upper bound of equation 11: what VMPP (or FFD) left is an answer already, which Choco may only improve on."""
    if objective == "cost":
        return decision.placement
    vms = [configuration.vm_by_name[name] for name in decision.placement]
    found = pack(items(vms), configuration.nodes, Search(time_limit_s=sizes.time_limit_s))
    return decision.placement if isinstance(found, NoPacking) else found.assignment


def _plan_costs(configuration: Configuration, decision: Decision, placements: Sequence[Any]) -> Iterator[int]:
    """What the plans to Choco's placements cost, each placement and plan checked."""
    for placement in placements:
        verify.placement(configuration, decision.states, placement)
        found = place_sample(configuration, decision.states, placement)
        if not isinstance(found, Unreachable):
            verify.plan(configuration, found.target, found.plan)
            yield found.plan.cost


def _tell(title: str, problem: str, families: Sequence[Family], sizes: Sizes, report: Report) -> None:
    """Tables, and how often the best of Choco's searches is as good as ours or better."""
    searches = [_named(s) for s in (sizes.formulations if problem == "vmpp" else sizes.ways)]
    rows = []
    for family in families:
        here = partial(report.of, problem=problem, family=family.name)
        records = {solver: here(solver=solver) for solver in (OURS, *searches)}
        for choices in zip(*(records[search] for search in searches), strict=True):
            best = min(choices, key=_merit)
            report.record(**{**best, "benchmark": report.benchmark, "solver": BEST})
        records[BEST] = here(solver=BEST)
        rows += [_row(family.name, solver, found) for solver, found in records.items()]
    report.say(f"{title}; gaps to our proven bound:")
    header = ["family", "solver", "n", "found %", "proven %", "mean", "gap %", "worst gap %", "median s", "worst s"]
    report.table(header, rows)
    _compare(title, report.of(problem=problem, solver=OURS), report.of(problem=problem, solver=BEST), report)


def _merit(record: dict[str, Any]) -> tuple[float, bool, float]:
    """Better first: a better value, a proof, less time."""
    value, seconds = record["value"], record["seconds"]
    infinite = float("inf")
    return infinite if value is None else value, not record["proven"], infinite if seconds is None else seconds


def _row(family: str, solver: str, found: Sequence[dict[str, Any]]) -> list[Any]:
    solved = [r for r in found if r["value"] is not None]
    gaps = [gap(r["value"], r["bound"]) for r in solved]
    times = [r["seconds"] for r in found if r["seconds"] is not None]
    return [
        family,
        solver,
        len(found),
        share(bool(r.get("solutions", r["value"] is not None)) for r in found),
        share(r["proven"] for r in found),
        mean(r["value"] for r in solved) if solved else None,
        mean(gaps) if solved else None,
        max(gaps) if solved else None,
        median(times) if times else None,
        max(times) if times else None,
    ]


def _compare(title: str, ours: Sequence[dict[str, Any]], best: Sequence[dict[str, Any]], report: Report) -> None:
    pairs = list(zip(ours, best, strict=True))
    ahead = sum(_value(b) > _value(o) for o, b in pairs)
    behind = sum(_value(b) < _value(o) for o, b in pairs)
    report.say(f"{title}: ours better in {ahead}, equal in {len(pairs) - ahead - behind}, worse in {behind}")
    solved = [(o, b) for o, b in pairs if b["value"] is not None]
    values = ratio(sum(o["value"] for o, _ in solved), sum(b["value"] for _, b in solved))
    report.ratio(f"{title}: best of Choco / ours, sum of what both solved", values)
    spent = ratio(sum(o["seconds"] for o, _ in solved), sum(b["seconds"] for _, b in solved))
    report.ratio(f"{title}: best of Choco / ours, seconds", spent)
    proven = [share(r["proven"] for r in found) for found in (ours, best)]
    report.say(f"{title}: proven optimal {proven[0]:.0f} % by ours, {proven[1]:.0f} % by the best of Choco")


def _value(record: dict[str, Any]) -> float:
    return float("inf") if record["value"] is None else record["value"]
