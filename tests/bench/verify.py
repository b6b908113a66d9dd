"""Verify: what a benchmark counts as a solution is checked here, by nothing but the definition of viability."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, Location, Node
from rmsplugin.model.vjob import VJobState
from rmsplugin.planning.checker import check_plan
from rmsplugin.planning.plan import Plan


class WrongAnswerError(AssertionError):
    """A solver returned what is no solution: the benchmark is worth nothing."""


def packing(vms: Iterable[VM], nodes: Iterable[Node], assignment: Mapping[str, str], nodes_used: int) -> None:
    """Every VM is on a node, no node holds more than it has, and as many nodes are used as claimed."""
    left = {node.name: [node.capacity.centi_cpus, node.capacity.memory_mib] for node in nodes}
    for vm in vms:
        if vm.name not in assignment:
            raise WrongAnswerError(f"{vm.name} has no node")
        room = left[assignment[vm.name]]
        room[0] -= vm.demand.centi_cpus
        room[1] -= vm.demand.memory_mib
    short = [name for name, room in left.items() if min(room) < 0]
    if short:
        raise WrongAnswerError(f"more is demanded than there is: {', '.join(short[:5])}")
    used = len({assignment[vm.name] for vm in vms})
    if used != nodes_used:
        raise WrongAnswerError(f"{used} nodes are used, not {nodes_used}")


def placement(configuration: Configuration, states: Mapping[str, VJobState], hosts: Mapping[str, str]) -> None:
    """Every VM that shall run has a node with room for it that its vjob allows."""
    running = [vjob for vjob in configuration.vjobs if states[vjob.name] is VJobState.RUNNING]
    vms = [vm for vjob in running for vm in vjob.vms]
    packing(vms, configuration.nodes, hosts, len({hosts[vm.name] for vm in vms if vm.name in hosts}))
    for vjob in running:
        if not all(vjob.allows(hosts[vm.name]) for vm in vjob.vms):
            raise WrongAnswerError(f"{vjob.name} is on a node that it is not allowed on")


def plan(configuration: Configuration, target: Mapping[str, Location], found: Plan) -> None:
    """The checker, which shares nothing with the planner, finds nothing wrong with the plan or its cost."""
    wrong = check_plan(configuration, target, found.pools, found.cost)
    if wrong:
        raise WrongAnswerError(str(wrong[0]))
