"""Moves: the actions of each VM between a configuration and a target, before they have an order.

Departures (stop, suspend) give memory back and are always feasible; arrivals (run, migrate, resume) need memory on
their destination (RR-6929 section 4.1). Nodes and arrivals are numbered, so that the search over orders works on lists.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from rmsplugin.model.action import Action, ActionKind, migrate, resume, run, stop, suspend
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import SHARED, VM, Location, NodeState, VJob, VMState
from rmsplugin.planning.cost import local_cost
from rmsplugin.planning.plan import Unreachable

#: Stands for a node's number: the VM holds no memory anywhere.
NOWHERE = -1

#: The number of contradictions that an explanation spells out.
_SPELT_OUT = 5


@dataclass(slots=True)
class Moves:
    """The departures and the arrivals of a reconfiguration; lists are indexed by arrival unless they say otherwise.

    A *unit* can only be taken as a whole: it is one arrival, or all resumes of a vjob (they go into one pool). A unit
    is named by its first arrival. Memory and costs are in MiB.
    """

    source: Configuration
    names: list[str]  # of the nodes, by number
    up: list[bool]  # by node
    free: list[int]  # by node: memory at the start; below 0 where VMs demand more than the node has
    departures: list[Action] = field(default_factory=list)
    gains: list[tuple[int, int]] = field(default_factory=list)  # (node, memory) that the departures give back
    actions: list[Action] = field(default_factory=list)
    vjobs: list[VJob] = field(default_factory=list)
    origin: list[int] = field(default_factory=list)  # the node it leaves, or NOWHERE
    destination: list[int] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    cost: list[int] = field(default_factory=list)
    units: list[int] = field(default_factory=list)
    groups: dict[int, tuple[int, ...]] = field(default_factory=dict)  # units of more than one arrival
    needs: dict[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)  # of a group: (node, memory) it needs
    dearest: list[int] = field(default_factory=list)  # cost of the dearest arrival of a unit, at its first arrival
    waiting: list[list[int]] = field(default_factory=list)  # by node: the units that need memory there
    arrivals_cost: int = 0  # sum of their local costs
    departures_cost: int = 0  # cost of the dearest departure
    least_cost: int = 0  # sum of all local costs: no plan is cheaper

    def add(self, action: Action, vjob: VJob, origin: int, destination: int) -> int:
        """Number one more arrival."""
        self.actions.append(action)
        self.vjobs.append(vjob)
        self.origin.append(origin)
        self.destination.append(destination)
        self.memory.append(action.vm.demand.memory_mib)
        self.cost.append(local_cost(action))
        self.dearest.append(self.cost[-1])
        return len(self.actions) - 1

    def members(self, unit: int) -> tuple[int, ...]:
        """The arrivals of a unit."""
        return self.groups.get(unit, (unit,))

    def needed(self, unit: int) -> tuple[tuple[int, int], ...]:
        """The memory in MiB that a unit needs, by node."""
        return self.needs.get(unit) or ((self.destination[unit], self.memory[unit]),)

    def wanted(self, node: int) -> int:
        """The memory that all arrivals of a node need there, in MiB."""
        return sum(self.demand_on(unit, node) for unit in self.waiting[node])

    def demand_on(self, unit: int, node: int) -> int:
        """The memory that a unit needs on a node, in MiB."""
        if unit in self.needs:
            return next((memory for needed, memory in self.needs[unit] if needed == node), 0)
        return self.memory[unit] if self.destination[unit] == node else 0


def moves_between(source: Configuration, target: Mapping[str, Location]) -> Moves | Unreachable:
    """Find the actions of each VM; VMs that ``target`` does not name stay as they are.

    Returns:
        The moves, or an explanation: no action leads from a VM's location to its target, or the destination takes no
        VMs or not those of this vjob, or has not the memory for all that shall run there. All other targets can be
        reached.
    """
    used = source.used
    moves = Moves(
        source,
        [node.name for node in source.nodes],
        [node.state is NodeState.UP for node in source.nodes],
        [node.capacity.memory_mib - used[node.name].memory_mib for node in source.nodes],
    )
    number = {name: index for index, name in enumerate(moves.names)}
    faults = list(_read(moves, number, target))
    moves.waiting = [[] for _ in moves.names]
    if not faults:
        _group(moves)
        faults = list(_overcommitted(moves))
    if not faults:
        return moves
    rest = len(faults) - _SPELT_OUT
    return Unreachable("; ".join(faults[:_SPELT_OUT]) + (f"; and {rest} more" if rest > 0 else ""))


def _read(moves: Moves, number: Mapping[str, int], target: Mapping[str, Location]) -> Iterator[str]:
    """Note the changes; return the contradictions."""
    locations = moves.source.locations
    changed = (name for name, after in target.items() if (before := locations.get(name)) is not after != before)
    for name in sorted(changed):  # a mapping's order depends on chance
        if name not in locations:
            yield f"there is no VM {name}"
            continue
        vjob, before, after = moves.source.vjob_by_vm[name], locations[name], target[name]
        refusal = _refusal(moves, number, vjob, after.node or "") if after.state is VMState.RUNNING else None
        action = _action(moves.source.vm_by_name[name], before, after, refusal)
        if isinstance(action, str):
            yield action
        elif action is not None:
            origin = number[before.node or ""] if before.state is VMState.RUNNING else NOWHERE
            _note(moves, number, action, vjob, origin)


def _note(moves: Moves, number: Mapping[str, int], action: Action, vjob: VJob, origin: int) -> None:
    if action.demands is not None:
        moves.add(action, vjob, origin, number[action.demands])
        return
    moves.departures.append(action)
    if origin != NOWHERE:
        moves.gains.append((origin, action.vm.demand.memory_mib))


def _action(vm: VM, before: Location, after: Location, refusal: str | None) -> Action | str | None:
    """The action that leads a VM from one location to another; None: none is needed; a sentence: there is none."""
    here, there = before.node or "", after.node or ""
    match before.state, after.state:
        case ((VMState.WAITING | VMState.RUNNING | VMState.SLEEPING), VMState.RUNNING):
            if refusal:
                return f"{vm.name} cannot run on {there or 'no node'}: {refusal}"
            if before.state is VMState.RUNNING:
                return migrate(vm, here, there)
            return run(vm, there) if before.state is VMState.WAITING else resume(vm, here, there)
        case VMState.RUNNING, VMState.SLEEPING:
            if there in (here, SHARED):
                return suspend(vm, here, there)
            return f"{vm.name} runs on {here}: its state is saved there or on shared storage, not on {there or 'none'}"
        case ((VMState.RUNNING | VMState.SLEEPING), (VMState.TERMINATED | VMState.WAITING)):
            return stop(vm, here, requeue=after.state is VMState.WAITING)
        case VMState.WAITING, VMState.TERMINATED:
            return None  # it has neither memory nor a saved state
        case VMState.SLEEPING, VMState.SLEEPING:
            return f"{vm.name} sleeps on {here}: no action takes a saved state to {there or 'none'}"
    return f"{vm.name} is {before.state}: no action makes it {after.state}"


def _refusal(moves: Moves, number: Mapping[str, int], vjob: VJob, node: str) -> str | None:
    """The reason why no VM of a vjob may come to a node."""
    if node not in number:
        return "there is no such node"
    if not moves.up[number[node]]:
        return f"the node is {moves.source.node_by_name[node].state}"
    return None if vjob.allows(node) else f"vjob {vjob.name} does not allow it"


def _group(moves: Moves) -> None:
    """Find the units, and which of them wait for memory on which node."""
    moves.arrivals_cost = sum(moves.cost)
    departures = [local_cost(action) for action in moves.departures]
    moves.departures_cost = max(departures, default=0)
    moves.least_cost = moves.arrivals_cost + sum(departures)
    resumes: dict[str, list[int]] = {}
    for index, action in enumerate(moves.actions):
        if action.kind is ActionKind.RESUME:
            resumes.setdefault(moves.vjobs[index].name, []).append(index)
        else:
            moves.units.append(index)
    for members in resumes.values():
        moves.units.append(members[0])
        if len(members) > 1:
            moves.groups[members[0]] = tuple(members)
            needs: dict[int, int] = {}
            for each in members:
                needs[moves.destination[each]] = needs.get(moves.destination[each], 0) + moves.memory[each]
            moves.needs[members[0]] = tuple(needs.items())
            moves.dearest[members[0]] = max(moves.cost[each] for each in members)
    for unit in moves.units:
        for node in dict.fromkeys(moves.destination[each] for each in moves.members(unit)):
            moves.waiting[node].append(unit)


def _overcommitted(moves: Moves) -> Iterator[str]:
    """Nodes to which VMs shall come without the memory for all that shall run there in the end."""
    left = list(moves.free)
    for node, memory in moves.gains:
        left[node] += memory
    for index, memory in enumerate(moves.memory):
        left[moves.destination[index]] -= memory
        if moves.origin[index] != NOWHERE:
            left[moves.origin[index]] += memory
    for node, units in enumerate(moves.waiting):
        if units and left[node] < 0:
            yield f"{moves.names[node]} lacks {-left[node]} MiB for the VMs that shall run there"
