"""Checker: verifies a plan from another source, action by action, and tells all of its faults.

It shares nothing with the planner but the model's values: the rules of legality, feasibility and cost are written down
here a second time, from the papers (RR-6929 section 4.1 and table 1; VEE'09 equations 6 to 8), from architecture.md's
invariants and from interfaces.md. So one mistake cannot hide in both.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rmsplugin.model.action import Action, ActionKind
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import SHARED, VM, Location, NodeState, VJob, VMState, state_of
from rmsplugin.model.resources import Resources
from rmsplugin.model.rules import Held, first_broken
from rmsplugin.model.vjob import VJobState

Pools = Sequence[Sequence[Action]]


class Rule(enum.StrEnum):
    """The rules that a plan can break."""

    UNKNOWN_VM = "unknown-vm"  # of an action, or of the target
    STALE = "stale"  # planned for a demand that the VM does not have
    ILLEGAL = "illegal"  # the VM is not in the state, or not at the place, that the action starts from (I1)
    TWICE = "twice"  # two actions on one VM in a pool
    DESTINATION = "destination"  # unknown, not up, against a rule of the vjob, or no move at all
    MEMORY = "memory"  # overcommitted while a pool is carried out (I3)
    EMPTY_POOL = "empty-pool"
    LATE = "late"  # a suspend, stop or pause after the first pool that may have it
    SCATTERED = "scattered"  # the resumes, pauses or unpauses of a vjob in several pools
    CPUS = "cpus"  # a VM goes on where its CPUs are not free
    BYPASS = "bypass"  # that leads nowhere, or a detour that is not marked as one
    PREEMPTION = "preemption"  # a vjob that may not be preempted is suspended or paused
    LOSS = "loss"  # the work of a vjob is thrown away (I2, I5)
    TARGET = "target"  # a VM is not at its target in the end (I2: nor is its saved state)
    MIXED = "mixed"  # VMs of a vjob are in different states in the end (I4)
    VIABILITY = "viability"  # a node has less than its VMs demand in the end
    NODE = "node"  # an action of a node is impossible, or could begin too early
    COST = "cost"  # another cost than stated


@dataclass(frozen=True, slots=True)
class Violation:
    """One fault of a plan: its pool (from 0) and its action, if it is about one in particular."""

    rule: Rule
    pool: int | None
    action: Action | None
    sentence: str

    def __str__(self) -> str:
        where = "the plan" if self.pool is None else f"pool {self.pool}"
        return f"{where}{f', {self.action}' if self.action else ''}: {self.sentence}"


def check_plan(
    source: Configuration, target: Mapping[str, Location], pools: Pools, stated_cost: int | None = None
) -> list[Violation]:
    """Return all faults of a plan from ``source`` to ``target``; empty if it is right.

    A VM that ``target`` leaves out must end where it was. A waiting VM needs no action to be terminated: there is
    nothing to stop.
    """
    run = _Run(source)
    found = [violation for number, pool in enumerate(pools) for violation in run.pool(number, pool)]
    found += _places(source, pools)
    found += _detours(source, pools)
    found += _ends(source, target, run.locations)
    found += _mixtures(source, target, run.locations)
    found += _overloads(source, run.locations)
    found += _unruly_ends(source, run.locations)
    if stated_cost is not None and (cost := recomputed_cost(source, pools)) != stated_cost:
        found.append(Violation(Rule.COST, None, None, f"it costs {cost}, and not {stated_cost} as stated"))
    return found


class _Run:
    """Carries a plan out on paper. An action that cannot begin has no effect."""

    def __init__(self, source: Configuration) -> None:
        self.source = source
        self.locations = dict(source.locations)
        self.memory = {node.name: 0 for node in source.nodes}
        self.centi_cpus = {node.name: 0 for node in source.nodes}
        for name, location in source.locations.items():
            self._add(location, source.vm_by_name[name], 1)

    def pool(self, number: int, pool: Sequence[Action]) -> Iterator[Violation]:
        """Carry out one pool: all its arrivals are there before anything leaves, for its actions are parallel."""
        if not pool:
            yield Violation(Rule.EMPTY_POOL, number, None, "there is nothing in it")
        begun: dict[str, Action] = {}
        for action in pool:
            if action.vm.name in begun:
                yield Violation(Rule.TWICE, number, action, "another action of the pool is on the same VM")
                continue
            wrong = self._why_illegal(action)
            if wrong is not None:
                yield Violation(wrong[0], number, action, wrong[1])
            else:
                begun[action.vm.name] = action
                yield from self._misdirected(number, action, begun)
        yield from self._overcommitted(number, begun)
        yield from self._without_cpus(number, begun)
        for name, action in begun.items():
            before, after = self.locations[name], _after(action)
            self._add(before, self.source.vm_by_name[name], -1)
            self._add(after, self.source.vm_by_name[name], 1)
            self.locations[name] = after

    def _add(self, location: Location, vm: VM, times: int) -> None:
        """Add a VM to a node: a running VM takes memory and CPUs, a paused one only memory."""
        if location.node not in self.memory or location.node is None:
            return
        if location.state in (VMState.RUNNING, VMState.PAUSED):
            self.memory[location.node] += times * vm.demand.memory_mib
        if location.state is VMState.RUNNING:
            self.centi_cpus[location.node] += times * vm.demand.centi_cpus

    def _why_illegal(self, action: Action) -> tuple[Rule, str] | None:
        name = action.vm.name
        vm = self.source.vm_by_name.get(name)
        if vm is None:
            return Rule.UNKNOWN_VM, f"there is no VM {name!r}"
        if vm != action.vm:
            return Rule.STALE, f"it was planned for {action.vm.demand}, but {name} demands {vm.demand}"
        location = self.locations[name]
        match action.kind:
            case ActionKind.RUN:
                legal = location.state is VMState.WAITING
            case ActionKind.RESUME:
                legal = location.state is VMState.SLEEPING and location.node == action.source
            case ActionKind.STOP:
                there = (VMState.RUNNING, VMState.PAUSED, VMState.SLEEPING)
                legal = location.state in there and location.node == action.source
            case ActionKind.MIGRATE | ActionKind.SUSPEND:
                wanted = VMState.PAUSED if action.paused else VMState.RUNNING
                legal = location.state is wanted and location.node == action.source
            case ActionKind.PAUSE:
                legal = location.state is VMState.RUNNING and location.node == action.source
            case ActionKind.UNPAUSE:
                legal = location.state is VMState.PAUSED and location.node == action.source == action.destination
        return None if legal else (Rule.ILLEGAL, f"{name} is {location} then")

    def _misdirected(self, number: int, action: Action, begun: Mapping[str, Action]) -> Iterator[Violation]:
        wrong = None
        if action.kind is ActionKind.SUSPEND:
            if action.destination not in (action.source, SHARED):
                wrong = f"a state is saved where the VM is or on {SHARED} storage, not on {action.destination}"
        elif action.kind not in (ActionKind.STOP, ActionKind.PAUSE):
            node = self.source.node_by_name.get(action.destination or "")
            if node is None:
                wrong = f"there is no node {action.destination!r}"
            elif node.state is not NodeState.UP:
                wrong = f"{node.name} is {node.state}: no VM may come"
            elif action.kind is ActionKind.MIGRATE and node.name == action.source:
                wrong = f"{action.vm.name} is on {node.name} already"
            else:
                wrong = self._unruly(action, node.name, begun)
        if wrong is not None:
            yield Violation(Rule.DESTINATION, number, action, wrong)

    def _unruly(self, action: Action, node: str, begun: Mapping[str, Action]) -> str | None:
        """The rule of the vjob that the VM breaks there, beside VMs that are on nodes or come in the pool, too."""
        vjob = self.source.vjob_by_vm[action.vm.name]
        if not vjob.rules:
            return None
        held = _held(vjob, self.locations)
        held += _held(vjob, {name: _after(each) for name, each in begun.items()})
        broken = first_broken(vjob.rules, held, [(action.vm.name, node)], at_end=False)
        return None if broken is None else f"vjob {vjob.name}: {broken}"

    def _overcommitted(self, number: int, begun: Mapping[str, Action]) -> Iterator[Violation]:
        arriving: dict[str, list[VM]] = defaultdict(list)
        for name, action in begun.items():
            after = _after(action)
            if action.kind not in (ActionKind.PAUSE, ActionKind.UNPAUSE) and after.node in self.memory:
                if after.state not in (VMState.RUNNING, VMState.PAUSED):
                    continue
                arriving[after.node].append(self.source.vm_by_name[name])
        for node, vms in arriving.items():
            capacity = self.source.node_by_name[node].capacity.memory_mib
            needed = sum(vm.demand.memory_mib for vm in vms)
            if self.memory[node] + needed > capacity:
                names = ", ".join(vm.name for vm in vms)
                yield Violation(
                    Rule.MEMORY,
                    number,
                    begun[vms[0].name] if len(vms) == 1 else None,
                    f"{node} has {capacity} MiB of memory, {self.memory[node]} are in use while the pool begins, and "
                    f"{names} need {needed} there",
                )

    def _without_cpus(self, number: int, begun: Mapping[str, Action]) -> Iterator[Violation]:
        """VMs that go on although their node has not the CPUs for all of them while others run there."""
        waking: dict[str, list[VM]] = defaultdict(list)
        for name, action in begun.items():
            if action.kind is ActionKind.UNPAUSE and action.source in self.centi_cpus:
                waking[action.source].append(self.source.vm_by_name[name])
        for node, vms in waking.items():
            capacity = self.source.node_by_name[node].capacity.centi_cpus
            needed = sum(vm.demand.centi_cpus for vm in vms)
            if needed and self.centi_cpus[node] + needed > capacity:
                sentence = (
                    f"{node} has {capacity} hundredths of CPUs, {self.centi_cpus[node]} are in use while the pool "
                    f"begins, and {', '.join(vm.name for vm in vms)} need {needed} there"
                )
                yield Violation(Rule.CPUS, number, begun[vms[0].name] if len(vms) == 1 else None, sentence)


def _held(vjob: VJob, locations: Mapping[str, Location]) -> list[Held]:
    """The places where VMs of a vjob have memory."""
    held: list[Held] = []
    for vm in vjob.vms:
        at = locations.get(vm.name)
        if at is not None and at.node is not None and at.state in (VMState.RUNNING, VMState.PAUSED):
            held.append((vm.name, at.node))
    return held


def _unruly_ends(source: Configuration, locations: Mapping[str, Location]) -> Iterator[Violation]:
    """Rules that hold at the end only, and that arriving VMs break."""
    for vjob in source.vjobs:
        if not any(rule.discrete for rule in vjob.rules):
            continue
        before, held = set(_held(vjob, source.locations)), _held(vjob, locations)
        came = [each for each in held if each not in before]
        broken = first_broken(vjob.rules, held, came, at_end=True)
        if broken is not None:
            yield Violation(Rule.DESTINATION, None, None, f"vjob {vjob.name}: {broken} in the end")


def _after(action: Action) -> Location:
    match action.kind:
        case ActionKind.STOP:
            return Location(VMState.WAITING if action.requeue else VMState.TERMINATED)
        case ActionKind.SUSPEND:
            return Location(VMState.SLEEPING, action.destination)
        case ActionKind.MIGRATE if action.paused:
            return Location(VMState.PAUSED, action.destination)
        case ActionKind.PAUSE:
            return Location(VMState.PAUSED, action.source)
        case ActionKind.RUN | ActionKind.MIGRATE | ActionKind.RESUME | ActionKind.UNPAUSE:
            return Location(VMState.RUNNING, action.destination)


#: The checker's word for an action that all VMs of a vjob do in one pool.
_TOGETHER = {ActionKind.RESUME: "resumed", ActionKind.PAUSE: "paused", ActionKind.UNPAUSE: "unpaused"}


def _places(source: Configuration, pools: Pools) -> Iterator[Violation]:
    """RR-6929 section 4.1: suspends and stops in the first pool, all resumes of a vjob in one; and forbidden actions.

    Pools of pauses, unpauses and stops alone, before all others, cost nothing: suspends may be in the first one after.
    """
    at_once = (ActionKind.PAUSE, ActionKind.UNPAUSE, ActionKind.STOP)
    costly = (number for number, pool in enumerate(pools) if any(action.kind not in at_once for action in pool))
    first = next(costly, len(pools))
    together: dict[tuple[ActionKind, str], int] = {}
    woken: set[str] = set()  # VMs that were resumed on the way: they are paused apart from the others
    for number, pool in enumerate(pools):
        for action in pool:
            vjob = source.vjob_by_vm.get(action.vm.name)
            if vjob is None:
                continue
            yield from _wrongs(source, vjob, number, action, first, action.vm.name in woken)
            if action.kind in _TOGETHER and not (action.kind is ActionKind.PAUSE and action.vm.name in woken):
                before = together.setdefault((action.kind, vjob.name), number)
                if before != number:
                    done = f"vjob {vjob.name} is {_TOGETHER[action.kind]} in pool {before} already"
                    yield Violation(Rule.SCATTERED, number, action, f"{done}, and its VMs must be together")
        woken |= {action.vm.name for action in pool if action.kind is ActionKind.RESUME}


def _wrongs(
    source: Configuration, vjob: VJob, number: int, action: Action, first: int, woken: bool
) -> Iterator[Violation]:
    """``first``: the first pool that may cost something; ``woken``: the VM was resumed in the plan."""
    suspends = action.kind is ActionKind.SUSPEND and not action.bypass
    pauses = action.kind is ActionKind.PAUSE
    if (number > first and (suspends or action.kind is ActionKind.STOP)) or (number > 0 and pauses and not woken):
        yield Violation(Rule.LATE, number, action, "it is always feasible, and belongs into the first pool")
    if (suspends or pauses) and not vjob.preemptible and state_of(vjob, source.locations) is not VJobState.PAUSED:
        yield Violation(Rule.PREEMPTION, number, action, f"vjob {vjob.name} is not preemptible: it stays running")
    if action.requeue and not vjob.lost and state_of(vjob, source.locations) is not VJobState.WAITING:
        sentence = f"vjob {vjob.name} is not lost: to begin anew throws away what it has computed"
        yield Violation(Rule.LOSS, number, action, sentence)


def _detours(source: Configuration, pools: Pools) -> Iterator[Violation]:
    """A bypass leads on: suspend -> resume, migrate or resume -> migrate; and each action on the way is a bypass."""
    steps: dict[str, list[tuple[int, Action]]] = defaultdict(list)
    for number, pool in enumerate(pools):
        for action in pool:
            steps[action.vm.name].append((number, action))
    for name, all_of_it in steps.items():
        yield from _vain_pauses(source, name, all_of_it)
        own = [(number, step) for number, step in all_of_it if step.kind not in _IN_PLACE]
        before: Action | None = None
        nexts = [*(step for _, step in own), None][1:]
        for (number, action), following in zip(own, nexts, strict=True):
            wrong = _wrong_detour(source, before, action, following)
            if wrong is not None:
                yield Violation(Rule.BYPASS, number, action, wrong)
            before = action


_IN_PLACE = (ActionKind.PAUSE, ActionKind.UNPAUSE)


def _vain_pauses(source: Configuration, name: str, steps: Sequence[tuple[int, Action]]) -> Iterator[Violation]:
    """A VM is paused only to end so or to be saved, and goes on only to run in the end; each once."""
    runs = bool(steps) and _after(steps[-1][1]).state is VMState.RUNNING
    seen: set[ActionKind] = set()
    for number, action in steps:
        if action.kind not in _IN_PLACE:
            continue
        wrong = action.kind in seen or runs is (action.kind is ActionKind.PAUSE)
        seen.add(action.kind)
        if wrong and name in source.vm_by_name:
            yield Violation(Rule.BYPASS, number, action, f"{name} does not end so: it is for nothing")


def _wrong_detour(source: Configuration, before: Action | None, action: Action, following: Action | None) -> str | None:
    if not action.bypass:
        if following is None or action.requeue:
            return None
        return f"{following} follows: it is a bypass, and not marked as one"
    match action.kind:
        case ActionKind.SUSPEND:
            if following is None or following.kind is not ActionKind.RESUME:
                return "no resume of the VM follows"
        case ActionKind.MIGRATE:
            # a pivot may turn out to be a dead end: then the state is saved there, and its resume must follow in turn
            breaks = following is not None and following.kind is ActionKind.SUSPEND and following.bypass
            if following is None or not (breaks or following.kind is ActionKind.MIGRATE):
                return "no migration of the VM follows"
        case _:
            # or the VM wakes with its vjob where there is room, and migrates to where it ends
            moves_on = following is not None and following.kind is ActionKind.MIGRATE
            suspended = before is not None and before.kind is ActionKind.SUSPEND and before.bypass
            if not suspended and not moves_on:
                return "no bypass suspended the VM before, and no migration of it follows"
    return None


def _reached(location: Location, wanted: Location) -> bool:
    if location is wanted or location == wanted:
        return True
    return location.state is VMState.WAITING and wanted.state is VMState.TERMINATED


def _ends(
    source: Configuration, target: Mapping[str, Location], locations: Mapping[str, Location]
) -> Iterator[Violation]:
    for name in target:
        if name not in locations:
            yield Violation(Rule.UNKNOWN_VM, None, None, f"there is no VM {name!r}, but the target names it")
    for name, location in locations.items():
        wanted = target.get(name, source.locations[name])
        if not _reached(location, wanted):
            forgotten = "; its saved state is forgotten" if location.state is VMState.SLEEPING else ""
            sentence = f"{name} is {location} in the end, and should be {wanted}{forgotten}"
            yield Violation(Rule.TARGET, None, None, sentence)


def _mixtures(
    source: Configuration, target: Mapping[str, Location], locations: Mapping[str, Location]
) -> Iterator[Violation]:
    for vjob in source.vjobs:
        states = set()
        for vm in vjob.vms:
            location, wanted = locations[vm.name], target.get(vm.name)
            states.add(wanted.state if wanted is not None and _reached(location, wanted) else location.state)
        if len(states) > 1:
            names = ", ".join(sorted(states))
            yield Violation(Rule.MIXED, None, None, f"VMs of vjob {vjob.name} are {names} in the end")


def _overloads(source: Configuration, locations: Mapping[str, Location]) -> Iterator[Violation]:
    """Nodes that lack resources in the end, unless nothing has come to them: then they lacked these before."""
    came = {
        location.node
        for name, location in locations.items()
        if location is not source.locations[name]
        and location.state in (VMState.RUNNING, VMState.PAUSED)
        and location != source.locations[name]
        and not (location.state is VMState.PAUSED and source.locations[name].node == location.node)
    }
    demands: dict[str, list[Resources]] = {node.name: [] for node in source.nodes if node.name in came}
    for name, location in locations.items():
        demand = source.vm_by_name[name].demand
        if location.node in demands and location.state is VMState.RUNNING:
            demands[location.node].append(demand)
        elif location.node in demands and location.state is VMState.PAUSED:
            demands[location.node].append(Resources(0, demand.memory_mib))
    for name, here in demands.items():
        capacity = source.node_by_name[name].capacity
        for what, has, wanted in (
            ("MiB of memory", capacity.memory_mib, sum(each.memory_mib for each in here)),
            ("hundredths of CPUs", capacity.centi_cpus, sum(each.centi_cpus for each in here)),
        ):
            if wanted > has:
                sentence = f"{name} has {has} {what}, and its VMs demand {wanted} in the end"
                yield Violation(Rule.VIABILITY, None, None, sentence)


def recomputed_cost(source: Configuration, pools: Pools) -> int:
    """Cost of a plan in MiB by its definition: the sum over its actions of their own cost and of all pools before."""
    total = elapsed = 0
    for pool in pools:
        costs = [_own_cost(source, action) for action in pool]
        total += sum(elapsed + cost for cost in costs)
        elapsed += max(costs, default=0)
    return total


def _own_cost(source: Configuration, action: Action) -> int:
    """RR-6929, table 1. A state on shared storage is as good as one on the destination: there is nothing to copy."""
    memory_mib = source.vm_by_name.get(action.vm.name, action.vm).demand.memory_mib
    match action.kind:
        case ActionKind.RUN | ActionKind.STOP | ActionKind.PAUSE | ActionKind.UNPAUSE:
            return 0
        case ActionKind.MIGRATE | ActionKind.SUSPEND:
            return memory_mib
        case ActionKind.RESUME:
            return memory_mib if action.source in (SHARED, action.destination) else 2 * memory_mib
