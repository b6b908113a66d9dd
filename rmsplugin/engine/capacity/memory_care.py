"""Memory care: the bounds of observed VMs' memory on each node, their balloons, and the nodes that are short anyhow.

Once a cycle, after everything was looked at and before anything is decided:

- The observed VMs of a node may together take the memory that is promised to no other VM. A part of it is kept back
  (``memory.relief_mib``). They get this part while one of them leaves, because a VM that waits for memory cannot be
  saved.
- If the sizes of a node's VMs are more than that, balloons take back the memory that guests use as cache.
- If a VM of a node waits for memory all the same, the node has to lose a VM: it is *pressed*.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from rmsplugin.engine.capacity import observed_memory
from rmsplugin.engine.capacity.balloons import Balloons
from rmsplugin.engine.capacity.capacity import Capacities
from rmsplugin.engine.capacity.wishes import Wishes
from rmsplugin.engine.context.context import Context
from rmsplugin.engine.ledger.rows import VJobRow, VMRow
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.errors import RefusedError
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import VJobState

log = logging.getLogger(__name__)

_PARALLEL = 32
#: No start waits longer, in seconds, for the caches of guests: its booked memory is there, and each VM has its share of
#: the bound.
_CACHES_S = 60.0


@dataclass
class _Node:
    """The observed VMs of one node, and the memory that the others have."""

    vms: list[tuple[VJobRow, VMRow]] = field(default_factory=list)  # observed VMs that hold memory of the node
    promised_mib: int = 0  # to VMs that are not observed
    leaves: bool = False  # one of its observed VMs is being suspended, or migrates away


class MemoryCare:
    """Looks after the memory of nodes with observed VMs. Several threads may call."""

    def __init__(self, context: Context) -> None:
        """Begin; nothing has been bounded yet."""
        self._settings = context.settings
        self._ledger = context.ledger
        self._clock = context.clock
        self._bounds = context.bounds
        self._capacities = Capacities(context.settings, context.ledger, context.clock, context.demanded_cpus)
        self._balloons = Balloons(context.settings, context.ledger, context.hypervisor, context.capabilities)
        #: Held while VMs are placed: from the look at free memory and CPUs until the ledger has the VMs that take them.
        self.placement_lock = threading.RLock()
        self._wishes = Wishes(context.clock.now)
        self._asked: dict[str, float] = {}  # by node: since when a start waits for caches
        self._promised_mib: Mapping[str, int] = {}
        #: By pressed node, the memory up to which VMs may be planned there, less than they demand; and why.
        self.pressed: Mapping[str, tuple[int, str]] = {}

    def watch(self) -> bool:
        """Ask the nodes of observed VMs which VMs wait for memory.

        Returns whether a VM waits that did not before, or a VM that is to come waits for balloons.
        """
        wished, vms = self._wishes.nodes(), [vm for vm in self._ledger.live_vms() if vm.observed]
        nodes = {node for vm in vms for node in (vm.host, vm.destination) if node}
        new = self._bounds.watch(wished | nodes)
        return new or bool(wished)

    def set_bounds(self, seen: Observation) -> None:
        """Set bounds and balloons, and find the nodes that are pressed."""
        with self.placement_lock:  # else a VM that is just being placed would be in neither of the two
            nodes = self._nodes(seen)
            lowered = {name: self._bounds.lowered(name) for name in nodes}
        self._promised_mib = {name: node.promised_mib for name, node in nodes.items()}
        wanted = [
            name
            for name in nodes
            if name not in seen.unreachable and (nodes[name].vms or not self._bounds.is_idle(name))
        ]
        with ThreadPoolExecutor(_PARALLEL, thread_name_prefix="memory") as pool:
            rooms = [
                (name, self._room_mib(seen, name, nodes[name]), self._kept_mib(nodes[name]), lowered[name])
                for name in wanted
            ]
            list(pool.map(lambda room: self._bounds.set(*room), rooms))
        told = self._balloon(seen, nodes)
        before = self.pressed.keys()
        found = {name: self._pressed(seen, name, nodes[name]) for name in wanted if name not in told}
        self.pressed = {name: pressed for name, pressed in found.items() if pressed is not None}
        for name in self.pressed.keys() - before:
            log.warning("%s is pressed: %s", name, self.pressed[name][1])

    def planned(self, node: str, capacity: Resources) -> Resources:
        """The resources up to which VMs are planned on a node: its capacity, or less if it is pressed."""
        pressed = self.pressed.get(node)
        return capacity if pressed is None else replace(capacity, memory_mib=min(capacity.memory_mib, pressed[0]))

    def bearable_mib(self, seen: Observation, node: str) -> int:
        """The booked memory up to which a short node may wait for relief: its VMs then need all of its real memory."""
        real_mib = observed_memory.real_capacity(self._settings, seen, node).memory_mib
        if node in self.pressed:
            return self.pressed[node][0]
        promised_mib = self._promised_mib.get(node, 0)
        return promised_mib + math.floor((real_mib - promised_mib) / self._settings.memory.threshold)

    def make_room(self, seen: Observation, node: str, memory_mib: int) -> None:
        """Have the observed VMs of a node do with ``memory_mib`` less, before a VM comes there that is not observed.

        The caller holds ``Context.placement_lock`` until the ledger has that VM.

        Raises:
            RefusedError: the observed VMs cannot do with less now.
        """
        if node not in seen.rms.nodes or node not in observed_memory.observing_hosts(self._settings, seen):
            return
        there = self._nodes(seen)[node]
        try:
            self._bounds.lower(node, self._room_mib(seen, node, there) - self._kept_mib(there) - memory_mib)
        except RefusedError:
            self._wishes.wish(node, memory_mib)
            raise

    def has_room(self, node: str, memory_mib: int) -> bool:
        """Whether observed VMs leave ``memory_mib`` of the node's bound unused now; if not, balloons make room for it.

        The memory that guests need is booked. The memory of their caches is not booked, but is taken all the same.
        """
        report = self._bounds.report(node)
        if report is None or report.limit_mib is None or report.used_mib is None:
            return True  # nothing is bounded there, or nothing is known
        since = self._asked.setdefault(node, self._clock.now())
        waited_s = self._clock.now() - since
        if not report.used_mib or report.limit_mib - report.used_mib >= memory_mib or waited_s > _CACHES_S:
            self._wishes.come_true(node)
            self._asked.pop(node, None)
            return True
        self._wishes.wish(node, memory_mib)
        return False

    # -- bounds ----------------------------------------------------------------------------------------------------

    def _nodes(self, seen: Observation) -> dict[str, _Node]:
        """All nodes where observed VMs may be, with the VMs that the ledger has there."""
        ledger = self._ledger
        observing = observed_memory.observing_hosts(self._settings, seen)
        nodes = {name: _Node() for name in seen.rms.nodes if name in observing}
        vjobs = {vjob.job_id: vjob for vjob in ledger.vjobs()}
        for vm in ledger.live_vms():
            vjob = vjobs[vm.job_id]
            for place in {vm.host, vm.destination} - {""}:
                node = nodes.get(place)
                if node is None and vm.observed and place in seen.rms.nodes:
                    node = nodes[place] = _Node()  # its partition is not observed any more
                if node is None:
                    continue
                if vm.observed:
                    node.vms.append((vjob, vm))
                    node.leaves |= vjob.state is VJobState.SUSPENDING or (vm.phase.moves and place == vm.host)
                else:
                    node.promised_mib += vm.memory_mib + self._settings.nodes.memory_overhead_mib
        return nodes

    def _room_mib(self, seen: Observation, name: str, node: _Node) -> int:
        """The memory that observed VMs of a node may take together, with their hypervisor processes."""
        return observed_memory.real_capacity(self._settings, seen, name).memory_mib - node.promised_mib

    def _kept_mib(self, node: _Node) -> int:
        """The part of that which is kept back; nothing while an observed VM leaves, because it may need the part."""
        return 0 if node.leaves else self._settings.memory.relief_mib

    # -- pressed nodes, and balloons -------------------------------------------------------------------------------

    def _pressed(self, seen: Observation, name: str, node: _Node) -> tuple[int, str] | None:
        """The memory up to which VMs may be planned on a pressed node, and why it is pressed; None if it is not.

        A node with a single VM is not pressed: the VM has all that the node can give. Nor is a node that a VM is
        leaving: that makes room already.
        """
        report = self._bounds.report(name)
        if report is None:
            return None
        presses = report.pressure is not None and report.pressure >= self._settings.memory.pressure
        if not (report.waits or presses) or len(node.vms) < 2 or node.leaves:
            return None
        booked_mib = sum(self._capacities.booked(seen, vjob, vm).memory_mib for vjob, vm in node.vms)
        why = "VMs wait for memory" if report.waits else f"something waited for memory {report.pressure:.0f} % of 10 s"
        return node.promised_mib + booked_mib - 1, why

    def _balloon(self, seen: Observation, nodes: Mapping[str, _Node]) -> set[str]:
        """Set the balloons. Returns the nodes on which a target is new: their guests are just following it."""
        with ThreadPoolExecutor(_PARALLEL, thread_name_prefix="balloons") as pool:
            told = list(pool.map(lambda name: self._tell(seen, name, nodes[name]), nodes))
        self._balloons.forget_but(vm.name for node in nodes.values() for _, vm in node.vms)
        return {name for name, new in zip(nodes, told, strict=True) if new}

    def _tell(self, seen: Observation, name: str, node: _Node) -> bool:
        """Set the balloons of one node. Returns whether a target is new."""
        vms = [(vjob, vm) for vjob, vm in node.vms if vm.host == name]
        if not vms or name not in seen.statistics or self._bounds.waits_on(name):
            return False
        overhead_mib = len(vms) * self._settings.nodes.memory_overhead_mib
        room_mib = (self._bounds.of(name) or self._room_mib(seen, name, node)) - overhead_mib
        return self._balloons.tell(seen, name, room_mib - self._wishes.room_mib(name), vms)
