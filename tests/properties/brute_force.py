"""Brute force: the cheapest plan of a small instance, by trying all pools that the rules allow; slow and plain.

It shares nothing with the planner but the model's values. A pool is any set of actions that are feasible together;
plans are continued from the cheapest on (Dijkstra's algorithm), until one has arrived.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterator, Mapping

from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import SHARED, Location, NodeState, VJob, VMState, running_on, sleeping_on

#: Where each VM is, and which vjobs have resumed.
_State = tuple[tuple[Location, ...], frozenset[str]]


class TooLargeError(Exception):
    """The search was given up."""


def cheapest_cost(
    source: Configuration,
    is_end: Callable[[Mapping[str, Location]], bool],
    departs: Mapping[str, Location],
    runs: frozenset[str],
    *,
    sleeps: bool = True,
    most: int = 200_000,
) -> float:
    """The cost of the cheapest plan, in MiB; infinite if there is none.

    Args:
        source: where all VMs are now.
        is_end: whether a plan may end like that.
        departs: VMs that do not run in the end, and where they end; their actions are in the first pool.
        runs: VMs that run in the end; all others stay as they are.
        sleeps: whether VMs that run may be suspended to break a cycle.
        most: give up after so many pools.

    Raises:
        TooLargeError: there are more pools.
    """
    names = sorted({*departs, *runs})
    start: _State = (tuple(source.locations[name] for name in names), frozenset())
    queue: list[tuple[int, int, int, _State, bool]] = [(0, 0, 0, start, True)]
    seen: dict[_State, list[tuple[int, int]]] = {}
    number = itertools.count(1)
    while queue:
        spent, elapsed, _, state, is_first = heapq.heappop(queue)
        locations = {**source.locations, **dict(zip(names, state[0], strict=True))}
        if is_end(locations):
            return spent
        if not is_first:
            if any(a <= elapsed and b <= spent for a, b in seen.get(state, [])):
                continue
            seen.setdefault(state, []).append((elapsed, spent))
        for after, price, own, count in _pools(source, names, state, departs, runs, is_first, sleeps):
            pool = next(number)
            if pool > most:
                raise TooLargeError
            heapq.heappush(queue, (spent + own + elapsed * count, elapsed + price, pool, after, False))
    return math.inf


def _pools(
    source: Configuration,
    names: list[str],
    state: _State,
    departs: Mapping[str, Location],
    runs: frozenset[str],
    is_first: bool,
    sleeps: bool,
) -> Iterator[tuple[_State, int, int, int]]:
    locations, resumed = state
    now = {**source.locations, **dict(zip(names, locations, strict=True))}
    free = {node.name: node.capacity.memory_mib for node in source.nodes}
    for name, location in now.items():
        if location.state is VMState.RUNNING:
            free[location.node or ""] -= source.vm_by_name[name].demand.memory_mib
    hops = [
        _departure(now[name], departs[name], is_first) if name in departs else _hops(source, name, now[name], sleeps)
        for name in names
    ]
    for afters in itertools.product(*hops):
        left, costs, waking, broken = dict(free), [], set[str](), False
        for name, here, there in zip(names, locations, afters, strict=True):
            if there is None or there == here:
                continue
            vm, vjob = source.vm_by_name[name], source.vjob_by_vm[name]
            memory = vm.demand.memory_mib
            if there.state is VMState.RUNNING:
                left[there.node or ""] -= memory
                broken = broken or left[there.node or ""] < 0
            if here.state is VMState.SLEEPING and there.state is VMState.RUNNING:
                waking.add(vjob.name)
            costs.append(_cost(memory, here, there))
        if broken or not costs or not _are_together(source, names, afters, locations, waking, resumed, runs):
            continue
        after = tuple(here if there is None else there for here, there in zip(locations, afters, strict=True))
        yield (after, resumed | waking), max(costs), sum(costs), len(costs)


def _are_together(
    source: Configuration,
    names: list[str],
    afters: tuple[Location | None, ...],
    locations: tuple[Location, ...],
    waking: set[str],
    resumed: frozenset[str],
    runs: frozenset[str],
) -> bool:
    """All resumes of a vjob are in one pool: of a vjob that wakes nobody sleeps afterwards, who shall run."""
    for name, here, there in zip(names, locations, afters, strict=True):
        vjob: VJob = source.vjob_by_vm[name]
        now = here if there is None else there
        if name in runs and now.state is VMState.SLEEPING and vjob.name in {*waking, *resumed}:
            return False
    return True


def _departure(here: Location, end: Location, is_first: bool) -> list[Location | None]:
    return [end] if is_first and here != end else [None]


def _hops(source: Configuration, name: str, here: Location, sleeps: bool) -> list[Location | None]:
    vjob = source.vjob_by_vm[name]
    if here.state is VMState.RUNNING and not vjob.can.migrate:
        return [None]  # nor is it saved to be restored elsewhere: it stands still for longer than a vjob that makes way
    own = [node for node in source.nodes if node.platform == vjob.platform]
    nodes = [node.name for node in own if node.state is NodeState.UP and vjob.allows(node.name)]
    if here.state is VMState.SLEEPING and not vjob.can.elsewhere:
        nodes = [node for node in nodes if node == here.node]
    found: list[Location | None] = [None, *(running_on(node) for node in nodes if running_on(node) != here)]
    if here.state is VMState.RUNNING and sleeps and vjob.can.suspend and vjob.can.elsewhere:
        found.append(sleeping_on(here.node or ""))
    return found


def _cost(memory: int, here: Location, there: Location) -> int:
    if there.state in (VMState.TERMINATED, VMState.WAITING) or here.state is VMState.WAITING:
        return 0
    if here.state is VMState.SLEEPING and here.node not in (SHARED, there.node):
        return 2 * memory
    return memory
