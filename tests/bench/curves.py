"""af. The curves of VEE'09, figures 10 to 12: within how long a time solved, and how far below FFD.

Seconds are of CPU, and the searches are ended by the solver's own measure of work, not by a clock: so other work on the
machine makes nothing slower, and changes no answer.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench import verify
from bench.families import vee09
from bench.measure import Report, Value, gap, mean, progress, share
from bench.samples import hosts, items, running_vms, samples
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import running_on
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.ffd import first_fit_decreasing
from rmsplugin.packing.search import Search
from rmsplugin.packing.vmpp import NoPacking, Packing, pack
from rmsplugin.planning.order.builder import build_plan
from rmsplugin.planning.plan import Unreachable
from rmsplugin.planning.target.placement import Placed, place

#: Seconds of CPU within which the share of solved configurations is told.
MARKS_S = (0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0)

#: Percent below FFD of which the share of configurations is told.
BELOW = (75, 90, 94, 96, 99)


@dataclass(frozen=True, slots=True)
class Set:
    """One set of configurations: numbers of VMs, of classes and of nodes."""

    vms: int
    classes: int
    nodes: int = 200

    @property
    def name(self) -> str:
        """As the paper has it, with the number of classes."""
        return f"{self.vms}/{self.nodes}, {self.classes}e"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    sets: Sequence[Set] = (
        *(Set(200, 2), Set(200, 4), Set(200, 8)),  # figure 10
        *(Set(300, 4), Set(400, 4)),  # figure 11, with 200/200
        Set(100, 4, 100),  # figure 12
    )
    configurations: int = 100
    deterministic_limit: float = 5.0  # of each search, in the solver's own unit: about a second of CPU


SIZES = {
    "full": Sizes(),
    "quick": Sizes(configurations=10),
    "tiny": Sizes(sets=(Set(12, 4, 12),), configurations=2, deterministic_limit=0.2),
}


def run(sizes: Sizes, report: Report) -> None:
    """Measure all sets, and tell the curves of both problems, and the gains."""
    report.title("af", "curves of VEE'09, figures 10 to 12: nodes of 2 CPUs and 3 GiB")
    for each in sizes.sets:
        _measure(each, sizes, report)
    marks = [f"%<={mark:g}s" for mark in MARKS_S]
    found = {each.name: report.of(family=each.name) for each in sizes.sets}
    for problem, figures, solved in (
        ("VMPP", "10a and 11a: proven the fewest nodes", _packed_in),
        ("VMRP", "10b and 11b: proven the cheapest plan on these nodes", _placed_in),
    ):
        report.say(f"{problem}, figures {figures} (percent of the configurations within so many seconds):")
        rows = [[name, len(records), *_curve(records, solved)] for name, records in found.items()]
        if problem == "VMRP":
            rows = [[*row, *_gaps(records)] for row, records in zip(rows, found.values(), strict=True)]
        report.table(["set", "n", *marks, *(("gap %", "worst gap %") if problem == "VMRP" else ())], rows)
    report.say("figure 12a: nodes fewer than FFD's (percent of the configurations):")
    report.table(["set", "n", "0", "1", "2", "3", "4", "5 and more"], [_fewer(*each) for each in found.items()])
    report.say("figure 12b: plans cheaper than FFD's, where both use as many nodes (percent of these):")
    titles = ["set", "n", "mean %", "least %", *(f"by {mark} %" for mark in BELOW)]
    report.table(titles, [_cheaper(*each) for each in found.items()])
    costs = [(r["cost"], r["ffd_cost"]) for r in report.of() if _is_compared(r)]
    ratio = sum(cost for cost, _ in costs) / max(1, sum(ffd for _, ffd in costs))
    report.ratio("plan cost at as many nodes, ours / FFD, of the sums", ratio)


def _measure(family: Set, sizes: Sizes, report: Report) -> None:
    search = Search(time_limit_s=math.inf, deterministic_limit=sizes.deterministic_limit)
    generate: Callable[[int], Configuration] = partial(vee09, family.vms, family.classes, nodes=family.nodes)
    for seed, configuration in samples(generate, sizes.configurations):
        progress(f"af: {family.name}, {seed}")
        ffd = first_fit_decreasing(
            running_vms(configuration), {each.name: each.capacity for each in configuration.nodes}
        )
        packing, pack_s = _packed(configuration, search)
        placed, seconds = _placed(configuration, ffd or {}, search)
        report.record(
            family=family.name,
            seed=seed,
            pack_s=pack_s,
            is_packed=packing.optimal,
            seconds=seconds,
            nodes_used=placed.nodes_used,
            nodes_lower_bound=placed.nodes_lower_bound,
            cost=placed.plan.cost,
            lower_bound=placed.lower_bound,
            objective="nodes",
            ffd_nodes_used=None if ffd is None else len(set(ffd.values())),
            ffd_cost=None if ffd is None else _ffd_cost(configuration, ffd),
        )
    progress("")


def _cpu_timed(work: Callable[[], Value]) -> tuple[Value, float]:
    """What the work returns, and the seconds of CPU that it took."""
    started = time.process_time()
    value = work()
    return value, time.process_time() - started


def _packed(configuration: Configuration, search: Search) -> tuple[Packing, float]:
    vms = running_vms(configuration)
    found, seconds = _cpu_timed(partial(pack, items(vms), configuration.nodes, search))
    if isinstance(found, NoPacking):
        raise verify.WrongAnswerError("no packing, and the configuration itself is one by memory")
    verify.packing(vms, configuration.nodes, found.assignment, found.nodes_used)
    return found, seconds


def _placed(configuration: Configuration, sample: Mapping[str, str], search: Search) -> tuple[Placed, float]:
    """All run on: the fewest nodes, and the cheapest plan to them."""
    states = {vjob.name: VJobState.RUNNING for vjob in configuration.vjobs}
    found, seconds = _cpu_timed(
        lambda: place(configuration, states, sample=sample, objective="nodes", search=search, clock=time.process_time)
    )
    if isinstance(found, Unreachable):
        raise verify.WrongAnswerError(f"no plan: {found.explanation}")
    verify.placement(configuration, states, hosts(found.target))
    verify.plan(configuration, found.target, found.plan)
    return found, seconds


def _ffd_cost(configuration: Configuration, ffd: Mapping[str, str]) -> int:
    """What the plan to FFD's packing costs, ordered by our planner."""
    plan = build_plan(configuration, {name: running_on(node) for name, node in ffd.items()})
    if isinstance(plan, Unreachable):
        raise verify.WrongAnswerError(f"no plan to FFD's packing: {plan.explanation}")
    return plan.cost


def _packed_in(record: Mapping[str, Any]) -> float:
    return float(record["pack_s"]) if record["is_packed"] else float("inf")


def _placed_in(record: Mapping[str, Any]) -> float:
    proven = record["cost"] == record["lower_bound"] and record["nodes_used"] == record["nodes_lower_bound"]
    return float(record["seconds"]) if proven else float("inf")


def _curve(records: Sequence[Mapping[str, Any]], solved: Callable[[Mapping[str, Any]], float]) -> list[float]:
    return [share(solved(record) <= mark for record in records) for mark in MARKS_S]


def _gaps(records: Sequence[Mapping[str, Any]]) -> list[float]:
    """How far costs are above their proven bounds: the mean, and the worst."""
    gaps = [gap(r["cost"], r["lower_bound"]) for r in records]
    return [mean(gaps), max(gaps)]


def _fewer(name: str, records: Sequence[Mapping[str, Any]]) -> list[Any]:
    fewer = [r["ffd_nodes_used"] - r["nodes_used"] for r in records if r["ffd_nodes_used"] is not None]
    counts = [share(each == count for each in fewer) for count in range(5)]
    return [name, len(fewer), *counts, share(each >= 5 for each in fewer)]


def _is_compared(record: Mapping[str, Any]) -> bool:
    return bool(record["ffd_cost"]) and record["ffd_nodes_used"] == record["nodes_used"]


def _cheaper(name: str, records: Sequence[Mapping[str, Any]]) -> list[Any]:
    below = [100 * (1 - r["cost"] / r["ffd_cost"]) for r in records if _is_compared(r)]
    marks = [share(each >= mark for each in below) for mark in BELOW]
    return [name, len(below), mean(below), min(below, default=0.0), *marks]
