"""Order checker: whether a dependency order keeps memory (I3), whatever each action takes and whichever fails.

An action begins when all that it needs has ended well; what needs a failed one is skipped. So the actions that have
begun contain all that they need, and departures that nobody of them needs may not have ended. An order is right if on
each node the arrivals of no such set take more than is free and its departures give back. By the theorem of max-flow
and min-cut that is so if and only if all arrivals can be supplied at once: each from what is free at the start and from
departures that it waits for, directly or by way of others.

A VM that goes on needs its CPUs: those of its node that are free at the start, and those of VMs that it waits for.

Like ``rmsplugin.planning.checker`` it shares nothing with the planner but the model's values.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from rmsplugin.model.action import Action, ActionKind
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VMState
from rmsplugin.planning.checker import Rule, Violation


def check_order(source: Configuration, actions: Sequence[Action], needs: Sequence[Sequence[int]]) -> list[Violation]:
    """Return a violation for each node that some interleaving overcommits; nothing if there is none.

    Args:
        source: the configuration in which the order begins.
        actions: of a plan that is right pool by pool.
        needs: of each action the indices, all below its own, of those that must have ended well before it begins.
    """
    waits = _all_needs(needs)
    departures, arrivals = _by_node(source, actions)
    return [*_overcommitted(source, actions, waits, departures, arrivals), *_without_cpus(source, actions, waits)]


def _all_needs(needs: Sequence[Sequence[int]]) -> list[int]:
    """For each action all that it waits for, directly or not, as the bits of a number."""
    found: list[int] = []
    for own in needs:
        bits = 0
        for need in own:
            bits |= found[need] | 1 << need
        found.append(bits)
    return found


def _by_node(source: Configuration, actions: Sequence[Action]) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """The departures and the arrivals of each node."""
    departures: dict[str, list[int]] = {}
    arrivals: dict[str, list[int]] = {}
    in_memory = (VMState.RUNNING, VMState.PAUSED)
    asleep = {name for name, location in source.locations.items() if location.state not in in_memory}
    for index, action in enumerate(actions):
        if action.kind in (ActionKind.PAUSE, ActionKind.UNPAUSE):
            continue
        if action.vm.name not in asleep and action.source is not None:
            departures.setdefault(action.source, []).append(index)
        if action.kind in (ActionKind.RUN, ActionKind.RESUME, ActionKind.MIGRATE):
            arrivals.setdefault(action.destination or "", []).append(index)
            asleep.discard(action.vm.name)
        else:
            asleep.add(action.vm.name)
    return departures, arrivals


def _overcommitted(
    source: Configuration,
    actions: Sequence[Action],
    waits: Sequence[int],
    departures: dict[str, list[int]],
    arrivals: dict[str, list[int]],
) -> Iterator[Violation]:
    for node, coming in arrivals.items():
        free = source.free(node).memory_mib
        memory = [actions[index].vm.demand.memory_mib for index in coming]
        if sum(memory) <= free:
            continue
        leaving = departures.get(node, [])
        given = [actions[index].vm.demand.memory_mib for index in leaving]
        sources = [[at for at, index in enumerate(leaving) if waits[each] >> index & 1] for each in coming]
        firsts = range(len(coming)) if free < 0 else [None]
        if not all(_is_supplied(memory, given, sources, free, first) for first in firsts):
            names = ", ".join(actions[each].vm.name for each in coming)
            sentence = f"{node} has not the memory for {names} if those that they do not wait for are slow, or fail"
            yield Violation(Rule.MEMORY, None, None, sentence)


def _without_cpus(source: Configuration, actions: Sequence[Action], waits: Sequence[int]) -> Iterator[Violation]:
    """VMs that may go on while their node has not the CPUs for them and all others that may go on there before.

    What comes to a node to run meanwhile needs its CPUs in the end only, and is not counted.
    """
    used = {name: resources.centi_cpus for name, resources in source.used.items()}
    runs = {name: at.node for name, at in source.locations.items() if at.state is VMState.RUNNING}
    leaves: dict[str, list[int]] = {}  # by node: who ran there at the start and computes there no more afterwards
    for index, action in enumerate(actions):
        if action.source is not None and runs.get(action.vm.name) == action.source:
            leaves.setdefault(action.source, []).append(index)
            del runs[action.vm.name]
    unpauses = [index for index, action in enumerate(actions) if action.kind is ActionKind.UNPAUSE]
    for index in unpauses:
        node, own = actions[index].destination or "", waits[index]
        gone = sum(actions[each].vm.demand.centi_cpus for each in leaves.get(node, ()) if own >> each & 1)
        beside = [
            each
            for each in unpauses
            if actions[each].destination == node and not waits[each] >> index & 1 and actions[each].vm.demand.centi_cpus
        ]
        needed = sum(actions[each].vm.demand.centi_cpus for each in beside)
        capacity = source.node_by_name[node].capacity.centi_cpus
        if actions[index].vm.demand.centi_cpus and used[node] - gone + needed > capacity:
            sentence = (
                f"{node} has not the CPUs for {actions[index].vm.name} if those that it does not wait for are slow"
            )
            yield Violation(Rule.CPUS, None, actions[index], sentence)


def _is_supplied(
    memory: Sequence[int], given: Sequence[int], sources: Sequence[Sequence[int]], free: int, first: int | None
) -> bool:
    """Whether all arrivals of a node can be supplied at once.

    Args:
        memory: what each arrival takes.
        given: what each departure gives back.
        sources: of each arrival the departures that it waits for.
        free: at the start; negative: more is demanded than there is.
        first: only sets with this arrival are looked at, which must make up for what is demanded too much.
    """
    left, wanted = list(given), list(memory)
    common = free
    if first is not None:
        common += sum(given[at] for at in sources[first]) - memory[first]
        wanted[first] = 0
        for at in sources[first]:
            left[at] = 0
    if common < 0:
        return False
    return _unsupplied(wanted, left, sources) <= common


def _unsupplied(wanted: list[int], left: list[int], sources: Sequence[Sequence[int]]) -> int:
    """What arrivals lack when departures have supplied as much as they can: augmenting paths, the shortest first."""
    flow: list[dict[int, int]] = [{} for _ in left]  # by departure: what it supplies to each arrival
    lacking = 0
    for arrival, want in enumerate(wanted):
        missing = want
        while missing:
            path = _path(arrival, left, sources, flow)
            if path is None:
                break
            amount = min(
                missing, left[path[-1][1]], *(flow[path[at][1]][path[at + 1][0]] for at in range(len(path) - 1))
            )
            for at, (taker, departure) in enumerate(path):
                flow[departure][taker] = flow[departure].get(taker, 0) + amount
                if at + 1 < len(path):
                    flow[departure][path[at + 1][0]] -= amount
            left[path[-1][1]] -= amount
            missing -= amount
        lacking += missing
    return lacking


def _path(
    arrival: int, left: Sequence[int], sources: Sequence[Sequence[int]], flow: Sequence[dict[int, int]]
) -> list[tuple[int, int]] | None:
    """Who takes from which departure, each from the one before, so that the last departure has something left."""
    queue: deque[list[tuple[int, int]]] = deque([[(arrival, departure)] for departure in sources[arrival]])
    seen = set(sources[arrival])
    while queue:
        path = queue.popleft()
        departure = path[-1][1]
        if left[departure]:
            return path
        for taker, amount in flow[departure].items():
            for other in sources[taker] if amount else ():
                if other not in seen:
                    seen.add(other)
                    queue.append([*path, (taker, other)])
    return None
