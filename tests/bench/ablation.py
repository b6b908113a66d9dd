"""p. Ablation: what a plan costs, and what is proven, without one of the planner's parts; next to all of them.

All limits are deterministic, so that a busy machine changes nothing. A part is switched off by another function in its
place, from here: the planner has no switches. What a part did not take part in is not computed again without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from bench import verify
from bench.families import CHANGES, MANY_SIZES, changed, crowded, rr6929, running, scale
from bench.measure import Report, mean, progress, timed
from bench.samples import hosts
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.policies import decide
from rmsplugin.decision.result import Decision
from rmsplugin.model.configuration import Configuration
from rmsplugin.packing.search import Search
from rmsplugin.planning.order import improve
from rmsplugin.planning.target import placement
from rmsplugin.planning.target.level import Level, levels
from rmsplugin.planning.target.neighbourhood import Neighbourhoods
from rmsplugin.planning.target.replacement import Replacement

#: What stands in the place of a part.
Substitute = Callable[..., Any]


def _nothing(*_: Any) -> None:
    return None


def _no_bound(*_: Any) -> int:
    return 0


def _no_bounds(problem: Replacement, *_: Any) -> dict[Level, int]:
    return dict.fromkeys(levels(problem), 0)


def _bounds_as_they_are(*arguments: Any) -> int:
    bounds: dict[Level, int] = arguments[-1]
    return min(bounds.values())


def _no_room(*_: Any) -> bool:
    return False


#: By name of the part: the functions that it is, each with the module or class that has it, and what stands for it.
PARTS: Mapping[str, Sequence[tuple[Any, str, Substitute]]] = {
    "repair": [(placement, "_repair", _no_room)],
    "exact search": [(placement, "settle", _no_bound)],
    "nearby": [(Neighbourhoods, "improve_small", _nothing)],
    "columns": [(placement, "search_whole", _no_bounds)],
    "levels": [(placement, "search_levels", _bounds_as_they_are)],
    "neighbourhoods": [(Neighbourhoods, "improve", _nothing)],
    "bypasses": [(improve._Search, "early_bypasses", _nothing), (improve._Search, "other_bypasses", _nothing)],
    "tries": [(improve._Search, "orders", _nothing), (improve._Search, "caps", _nothing)],
    "exact order": [(placement, "reorder", _nothing)],
}


@dataclass(frozen=True, slots=True)
class Family:
    """Configurations by seed, and the policy that decides for them."""

    name: str
    make: Callable[[int], Configuration]
    policy: str = "rjsp"


def _small_change(nodes: int, full: int, seed: int) -> Configuration:
    return changed(running(nodes, full, seed, MANY_SIZES), CHANGES[seed % len(CHANGES)], seed)


SMALL = Family("5 nodes, 36 VMs", lambda seed: rr6929(5, 36, seed))
B = Family("b: 200 nodes, 486 VMs", lambda seed: rr6929(200, 486, seed))
C = [Family(f"c: {nodes} nodes, 486 VMs", lambda seed, nodes=nodes: rr6929(nodes, 486, seed)) for nodes in (60, 80)]
D = Family("d: 1,000 nodes, 5,000 VMs", lambda seed: scale(1000, 5000, seed))
M = [
    Family(f"m: {nodes} nodes, 98 %", lambda seed, nodes=nodes: _small_change(nodes, 98, seed), "mixed")
    for nodes in (20, 100)
]
N = [
    Family("n: 200 nodes, 900 VMs", lambda seed: crowded(200, 4.5, seed)),
    Family("n: 200 nodes, 900 VMs, ten sizes", lambda seed: crowded(200, 4.5, seed, 10)),
    Family("n: 500 nodes, 2,250 VMs, ten sizes", lambda seed: crowded(500, 4.5, seed, 10)),
]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    families: Sequence[Family]
    seeds: int
    limit: float  # deterministic


SIZES = {
    "full": Sizes((SMALL, B, *C, D, *M, *N), 6, 6.0),
    "quick": Sizes((SMALL, B, C[0], D, *M, *N[:2]), 3, 1.0),
    "tiny": Sizes((SMALL,), 1, 0.1),
}


def run(sizes: Sizes, report: Report) -> None:
    """Measure all families of the size."""
    report.title("p", f"ablation: without a part / with all of them; deterministic limit {sizes.limit:g}")
    for family in sizes.families:
        for seed in range(sizes.seeds):
            _measure(family, seed, sizes.limit, report)
    progress("")
    for what, title in (("cost", "plan cost"), ("lower_bound", "proven bound")):
        report.say(f"{title} without a part / with all of them, mean of the seeds:")
        rows = [
            [each.name, *(f"{_relative(report, each, part, what):.3f}" for part in PARTS)] for each in sizes.families
        ]
        report.table(["family", *PARTS], rows)
    for part in PARTS:
        most = max(_relative(report, family, part, "cost") for family in sizes.families)
        report.ratio(f"plan cost without {part} / with all, where it matters most", most)


def _relative(report: Report, family: Family, part: str, what: str) -> float:
    """The mean over the seeds; where it is nothing without the part and with it, nothing changed."""
    whole = {r["seed"]: r[what] for r in report.of(family=family.name, without=None)}
    found = {r["seed"]: r[what] for r in report.of(family=family.name, without=part)}
    return mean(found[seed] / whole[seed] if whole[seed] else float(not found[seed]) for seed in found)


def _measure(family: Family, seed: int, limit: float, report: Report) -> None:
    configuration, search = family.make(seed), Search(deterministic_limit=limit)
    decision = decide(family.policy, configuration, Parameters(search=search))
    if not isinstance(decision, Decision):
        raise verify.WrongAnswerError(f"no decision: {decision.explanation}")
    called: set[str] = set()
    with _watched(called):
        whole = _placed(configuration, decision, search)
    for without in (None, *PARTS):
        progress(f"p: {family.name}, seed {seed}, without {without}")
        found = whole
        if without in called:
            with _off(without):
                found = _placed(configuration, decision, search)
        report.record(family=family.name, seed=seed, limit=limit, without=without, **found)


def _placed(configuration: Configuration, decision: Decision, search: Search) -> dict[str, float]:
    found, seconds = timed(lambda: placement.place(configuration, decision.states, decision.placement, search=search))
    if not isinstance(found, placement.Placed):
        raise verify.WrongAnswerError(f"no plan: {found.explanation}")
    verify.placement(configuration, decision.states, hosts(found.target))
    verify.plan(configuration, found.target, found.plan)
    return {"cost": found.plan.cost, "lower_bound": found.lower_bound, "seconds": seconds}


@contextmanager
def _watched(called: set[str]) -> Iterator[None]:
    """Note which parts are called."""
    with ExitStack() as stack:
        for part, functions in PARTS.items():
            for owner, name, _ in functions:
                stack.enter_context(patch.object(owner, name, _noting(getattr(owner, name), part, called)))
        yield


def _noting(function: Substitute, part: str, called: set[str]) -> Substitute:
    def noting(*arguments: Any, **named: Any) -> Any:
        called.add(part)
        return function(*arguments, **named)

    return noting


@contextmanager
def _off(part: str) -> Iterator[None]:
    """Leave a part out."""
    with ExitStack() as stack:
        for owner, name, substitute in PARTS[part]:
            stack.enter_context(patch.object(owner, name, substitute))
        yield
