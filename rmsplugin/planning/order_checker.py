"""Order checker: whether a dependency order keeps memory (I3), whatever the durations and failures of actions.

An action begins when all that it needs have succeeded; an action that needs a failed one is skipped. So the actions
that have begun contain all that they need, and departures that none of them needs may not have ended. An order is right
if on each node the arrivals of no such set take more than the free memory and its departures' memory. By the theorem of
max-flow and min-cut this is so if and only if all arrivals can be supplied at once: each from the memory free at the
start and from departures that it waits for, directly or by way of others.

A VM that goes on needs its CPUs: those of its node that are free at the start, and those of VMs that it waits for.

Like ``rmsplugin.planning.checker`` it shares nothing with the planner but the model's values.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from rmsplugin.model.action import Action, ActionKind
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VMState
from rmsplugin.planning.joint_checker import check_joint
from rmsplugin.planning.violations import Rule, Violation
from rmsplugin.planning.way_checker import outcome_of


def check_order(
    source: Configuration, actions: Sequence[Action], needs: Sequence[Sequence[int]], *, cpu_in_plan: bool = False
) -> list[Violation]:
    """Return a violation for each node that some interleaving overcommits; empty if there is none.

    Args:
        source: the configuration in which the order begins.
        actions: of a plan that is right pool by pool.
        needs: for each action the indices, all below its own, of those that must have succeeded before it begins.
        cpu_in_plan: whether VMs that come need their CPUs then; else only those need them that go on.
    """
    waits = all_needs(needs)
    departures, arrivals = _by_node(source, actions)
    found = [
        *_overcommitted(source, actions, waits, departures, arrivals),
        *_without_cpus(source, actions, waits, cpu_in_plan),
    ]
    return [*found, *check_joint(source, actions, waits)]


def all_needs(needs: Sequence[Sequence[int]]) -> list[int]:
    """For each action all actions that it waits for, directly or not, as the bits of a number."""
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
    memory = [action.vm.demand.memory_mib for action in actions]
    for node, coming in arrivals.items():
        if not _all_supplied(source.free(node).memory_mib, memory, waits, departures.get(node, []), coming):
            names = ", ".join(actions[each].vm.name for each in coming)
            sentence = f"{node} has not the memory for {names} if those that they do not wait for are slow, or fail"
            yield Violation(Rule.MEMORY, None, None, sentence)


def _without_cpus(
    source: Configuration, actions: Sequence[Action], waits: Sequence[int], cpu_in_plan: bool
) -> Iterator[Violation]:
    """Nodes on which VMs may go on while there are not the CPUs for all that do.

    A VM that comes to a node to run meanwhile is counted only with ``cpu_in_plan``.
    """
    runs = {name: at.node for name, at in source.locations.items() if at.state is VMState.RUNNING}
    leaving: dict[str, list[int]] = {}  # by node: actions after which VMs that ran there, or went on, compute no more
    waking: dict[str, list[int]] = {}
    for index, action in enumerate(actions):
        node = action.source or ""
        if action.kind is ActionKind.UNPAUSE:
            runs[action.vm.name] = node
            if action.vm.demand.centi_cpus:
                waking.setdefault(node, []).append(index)
        elif runs.get(action.vm.name) == node:
            leaving.setdefault(node, []).append(index)
            del runs[action.vm.name]
        after = outcome_of(action)
        if cpu_in_plan and action.kind is not ActionKind.UNPAUSE and after.state is VMState.RUNNING:
            runs[action.vm.name] = after.node
            if action.vm.demand.centi_cpus:
                waking.setdefault(after.node or "", []).append(index)
    cpus = [action.vm.demand.centi_cpus for action in actions]
    for node, indices in waking.items():
        if not _all_supplied(source.free(node).centi_cpus, cpus, waits, leaving.get(node, []), indices):
            names = ", ".join(actions[each].vm.name for each in indices)
            sentence = f"{node} has not the CPUs for {names} if those that they do not wait for are slow, or fail"
            yield Violation(Rule.CPUS, None, None, sentence)


def _all_supplied(
    free: int, amounts: Sequence[int], waits: Sequence[int], leaving: Sequence[int], coming: Sequence[int]
) -> bool:
    """Whether all arrivals of a node can be supplied at once from the free amount and from the actions they wait for.

    Args:
        free: the amount at the start; below 0 where VMs demand more than there is.
        amounts: for each action, the amount that it takes or gives back.
        waits: for each action, the actions that it waits for.
        leaving: the actions that give back.
        coming: the actions that take.
    """
    wanted = [amounts[index] for index in coming]
    if sum(wanted) <= free:
        return True
    given = [amounts[index] for index in leaving]
    sources = [[at for at, index in enumerate(leaving) if waits[each] >> index & 1] for each in coming]
    firsts = range(len(coming)) if free < 0 else [None]
    return all(_is_supplied(wanted, given, sources, free, first) for first in firsts)


def _is_supplied(
    memory: Sequence[int], given: Sequence[int], sources: Sequence[Sequence[int]], free: int, first: int | None
) -> bool:
    """Whether all arrivals of a node can be supplied at once.

    Args:
        memory: the memory that each arrival takes; or its CPUs.
        given: the amount that each departure gives back.
        sources: for each arrival the departures that it waits for.
        free: the amount at the start; below 0: VMs demand more than there is.
        first: only sets with this arrival are looked at, which must make up for the excess demand.
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
    """The lack of arrivals after departures have supplied all they can: augmenting paths, the shortest first."""
    flow: list[dict[int, int]] = [{} for _ in left]  # by departure: its supply to each arrival
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
    """A chain of arrivals and departures, each taking from the one before, so that the last departure has some left."""
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
