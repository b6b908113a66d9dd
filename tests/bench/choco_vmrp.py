"""VMRP on Choco: the papers' model of the replacement problem (VEE'09, section 4; RR-6929, section 4.3)."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

from pychoco import Model

from bench import choco
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import SHARED, VM, Location, Node, NodeState, VMState
from rmsplugin.model.vjob import VJobState


@dataclass(frozen=True, slots=True)
class Way:
    """How Choco is to search. Of each VM it tries first the node where the VM costs least.

    ``settled_first``: VMs that are on a node (or their image is) before those that may begin anywhere; if not, active
    and big ones first (first fail, as in the papers). ``conflicts``: those first that failed most (dom/wdeg).
    ``pools``: the objective is not only the local costs (equation 11) but also, for every arrival that finds no room in
    the first pool, the memory of the largest VM: what that pool is likely to cost, for which it waits.
    """

    settled_first: bool = False
    conflicts: bool = False
    pools: bool = False


WAYS = {
    "papers": Way(),
    "settled": Way(settled_first=True),
    "conflicts": Way(conflicts=True),
    "pools": Way(pools=True),
    "pools, settled": Way(settled_first=True, pools=True),
}

#: Of the solutions found, how many (the last ones, by Choco's objective the best) get a plan and its true cost.
EVALUATED = 10


@dataclass(frozen=True, slots=True)
class ChocoPlacement:
    """The last placements that Choco found (the best by its objective last), and what it has proven."""

    placements: Sequence[Mapping[str, str]]  # node by VM name; empty if none was found
    objective: int | None  # of the last one; without pools never more than what a plan to it costs
    lower_bound: int  # proven for the sum of the local costs, and so for the cost of every plan
    optimal: bool  # by its objective
    solutions: int
    seconds: float


@dataclass(frozen=True, slots=True)
class _Mover:
    """A VM that shall run."""

    vm: VM
    allowed: tuple[int, ...]  # indices of nodes
    home: int | None  # where it costs least: its host, or the node that holds its image
    cost_away: int  # how much dearer it is elsewhere, MiB
    group: str | None = None  # its vjob, if it is resumed: all in one pool


@dataclass(frozen=True, slots=True)
class _Problem:
    nodes: tuple[Node, ...]
    movers: tuple[_Mover, ...]  # equal ones side by side
    constant: int  # the cost of what is the same wherever the VMs go, MiB
    at_least: tuple[tuple[tuple[int, ...], int], ...]  # of these movers, so many MiB must leave an overloaded node
    nodes_used: int | None
    free_mib: tuple[int, ...]  # by node: what arrivals of the first pool may take
    suspended_mib: int  # the largest VM that is suspended, which is in the first pool


def replace_on_choco(
    configuration: Configuration,
    states: Mapping[str, VJobState],
    time_limit_s: float,
    way: str = "papers",
    nodes_used: int | None = None,
) -> ChocoPlacement:
    """Hosts for all VMs of the vjobs that shall run, cheap to reach; at most ``nodes_used`` nodes if that is given."""
    started = time.monotonic()
    problem = _problem(configuration, states, WAYS[way], nodes_used)
    model = Model()
    cost, hosts, decisions = _post(model, problem, WAYS[way])
    model.set_objective(cost, False)
    solver = model.get_solver()
    if WAYS[way].conflicts:
        choco.branch_on_conflicts(solver, decisions)
    else:
        choco.branch_in_order(solver, decisions)
    lower = cost.get_lb()
    found = [values for _, values in choco.solutions(solver, [cost, *hosts], time_limit_s)]
    optimal = choco.exhausted(solver) and bool(found)
    return ChocoPlacement(
        [_placement(problem, values[1:]) for values in found[-EVALUATED:]],
        found[-1][0] if found else None,
        found[-1][0] if optimal and not WAYS[way].pools else lower,
        optimal,
        len(found),
        time.monotonic() - started,
    )


def _placement(problem: _Problem, hosts: Iterable[int]) -> Mapping[str, str]:
    return {mover.vm.name: problem.nodes[host].name for mover, host in zip(problem.movers, hosts, strict=True)}


def _problem(
    configuration: Configuration, states: Mapping[str, VJobState], way: Way, nodes_used: int | None
) -> _Problem:
    nodes = tuple(node for node in configuration.nodes if node.state is NodeState.UP)
    index = {node.name: number for number, node in enumerate(nodes)}
    movers, constant, suspended = [], 0, 0
    for vjob in configuration.vjobs:
        allowed = tuple(number for node, number in index.items() if vjob.allows(node))
        for vm in vjob.vms:
            location = configuration.locations[vm.name]
            if states[vjob.name] is VJobState.RUNNING:
                mover, fixed = _mover(vm, location, index.get(location.node or ""), allowed, vjob.name)
                movers.append(mover)
                constant += fixed
            elif states[vjob.name] is VJobState.SLEEPING and location.state is VMState.RUNNING:
                constant += vm.demand.memory_mib  # suspend; stop is free
                suspended = max(suspended, vm.demand.memory_mib)
    movers.sort(key=lambda mover: _rank(mover, way))
    free = tuple(max(0, configuration.free(node.name).memory_mib) for node in nodes)
    evictions = tuple(_evictions(nodes, movers))
    return _Problem(nodes, tuple(movers), constant, evictions, nodes_used, free, suspended)


def _mover(vm: VM, at: Location, home: int | None, allowed: tuple[int, ...], vjob: str) -> tuple[_Mover, int]:
    """A VM that shall run, and what it costs wherever it goes (RR-6929, table 1)."""
    memory = vm.demand.memory_mib
    group = vjob if at.state is VMState.SLEEPING else None
    if at.state is VMState.WAITING:
        return _Mover(vm, allowed, None, 0), 0
    if at.node == SHARED:  # a local resume, wherever
        return _Mover(vm, allowed, None, 0, group), memory
    asleep = memory if at.state is VMState.SLEEPING else 0
    if home in allowed:
        return _Mover(vm, allowed, home, memory, group), asleep
    return _Mover(vm, allowed, None, 0, group), asleep + memory


def _rank(mover: _Mover, way: Way) -> tuple[Any, ...]:
    vm = mover.vm
    later = mover.home is None if way.settled_first else False
    home = -1 if mover.home is None else mover.home
    size = (-vm.demand.cpus, -vm.demand.memory_mib)
    return later, *size, mover.home is None, home, mover.allowed, mover.group or "", vm.name


def _evictions(nodes: Sequence[Node], movers: Sequence[_Mover]) -> Iterable[tuple[tuple[int, ...], int]]:
    """Equation 11's lower bound: what must leave each node where more is demanded (or asleep) than it holds, in MiB."""
    at_home: dict[int, list[int]] = defaultdict(list)
    for number, mover in enumerate(movers):
        if mover.home is not None:
            at_home[mover.home].append(number)
    for home, here in at_home.items():
        capacity = nodes[home].capacity
        most = {(0, 0): 0}  # by (CPUs, memory) of those that stay: the cost saved
        for number in here:
            demand, saved = movers[number].vm.demand, movers[number].cost_away
            for (cpus, memory), value in list(most.items()):
                key = (cpus + demand.centi_cpus, memory + demand.memory_mib)
                if key[0] <= capacity.centi_cpus and key[1] <= capacity.memory_mib:
                    most[key] = max(most.get(key, 0), value + saved)
        least = sum(movers[number].cost_away for number in here) - max(most.values())
        if least:
            yield tuple(here), least


def _post(model: Model, problem: _Problem, way: Way) -> tuple[Any, list[Any], list[Any]]:
    """Variables: the cost, the host of each mover, and all that is to be decided, in order."""
    movers = problem.movers
    hosts = [model.intvar(list(mover.allowed), name=mover.vm.name) for mover in movers]
    away = []
    for mover, host in zip(movers, hosts, strict=True):
        away.append(None if mover.home is None else model.arithm(host, "!=", mover.home).reify())
    _viable(model, problem, hosts)
    _symmetries(model, problem, hosts, away, way)
    late, delay = _pools(model, problem, hosts, away) if way.pools else ([None] * len(movers), None)
    priced = [number for number, moved in enumerate(away) if moved is not None]
    most = sum(movers[number].cost_away for number in priced) + (delay.get_ub() if delay is not None else 0)
    cost = model.intvar(problem.constant, problem.constant + most, "cost")
    terms = [away[number] for number in priced] + [cost] + ([delay] if delay is not None else [])
    factors = [movers[number].cost_away for number in priced] + [-1] + ([1] if delay is not None else [])
    model.scalar(terms, factors, "=", -problem.constant).post()
    for here, least in problem.at_least:
        model.scalar([away[n] for n in here], [movers[n].cost_away for n in here], ">=", least).post()
    model.arithm(cost, ">=", problem.constant + sum(least for _, least in problem.at_least)).post()
    decisions = [v for each in zip(away, late, hosts, strict=True) for v in each if v is not None]
    return cost, hosts, [*decisions, *([delay] if delay is not None else []), cost]


def _pools(model: Model, problem: _Problem, hosts: Sequence[Any], away: Sequence[Any]) -> tuple[list[Any], Any]:
    """Variables: of each mover, whether it arrives after the first pool; and what that costs all those together."""
    movers, nowhere = problem.movers, len(problem.nodes)
    late, arrives_at = [], []
    groups: dict[str, Any] = {}
    for mover, host, moved in zip(movers, hosts, away, strict=True):
        early, is_late = model.boolvar(), model.boolvar()
        may_stay = moved is not None and mover.group is None
        model.sum([early, is_late], "=", moved if may_stay else model.intvar(1)).post()
        at = model.intvar([*mover.allowed, nowhere])
        model.arithm(at, "!=", nowhere).reify_with(early)
        model.arithm(at, "=", host).reify_with(early)
        if mover.group is not None:
            model.arithm(groups.setdefault(mover.group, is_late), "=", is_late).post()
        late.append(is_late)
        arrives_at.append(at)
    room = [model.intvar(0, free) for free in problem.free_mib]
    memory = [mover.vm.demand.memory_mib for mover in movers]
    model.bin_packing(arrives_at, memory, [*room, model.intvar(0, sum(memory))]).post()
    count = model.intvar(0, len(movers))
    model.sum(late, "=", count).post()
    return late, model.int_scale_view(count, max([problem.suspended_mib, *memory]))


def _viable(model: Model, problem: _Problem, hosts: Sequence[Any]) -> None:
    """Every node has the CPUs and the memory of its VMs; not more nodes than wanted are used."""
    for dimension in ("centi_cpus", "memory_mib"):
        loads = [model.intvar(0, getattr(node.capacity, dimension)) for node in problem.nodes]
        model.bin_packing(hosts, [getattr(m.vm.demand, dimension) for m in problem.movers], loads).post()
    if problem.nodes_used is not None:
        used = [model.boolvar() for _ in problem.nodes]
        for load, is_used in zip(loads, used, strict=True):
            model.arithm(load, ">", 0).reify_with(is_used)
        model.sum(used, "<=", problem.nodes_used).post()


def _equality(mover: _Mover, way: Way) -> tuple[Any, ...]:
    """What two VMs must have in common; resumes of different vjobs may be in different pools."""
    return mover.vm.demand, mover.home, mover.allowed, mover.group if way.pools else mover.group is None


def _symmetries(model: Model, problem: _Problem, hosts: Sequence[Any], away: Sequence[Any], way: Way) -> None:
    """Equation 12: of equal VMs in the same place, any may be the one that moves. Of equal empty nodes, any is used."""
    numbered = list(enumerate(problem.movers))
    for _, group in groupby(numbered, key=lambda pair: _equality(pair[1], way)):
        members = [number for number, _ in group]
        for before, after in pairwise(members):
            if away[before] is None:
                model.arithm(hosts[before], "<=", hosts[after]).post()
            else:
                model.arithm(away[before], "<=", away[after]).post()
    anywhere = {number for mover in problem.movers for number in mover.allowed}
    homes = {mover.home for mover in problem.movers}
    if all(len(mover.allowed) == len(anywhere) for mover in problem.movers):
        equal: dict[Any, list[int]] = defaultdict(list)
        for number, node in enumerate(problem.nodes):
            if number not in homes:
                equal[node.capacity].append(number)
        for numbers in equal.values():
            if len(numbers) > 1:
                model.int_value_precede_chain(hosts, numbers).post()
