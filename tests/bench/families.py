"""The families of instances that the benchmarks measure: those of the papers, and larger ones. Seeded, reproducible."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, WAITING, Location, Node, VJob, VMState, running_on, sleeping_on
from rmsplugin.model.resources import Resources

#: MiB by number of equivalence classes (each memory size, active or not): VEE'09, section 5.1.
VEE09_SIZES = {2: (1024,), 4: (1024, 2048), 8: (512, 1024, 1536, 2048)}

#: MiB of the VMs of RR-6929, section 5.1.
RR6929_SIZES = (256, 512, 1024, 2048)


def vee09(vms: int, classes: int, seed: int, nodes: int = 200) -> Configuration:
    """VEE'09, section 5.1: nodes of 2 CPUs and 3 GiB; each VM needs 0 or 1 CPU. All run, one VM a vjob.

    Each is on a random node that has the memory for it; CPUs may be overloaded, which is why one reconfigures.
    """
    chance = random.Random(f"vee09/{vms}/{classes}/{nodes}/{seed}")
    cluster = _cluster(nodes, 2, 3072)
    queue = []
    for number in range(vms):
        vm = VM(f"vm{number}", Resources(chance.randint(0, 1), chance.choice(VEE09_SIZES[classes])))
        queue.append(VJob(f"vjob{number}", (vm,)))
    free = {node.name: node.capacity.memory_mib for node in cluster}
    locations = {}
    # Big ones first, or the last of them would find no node with room at 400 VMs on 200 nodes.
    for vm in sorted((vjob.vms[0] for vjob in queue), key=lambda vm: -vm.demand.memory_mib):
        locations[vm.name] = running_on(_random_node(chance, free, vm))
    return Configuration(cluster, tuple(queue), locations)


def rr6929(nodes: int, vms: int, seed: int, idle_cpus: float = 0.0) -> Configuration:
    """RR-6929, section 5.1: nodes of 2 CPUs and 4 GiB; vjobs of 9 or 18 VMs, in a random state, in random phases.

    The memory of all running VMs is satisfied, their CPUs need not be. A VM demands a whole CPU while it computes:
    how many of a vjob's VMs do so follows the shapes of the NAS Grid Benchmarks (ED: all; HC: one; VP and MB: a part).
    Others demand ``idle_cpus``: nothing, or 0.05 as only its French version says (section 5.1).
    """
    chance = random.Random(f"rr6929/{nodes}/{vms}/{seed}")
    cluster = _cluster(nodes, 2, 4096)
    return _vjobs_in_random_states(chance, cluster, vms, RR6929_SIZES, (9, 18), idle_cpus=idle_cpus)


def crowded(nodes: int, vms_a_node: float, seed: int, sizes: int | None = None) -> Configuration:
    """As ``rr6929`` with more VMs; ``sizes``: of so many random sizes of memory instead of the four of the paper."""
    vms = round(nodes * vms_a_node)
    if sizes is None:
        return rr6929(nodes, vms, seed)
    chance = random.Random(f"crowded/{nodes}/{vms}/{sizes}/{seed}")
    memory_mib = sorted(chance.sample(range(RR6929_SIZES[0], RR6929_SIZES[-1] + 1), sizes))
    return _vjobs_in_random_states(chance, _cluster(nodes, 2, 4096), vms, memory_mib, (9, 18))


def tight(nodes: int, vms: int, seed: int, lengths: Sequence[int] = (1, 2, 3)) -> Configuration:
    """Small and crowded: as ``rr6929``, with vjobs of few VMs."""
    chance = random.Random(f"tight/{nodes}/{vms}/{lengths}/{seed}")
    return _vjobs_in_random_states(chance, _cluster(nodes, 2, 4096), vms, RR6929_SIZES, lengths)


def exchange(vms: int, seed: int) -> tuple[Configuration, dict[str, Location]]:
    """Nodes that are nearly full, on which VMs of three sizes change places at random; with the target.

    A twelfth of the memory is free. Every fifth vjob is not preemptible. CPUs are not short: no VM computes, and each
    demands 0.05 of one, as in ``running``.
    """
    chance = random.Random(f"exchange/{vms}/{seed}")
    sizes = [chance.choice((512, 1024, 2048)) for _ in range(vms)]
    nodes = _cluster(max(2, round(sum(sizes) * 12 / 11 / 4096)), vms, 4096)
    while (before := _filled(chance, nodes, sizes)) is None or (after := _filled(chance, nodes, sizes)) is None:
        nodes = _cluster(len(nodes) + 1, vms, 4096)
    machines = [VM(f"vm{i}", Resources(0.05, size)) for i, size in enumerate(sizes)]
    queue, at = [], 0
    while at < vms:
        length = chance.randint(1, 4)
        members = tuple(machines[at : at + length])
        queue.append(VJob(f"vjob{len(queue)}", members, preemptible=len(queue) % 5 != 4))
        at += length
    source = Configuration(
        nodes, tuple(queue), {vm.name: running_on(node) for vm, node in zip(machines, before, strict=True)}
    )
    return source, {vm.name: running_on(node) for vm, node in zip(machines, after, strict=True)}


def _filled(chance: random.Random, nodes: Sequence[Node], sizes: Sequence[int]) -> list[str] | None:
    """The node of each VM, at random, large ones first; None if not all were placed in a hundred tries."""
    for _ in range(100):
        free = {node.name: node.capacity.memory_mib for node in nodes}
        hosts = {}
        for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
            roomy = [name for name, memory in free.items() if memory >= sizes[i]]
            if not roomy:
                break
            hosts[i] = chance.choice(roomy)
            free[hosts[i]] -= sizes[i]
        else:
            return [hosts[i] for i in range(len(sizes))]
    return None


def scale(nodes: int, vms: int, seed: int) -> Configuration:
    """Large clusters: two kinds of nodes (16 CPUs and 64 GiB, 32 CPUs and 128 GiB), vjobs of 1 to 32 VMs."""
    chance = random.Random(f"scale/{nodes}/{vms}/{seed}")
    cluster = tuple(Node(f"n{i:04}", Resources(16, 65536) if i % 4 else Resources(32, 131072)) for i in range(nodes))
    sizes = (2048, 4096, 8192, 16384)
    return _vjobs_in_random_states(chance, cluster, vms, sizes, (1, 2, 4, 8, 16, 32), cpus=(1, 2, 4))


def running(nodes: int, full: int, seed: int, sizes: Sequence[int] = RR6929_SIZES) -> Configuration:
    """All run, viable: nodes of 2 CPUs and 4 GiB, each filled with random VMs up to ``full`` percent of its memory.

    A VM demands a whole CPU while it computes, and 0.05 otherwise (RR-6929's French version, section 5.1). VMs of
    random nodes make vjobs of 9 or 18.
    """
    chance = random.Random(f"running/{nodes}/{full}/{len(sizes)}/{seed}")
    cluster = _cluster(nodes, 2, 4096)
    hosted: list[tuple[Resources, str]] = []
    for node in cluster:
        left = Resources(2, 4096 * full // 100)
        for size in [*chance.choices(sizes, k=24), *[128] * 16]:
            demand = Resources(chance.choice((0.05, 0.05, 1)), size)
            if left.holds(demand):
                left -= demand
                hosted.append((demand, node.name))
    chance.shuffle(hosted)
    queue, locations = [], {}
    while hosted:
        name = f"vjob{len(queue)}"
        members = [hosted.pop() for _ in range(min(len(hosted), chance.choice((9, 18))))]
        vms = [VM(f"{name}-{i}", demand) for i, (demand, _) in enumerate(members)]
        locations |= {vm.name: running_on(node) for vm, (_, node) in zip(vms, members, strict=True)}
        queue.append(VJob(name, tuple(vms)))
    return Configuration(cluster, tuple(queue), locations)


#: MiB of VMs of which hardly two are equal.
MANY_SIZES = tuple(range(256, 2049, 64))

#: What changes on a cluster from one moment to the next.
CHANGES = ("more CPUs", "less CPUs", "more memory", "less memory", "arrival", "end")


def changed(configuration: Configuration, change: str, seed: int) -> Configuration:
    """One small change: a VM demands 5 % more or less, a vjob of 1 to 9 VMs arrives somewhere in the queue, one ends.

    Of the VMs that demand more, one is taken whose node has not that much (if there is one): others ask for nothing.
    """
    chance = random.Random(f"changed/{change}/{seed}")
    queue, locations = list(configuration.vjobs), dict(configuration.locations)
    if change == "arrival":
        vms = [
            VM(f"new-{i}", Resources(chance.choice((0.05, 1)), chance.choice(RR6929_SIZES)))
            for i in range(chance.randint(1, 9))
        ]
        queue.insert(chance.randint(0, len(queue)), VJob("new", tuple(vms)))
        locations |= {vm.name: WAITING for vm in vms}
    elif change == "end":
        gone = queue.pop(chance.randrange(len(queue)))
        for vm in gone.vms:
            del locations[vm.name]
    else:
        sign = 1 if change.startswith("more") else -1
        demands = {
            vm.name: _demanding(vm.demand, change.split()[1], 1 + sign * 0.05) for vjob in queue for vm in vjob.vms
        }
        names = [name for name, demand in demands.items() if sign < 0 or _overloads(configuration, name, demand)]
        chosen = chance.choice(names or list(demands))
        for number, vjob in enumerate(queue):
            vms = [VM(vm.name, demands[vm.name] if vm.name == chosen else vm.demand) for vm in vjob.vms]
            queue[number] = replace(vjob, vms=tuple(vms))
    return Configuration(configuration.nodes, tuple(queue), locations)


def _demanding(demand: Resources, what: str, factor: float) -> Resources:
    if what == "CPUs":
        return Resources(round(demand.cpus * factor, 2), demand.memory_mib)
    return Resources(demand.cpus, round(demand.memory_mib * factor))


def _overloads(configuration: Configuration, vm: str, demand: Resources) -> bool:
    node = configuration.locations[vm].node or ""
    return not configuration.free(node).holds(demand - configuration.vm_by_name[vm].demand)


def _cluster(nodes: int, cpus: int, memory_mib: int) -> tuple[Node, ...]:
    return tuple(Node(f"n{i:03}", Resources(cpus, memory_mib)) for i in range(nodes))


def _random_node(chance: random.Random, free: dict[str, int], vm: VM) -> str:
    candidates = [name for name, memory in free.items() if memory >= vm.demand.memory_mib]
    if not candidates:
        raise ValueError(f"no node has {vm.demand.memory_mib} MiB free for {vm.name}")
    node = chance.choice(candidates)
    free[node] -= vm.demand.memory_mib
    return node


def _vjobs_in_random_states(
    chance: random.Random,
    cluster: tuple[Node, ...],
    vms: int,
    sizes: Sequence[int],
    lengths: Sequence[int],
    cpus: Sequence[int] = (1,),
    idle_cpus: float = 0.0,
) -> Configuration:
    free = {node.name: node.capacity.memory_mib for node in cluster}
    names = [node.name for node in cluster]
    queue: list[VJob] = []
    locations: dict[str, Location] = {}
    left = vms
    while left:
        length = min(chance.choice(lengths), left)
        left -= length
        vjob = VJob(f"vjob{len(queue)}", _vms(chance, len(queue), length, sizes, chance.choice(cpus), idle_cpus))
        state = chance.choice((VMState.RUNNING, VMState.SLEEPING, VMState.WAITING))
        if state is VMState.RUNNING and not _host(chance, free, vjob, locations):
            state = VMState.SLEEPING
        if state is VMState.SLEEPING:
            locations |= {vm.name: sleeping_on(chance.choice(names)) for vm in vjob.vms}
        elif state is VMState.WAITING:
            locations |= {vm.name: WAITING for vm in vjob.vms}
        queue.append(vjob)
    return Configuration(cluster, tuple(queue), locations)


def _vms(
    chance: random.Random, number: int, length: int, sizes: Sequence[int], cpus: int, idle_cpus: float
) -> tuple[VM, ...]:
    active = {
        "ED": length,  # embarrassingly distributed: all compute
        "HC": 1,  # one chain
        "VP": max(1, length // 3),  # a pipeline of three stages
        "MB": max(1, length // 2),
    }[chance.choice(("ED", "HC", "VP", "MB"))]
    computing = set(chance.sample(range(length), active))
    return tuple(
        VM(f"vjob{number}-{i}", Resources(cpus if i in computing else idle_cpus, chance.choice(sizes)))
        for i in range(length)
    )


def _host(chance: random.Random, free: dict[str, int], vjob: VJob, locations: dict[str, Location]) -> bool:
    """Place a running vjob by memory at random; False, and nothing changed, if it finds no room."""
    left = dict(free)
    placed = {}
    for vm in vjob.vms:
        if all(memory < vm.demand.memory_mib for memory in left.values()):
            return False
        placed[vm.name] = running_on(_random_node(chance, left, vm))
    free.update(left)
    locations |= placed
    return True
