"""Ruled: the target and the plan where rules about VMs beside each other (``rmsplugin.model.joint``) hold.

The search for the cheapest plan counts equal VMs, and cannot tell which of them is where. So it is asked first as if
there were no such rules. If its answer obeys them, it is the answer; its bound is one in any case, since rules only
forbid. Otherwise the cheapest of these is taken: VMs where that answer has them, or where they are now, or where the
decision proved itself, each elsewhere only if a rule bars it from there; and, for few VMs, an integer program's answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from rmsplugin.model.action import ActionKind, migrate, resume
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import SHARED, VM, Location, VJob, VMState, running_on
from rmsplugin.model.resources import NOTHING
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.budget import Budget
from rmsplugin.packing.item import Item, items_of
from rmsplugin.packing.ruled_fit import Obstacle, RuledFit, obeys
from rmsplugin.packing.ruled_program import Answer, Wish, is_small, nodes_without, solve
from rmsplugin.packing.search import Search
from rmsplugin.planning.cost import local_cost
from rmsplugin.planning.order.ruled import build_by_rules, obeyed_by
from rmsplugin.planning.plan import Plan, Unreachable
from rmsplugin.planning.target.placement import Objective, Placed, bound_by_nodes
from rmsplugin.planning.target.replacement import Replacement, replacement

#: The cost of a node that hosts VMs, where fewest nodes come first: more than any plan.
_A_NODE = 2**40


@dataclass(frozen=True)
class _Ruled:
    """The problem: the decided states, the sample, and those VMs that have no choice."""

    source: Configuration
    states: Mapping[str, VJobState]
    sample: Mapping[str, str]
    problem: Replacement
    fewest: bool

    @property
    def stay(self) -> dict[str, str]:
        """The nodes of VMs that run where the decision left them."""
        fixed = self.problem.fixed.items()
        return {name: at.node for name, at in fixed if at.state is VMState.RUNNING and at.node is not None}

    def running(self) -> Iterator[VJob]:
        """The vjobs that shall run."""
        return (vjob for vjob in self.source.vjobs if self.states[vjob.name] is VJobState.RUNNING)

    @cached_property
    def loose(self) -> list[Item]:
        """The VMs that shall run, and have a choice."""
        return [item for item in items_of(self.running()) if item.vm.name not in self.problem.fixed]


def place_by_rules(
    source: Configuration,
    states: Mapping[str, VJobState],
    sample: Mapping[str, str],
    relaxed: Placed | Unreachable,
    objective: Objective = "cost",
    search: Search | None = None,
    shared_store: bool = False,
    stated: Callable[[], Replacement] | None = None,
) -> Placed | Unreachable:
    """Choose a host for every VM that shall run, so that all rules are obeyed, at each step where they say so.

    Args:
        source: the present configuration.
        states: the decided state of every vjob, by name.
        sample: the node of every VM that shall run; it obeys the rules.
        relaxed: the answer without these rules.
        objective: see ``place``.
        search: the limits of the integer program; None: none is asked.
        shared_store: see ``place``.
        stated: see ``place``.

    Returns:
        The answer, with a bound that is proven. Unreachable if no plan leads even to the sample.
    """
    if isinstance(relaxed, Placed) and _is_obeyed(source, relaxed):
        return relaxed
    problem = replacement(source, states, sample, shared_store) if stated is None else stated()
    ruled = _Ruled(source, states, sample, problem, objective == "nodes")
    answer = None if search is None else _by_program(ruled, search)
    best: _Reached | None = None
    unreachable: Unreachable | None = None
    for hosts in _candidates(ruled, relaxed, answer):
        if best is not None and not ruled.fewest and _least_cost(ruled, hosts) >= best.plan.cost:
            continue
        reached = _reach(ruled, hosts)
        if isinstance(reached, Unreachable):
            unreachable = reached
        elif best is None or reached.rank < best.rank:
            best = reached
    if best is None:
        return unreachable or Unreachable("no placement that obeys all rules was found")
    return _as_placed(ruled, best.target, best.plan, relaxed, answer)


@dataclass(frozen=True, slots=True)
class _Reached:
    """A target and its plan; the lower the rank, the better."""

    rank: tuple[int, int]
    target: Mapping[str, Location]
    plan: Plan


def _reach(ruled: _Ruled, hosts: Mapping[str, str]) -> _Reached | Unreachable:
    """The plan to a placement; or to one where VMs stay on their pivots, if that is better."""
    found = _reach_exactly(ruled, hosts)
    if isinstance(found, Unreachable):
        return found
    moves = [action for action in found.plan.actions() if action.bypass and action.kind is ActionKind.MIGRATE]
    pivots = {action.vm.name: action.destination or "" for action in moves}
    shorter = {**hosts, **pivots}
    if not pivots or not _is_viable(ruled, shorter):
        return found
    again = _reach_exactly(ruled, shorter)
    return found if isinstance(again, Unreachable) else min(found, again, key=lambda each: each.rank)


def _reach_exactly(ruled: _Ruled, hosts: Mapping[str, str]) -> _Reached | Unreachable:
    target = {**{name: running_on(node) for name, node in hosts.items()}, **ruled.problem.fixed}
    plan = build_by_rules(ruled.source, target)
    if isinstance(plan, Unreachable):
        return plan
    return _Reached((len(_nodes(target)) if ruled.fewest else 0, plan.cost), target, plan)


def _is_viable(ruled: _Ruled, hosts: Mapping[str, str]) -> bool:
    """Whether capacity and all rules allow a placement of those that have a choice."""
    stay, vms = ruled.stay, ruled.source.vm_by_name
    left = {node.name: node.capacity for node in nodes_without(ruled.source.nodes, stay, vms)}
    for name, node in hosts.items():
        left[node] -= vms[name].demand
    taken = set(hosts.values())
    if not all(left[node].holds(NOTHING) for node in taken):
        return False
    return obeys(ruled.source.concerning, ruled.source.homes, {**stay, **hosts})


def _as_placed(
    ruled: _Ruled, target: Mapping[str, Location], plan: Plan, relaxed: Placed | Unreachable, answer: Answer | None
) -> Placed:
    holds = not ruled.fewest  # on fewer nodes plans may cost more
    bound = relaxed.lower_bound if isinstance(relaxed, Placed) and holds else bound_by_nodes(ruled.problem)
    if answer is not None and answer.bound is not None and not ruled.fewest:
        bound = max(bound, answer.bound + _fixed_cost(ruled))
    used = len(_nodes(target))
    fewest = relaxed.nodes_lower_bound if isinstance(relaxed, Placed) else 0
    return Placed(target, plan, min(bound, plan.cost), used, min(fewest, used))


def _is_obeyed(source: Configuration, placed: Placed) -> bool:
    """Whether an answer obeys all rules, in its course and in its end."""
    hosts = {name: at.node for name, at in placed.target.items() if at.state is VMState.RUNNING and at.node is not None}
    if not obeys(source.concerning, source.homes, hosts):
        return False
    return obeyed_by(source, placed.plan.pools)


def _candidates(ruled: _Ruled, relaxed: Placed | Unreachable, answer: Answer | None) -> Iterator[Mapping[str, str]]:
    """Nodes of all that have a choice, and obey the rules."""
    if answer is not None and answer.hosts is not None:
        yield answer.hosts
    if isinstance(relaxed, Placed):
        hosts = {name: at.node for name, at in relaxed.target.items() if at.node is not None}
        yield from _fitted(ruled, hosts)
    present = {name: at.node for name, at in ruled.source.locations.items() if at.node not in (None, SHARED)}
    yield from _fitted(ruled, {name: node for name, node in present.items() if node is not None})
    yield {name: node for name, node in ruled.sample.items() if name not in ruled.problem.fixed}


def _fitted(ruled: _Ruled, prefer: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    """The placement nearest to preferred nodes that is found by placing VM after VM; nothing if there is none.

    VMs that can be at their preferred nodes come first: what they free is there for nobody else.
    """
    items = sorted(ruled.loose, key=lambda item: item.vm.name not in ruled.source.homes)  # running ones stay first
    fit = RuledFit(ruled.source.nodes, ruled.source.concerning, ruled.source.homes, [item.vm for item in items])
    for name, node in ruled.stay.items():
        fit.take(ruled.source.vm_by_name[name], node)
    hosts: dict[str, str] = {}
    later = []
    for item in items:
        wish = prefer.get(item.vm.name)
        if wish is not None and fit.come(item, wish):
            hosts[item.vm.name] = wish
        else:
            later.append(item)
    for item in later:
        found = fit.place([item], {})
        if isinstance(found, Obstacle):
            return
        hosts |= found
    yield hosts


def _by_program(ruled: _Ruled, search: Search) -> Answer | None:
    """The answer of an integer program, with a bound on what the actions cost alone; None if there are too many VMs."""
    source, stay = ruled.source, ruled.stay
    nodes = nodes_without(source.nodes, stay, source.vm_by_name)
    items = ruled.loose
    if not is_small(items, nodes):
        return None
    cost = {(item.vm.name, node.name): _own_cost(ruled, item.vm, node.name) for item in items for node in nodes}
    if ruled.fewest:
        wish = Wish(cost, _A_NODE, ruled.sample)
        return solve(items, nodes, source.joint, source.homes, stay, wish, Budget(search))
    # Of equal costs those are better where fewer VMs come to where others still are: these would have to leave first.
    scale, taken = len(items) + 1, set(source.homes.values())
    finer = {
        (vm, node): scale * price + (node in taken and source.homes.get(vm) != node)
        for (vm, node), price in cost.items()
    }
    found = solve(items, nodes, source.joint, source.homes, stay, Wish(finer, hint=ruled.sample), Budget(search))
    if found is None or found.bound is None:
        return found
    return replace(found, bound=max(0, -((len(items) - found.bound) // scale)))


def _own_cost(ruled: _Ruled, vm: VM, node: str) -> int:
    """The cost of a VM's arrival on a node, in MiB; 0 if it stays, or boots."""
    at = ruled.source.locations[vm.name]
    if at == running_on(node) or at.node is None:
        return 0
    return local_cost(migrate(vm, at.node, node) if at.state is VMState.RUNNING else resume(vm, at.node, node))


def _least_cost(ruled: _Ruled, hosts: Mapping[str, str]) -> int:
    """The cost of the actions alone that lead to a placement, in MiB: no plan to it costs less."""
    arrivals = sum(_own_cost(ruled, item.vm, hosts[item.vm.name]) for item in ruled.loose)
    return arrivals + _fixed_cost(ruled)


def _fixed_cost(ruled: _Ruled) -> int:
    """The cost of what all answers do: to save those that make way, in MiB."""
    fixed, source = ruled.problem.fixed, ruled.source
    saved = [name for name, at in fixed.items() if at.state is VMState.SLEEPING and name in source.homes]
    return sum(source.vm_by_name[name].demand.memory_mib for name in saved)


def _nodes(target: Mapping[str, Location]) -> set[str]:
    return {at.node for at in target.values() if at.state is VMState.RUNNING and at.node is not None}
