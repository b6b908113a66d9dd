"""Hypothesis strategies for what decisions and plans start from: clusters, configurations, and targets for them.

Amounts come from a few small values, so that nodes fill up exactly, cycles arise, and failures shrink to something
that a person can draw.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, TypeVar

from hypothesis import strategies as st

from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import (
    SHARED,
    TERMINATED,
    VM,
    WAITING,
    Location,
    Node,
    NodeState,
    VJob,
    VMState,
    running_on,
    sleeping_on,
    state_of,
)
from rmsplugin.model.resources import NOTHING, Resources
from rmsplugin.model.rules import allowing
from rmsplugin.model.vjob import VJobState

CPUS = (0.0, 0.05, 0.5, 1.0, 2.0)
MEMORY_MIB = (256, 512, 768, 1024, 2048)


_T = TypeVar("_T")


@functools.lru_cache(maxsize=4096)
def one_of(values: tuple[_T, ...]) -> st.SearchStrategy[_T]:
    """One of these values. The strategy is made once: to make it takes longer than to draw from it."""
    return st.sampled_from(values)


_DEMANDS = one_of(tuple(Resources(*demand) for demand in product(CPUS, MEMORY_MIB)))
_SIZES = one_of(tuple(Resources(*size) for size in product((1.0, 2.0, 4.0), (512, 1024, 2048, 3072))))
_UP = (NodeState.UP,) * 6
_STATES = one_of(
    (*[VMState.RUNNING] * 4, *[VMState.SLEEPING] * 2, VMState.WAITING, VMState.TERMINATED),
)
_NINE, _FOUR = st.integers(0, 9), st.integers(0, 4)


def demands() -> st.SearchStrategy[Resources]:
    """What a VM may demand."""
    return _DEMANDS


def node_states(all_up: bool = False) -> st.SearchStrategy[NodeState]:
    """Mostly up."""
    return one_of(_UP if all_up else (*_UP, NodeState.DRAINING, NodeState.DOWN))


@functools.cache
def _some(strategy: st.SearchStrategy[_T], least: int, most: int) -> st.SearchStrategy[list[_T]]:
    return st.lists(strategy, min_size=least, max_size=most)


@functools.lru_cache(maxsize=4096)
def _names_of(names: tuple[str, ...], most: int) -> st.SearchStrategy[set[str]]:
    return st.sets(one_of(names), min_size=1, max_size=most)


def draw_cluster(draw: st.DrawFn, min_nodes: int = 1, max_nodes: int = 5, all_up: bool = False) -> tuple[Node, ...]:
    """Some nodes; at least the first one is up."""
    capacities = draw(_some(_SIZES, min_nodes, max_nodes))
    return tuple(
        Node(f"n{i}", capacity, draw(node_states(all_up or i == 1))) for i, capacity in enumerate(capacities, start=1)
    )


clusters = st.composite(draw_cluster)


def draw_vjob(draw: st.DrawFn, name: str, nodes: Sequence[Node], max_vms: int = 3, restricted: bool = True) -> VJob:
    """One vjob; now and then not preemptible, or restricted to some nodes (never to none)."""
    vms = draw(_some(_DEMANDS, 1, max_vms))
    names = tuple(sorted(node.name for node in nodes))
    allowed, exclude = None, frozenset[str]()
    match draw(_NINE) if restricted else 0:
        case 8:
            allowed = frozenset(draw(_names_of(names, len(names))))
        case 9 if len(names) > 1:
            exclude = frozenset(draw(_names_of(names, len(names) - 1)))
    return VJob(
        name,
        tuple(VM(f"{name}-{k}", demand) for k, demand in enumerate(vms)),
        preemptible=draw(_FOUR) < 4,
        rules=allowing(allowed, exclude),
    )


vjobs = st.composite(draw_vjob)


def draw_configuration(
    draw: st.DrawFn,
    max_nodes: int = 5,
    max_vjobs: int = 6,
    max_vms: int = 3,
    all_up: bool = False,
    restricted: bool = True,
    overcommitted: bool = False,
    consistent: bool = True,
) -> Configuration:
    """A sound configuration; CPUs may be overloaded, memory only if ``overcommitted``.

    With ``consistent`` all VMs of a vjob are in one state; without it, any mixture (as interrupted plans leave them).
    """
    nodes = draw_cluster(draw, max_nodes=max_nodes, all_up=all_up)
    count = draw(st.integers(1, max_vjobs))
    queue = [draw_vjob(draw, f"vjob{j}", nodes, max_vms, restricted) for j in range(1, count + 1)]
    there = [node.name for node in nodes if node.state is not NodeState.DOWN]
    free = {node.name: node.capacity.memory_mib for node in nodes}
    locations: dict[str, Location] = {}
    for vjob in queue:
        shared_state = draw(_STATES)
        for vm in vjob.vms:
            state = shared_state if consistent else draw(_STATES)
            locations[vm.name] = _place(draw, vm, state, there, free, overcommitted)
        if consistent and len({locations[vm.name].state for vm in vjob.vms}) > 1:  # no room for all of them
            for vm in vjob.vms:
                location = locations[vm.name]
                if location.state is VMState.RUNNING and location.node is not None:
                    free[location.node] += vm.demand.memory_mib
                locations[vm.name] = WAITING
    return Configuration(nodes, tuple(queue), locations)


configurations = st.composite(draw_configuration)


def _place(
    draw: st.DrawFn, vm: VM, state: VMState, there: Sequence[str], free: dict[str, int], overcommitted: bool
) -> Location:
    if state is VMState.RUNNING:
        hosts = [name for name in there if overcommitted or vm.demand.memory_mib <= free[name]]
        if not hosts:
            return WAITING
        host = draw(one_of(tuple(hosts)))
        free[host] -= vm.demand.memory_mib
        return running_on(host)
    if state is VMState.SLEEPING:
        return sleeping_on(draw(one_of((*there, SHARED))))
    return Location(state)


#: What a vjob can be led to, by the state that it is in; the first is what hypothesis shrinks to.
_LEGAL = {
    VJobState.WAITING: (VJobState.RUNNING, VJobState.RUNNING, VJobState.WAITING, VJobState.TERMINATED),
    VJobState.RUNNING: (VJobState.RUNNING,) * 4 + (VJobState.SLEEPING, VJobState.TERMINATED),
    VJobState.SLEEPING: (VJobState.RUNNING, VJobState.RUNNING, VJobState.SLEEPING, VJobState.TERMINATED),
    VJobState.TERMINATED: (VJobState.TERMINATED,),
}


@st.composite
def targets(draw: st.DrawFn, source: Configuration) -> Mapping[str, Location]:
    """A target for every VM that any plan should be able to reach.

    All VMs of a vjob in one state; viable in memory and CPUs, but for nodes that are overloaded already by
    VMs that may not be preempted and stay. As hosts are drawn at random, migrations in cycles are common.
    """
    left = {node.name: node.capacity for node in source.nodes}
    target: dict[str, Location] = {}
    for vjob in source.vjobs:  # what may not be preempted first: it stays where it is, whatever there is room for
        if _must_run(source, vjob):
            for vm in vjob.vms:
                host = source.locations[vm.name].node or ""
                left[host] -= vm.demand
                target[vm.name] = running_on(host)
    for vjob in source.vjobs:
        if _must_run(source, vjob):
            for vm in vjob.vms:
                host = target[vm.name].node or ""
                others = [name for name in _hosts(source, vjob, vm, left) if name != host]
                other = draw(one_of((host, *others)))
                if other != host:
                    left[host] += vm.demand
                    left[other] -= vm.demand
                    target[vm.name] = running_on(other)
        else:
            target.update(_lead(draw, source, vjob, left))
    return target


def _must_run(source: Configuration, vjob: VJob) -> bool:
    running = all(source.locations[vm.name].state is VMState.RUNNING for vm in vjob.vms)
    return running and not vjob.preemptible


def _hosts(source: Configuration, vjob: VJob, vm: VM, left: Mapping[str, Resources]) -> list[str]:
    return [
        node.name
        for node in source.nodes
        if node.state is NodeState.UP and vjob.allows(node.name) and left[node.name].holds(vm.demand)
    ]


def _lead(draw: st.DrawFn, source: Configuration, vjob: VJob, left: dict[str, Resources]) -> Mapping[str, Location]:
    """Where the VMs of one vjob end: running if drawn and if there is room, else asleep, waiting or ended."""
    now = state_of(vjob, source.locations)
    wanted = draw(one_of(_LEGAL[now]))
    if wanted is VJobState.RUNNING:
        hosts: dict[str, Location] = {}
        taken = dict.fromkeys(left, NOTHING)
        for vm in vjob.vms:
            room = {name: left[name] - taken[name] for name in left}
            if not (candidates := _hosts(source, vjob, vm, room)):
                break
            host = draw(one_of(tuple(candidates)))
            taken[host] += vm.demand
            hosts[vm.name] = running_on(host)
        else:
            for name in left:
                left[name] -= taken[name]
            return hosts
        wanted = VJobState.WAITING if now is VJobState.WAITING else VJobState.SLEEPING
    if wanted is VJobState.SLEEPING and not vjob.preemptible and now is VJobState.RUNNING:
        wanted = VJobState.TERMINATED
    if wanted is VJobState.SLEEPING:
        shared = draw(st.integers(0, 3)) == 3  # the saved states on storage that all nodes mount
        return {vm.name: _asleep(source.locations[vm.name], shared) for vm in vjob.vms}
    return dict.fromkeys((vm.name for vm in vjob.vms), WAITING if wanted is VJobState.WAITING else TERMINATED)


def _asleep(location: Location, shared: bool) -> Location:
    if location.state is VMState.SLEEPING:
        return location
    return sleeping_on(SHARED if shared else location.node or "")


def problems_of_planning(**options: Any) -> st.SearchStrategy[tuple[Configuration, Mapping[str, Location]]]:
    """A configuration (made with the options of ``configurations``) and a target for it."""
    return configurations(**options).flatmap(lambda source: st.tuples(st.just(source), targets(source)))


@st.composite
def rotations(draw: st.DrawFn, max_nodes: int = 4) -> tuple[Configuration, Mapping[str, Location]]:
    """VMs in slots that fill all nodes but for a few slots, and their permutation: cycles, often without a pivot."""
    count = draw(st.integers(2, max_nodes))
    slots = [f"n{i}" for i in range(1, count + 1) for _ in range(draw(st.integers(1, 2)))]
    nodes = tuple(Node(name, Resources(4.0, 1024 * slots.count(name))) for name in dict.fromkeys(slots))
    before = draw(st.permutations(slots))
    after = draw(st.permutations(slots))
    vms = [VM(f"vm{i}", Resources(1.0, draw(st.sampled_from([512, 1024])))) for i in range(len(slots))]
    holes = draw(st.integers(0, 2))
    vms = vms[: max(2, len(vms) - holes)]
    cut = draw(st.integers(1, len(vms)))
    queue = [VJob("vjob1", tuple(vms[:cut]))] + ([VJob("vjob2", tuple(vms[cut:]))] if cut < len(vms) else [])
    pairs = list(zip(vms, before, after, strict=False))
    source = Configuration(nodes, tuple(queue), {vm.name: running_on(host) for vm, host, _ in pairs})
    return source, {vm.name: running_on(host) for vm, _, host in pairs}
