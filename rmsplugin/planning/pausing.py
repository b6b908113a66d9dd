"""Pausing: plans with pauses in memory, made from plans of a planner that knows nothing of pauses.

To a planner that counts costs and memory, a paused VM is a running one without CPUs: it keeps its memory where it is,
and to move or to save it costs as much. A pause and an unpause cost nothing, and change no memory. So the problem
is *reduced*: VMs that are paused, or shall be, run there; they demand CPUs only if they run in the end. A plan for the
real problem without its pauses and unpauses is one for the reduced problem, and costs no more there; hence proofs about
the reduced problem hold for the real one.

The resulting plan is *expanded*. VMs are paused first of all, in a pool of their own, which costs nothing.
A vjob goes on as soon as the CPUs of all its VMs are free where they are; until then they move as they are.
If that is at once, the plan costs as much as the reduced one.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rmsplugin.model.action import Action, ActionKind, pause, unpause
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, Location, NodeState, VJob, VMState, paused_on, running_on
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import VJobState
from rmsplugin.planning.plan import Plan, Unreachable


@dataclass(frozen=True)
class Reduced:
    """A problem without pauses; ``source`` and ``states`` are the planner's input."""

    source: Configuration
    states: Mapping[str, VJobState]
    _real: Configuration
    _wanted: Mapping[str, VJobState]

    def target(self, target: Mapping[str, Location]) -> dict[str, Location]:
        """The real target for which a reduced one stands."""
        found = dict(target)
        for vjob in self._real.vjobs:
            if self._wanted[vjob.name] is VJobState.PAUSED:
                found |= {vm.name: paused_on(target[vm.name].node or "") for vm in vjob.vms if vm.name in target}
        return found

    def plan(self, plan: Plan) -> Plan | Unreachable:
        """The real plan for which a reduced one stands.

        Unreachable only if a VM shall run on a node that lacks the CPUs for it in the end, which no viable target has.
        """
        found = [_expanded(self._real, self._wanted, plan, way) for way in _Way]
        plans = [each for each in found if isinstance(each, Plan)]
        return min(plans, key=lambda each: each.cost) if plans else found[0]


def reduced(source: Configuration, states: Mapping[str, VJobState]) -> Reduced | None:
    """Reduce a problem; None if no VM is paused, nor shall be."""
    paused, wanted = VMState.PAUSED, VJobState.PAUSED
    if wanted not in states.values() and all(at.state is not paused for at in source.locations.values()):
        return None
    locations = {name: running_on(at.node or "") if at.state is paused else at for name, at in source.locations.items()}
    vjobs = tuple(_without_cpus(source, vjob, states[vjob.name]) for vjob in source.vjobs)
    known = {name: VJobState.RUNNING if state is wanted else state for name, state in states.items()}
    return Reduced(Configuration(source.nodes, vjobs, locations, checked=True), known, source, states)


def _without_cpus(source: Configuration, vjob: VJob, wanted: VJobState) -> VJob:
    """The vjob with VMs that demand no CPUs if they compute nothing in the end."""
    is_paused = any(source.locations[vm.name].state is VMState.PAUSED for vm in vjob.vms)
    if wanted is VJobState.RUNNING or not (wanted is VJobState.PAUSED or is_paused):
        return vjob
    return replace(vjob, vms=tuple(replace(vm, demand=Resources(0, vm.demand.memory_mib)) for vm in vjob.vms))


class _Way(enum.Enum):
    """Ways to choose which vjob goes on first if CPUs are short; the cheapest plan of these is taken."""

    QUEUE = enum.auto()  # the head of the queue
    STAYING = enum.auto()  # vjobs that go on where they end; the others leave the CPUs to them soon
    ARRIVED = enum.auto()  # the head of the queue, but none before all its VMs are where they end


def _expanded(source: Configuration, states: Mapping[str, VJobState], plan: Plan, way: _Way) -> Plan | Unreachable:
    moving = [{source.vjob_by_vm[action.vm.name].name for action in pool} for pool in plan.pools]
    walk = _Walk(source, states, frozenset().union(*moving) if way is _Way.STAYING else frozenset())
    pools = [list(pool) for pool in plan.pools]
    opening: list[Action] = []
    if walk.asleep and pools:  # a vjob that goes on may wait for the CPUs of ending ones: to stop costs nothing
        opening = [action for action in pools[0] if action.kind is ActionKind.STOP]
        pools[0] = [action for action in pools[0] if action.kind is not ActionKind.STOP]
    walk.carry_out([*opening, *walk.first_pauses(pools[0] if pools else ())])
    for number, pool in enumerate(pools):
        still = frozenset[str]().union(*moving[number:]) if way is _Way.ARRIVED else frozenset[str]()
        walk.carry_out(walk.between(still))
        walk.carry_out(pool)
    walk.carry_out(walk.between())
    if walk.asleep:
        names = ", ".join(vjob.name for vjob in walk.asleep)
        return Unreachable(f"in the end the CPUs are not there with which these vjobs would go on: {names}")
    return Plan(tuple(walk.pools), plan.nodes)


class _Walk:
    """A plan that is being expanded, with the present places of all VMs."""

    def __init__(self, source: Configuration, states: Mapping[str, VJobState], last: frozenset[str]) -> None:
        """Begin with an empty plan; ``last``: names of vjobs that go on after others, as long as CPUs are short."""
        self._source = source
        self._locations = dict(source.locations)
        self._free = {node.name: source.free(node.name).centi_cpus for node in source.nodes}
        self.pools: list[tuple[Action, ...]] = []
        running, paused = VJobState.RUNNING, VJobState.PAUSED
        asleep = [vjob for vjob in source.vjobs if states[vjob.name] is running and self._paused(vjob)]
        self.asleep = sorted(asleep, key=lambda vjob: vjob.name in last)  # stable: else in the order of the queue
        self._to_pause = [vjob for vjob in source.vjobs if states[vjob.name] is paused]

    def first_pauses(self, first: Sequence[Action]) -> list[Action]:
        """Pauses of all that are paused in the end, and of those to be saved with whose CPUs others may go on."""
        wanted = {self._source.locations[vm.name].node for vjob in self.asleep for vm in self._paused(vjob)}
        saved = {
            self._source.vjob_by_vm[action.vm.name].name
            for action in first
            if action.kind is ActionKind.SUSPEND and not action.bypass and action.source in wanted
        }
        vjobs = [vjob for vjob in self._source.vjobs if vjob.name in saved]
        return [*self._pauses(self._to_pause), *self._pauses(vjobs)]

    def between(self, waiting: frozenset[str] = frozenset()) -> list[Action]:
        """The actions before the next pool: a vjob with CPUs goes on; a vjob that was woken only to move is paused.

        Vjobs whose names are in ``waiting`` do not go on yet.
        """
        found = self._pauses(self._to_pause)
        taken: dict[str, int] = {}
        left = []
        for vjob in self.asleep:
            vms = self._paused(vjob)
            needs = self._needs(vjob, vms)
            if (
                vjob.name in waiting
                or needs is None
                or any(taken.get(node, 0) + cpus > self._free[node] for node, cpus in needs.items())
            ):
                left.append(vjob)
                continue
            for node, cpus in needs.items():
                taken[node] = taken.get(node, 0) + cpus
            found += [unpause(vm, self._locations[vm.name].node or "") for vm in vms]
        self.asleep = left
        return found

    def carry_out(self, actions: Iterable[Action]) -> None:
        """Add a pool, unless it is empty; actions on paused VMs are marked so."""
        pool = tuple(self._real(action) for action in actions)
        if pool:
            self.pools.append(tuple(sorted(pool, key=lambda action: (_ORDER[action.kind], action.vm.name))))
        for action in pool:
            name, cpus = action.vm.name, action.vm.demand.centi_cpus
            for at, sign in ((self._locations[name], 1), (action.after, -1)):
                if at.state is VMState.RUNNING and at.node in self._free:
                    self._free[at.node] += sign * cpus
            self._locations[name] = action.after

    def _real(self, action: Action) -> Action:
        is_paused = self._locations[action.vm.name].state is VMState.PAUSED
        paused = is_paused and action.kind in (ActionKind.MIGRATE, ActionKind.SUSPEND)
        return replace(action, vm=self._source.vm_by_name[action.vm.name], paused=paused)

    def _paused(self, vjob: VJob) -> list[VM]:
        return [vm for vm in vjob.vms if self._locations[vm.name].state is VMState.PAUSED]

    def _pauses(self, vjobs: Iterable[VJob]) -> list[Action]:
        there = ((vm, self._locations[vm.name]) for vjob in vjobs for vm in vjob.vms)
        return [pause(vm, at.node or "") for vm, at in there if at.state is VMState.RUNNING]

    def _needs(self, vjob: VJob, vms: Iterable[VM]) -> dict[str, int] | None:
        """The CPUs, in hundredths, with which VMs would go on where they are, by node; None if one may not."""
        needs: dict[str, int] = {}
        for vm in vms:
            node = self._locations[vm.name].node or ""
            if self._source.node_by_name[node].state is not NodeState.UP or not vjob.allows(node):
                return None
            if vm.demand.centi_cpus:
                needs[node] = needs.get(node, 0) + vm.demand.centi_cpus
        return needs


_ORDER = {kind: place for place, kind in enumerate(("stop", "pause", "suspend", "migrate", "unpause", "run", "resume"))}
