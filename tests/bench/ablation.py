"""p. Ablation: what a plan costs, and what is proven, without one of the planner's parts; next to all of them.

All limits are deterministic, so that a busy machine changes nothing. What is switched off, and how, is in
``bench.parts``. What a part did not take part in is not computed again without it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bench import verify
from bench.families import MANY_SIZES, changed, crowded, exchange, rr6929, running, scale, tight
from bench.measure import Report, progress, timed
from bench.parts import CONSTANTS, FACTORS, PARTS, changes, instead, watched
from bench.samples import hosts
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.policies import decide
from rmsplugin.decision.result import Decision
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import Location
from rmsplugin.packing.budget import Budget
from rmsplugin.packing.search import Search
from rmsplugin.planning.plan import Plan
from rmsplugin.planning.target import placement
from rmsplugin.planning.target.counts import Named
from rmsplugin.planning.target.incumbent import Incumbent
from rmsplugin.planning.target.settle import suspended


class Case(Protocol):
    """What is planned for."""

    def solve(self, search: Search) -> dict[str, int]:
        """The cost of the plan, what is proven, and how many VMs it suspends on the way; all of it checked."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """Target and order are looked for."""

    configuration: Configuration
    decision: Decision

    @classmethod
    def of(cls, configuration: Configuration, policy: str = "rjsp") -> Replaced:
        """With the states that a policy decides."""
        decision = decide(policy, configuration, Parameters(search=Search(deterministic_limit=1.0)))
        if not isinstance(decision, Decision):
            raise verify.WrongAnswerError(f"no decision: {decision.explanation}")
        return cls(configuration, decision)

    def solve(self, search: Search) -> dict[str, int]:
        """See ``Case``."""
        states = self.decision.states
        found = placement.place(self.configuration, states, self.decision.placement, search=search)
        if not isinstance(found, placement.Placed):
            raise verify.WrongAnswerError(f"no plan: {found.explanation}")
        verify.placement(self.configuration, states, hosts(found.target))
        verify.plan(self.configuration, found.target, found.plan)
        return _about(self.configuration, found.plan, found.lower_bound)


@dataclass(frozen=True, slots=True)
class Ordered:
    """The target is given; nothing is proven."""

    source: Configuration
    target: Mapping[str, Location]

    def solve(self, search: Search) -> dict[str, int]:
        """See ``Case``."""
        budget = Budget(search)
        incumbent = Incumbent(self.source, None, budget)
        incumbent.offer(Named(dict(self.target), frozenset()))
        placement.reorder(incumbent, budget)
        plan = incumbent.best().plan
        verify.plan(self.source, self.target, plan)
        return _about(self.source, plan, 0)


def _about(source: Configuration, plan: Plan, lower_bound: int) -> dict[str, int]:
    preemptible, firm = suspended(source, plan)
    return {"cost": plan.cost, "lower_bound": lower_bound, "suspended": preemptible, "firm": firm}


@dataclass(frozen=True, slots=True)
class Family:
    """Cases by seed, and how many of them are measured for each seed of a larger family."""

    name: str
    make: Callable[[int], Case]
    times: int = 1


def _tight(nodes: int, vms: int, lengths: Sequence[int] = (1, 2, 3)) -> Callable[[int], Case]:
    def make(seed: int) -> Case:
        """One that repair does not settle; there is one among so many seeds."""
        for number in range(1000 * seed, 1000 * (seed + 1)):
            case = Replaced.of(tight(nodes, vms, number, lengths))
            repaired = placement.place_repaired(case.configuration, case.decision.states, case.decision.placement)
            if isinstance(repaired, placement.Placed) and not repaired.optimal:
                return case
        raise ValueError("repair settles all")

    return make


def _exchange(least: int, most: int) -> Callable[[int], Case]:
    return lambda seed: Ordered(*exchange(least + seed % (most - least + 1), seed))


def _small_change(nodes: int) -> Callable[[int], Case]:
    def make(seed: int) -> Case:
        change = ("more CPUs", "arrival")[seed % 2]  # all others cost nothing
        return Replaced.of(changed(running(nodes, 98, seed, MANY_SIZES), change, seed), "mixed")

    return make


def _crowded(nodes: int, vms_a_node: float, sizes: int | None = None) -> Callable[[int], Case]:
    return lambda seed: Replaced.of(crowded(nodes, vms_a_node, seed, sizes))


FAMILIES = (
    Family("3 nodes, 8 VMs", _tight(3, 8), 13),
    Family("5 nodes, 12 VMs", _tight(5, 12), 13),
    Family("5 nodes, 16 VMs", _tight(5, 16), 13),
    Family("5 nodes, 36 VMs", lambda seed: Replaced.of(rr6929(5, 36, seed)), 3),
    Family("20 nodes, 70 VMs", _tight(20, 70), 3),
    Family("order: 3 to 8 VMs", _exchange(3, 8), 13),
    Family("order: 16 VMs", _exchange(16, 16), 7),
    Family("order: to 40 VMs", _exchange(17, 40), 7),
    Family("order: to 150 VMs", _exchange(41, 150), 4),
    Family("b: 200 nodes, 486 VMs", lambda seed: Replaced.of(rr6929(200, 486, seed))),
    Family("c: 60 nodes, 486 VMs", lambda seed: Replaced.of(rr6929(60, 486, seed))),
    Family("c: 80 nodes, 486 VMs", lambda seed: Replaced.of(rr6929(80, 486, seed))),
    Family("d: 1,000 nodes, 5,000 VMs", lambda seed: Replaced.of(scale(1000, 5000, seed))),
    Family("m: 20 nodes, 98 %", _small_change(20), 2),
    Family("m: 100 nodes, 98 %", _small_change(100), 2),
    Family("m: 500 nodes, 98 %", _small_change(500)),
    Family("m: 1,000 nodes, 98 %", _small_change(1000)),
    Family("n: 200 nodes, 900 VMs", _crowded(200, 4.5)),
    Family("n: 1,000 nodes, 3,600 VMs", _crowded(1000, 3.6)),
    Family("n: 200 nodes, 900 VMs, ten sizes", _crowded(200, 4.5, 10)),
    Family("n: 500 nodes, 2,250 VMs, ten sizes", _crowded(500, 4.5, 10)),
)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    families: Sequence[Family] = FAMILIES
    seeds: int = 2
    limits: Sequence[float] = (1.0,)  # deterministic
    has_constants: bool = False  # whether constants are halved and doubled as well, with the first of the limits


SIZES = {
    "full": Sizes(seeds=2, limits=(1.0, 6.0), has_constants=True),
    "quick": Sizes(seeds=1),
    "tiny": Sizes((Family("5 nodes, 36 VMs", lambda seed: Replaced.of(rr6929(5, 36, seed))),), 1, (0.1,), True),
}


def run(sizes: Sizes, report: Report) -> None:
    """Measure all families of the size."""
    report.title("p", "ablation: changed / as it is, of the sums over all seeds; deterministic limits")
    for limit in sizes.limits:
        with_constants = sizes.has_constants and limit == sizes.limits[0]
        constants = [f"{name} x {factor:g}" for name in CONSTANTS for factor in FACTORS] if with_constants else []
        for family in sizes.families:
            for seed in range(sizes.seeds * family.times):
                _measure(family, seed, limit, [*PARTS, *constants], report)
        progress("")
        for what, title in (("cost", "plan cost"), ("lower_bound", "proven bound"), ("suspended", "suspended VMs")):
            for changed_, names in (("without", [*PARTS]), ("with", constants)):
                if names:
                    _table(f"limit {limit:g}, {title}, {changed_}", names, what, limit, sizes, report)
    for name in PARTS:
        most = max(_relative(report, each, name, "cost", limit) for each in sizes.families for limit in sizes.limits)
        report.ratio(f"plan cost without {name} / with all, where it matters most", most)


def _table(title: str, names: Sequence[str], what: str, limit: float, sizes: Sizes, report: Report) -> None:
    """A row for each change that makes a difference."""
    rows = [[name, *(_relative(report, each, name, what, limit) for each in sizes.families)] for name in names]
    different = [[name, *(f"{each:.3f}" for each in row)] for name, *row in rows if {*row} != {1.0}]
    report.table([title, *(each.name for each in sizes.families)], different)


def _relative(report: Report, family: Family, change: str, what: str, limit: float) -> float:
    """Of the sums over all seeds; 1 where there is nothing to compare."""
    before, after = (
        sum(r[what] for r in report.of(family=family.name, limit=limit, change=which)) for which in (None, change)
    )
    return after / before if before else 1.0


def _measure(family: Family, seed: int, limit: float, names: Collection[str], report: Report) -> None:
    case, search = family.make(seed), Search(deterministic_limit=limit)
    called: set[str] = set()
    with watched(called):
        whole, seconds = timed(lambda: case.solve(search))
    report.record(family=family.name, seed=seed, limit=limit, change=None, seconds=seconds, **whole)
    changed_ = dict(changes(called))
    for name in names:
        progress(f"p: {family.name}, seed {seed}, {name}")
        found, seconds = whole, 0.0
        if name in changed_:
            with instead(changed_[name]):
                found, seconds = timed(lambda: case.solve(search))
        report.record(family=family.name, seed=seed, limit=limit, change=name, seconds=seconds, **found)
