"""Checker: verifies a plan from another source, action by action, and tells all of its faults.

It shares nothing with the planner but the model's values: the rules of legality, feasibility and cost are written down
here a second time, from the papers (RR-6929 section 4.1 and table 1; VEE'09 equations 6 to 8), from architecture.md's
invariants and from interfaces.md. So one mistake cannot hide in both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rmsplugin.model.action import Action, ActionKind
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import SHARED, VM, Location, NodeState, VJob, VMState
from rmsplugin.model.joint import Concerning, Joint
from rmsplugin.model.resources import Resources
from rmsplugin.model.rules import Held, first_broken
from rmsplugin.planning.violations import Pools, Rule, Violation
from rmsplugin.planning.way_checker import check_detours, check_places, outcome_of


def check_plan(
    source: Configuration,
    target: Mapping[str, Location],
    pools: Pools,
    stated_cost: int | None = None,
    *,
    cpu_in_plan: bool = False,
) -> list[Violation]:
    """Return all faults of a plan from ``source`` to ``target``; empty if it is right.

    A VM that ``target`` leaves out must end where it was. A waiting VM needs no action to be terminated: there is
    nothing to stop. With ``cpu_in_plan`` a VM comes only to a node that has its CPUs then.
    """
    run = _Run(source, pools, cpu_in_plan)
    found = [violation for number, pool in enumerate(pools) for violation in run.pool(number, pool)]
    found += check_places(source, pools)
    found += check_detours(source, pools)
    found += _ends(source, target, run.locations)
    found += _mixtures(source, target, run.locations)
    found += _overloads(source, run.locations)
    found += _unruly_ends(source, run.locations)
    found += _unruly_joint(source, None, {}, run.locations, discrete=True)
    if stated_cost is not None and (cost := recomputed_cost(source, pools)) != stated_cost:
        found.append(Violation(Rule.COST, None, None, f"it costs {cost}, and not {stated_cost} as stated"))
    return found


class _Run:
    """Carries a plan out on paper. An action that cannot begin has no effect."""

    def __init__(self, source: Configuration, pools: Pools, cpu_in_plan: bool) -> None:
        self.source = source
        self.cpu_in_plan = cpu_in_plan
        self.locations = dict(source.locations)
        # Of all nodes, a plan mostly touches a few: what the others hold is not counted.
        touched = {end for pool in pools for action in pool for end in (action.source, action.destination)}
        self.memory = {node.name: 0 for node in source.nodes if node.name in touched}
        self.centi_cpus = dict(self.memory)
        for name, location in source.locations.items() if touched else ():
            if location.node in touched:
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
                yield from self._beyond(number, action)
        yield from self._overcommitted(number, begun)
        yield from self._without_cpus(number, begun)
        yield from self._beside_others(number, begun)
        for name, action in begun.items():
            before, after = self.locations[name], outcome_of(action)
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
        rules = vjob.own_rules
        if not rules:
            return None
        held = _held(vjob, self.locations)
        held += _held(vjob, {name: outcome_of(each) for name, each in begun.items()})
        broken = first_broken(rules, held, [(action.vm.name, node)], at_end=False)
        return None if broken is None else f"vjob {vjob.name}: {broken}"

    def _beyond(self, number: int, action: Action) -> Iterator[Violation]:
        """The demands of an action on a platform that it does not meet."""
        vjob = self.source.vjob_by_vm[action.vm.name]
        can, wrong = vjob.can, ""
        if (action.kind is ActionKind.MIGRATE and not can.migrate) or (
            action.kind is ActionKind.SUSPEND and not can.suspend
        ):
            wrong = f"the platform of vjob {vjob.name} has no {action.kind}"
        elif action.kind in (ActionKind.PAUSE, ActionKind.UNPAUSE) and not can.pause:
            wrong = f"the platform of vjob {vjob.name} has no pause"
        elif action.kind is ActionKind.RESUME and action.source != action.destination and not can.elsewhere:
            wrong = f"the platform of vjob {vjob.name} restores a VM only where it was saved"
        node = self.source.node_by_name.get(action.destination or "")
        if node is not None and node.platform != vjob.platform:
            wrong = f"{node.name} is of another platform than vjob {vjob.name}"
        if wrong:
            yield Violation(Rule.PLATFORM, number, action, wrong)

    def _beside_others(self, number: int, begun: Mapping[str, Action]) -> Iterator[Violation]:
        """Rules about VMs beside each other that arrivals break while all of the pool are at both of their ends."""
        after = {name: outcome_of(action) for name, action in begun.items()}
        yield from _unruly_joint(self.source, number, self.locations, after, discrete=False)

    def _overcommitted(self, number: int, begun: Mapping[str, Action]) -> Iterator[Violation]:
        arriving: dict[str, list[VM]] = defaultdict(list)
        for name, action in begun.items():
            after = outcome_of(action)
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
        """VMs that go on, or come, although their node has not the CPUs for all of them while others run there."""
        waking: dict[str, list[VM]] = defaultdict(list)
        for name, action in begun.items():
            if action.kind is ActionKind.UNPAUSE and action.source in self.centi_cpus:
                waking[action.source].append(self.source.vm_by_name[name])
            after = outcome_of(action)
            arrives = action.kind is not ActionKind.UNPAUSE and after.state is VMState.RUNNING
            if self.cpu_in_plan and arrives and after.node in self.centi_cpus:
                waking[after.node].append(self.source.vm_by_name[name])
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
    of_ends: dict[int, bool] = {}  # by identity: most vjobs share their rules
    for vjob in source.vjobs:
        known = of_ends.get(id(vjob.rules))
        if known is None:
            known = of_ends[id(vjob.rules)] = any(rule.discrete for rule in vjob.rules)
        if not known:
            continue
        before, held = set(_held(vjob, source.locations)), _held(vjob, locations)
        came = [each for each in held if each not in before]
        broken = first_broken(vjob.own_rules, held, came, at_end=True)
        if broken is not None:
            yield Violation(Rule.DESTINATION, None, None, f"vjob {vjob.name}: {broken} in the end")


def _unruly_joint(
    source: Configuration,
    pool: int | None,
    before: Mapping[str, Location],
    after: Mapping[str, Location],
    *,
    discrete: bool,
) -> Iterator[Violation]:
    """Rules about VMs beside each other that VMs break which have come; ``before``: places that they still hold."""
    concerning = Concerning(rule for rule in source.joint if rule.discrete) if discrete else source.concerning_steps
    if not concerning.rules or not after:
        return
    older = before if pool is not None else source.locations
    there = set(_in_memory({name: older[name] for name in after if name in older}))
    came = [each for each in _in_memory(after) if each not in there]
    if not came:
        return
    concerned: dict[Joint, list[Held]] = {}
    for each in came:
        for rule in concerning.of(each[0]):
            concerned.setdefault(rule, []).append(each)
    held = tuple(dict.fromkeys((*_in_memory(before), *_in_memory(after))))
    for rule, newcomers in concerned.items():
        its = held if rule.names is None else _held_by(rule.names, before, after)
        broken = rule.broken(its, newcomers)
        if broken is not None:
            yield Violation(Rule.DESTINATION, pool, None, broken if pool is not None else f"{broken} in the end")


def _held_by(vms: Iterable[str], *places: Mapping[str, Location]) -> list[Held]:
    """The nodes where each of these VMs has memory, at any of its places."""
    found = ((vm, locations[vm]) for vm in vms for locations in places if vm in locations)
    return list(dict.fromkeys((vm, at.node) for vm, at in found if at.state.holds_memory and at.node is not None))


def _in_memory(locations: Mapping[str, Location]) -> Iterator[Held]:
    for name, at in locations.items():
        if at.state.holds_memory and at.node is not None:
            yield name, at.node


def _reached(location: Location, wanted: Location) -> bool:
    if location is wanted or location == wanted:
        return True
    return location.state is VMState.WAITING and wanted.state is VMState.TERMINATED


def _ends(
    source: Configuration, target: Mapping[str, Location], locations: Mapping[str, Location]
) -> Iterator[Violation]:
    for name in () if target.keys() <= locations.keys() else target:
        if name not in locations:
            yield Violation(Rule.UNKNOWN_VM, None, None, f"there is no VM {name!r}, but the target names it")
    for name, location in locations.items():
        wanted = target.get(name, source.locations[name])
        if location is not wanted and not _reached(location, wanted):
            forgotten = "; its saved state is forgotten" if location.state is VMState.SLEEPING else ""
            sentence = f"{name} is {location} in the end, and should be {wanted}{forgotten}"
            yield Violation(Rule.TARGET, None, None, sentence)


def _mixtures(
    source: Configuration, target: Mapping[str, Location], locations: Mapping[str, Location]
) -> Iterator[Violation]:
    for vjob in source.vjobs:
        if len(vjob.vms) < 2:
            continue
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
        and not _takes_no_more(source.vm_by_name[name], source.locations[name], location)
    }
    if not came:
        return
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


def _takes_no_more(vm: VM, before: Location, after: Location) -> bool:
    """Whether a VM that has its memory on a node takes nothing more of it: it is paused, or goes on without CPUs."""
    if before.node != after.node or before.state not in (VMState.RUNNING, VMState.PAUSED):
        return False
    return after.state is VMState.PAUSED or not vm.demand.centi_cpus


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
