"""The families of instances that the benchmarks measure: those of the papers, and larger ones. Seeded, reproducible."""

from __future__ import annotations

import random
from collections.abc import Sequence

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


def rr6929(nodes: int, vms: int, seed: int) -> Configuration:
    """RR-6929, section 5.1: nodes of 2 CPUs and 4 GiB; vjobs of 9 or 18 VMs, in a random state, in random phases.

    The memory of all running VMs is satisfied, their CPUs need not be. A VM demands a whole CPU while it computes:
    how many of a vjob's VMs do so follows the shapes of the NAS Grid Benchmarks (ED: all; HC: one; VP and MB: a part).
    """
    chance = random.Random(f"rr6929/{nodes}/{vms}/{seed}")
    return _vjobs_in_random_states(chance, _cluster(nodes, 2, 4096), vms, RR6929_SIZES, (9, 18))


def crowded(nodes: int, vms_a_node: float, seed: int, sizes: int | None = None) -> Configuration:
    """As ``rr6929`` with more VMs; ``sizes``: of so many random sizes of memory instead of the four of the paper."""
    vms = round(nodes * vms_a_node)
    if sizes is None:
        return rr6929(nodes, vms, seed)
    chance = random.Random(f"crowded/{nodes}/{vms}/{sizes}/{seed}")
    memory_mib = sorted(chance.sample(range(RR6929_SIZES[0], RR6929_SIZES[-1] + 1), sizes))
    return _vjobs_in_random_states(chance, _cluster(nodes, 2, 4096), vms, memory_mib, (9, 18))


def scale(nodes: int, vms: int, seed: int) -> Configuration:
    """Large clusters: two kinds of nodes (16 CPUs and 64 GiB, 32 CPUs and 128 GiB), vjobs of 1 to 32 VMs."""
    chance = random.Random(f"scale/{nodes}/{vms}/{seed}")
    cluster = tuple(Node(f"n{i:04}", Resources(16, 65536) if i % 4 else Resources(32, 131072)) for i in range(nodes))
    sizes = (2048, 4096, 8192, 16384)
    return _vjobs_in_random_states(chance, cluster, vms, sizes, (1, 2, 4, 8, 16, 32), cpus=(1, 2, 4))


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
) -> Configuration:
    free = {node.name: node.capacity.memory_mib for node in cluster}
    names = [node.name for node in cluster]
    queue: list[VJob] = []
    locations: dict[str, Location] = {}
    left = vms
    while left:
        length = min(chance.choice(lengths), left)
        left -= length
        vjob = VJob(f"vjob{len(queue)}", _vms(chance, len(queue), length, sizes, chance.choice(cpus)))
        state = chance.choice((VMState.RUNNING, VMState.SLEEPING, VMState.WAITING))
        if state is VMState.RUNNING and not _host(chance, free, vjob, locations):
            state = VMState.SLEEPING
        if state is VMState.SLEEPING:
            locations |= {vm.name: sleeping_on(chance.choice(names)) for vm in vjob.vms}
        elif state is VMState.WAITING:
            locations |= {vm.name: WAITING for vm in vjob.vms}
        queue.append(vjob)
    return Configuration(cluster, tuple(queue), locations)


def _vms(chance: random.Random, number: int, length: int, sizes: Sequence[int], cpus: int) -> tuple[VM, ...]:
    active = {
        "ED": length,  # embarrassingly distributed: all compute
        "HC": 1,  # one chain
        "VP": max(1, length // 3),  # a pipeline of three stages
        "MB": max(1, length // 2),
    }[chance.choice(("ED", "HC", "VP", "MB"))]
    computing = set(chance.sample(range(length), active))
    return tuple(
        VM(f"vjob{number}-{i}", Resources(cpus if i in computing else 0, chance.choice(sizes))) for i in range(length)
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
