"""A reference for small changes: the target that moves the least memory from where all is; who ran stays.

One integer program over all nodes (CP-SAT), which shares no code with the planner's.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass

from ortools.sat.python import cp_model

from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import Location, NodeState, VMState, running_on


@dataclass(frozen=True, slots=True)
class Reference:
    """A target, and how much memory it moves; ``moved_mib`` is proven to be the least if ``proven``."""

    target: dict[str, Location]
    moved_mib: int
    proven: bool


def least_moved(configuration: Configuration, run: Collection[str], deterministic_limit: float) -> Reference | None:
    """Where the VMs of all vjobs in ``run`` (names) can be; None if no such target is found within the limit."""
    nodes = [node for node in configuration.nodes if node.state is NodeState.UP]
    members: defaultdict[tuple[int, int], list[tuple[str, str | None]]] = defaultdict(list)
    for vjob in configuration.vjobs:
        if vjob.name in run:
            for vm in vjob.vms:
                at = configuration.locations[vm.name]
                host = at.node if at.state is VMState.RUNNING else None
                members[vm.demand.centi_cpus, vm.demand.memory_mib].append((vm.name, host))
    model = cp_model.CpModel()
    hosted, kept = {}, []
    for demand, vms in members.items():
        here = Counter(host for _, host in vms)
        for node in nodes:
            number = hosted[demand, node.name] = model.new_int_var(0, len(vms), "")
            model.add_hint(number, here[node.name])
            if here[node.name]:
                stay = model.new_int_var(0, here[node.name], "")
                model.add(stay <= number)
                kept.append(demand[1] * stay)
        model.add(sum(hosted[demand, node.name] for node in nodes) == len(vms))
    for node in nodes:
        model.add(sum(c * hosted[(c, m), node.name] for c, m in members) <= node.capacity.centi_cpus)
        model.add(sum(m * hosted[(c, m), node.name] for c, m in members) <= node.capacity.memory_mib)
    model.maximize(sum(kept))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = deterministic_limit
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    target: dict[str, Location] = {}
    moved = 0
    for demand, vms in members.items():
        left = {node.name: solver.value(hosted[demand, node.name]) for node in nodes}
        going = []
        for name, host in vms:
            if host is not None and left.get(host, 0):
                left[host] -= 1
                target[name] = running_on(host)
            else:
                going.append((name, host))
        free = (name for name, number in left.items() for _ in range(number))
        for (name, host), node_name in zip(going, free, strict=True):
            target[name] = running_on(node_name)
            moved += demand[1] if host is not None else 0
    return Reference(target, moved, status == cp_model.OPTIMAL)
