"""Unburdening: which vjob that runs is in the way of one that the policy has left without room.

A policy never splits a vjob, and moves nothing out of its group: so a vjob may wait though there is as much free
elsewhere as it lacks here. It has room once another one has gone to where that fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import NodeState, VJob
from rmsplugin.model.joint import Joint
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.ffd import first_fit_decreasing

#: So many are named at most.
MOST = 8


def in_the_way(after: Configuration, waits: VJob, may_go: Callable[[VJob], bool]) -> list[VJob]:
    """The vjobs without each of which one that waits would have room, those with the least memory first.

    All others that run or are paused stay where they are. Nobody is in the way of a vjob with a rule about VMs beside
    others, nor is a vjob with such a rule: other groups do not see the VMs that it is about.

    Args:
        after: the configuration as the decision leaves it.
        waits: the vjob that is left without room.
        may_go: whether a vjob that runs may go; asked only of those that are in the way.
    """
    if _has_joint(waits) or waits.anchored:
        return []
    running = (vjob for vjob in after.vjobs if not vjob.in_transit and after.state(vjob) is VJobState.RUNNING)
    by_memory = sorted(running, key=lambda vjob: (vjob.demand.memory_mib, vjob.demand.cpus, vjob.name))
    found = (vjob for vjob in _in_the_way(after, waits, by_memory) if may_go(vjob))
    return list(islice(found, MOST))


def _in_the_way(after: Configuration, waits: VJob, by_memory: Iterable[VJob]) -> Iterator[VJob]:
    usable = [node.name for node in after.nodes if node.state is NodeState.UP and waits.allows(node.name)]
    free = {name: after.free(name) for name in usable}
    # The least that any of its VMs needs: a node with less than that is no help.
    least = Resources(min(vm.demand.cpus for vm in waits.vms), min(vm.demand.memory_mib for vm in waits.vms))
    open_now = {name: left for name, left in free.items() if left.holds(least)}
    for vjob in by_memory:
        freed: dict[str, Resources] = {}
        for vm in vjob.vms:
            if (node := after.homes.get(vm.name)) is not None and node in free:
                freed[node] = freed.get(node, free[node]) + vm.demand
        if not any(left.holds(least) for left in freed.values()) or _has_joint(vjob):
            continue
        if first_fit_decreasing(waits.vms, open_now | freed) is not None:
            yield vjob


def pays(waits: VJob, without_room_s: float, goes: VJob, standstill_s: float) -> bool:
    """Whether it pays that a vjob stands still, so that another one has room.

    Nobody knows how much longer the other one would wait: it is taken to be as long as it has waited already. So what
    is lost by waiting and by standing still is at most twice of what it would be if the future were known (the rule of
    the ski rental). It would not wait beyond the end of the vjob that goes, whose room it then had anyway. CPU-seconds
    are compared.

    Args:
        waits: the vjob that is left without room.
        without_room_s: seconds for which it was the first one without room.
        goes: the vjob that would go.
        standstill_s: seconds for which that one would stand still.
    """
    left_s = float("inf") if goes.time_limit_s is None else max(0.0, goes.time_limit_s - goes.ran_s)
    return waits.demand.cpus * min(without_room_s, left_s) >= goes.demand.cpus * standstill_s


def _has_joint(vjob: VJob) -> bool:
    return any(isinstance(rule, Joint) for rule in vjob.rules)
