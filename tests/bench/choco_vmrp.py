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
from rmsplugin.model.elements import SHARED, VM, Node, NodeState, VMState
from rmsplugin.model.vjob import VJobState

#: In which order the search takes the VMs; of each it tries first the node where the VM costs least.
#: papers: active and big ones first (first fail).
#: settled: those that are on a node (or their image is) before those that may begin anywhere.
#: conflicts: those that have failed most (dom/wdeg).
ORDERS = ("papers", "settled", "conflicts")

#: Of the solutions found, how many (the last ones, by Choco's objective the best) get a plan and its true cost.
EVALUATED = 10


@dataclass(frozen=True, slots=True)
class ChocoPlacement:
    """The last placements that Choco found (the best by its objective last), and what it has proven."""

    placements: Sequence[Mapping[str, str]]  # node by VM name; empty if none was found
    local_costs: int | None  # of the last one: the sum of the local costs of all actions, Choco's objective
    lower_bound: int  # proven for the sum of the local costs, and so for the cost of a plan
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


@dataclass(frozen=True, slots=True)
class _Problem:
    nodes: tuple[Node, ...]
    movers: tuple[_Mover, ...]  # equal ones side by side
    constant: int  # the cost of what is the same wherever the VMs go, MiB
    at_least: tuple[tuple[tuple[int, ...], int], ...]  # of these movers, so many MiB must leave an overloaded node
    nodes_used: int | None


def replace_on_choco(
    configuration: Configuration,
    states: Mapping[str, VJobState],
    time_limit_s: float,
    order: str = "papers",
    nodes_used: int | None = None,
) -> ChocoPlacement:
    """Hosts for all VMs of the vjobs that shall run, cheap to reach; at most ``nodes_used`` nodes if that is given."""
    started = time.monotonic()
    problem = _problem(configuration, states, order, nodes_used)
    model = Model()
    cost, hosts, away = _post(model, problem)
    model.set_objective(cost, False)
    solver = model.get_solver()
    if order == "conflicts":
        choco.branch_on_conflicts(solver, [*(moved for moved in away if moved is not None), *hosts, cost])
    else:
        pairs = zip(away, hosts, strict=True)
        choco.branch_in_order(solver, [v for pair in pairs for v in pair if v is not None] + [cost])
    lower = cost.get_lb()
    found = [values for _, values in choco.solutions(solver, [cost, *hosts], time_limit_s)]
    optimal = choco.exhausted(solver) and bool(found)
    return ChocoPlacement(
        [_placement(problem, values[1:]) for values in found[-EVALUATED:]],
        found[-1][0] if found else None,
        found[-1][0] if optimal else lower,
        optimal,
        len(found),
        time.monotonic() - started,
    )


def _placement(problem: _Problem, hosts: Iterable[int]) -> Mapping[str, str]:
    return {mover.vm.name: problem.nodes[host].name for mover, host in zip(problem.movers, hosts, strict=True)}


def _problem(
    configuration: Configuration, states: Mapping[str, VJobState], order: str, nodes_used: int | None
) -> _Problem:
    nodes = tuple(node for node in configuration.nodes if node.state is NodeState.UP)
    index = {node.name: number for number, node in enumerate(nodes)}
    movers, constant = [], 0
    for vjob in configuration.vjobs:
        runs = states[vjob.name] is VJobState.RUNNING
        allowed = tuple(number for node, number in index.items() if vjob.allows(node))
        for vm in vjob.vms:
            location = configuration.locations[vm.name]
            memory = vm.demand.memory_mib
            if not runs:
                leaves = states[vjob.name] is VJobState.SLEEPING and location.state is VMState.RUNNING
                constant += memory if leaves else 0  # suspend; stop is free
            elif location.state is VMState.WAITING or location.node == SHARED:
                constant += memory if location.node == SHARED else 0  # a local resume wherever; run is free
                movers.append(_Mover(vm, allowed, None, 0))
            else:
                home = index.get(location.node or "")
                base = memory if location.state is VMState.SLEEPING else 0
                stays = home if home in allowed else None
                constant += base + (memory if stays is None else 0)
                movers.append(_Mover(vm, allowed, stays, memory if stays is not None else 0))
    movers.sort(key=lambda m: _rank(m, order))
    return _Problem(nodes, tuple(movers), constant, tuple(_evictions(configuration, nodes, movers)), nodes_used)


def _rank(mover: _Mover, order: str) -> tuple[Any, ...]:
    vm = mover.vm
    settled = mover.home is None if order == "settled" else False
    home = -1 if mover.home is None else mover.home
    return settled, -vm.demand.cpus, -vm.demand.memory_mib, mover.home is None, home, mover.allowed, vm.name


def _evictions(
    configuration: Configuration, nodes: Sequence[Node], movers: Sequence[_Mover]
) -> Iterable[tuple[tuple[int, ...], int]]:
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


def _post(model: Model, problem: _Problem) -> tuple[Any, list[Any], list[Any]]:
    """Variables: the cost, and of each mover its host and whether that is away from home (None if it has no home)."""
    movers = problem.movers
    hosts = [model.intvar(list(mover.allowed), name=mover.vm.name) for mover in movers]
    away = []
    for mover, host in zip(movers, hosts, strict=True):
        away.append(None if mover.home is None else model.arithm(host, "!=", mover.home).reify())
    _viable(model, problem, hosts)
    _symmetries(model, problem, hosts, away)
    priced = [number for number, moved in enumerate(away) if moved is not None]
    most = sum(movers[number].cost_away for number in priced)
    cost = model.intvar(problem.constant, problem.constant + most, "cost")
    model.scalar(
        [*(away[number] for number in priced), cost],
        [*(movers[number].cost_away for number in priced), -1],
        "=",
        -problem.constant,
    ).post()
    at_least = 0
    for here, least in problem.at_least:
        model.scalar([away[n] for n in here], [movers[n].cost_away for n in here], ">=", least).post()
        at_least += least
    model.arithm(cost, ">=", problem.constant + at_least).post()
    return cost, hosts, away


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


def _symmetries(model: Model, problem: _Problem, hosts: Sequence[Any], away: Sequence[Any]) -> None:
    """Equation 12: of equal VMs in the same place, any may be the one that moves. Of equal empty nodes, any is used."""
    numbered = list(enumerate(problem.movers))
    for _, group in groupby(numbered, key=lambda pair: (pair[1].vm.demand, pair[1].home, pair[1].allowed)):
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
