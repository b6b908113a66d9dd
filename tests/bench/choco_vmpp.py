"""VMPP on Choco: the papers' model of the packing problem (VEE'09, section 3), and two that help Choco more."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

from pychoco import Model

from bench import choco
from rmsplugin.model.elements import VM, Node
from rmsplugin.model.resources import Resources
from rmsplugin.packing.ffd import first_fit_decreasing

#: How the problem is put to Choco.
#: papers:  host of each VM; FFD as upper and the CPUs (equation 2) as lower bound; equivalent VMs and nodes.
#: hosts:   the same variables; both dimensions bound below, and equal nodes are taken into use in their order.
#: classes: how many VMs of each class of equal VMs a node hosts, instead of the host of each VM.
FORMULATIONS = ("papers", "hosts", "classes")


@dataclass(frozen=True, slots=True)
class ChocoPacking:
    """What Choco found: a node for every VM (None if nothing better than FFD), and whether it is proven the best."""

    assignment: Mapping[str, str] | None
    nodes_used: int
    lower_bound: int
    optimal: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class _Problem:
    vms: tuple[VM, ...]  # active and big ones first (first fail), equal ones side by side
    kinds: tuple[tuple[Node, ...], ...]  # equal nodes together
    ffd: Mapping[str, str]
    lower: int
    upper: int


def pack_on_choco(
    vms: Sequence[VM], nodes: Sequence[Node], time_limit_s: float, formulation: str = "hosts"
) -> ChocoPacking:
    """The fewest of ``nodes`` that host ``vms``, found by Choco within the limit (which its search has to itself).

    Raises:
        ValueError: FFD finds no packing, so that this benchmark has no upper bound to begin with.
    """
    started = time.monotonic()
    problem = _problem(vms, nodes, formulation)
    if problem.upper == problem.lower:  # "known to be optimal with no further tests" (section 3.3)
        return ChocoPacking(problem.ffd, problem.upper, problem.lower, True, time.monotonic() - started)
    model = Model()
    build = _classes if formulation == "classes" else _hosts
    used, watched, read = build(model, problem, formulation)
    model.set_objective(used, False)
    solver = model.get_solver()
    choco.branch_in_order(solver, [*watched, used])
    best: Mapping[str, str] = problem.ffd
    fewest = problem.upper
    for _, (count, *values) in choco.solutions(solver, [used, *watched], time_limit_s):
        if count < fewest:
            best, fewest = read(values), count
    proven = choco.exhausted(solver)
    lower = fewest if proven else problem.lower
    return ChocoPacking(best, fewest, lower, proven or lower == fewest, time.monotonic() - started)


def lower_bound(vms: Sequence[VM], nodes: Sequence[Node], dimensions: Sequence[int] = (0, 1)) -> int:
    """Equation 2, in CPUs and in memory: as many of the largest nodes as the sum of the demands fills."""
    return max(
        next(
            count
            for count in range(len(nodes) + 1)
            if sum(sorted((_amounts(node.capacity)[d] for node in nodes), reverse=True)[:count])
            >= sum(_amounts(vm.demand)[d] for vm in vms)
        )
        for d in dimensions
    )


def _problem(vms: Sequence[VM], nodes: Sequence[Node], formulation: str) -> _Problem:
    ffd = first_fit_decreasing(vms, {node.name: node.capacity for node in nodes})
    if ffd is None:
        raise ValueError("FFD finds no packing")
    kinds = [
        tuple(group) for _, group in groupby(sorted(nodes, key=_size_of_node, reverse=True), key=lambda n: n.capacity)
    ]
    return _Problem(
        tuple(sorted(vms, key=lambda vm: (-vm.demand.cpus, -vm.demand.memory_mib, vm.name))),
        tuple(kinds),
        ffd,
        lower_bound(vms, nodes, (0,) if formulation == "papers" else (0, 1)),
        len(set(ffd.values())),
    )


def _size_of_node(node: Node) -> tuple[int, int]:
    return node.capacity.memory_mib, node.capacity.centi_cpus


def _amounts(resources: Resources) -> tuple[int, int]:
    return resources.centi_cpus, resources.memory_mib


def _counted(model: Model, problem: _Problem) -> tuple[Any, list[tuple[Node, Any]]]:
    """Variables: how many nodes are used, and of each node that may be, whether it is: equal ones in their order."""
    used = model.intvar(problem.lower, problem.upper, "used")
    counts, bins = [], []
    for kind in problem.kinds:
        most = min(len(kind), problem.upper)
        count = used if len(problem.kinds) == 1 else model.intvar(0, most)
        counts.append(count)
        for index, node in enumerate(kind[:most]):
            is_used = model.boolvar()
            model.arithm(count, ">", index).reify_with(is_used)
            bins.append((node, is_used))
    if len(counts) > 1:
        model.sum(counts, "=", used).post()
    return used, bins


def _hosts(model: Model, problem: _Problem, formulation: str) -> tuple[Any, list[Any], Any]:
    """One variable a VM: the index of its host."""
    if formulation == "papers":
        used, bins = _counted_by_load(model, problem)
    else:
        used, bins = _counted(model, problem)
    hosts = [model.intvar(0, len(bins) - 1, vm.name) for vm in problem.vms]
    for dimension in (0, 1):
        loads = [model.intvar(0, _amounts(node.capacity)[dimension]) for node, _ in bins]
        model.bin_packing(hosts, [_amounts(vm.demand)[dimension] for vm in problem.vms], loads).post()
        if dimension == 1:  # every VM has memory, so that a node is used if its memory is
            for load, (_, is_used) in zip(loads, bins, strict=True):
                model.arithm(load, ">", 0).reify_with(is_used)
    for (before, host), (after, next_host) in zip(
        zip(problem.vms, hosts, strict=True), zip(problem.vms[1:], hosts[1:], strict=True), strict=False
    ):
        if before.demand == after.demand:  # equation 5
            model.arithm(host, "<=", next_host).post()
    first = 0
    for kind in problem.kinds:  # equation 4
        indices = list(range(first, first + min(len(kind), problem.upper)))
        first += len(indices)
        if formulation != "papers" and len(indices) > 1:
            model.int_value_precede_chain(hosts, indices).post()
    names = [node.name for node, _ in bins]
    return used, hosts, lambda values: {vm.name: names[at] for vm, at in zip(problem.vms, values, strict=True)}


def _counted_by_load(model: Model, problem: _Problem) -> tuple[Any, list[tuple[Node, Any]]]:
    """Equation 1 as it is written: the sum of one boolean a node; equal nodes are used in their order (equation 4)."""
    used = model.intvar(problem.lower, problem.upper, "used")
    bins = [(node, model.boolvar()) for kind in problem.kinds for node in kind[: problem.upper]]
    model.sum([is_used for _, is_used in bins], "=", used).post()
    for (node, is_used), (after, next_used) in pairwise(bins):
        if node.capacity == after.capacity:
            model.arithm(is_used, ">=", next_used).post()
    return used, bins


def _classes(model: Model, problem: _Problem, formulation: str) -> tuple[Any, list[Any], Any]:
    """One variable a node and class of equal VMs: how many of them it hosts."""
    classes = [tuple(group) for _, group in groupby(problem.vms, key=lambda vm: vm.demand)]
    used, bins = _counted(model, problem)
    table: list[list[Any]] = []
    for node, is_used in bins:
        most = [_most(members, node) for members in classes]
        row = [model.intvar(-count, 0) for count in most]  # less than none: the search takes the lowest value first
        for dimension in (0, 1):
            demands = [_amounts(members[0].demand)[dimension] for members in classes]
            model.scalar(row, demands, ">=", -_amounts(node.capacity)[dimension]).post()
        for variable, count in zip(row, most, strict=True):
            model.scalar([variable, is_used], [1, count], ">=", 0).post()
        table.append(row)
    for index, members in enumerate(classes):
        model.sum([row[index] for row in table], "=", -len(members)).post()
    for (node, _), row, (after, _), next_row in zip(bins, table, bins[1:], table[1:], strict=False):
        if node.capacity == after.capacity:
            model.lex_less_eq(row, next_row).post()
    return used, [variable for row in table for variable in row], lambda values: _spread(classes, bins, values)


def _most(members: Sequence[VM], node: Node) -> int:
    """How many of equal VMs a node holds."""
    return min(
        [len(members)]
        + [
            math.floor(capacity / demand)
            for capacity, demand in zip(_amounts(node.capacity), _amounts(members[0].demand), strict=True)
            if demand
        ]
    )


def _spread(
    classes: Sequence[Sequence[VM]], bins: Sequence[tuple[Node, Any]], values: Sequence[int]
) -> Mapping[str, str]:
    """Counts of classes as hosts of VMs."""
    left = [list(members) for members in classes]
    return {
        left[index].pop().name: node.name
        for row, (node, _) in enumerate(bins)
        for index in range(len(classes))
        for _ in range(-values[row * len(classes) + index])
    }
