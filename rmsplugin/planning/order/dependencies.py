"""Dependencies: which actions of a plan wait for which others, so that each is started when its needs are met.

Pools tell which actions can be done side by side; dependencies tell only which must be done before. Memory is allotted:
the memory that is free at the start, or that a departure gives back, is divided among the arrivals of a node, each MiB
to one arrival. An arrival waits for the departures that its share comes from. Hence in any interleaving, whatever the
durations of actions, the arrivals that have begun hold no more than the memory that was free and that ended departures
gave back: memory is never overcommitted (I3).

An arrival that a rule about VMs beside each other concerns waits for more: see ``joint_waits``.

A VM that goes on where it is paused needs no memory, but CPUs. It waits for the VMs that computed on its node at the
start, or have gone on there, and left it or were paused there in an earlier pool; unless the CPUs are free at the start
for all that go on there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rmsplugin.model.action import Action, ActionKind
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VMState
from rmsplugin.planning.order.joint_waits import waits_for_rules
from rmsplugin.planning.order.powering import Needs, needed_nodes, needs_of_nodes
from rmsplugin.planning.plan import Plan


@dataclass(frozen=True, slots=True)
class Order:
    """The actions of a plan, pool after pool, and the waits of each.

    ``needs[i]`` are the indices, ascending and all below i, of the actions that must have ended before action i begins.
    ``together`` are the groups of actions that begin at the same time: the resumes of a vjob, and its suspends, in the
    order in which they are pipelined, one second apart (RR-6929 section 4.1); its pauses, and its unpauses, at once.
    ``node_needs`` are for each action of a node of the plan the indices of the VM actions that it waits for, ``needed``
    for each VM action those of the actions of nodes that it waits for; both empty if there are none of nodes.
    """

    actions: tuple[Action, ...]
    needs: tuple[tuple[int, ...], ...]
    together: tuple[tuple[int, ...], ...]
    node_needs: tuple[tuple[int, ...], ...] = ()
    needed: tuple[tuple[int, ...], ...] = ()


def dependency_order(source: Configuration, plan: Plan, *, cpus: bool = False) -> Order:
    """Find the waits of each action of a plan.

    Args:
        source: the configuration in which the plan begins.
        plan: a plan that is valid there.
        cpus: whether an arrival waits for its CPUs, too, as VMs that go on do.

    Raises:
        ValueError: a pool needs memory that no earlier pool gives back; such a plan is not valid in ``source``.
    """
    actions = tuple(plan.actions())
    memory, computing = _Memory(source), _Cpus(source, actions, of_arrivals=cpus)
    last: dict[str, int] = {}  # the latest action of each VM so far
    hosts: dict[str, str | None] = {}  # the host of each running VM that had an action already
    needs: list[set[int]] = []
    groups: dict[tuple[int, ActionKind, str], list[int]] = {}
    index = 0
    for number, pool in enumerate(plan.pools):
        returns: list[tuple[str, int, int]] = []  # (node, action, memory) that this pool gives back to later ones
        for action in pool:
            name = action.vm.name
            before = source.locations[name]
            host = hosts.get(name, before.node if before.state.holds_memory else None)
            own = {last[name]} if name in last else set()
            if action.kind is ActionKind.UNPAUSE:
                own |= computing.awaited(action.source or "")
            elif action.demands is not None:
                own |= memory.allot(action.demands, action.vm.demand.memory_mib, action)
                if cpus and action.vm.demand.centi_cpus and not action.paused:
                    own |= computing.awaited(action.demands)
            if host is not None and action.kind not in _IN_PLACE:
                returns.append((host, index, action.vm.demand.memory_mib))
            if _is_joint(action, name not in last):
                groups.setdefault((number, action.kind, source.vjob_by_vm[name].name), []).append(index)
            needs.append(own)
            last[name] = index
            hosts[name] = host if action.kind in _IN_PLACE else action.demands
            index += 1
        for node, departure, amount in returns:
            memory.give_back(node, departure, amount)
        computing.give_back(pool, index - len(pool))
    for number, awaited in enumerate(waits_for_rules(source, plan.pools)):
        needs[number] |= awaited
    for group in groups.values():  # actions that begin together wait for the same
        joint = set().union(*(needs[each] for each in group))
        for each in group:
            needs[each] = joint
    together = tuple(tuple(group) for group in groups.values() if len(group) > 1)
    found = Order(actions, tuple(tuple(sorted(own)) for own in needs), together)
    if not plan.nodes:
        return found
    return replace(
        found,
        node_needs=needs_of_nodes(actions, plan.nodes),
        needed=_joined(needed_nodes(actions, plan.nodes), groups.values()),
    )


def _joined(needed: Needs, groups: Iterable[Sequence[int]]) -> Needs:
    """Actions that begin together wait for the same actions of nodes, too."""
    found = list(needed)
    for group in groups:
        joint = tuple(sorted(set[int]().union(*(needed[each] for each in group))))
        for each in group:
            found[each] = joint
    return tuple(found)


_IN_PLACE = (ActionKind.PAUSE, ActionKind.UNPAUSE)


def _is_joint(action: Action, is_first: bool) -> bool:
    """Whether an action begins together with those of its kind on the other VMs of the vjob."""
    if action.kind in _IN_PLACE:
        return True
    wakes = action.kind is ActionKind.RESUME and is_first  # though it may be on the way only
    return wakes or (action.kind in (ActionKind.SUSPEND, ActionKind.RESUME) and not action.bypass)


class _Memory:
    """The memory of each node that no arrival was promised yet, in MiB, by the departure that gives it back."""

    def __init__(self, source: Configuration) -> None:
        used = source.used
        self._free = {node.name: node.capacity.memory_mib - used[node.name].memory_mib for node in source.nodes}
        self._given_back: dict[str, dict[int, int]] = {}
        # Departures from a node whose VMs demanded more than its memory only make up for that; but no arrival can
        # begin before they have ended.
        self._debtors: dict[str, set[int]] = {}

    def give_back(self, node: str, departure: int, memory: int) -> None:
        """Let later arrivals have the memory that a departure gives back."""
        debt = min(memory, max(0, -self._free[node]))
        if debt:
            self._free[node] += debt
            self._debtors.setdefault(node, set()).add(departure)
        if memory > debt:
            self._given_back.setdefault(node, {})[departure] = memory - debt

    def allot(self, node: str, memory: int, action: Action) -> set[int]:
        """Promise memory to an arrival, and name the departures that it comes from, as few as possible.

        The memory that is free from the start is taken first if it is enough; then the one departure with the least
        that is enough; then the free memory together with the largest departures.
        """
        given_back = self._given_back.get(node, {})
        free = max(0, self._free[node])
        debtors = self._debtors.get(node, set())
        if self._free[node] < 0 or free + sum(given_back.values()) < memory:
            raise ValueError(f"{action}: {node} has not the memory for it, whatever ended before")
        if memory <= free:
            self._free[node] -= memory
            return set(debtors)
        alone = min(((left, each) for each, left in given_back.items() if left >= memory), default=None)
        if alone is not None:
            self._use(given_back, alone[1], memory)
            return {alone[1], *debtors}
        self._free[node] -= free
        missing, found = memory - free, set(debtors)
        for _, each in sorted((-left, each) for each, left in given_back.items()):
            if missing <= 0:
                break
            part = min(missing, given_back[each])
            self._use(given_back, each, part)
            missing -= part
            found.add(each)
        return found

    @staticmethod
    def _use(given_back: dict[int, int], departure: int, memory: int) -> None:
        given_back[departure] -= memory
        if not given_back[departure]:
            del given_back[departure]


class _Cpus:
    """The VMs that leave the CPUs of each node to VMs that go on there, and to those that come."""

    def __init__(self, source: Configuration, actions: tuple[Action, ...], *, of_arrivals: bool) -> None:
        self._of_arrivals = of_arrivals
        self._runs = {name: at.node for name, at in source.locations.items() if at.state is VMState.RUNNING}
        self._freed: dict[str, set[int]] = {}
        wanted: dict[str, int] = {}
        for action in actions:
            node = action.source if action.kind is ActionKind.UNPAUSE else self._arrives_at(action)
            if node is not None:
                wanted[node] = wanted.get(node, 0) + action.vm.demand.centi_cpus
        self._short = {node for node, cpus in wanted.items() if cpus > max(0, source.free(node).centi_cpus)}

    def _arrives_at(self, action: Action) -> str | None:
        """The node on which a VM computes after an action that brings it there, if arrivals are counted."""
        return action.demands if self._of_arrivals and not action.paused else None

    def awaited(self, node: str) -> set[int]:
        """The actions for which a VM that goes on there, or comes there, waits."""
        return set(self._freed.get(node, ())) if node in self._short else set()

    def give_back(self, pool: tuple[Action, ...], first: int) -> None:
        """Note which VMs left in a pool, and which compute where they were paused; the first action has this index."""
        for index, action in enumerate(pool, start=first):
            node = action.source
            if action.kind is ActionKind.UNPAUSE:
                self._runs[action.vm.name] = node
            elif node is not None and self._runs.get(action.vm.name) == node:
                del self._runs[action.vm.name]
                self._freed.setdefault(node, set()).add(index)
            if action.kind is not ActionKind.UNPAUSE and (there := self._arrives_at(action)) is not None:
                self._runs[action.vm.name] = there
