"""Forecast: when each vjob that waits or sleeps is likely to run, by the next context switch and by time limits. Pure.

A list schedule: in the order of the queue each vjob runs as soon as all its VMs fit beside those ahead of it, and each
ends when its time limit has passed. Mostly it comes sooner: vjobs end before their limits, and others make way.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, NodeState, VJob, VMState
from rmsplugin.model.resources import NOTHING, Resources
from rmsplugin.model.vjob import VJobState

#: The most looks at nodes for one forecast; vjobs at the end of a long queue have none.
LOOKS = 500_000
_READY = (VJobState.WAITING, VJobState.SLEEPING, VJobState.PAUSED)

#: What vjobs take of nodes.
_Taken = list[tuple[str, Resources]]


def forecast(before: Configuration, after: Configuration, looks: int = LOOKS) -> dict[str, float | None]:
    """The seconds until each vjob runs that does not run now; 0: it begins with the next switch; None: not known.

    Args:
        before: the configuration now.
        after: as it will be after the next context switch; its vjobs are in the order of the queue.
        looks: the most looks at nodes.
    """
    schedule, known = _Schedule(after, looks), {vjob.name: vjob for vjob in before.vjobs}
    found: dict[str, float | None] = {}
    for vjob in after.vjobs:
        state = after.state(vjob)
        if vjob.in_transit or vjob.name not in known:
            continue
        if state is VJobState.RUNNING and before.state(known[vjob.name]) in _READY:
            found[vjob.name] = 0.0
        elif state in _READY and vjob.target in (None, VJobState.RUNNING):
            found[vjob.name] = schedule.begin(vjob)
    return found


class _Schedule:
    """The nodes as time goes on: what is free, and who ends when."""

    def __init__(self, after: Configuration, looks: int) -> None:
        self._after, self._looks = after, looks
        self._now_s = 0.0
        self._nodes = [node for node in after.nodes if node.state is NodeState.UP]
        self._empty = {node.name: node.capacity for node in self._nodes}
        self._free = {node.name: after.free(node.name) for node in self._nodes}
        self._ends: list[tuple[float, int, _Taken]] = []
        for vjob in after.vjobs:
            if after.state(vjob) is VJobState.RUNNING:
                self._ends_later(vjob, [(str(after.locations[vm.name].node), vm.demand) for vm in vjob.vms])

    def begin(self, vjob: VJob) -> float | None:
        """Let time go on until the vjob fits, and let it begin; None: it never does, as far as is known."""
        if self._looks <= 0 or self._place(vjob, self._empty) is None:
            return None
        while (taken := self._place(vjob, self._free)) is None:
            if self._looks <= 0 or not self._ends:
                return None
            self._now_s, _, given_back = heapq.heappop(self._ends)
            self._change(given_back, 1)
        self._change(taken, -1)
        self._ends_later(vjob, taken)
        return self._now_s

    def _ends_later(self, vjob: VJob, taken: _Taken) -> None:
        if vjob.time_limit_s is not None:
            left_s = max(0.0, vjob.time_limit_s - vjob.ran_s)
            heapq.heappush(self._ends, (self._now_s + left_s, len(self._ends), taken))

    def _change(self, taken: _Taken, sign: int) -> None:
        for node, demand in taken:
            if node in self._free:
                self._free[node] = self._free[node] + demand if sign > 0 else self._free[node] - demand

    def _place(self, vjob: VJob, free: Mapping[str, Resources]) -> _Taken | None:
        """First Fit Decreasing; None: not all VMs fit."""
        left = dict[str, Resources]()
        taken: _Taken = []
        for vm in sorted(vjob.vms, key=lambda vm: (vm.demand.memory_mib, vm.demand.cpus), reverse=True):
            demand, nodes = self._wanted(vjob, vm)
            node = next((name for name in nodes if self._fits(left.get(name, free.get(name, NOTHING)), demand)), None)
            if node is None:
                return None
            left[node] = left.get(node, free[node]) - demand
            taken.append((node, demand))
        return taken

    def _wanted(self, vjob: VJob, vm: VM) -> tuple[Resources, Iterable[str]]:
        """What a VM takes when it runs, and the nodes on which it may: one that is paused has its memory already."""
        location = self._after.locations[vm.name]
        if location.state is VMState.PAUSED:
            return Resources(vm.demand.cpus, 0), [str(location.node)]
        only = vm.only
        return vm.demand, (node.name for node in self._nodes if only in (None, node.name) and vjob.allows(node.name))

    def _fits(self, free: Resources, demand: Resources) -> bool:
        self._looks -= 1
        return free.holds(demand)
