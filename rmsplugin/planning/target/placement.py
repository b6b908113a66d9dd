"""Placement: the hosts that make the plan cheapest for the decided states (VMRP), with a proven bound on its cost.

Repair comes first: every VM stays where it is, or resumes where its saved state lies, unless its node cannot keep it;
VMs that must move go where there is room. If that plan costs no more than the bound, nothing can be better, and no
solver is started. Otherwise the answer is improved part by part if few nodes of a large cluster act
(``neighbourhood``); and columns, the sets of VMs that single nodes may hold, are chosen for all nodes at once, with a
bound (``whole``). While the gap is open and time is left, the integer program widens the choice to all VMs if it is
small enough (``levels``); and until the end of the limit, parts again. Every answer is judged by the plan that the
planner makes of it; the cheapest wins, whatever its source. docs/planner.md has the way in a picture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import Location, VMState, running_on
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.budget import Budget, Clock
from rmsplugin.packing.search import Search
from rmsplugin.planning.order.builder import build_plan
from rmsplugin.planning.plan import Plan, Unreachable
from rmsplugin.planning.target.acting import acting, are_alike
from rmsplugin.planning.target.arriving import better_fit_hosts
from rmsplugin.planning.target.counts import Named, counts_of, is_viable, with_names
from rmsplugin.planning.target.fewest import Fewest, fewest_nodes
from rmsplugin.planning.target.incumbent import Incumbent, Reached
from rmsplugin.planning.target.keep import Kept, bound_of, keep, keep_all, keep_at_ease
from rmsplugin.planning.target.level import levels
from rmsplugin.planning.target.levels import search_levels
from rmsplugin.planning.target.neighbourhood import NODES, Neighbourhoods
from rmsplugin.planning.target.replacement import Replacement, nodes_that_keep, replacement
from rmsplugin.planning.target.settle import reorder, settle
from rmsplugin.planning.target.spread import spread
from rmsplugin.planning.target.waits import waits_mib
from rmsplugin.planning.target.whole import search_whole

Objective = Literal["cost", "nodes"]

#: With more pairs of a node and a class of VMs, the integer program finds nothing within seconds.
_MOST_PAIRS = 5_000

#: The work of repair and its plans for a VM, in steps: about 50 microseconds.
_STEPS_A_VM = 10_000

#: If more act, as a part of all VMs that shall run, their own problem is not much smaller than that of all.
_MOST_ACTING = 0.5

#: The part of the remaining limits that columns may use before the program of all nodes, if that is small enough.
_SMALL_SHARE = 0.6

#: The part of the remaining limits that the exact search of a small problem may use before others; then their rest.
_EXACT_SHARE = 0.3


@dataclass(frozen=True, slots=True)
class Placed:
    """The chosen target, the plan that leads there, and the proven quality of the plan."""

    target: Mapping[str, Location]
    plan: Plan
    lower_bound: int  # MiB: proven, no plan for the decided states (and, for `nodes`, on so few nodes) costs less
    nodes_used: int
    nodes_lower_bound: int

    @property
    def optimal(self) -> bool:
        """Whether the plan is proven to be the cheapest."""
        return self.plan.cost == self.lower_bound


def place(
    source: Configuration,
    states: Mapping[str, VJobState],
    sample: Mapping[str, str],
    objective: Objective = "cost",
    search: Search | None = None,
    previous: Mapping[str, str] | None = None,
    shared_store: bool = False,
    clock: Clock | None = None,
    on_better: Callable[[Placed], None] | None = None,
    sample_first: bool = False,
    stated: Callable[[], Replacement] | None = None,
) -> Placed | Unreachable:
    """Choose a host for every VM that shall run, so that the plan is as cheap as possible.

    Args:
        source: the present configuration.
        states: the decided state of every vjob, by name.
        sample: the node of every VM that shall run, in the configuration with which the decision proved itself.
        objective: ``cost``: the cheapest plan; ``nodes``: the fewest nodes, then the cheapest plan on so many.
        search: its limits; the best plan found within them is returned, never dearer than that of ``sample``.
        previous: the last answer, node by VM name: a start that may still be good.
        shared_store: whether suspended VMs are saved on storage that all nodes mount.
        clock: a clock by which the limit is a deadline; None: the time of work outside of solvers is estimated.
        on_better: called with each better answer while the search goes on, with the bound of the knapsacks.
        sample_first: whether ``sample`` is taken among answers of equal cost.
        stated: gives the problem, as ``replacement`` states it, to who has others who ask for it; None: it is stated.

    Returns:
        Unreachable only if no plan leads even to the sample; see ``build_plan``.
    """
    search = search or Search()
    budget = Budget(search, clock)
    budget.charge(_STEPS_A_VM * len(source.locations))
    own = Budget(search, clock)
    by_cost = objective == "cost"
    at_once = _place_acting(source, states, sample, shared_store, own, sample_first) if by_cost else None
    if at_once is not None:
        if on_better is not None:
            on_better(at_once)
        return at_once
    problem = replacement(source, states, sample, shared_store) if stated is None else stated()
    fewest = fewest_nodes(source, states, sample, search if objective == "nodes" else None)
    kept, at_ease = keep_all(problem), keep_at_ease(problem)
    bound = first_bound = max(bound_of(problem, kept), _bound_at_ease(problem, at_ease))

    def better(reached: Reached) -> None:
        if on_better is not None:
            on_better(_as_placed(reached, first_bound, fewest))

    incumbent = Incumbent(source, fewest.nodes if objective == "nodes" else None, budget, better)
    if sample_first:
        incumbent.offer(_named(problem, sample))
    _repair(problem, at_ease, incumbent, bound)
    if incumbent.cost != bound and previous is not None:
        _offer_again(problem, incumbent, previous)
    if incumbent.cost != bound:
        _fall_back(problem, incumbent, sample, fewest)
    if incumbent.cost is None:
        return build_or_explain(source, problem, sample)
    bound = _improve(problem, kept, incumbent, bound, budget, search, shared_store)
    return _as_placed(incumbent.best(), bound, fewest)


def _improve(
    problem: Replacement,
    kept: list[Kept],
    incumbent: Incumbent,
    bound: int,
    budget: Budget,
    search: Search,
    shared_store: bool,
) -> int:
    """Search until nothing can cost less than the best answer, or the limits are used up; returns the proven bound."""
    if incumbent.best().plan.cost > bound:
        bound = max(bound, settle(problem, incumbent, budget.part(_EXACT_SHARE), shared_store))
    if incumbent.best().plan.cost > bound:
        bound = max(bound, _widen(problem, kept, incumbent, bound, budget, search))
    if incumbent.best().plan.cost > bound:
        bound = max(bound, settle(problem, incumbent, budget, shared_store))
    if incumbent.best().plan.cost > bound:
        reorder(incumbent, budget)
    return bound


def _place_acting(
    source: Configuration,
    states: Mapping[str, VJobState],
    sample: Mapping[str, str],
    shared_store: bool,
    budget: Budget,
    sample_first: bool,
) -> Placed | None:
    """Move only VMs that have to act, if that is proven to be the cheapest for all; None if it is not."""
    part = acting(source, states)
    if part is None or nodes_that_keep(source, states, sample):
        return None
    if len(part.locations) > _MOST_ACTING * len(sample):
        return None
    problem = replacement(part, states, None, shared_store)
    at_ease = keep_at_ease(problem)
    lost = {place.node.name for place, each in zip(problem.places, at_ease, strict=True) if each.bound_mib}
    if lost and not are_alike(source, lost):
        return None  # a staying VM should perhaps make room for a saved state
    incumbent = Incumbent(part, budget=budget)
    bound = _bound_at_ease(problem, at_ease)
    if sample_first and _moves_no_other(source, part, sample):
        incumbent.offer(_named(problem, {name: node for name, node in sample.items() if name in part.locations}))
    _repair(problem, at_ease, incumbent, bound)
    if incumbent.cost != bound:
        return None
    best = incumbent.best()
    target = {**source.locations, **best.target}
    nodes = frozenset(at.node for at in target.values() if at.state is VMState.RUNNING and at.node is not None)
    return _as_placed(Reached(target, best.plan, nodes), bound, fewest_nodes(source, states, sample, None))


def _moves_no_other(source: Configuration, part: Configuration, sample: Mapping[str, str]) -> bool:
    """Whether in a sample all VMs outside a part of the configuration are where they are now."""
    locations, others = source.locations, sample.keys() - part.locations.keys()
    return all(locations[name].node == sample[name] for name in others)


def _bound_at_ease(problem: Replacement, at_ease: list[Kept]) -> int:
    """A bound of each node's loss if no local resume waits for room, and of late arrivals' waits, in MiB."""
    return bound_of(problem, at_ease) + waits_mib(problem)


def _repair(problem: Replacement, at_ease: list[Kept], incumbent: Incumbent, bound: int) -> None:
    """Move only VMs that must: first so that no local resume waits for room; then, unless that is best, with waits."""
    for kept in ([keep(place, problem.classes, None) for place in problem.places], at_ease):
        counts = spread(problem, kept) if incumbent.cost != bound else None
        if counts is not None:
            incumbent.offer(with_names(problem, counts))


def _offer_again(problem: Replacement, incumbent: Incumbent, previous: Mapping[str, str]) -> None:
    """Offer the last answer, if it names a node for every VM and is still viable: demands and nodes may change."""
    hosts = {name: previous.get(name, "") for name in incumbent.source.locations if name not in problem.fixed}
    if {place.node.name for place in problem.places}.issuperset(hosts.values()):
        named = _named(problem, hosts)
        if is_viable(problem, counts_of(problem, named.target, named.early)):
            incumbent.offer(named)


def _widen(
    problem: Replacement, kept: list[Kept], incumbent: Incumbent, bound: int, budget: Budget, search: Search
) -> int:
    """Let every VM move: all nodes at once if that is small enough, then part by part; a bound, or the given one."""
    is_small = len(problem.places) * len(problem.classes) <= _MOST_PAIRS
    if not is_small:
        Neighbourhoods(problem, kept, incumbent, budget.part(1 / 2)).improve_small(bound)
    bounds = dict.fromkeys(levels(problem), bound)
    if incumbent.most_nodes is None:
        whole = search_whole(problem, incumbent, bound, budget.part(_SMALL_SHARE if is_small else 1.0), search)
        bounds = {level: max(bound, whole[level]) for level in bounds}
    bound = min(bounds.values())
    if is_small and incumbent.best().plan.cost > bound and not budget.exhausted:
        bound = max(bound, search_levels(problem, kept, incumbent, budget, bounds))
    if len(problem.places) > NODES:
        Neighbourhoods(problem, kept, incumbent, budget, search.seed).improve(bound)
    return bound


def _fall_back(problem: Replacement, incumbent: Incumbent, sample: Mapping[str, str], fewest: Fewest) -> None:
    """Offer the decision's sample, and the packing on the fewest nodes: the result is never worse."""
    incumbent.offer(_named(problem, sample))
    if fewest.assignment is not None:
        incumbent.offer(_named(problem, fewest.assignment))


def _named(problem: Replacement, hosts: Mapping[str, str]) -> Named:
    return Named({**{name: running_on(node) for name, node in hosts.items()}, **problem.fixed}, frozenset())


def build_or_explain(source: Configuration, problem: Replacement, sample: Mapping[str, str]) -> Unreachable:
    """The reason why not even the sample can be reached."""
    plan = build_plan(source, _named(problem, sample).target)
    return plan if isinstance(plan, Unreachable) else Unreachable("the sample uses more nodes than there may be")


def place_repaired(
    source: Configuration,
    states: Mapping[str, VJobState],
    sample: Mapping[str, str],
    shared_store: bool = False,
    sample_first: bool = False,
) -> Placed | Unreachable:
    """As ``place`` without a search: only VMs that must move do, or, where that is dearer, the sample is the target."""
    problem = replacement(source, states, sample, shared_store)
    incumbent = Incumbent(source)
    at_ease = keep_at_ease(problem)
    if sample_first:
        incumbent.offer(_named(problem, sample))
    _repair(problem, at_ease, incumbent, _bound_at_ease(problem, at_ease))
    incumbent.offer(_named(problem, sample))
    if incumbent.cost is None:
        return build_or_explain(source, problem, sample)
    return _placed(problem, incumbent, fewest_nodes(source, states, sample, None))


def _placed(problem: Replacement, incumbent: Incumbent, fewest: Fewest) -> Placed:
    """The best answer of all that were offered without a search."""
    return _as_placed(incumbent.best(), bound_by_nodes(problem), fewest)


def bound_by_nodes(problem: Replacement) -> int:
    """The bound that is known without a search: each node's least loss, in MiB."""
    return bound_of(problem, keep_all(problem))


def _as_placed(reached: Reached, bound: int, fewest: Fewest) -> Placed:
    used = len(reached.nodes)
    bound = min(bound, reached.plan.cost)
    return Placed(reached.target, reached.plan, bound, used, min(fewest.lower_bound, used))


def place_sample(
    source: Configuration, states: Mapping[str, VJobState], sample: Mapping[str, str], shared_store: bool = False
) -> Placed | Unreachable:
    """The baseline of the papers: the decision's own sample configuration as the target (RR-6929, section 5.1)."""
    problem = replacement(source, states, sample, shared_store)
    incumbent = Incumbent(source)
    incumbent.offer(Named(_named(problem, sample).target, frozenset()))
    if incumbent.cost is None:
        return build_or_explain(source, problem, sample)
    return _placed(problem, incumbent, fewest_nodes(source, states, sample, None))


def place_better_fit(
    source: Configuration, states: Mapping[str, VJobState], sample: Mapping[str, str], shared_store: bool = False
) -> Placed | Unreachable:
    """The other baseline: the target that better-fit makes of the present places (RR-7398, section 2.1.2)."""
    problem = replacement(source, states, sample, shared_store)
    running = {name for name, at in problem.fixed.items() if at.state is VMState.RUNNING}
    hosts = better_fit_hosts(source, states, running)
    if isinstance(hosts, Unreachable):
        return hosts
    incumbent = Incumbent(source)
    incumbent.offer(_named(problem, hosts))
    if incumbent.cost is None:
        return build_or_explain(source, problem, hosts)
    return _placed(problem, incumbent, fewest_nodes(source, states, hosts, None))
