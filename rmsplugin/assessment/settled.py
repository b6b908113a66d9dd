"""Settled: the configuration of the vjobs about which something can be decided, and the reasons for leaving out others.

- A vjob that is left out keeps its holdings: the demand of its VMs is subtracted from every node on which they hold
  memory or soon will, both ends of a migration.
- A node has its size without its host's own part while the engine has a room there. It has nothing without a room, and
  nothing from the moment that the room is to be given back: the VMs on it should leave. If a room is missing and no
  other job has the node (an admin cancelled the room), the VMs stay as they are until there is one
  (docs/decisions/0015).
- Nodes out of reach are quarantined. A vjob with a VM or a saved state there is left out, and no VM comes there.
- A vjob whose facts contradict each other is left out, too: it hurts only itself.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from rmsplugin.assessment.facts import NodeFacts, RoomUse, VJobFacts, at_least_nothing
from rmsplugin.model.abiding import anchored
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import SHARED, VM, Location, Node, VJob, VMState, running_on, vm_in_transit
from rmsplugin.model.resources import NOTHING, Resources
from rmsplugin.model.rules import allowing, confined_to
from rmsplugin.model.validation import InvalidConfigurationError


class Why(enum.StrEnum):
    """The reason why nothing is decided about a vjob."""

    UNSETTLED = "unsettled"  # an operation is under way, or it may not run now
    QUARANTINED = "quarantined"  # a VM or a saved state of it is on a node where nobody can act
    ROOMLESS = "roomless"  # a VM of it is where the engine has no room, and no other job wants the node
    NO_HOST = "no-host"  # the words of its user leave no VM host
    CONTRADICTION = "contradiction"  # the facts about it contradict each other


#: Resources that are being given back are expected to be free after so many seconds.
_GOES_S = 60.0


@dataclass(frozen=True, slots=True)
class LeftOut:
    """The reason why nothing is decided about a vjob: for programs, and as a sentence that follows the vjob's name."""

    why: Why
    sentence: str

    def __str__(self) -> str:
        return self.sentence


@dataclass(frozen=True)
class Settled:
    """The result: the configuration, the vjobs left out by name, the nodes out of reach by name."""

    configuration: Configuration
    left_out: Mapping[str, LeftOut]
    quarantined: Mapping[str, str]


def settled(nodes: Sequence[NodeFacts], queue: Sequence[VJobFacts]) -> Settled:
    """Sort out the vjobs and nodes that can be decided about.

    Args:
        nodes: all VM hosts, each once, in the order in which they are tried.
        queue: all vjobs, each once, head of the queue first.

    Raises:
        InvalidConfigurationError: the facts about nodes contradict each other (two of one name, an amount below 0).
    """
    known = {node.name: node for node in nodes}
    usable = {node.name for node in nodes if not node.out_of_reach and node.room is not RoomUse.NONE}
    left_out: dict[str, LeftOut] = {}
    for vjob in queue:
        reason = _objection(vjob, known, usable)
        if reason is not None:
            left_out[vjob.name] = reason
    quarantined = {node.name: node.out_of_reach for node in nodes if node.out_of_reach}
    while True:
        parts = _parts(nodes, queue, left_out)
        try:
            configuration = Configuration(*parts)
        except InvalidConfigurationError as error:
            faults = _faults(error, parts[1])
            if not faults:
                raise
            left_out |= faults
        else:
            return Settled(configuration, left_out, quarantined)


def _objection(vjob: VJobFacts, nodes: Mapping[str, NodeFacts], usable: AbstractSet[str]) -> LeftOut | None:
    """Why nothing can be decided about a vjob; None if something can. VMs on ``usable`` nodes can be acted on."""
    if vjob.unsettled:
        return LeftOut(Why.UNSETTLED, vjob.unsettled)
    for each in () if vjob.vms.nodes <= usable else vjob.vms:
        place = each.location.node
        names = each.holds if not place or place == SHARED or place in each.holds else each.holds | {place}
        for name in sorted(names) if len(names) > 1 else names:
            node = nodes.get(name)
            if node is not None and not node.out_of_reach and node.room is not RoomUse.NONE:
                continue
            what = f"its saved state {each.vm.name}" if each.location.state is VMState.SLEEPING else each.vm.name
            if name not in nodes:
                return LeftOut(Why.CONTRADICTION, f"{what} is on {name}, which is no VM host (any more)")
            if nodes[name].out_of_reach:
                return LeftOut(Why.QUARANTINED, f"{what} is on {name}: {nodes[name].out_of_reach}")
            if name in each.holds and nodes[name].room is RoomUse.NONE:
                return LeftOut(Why.ROOMLESS, f"{what} is on {name}, and stays while the engine has no room there")
    if len(vjob.vms.states) > 1:
        return LeftOut(Why.CONTRADICTION, f"its VMs are in different states: {', '.join(sorted(vjob.vms.states))}")
    if not vjob.vms.hold_where_they_are:
        return LeftOut(Why.CONTRADICTION, "its VMs hold memory elsewhere than where they are")
    if vjob.nodes.isdisjoint(nodes):
        return LeftOut(Why.NO_HOST, "no node that hosts VMs is left by its partition and its options")
    return None


def _parts(
    nodes: Sequence[NodeFacts], queue: Sequence[VJobFacts], left_out: Collection[str]
) -> tuple[tuple[Node, ...], tuple[VJob, ...], dict[str, Location]]:
    """Nodes, vjobs in the order of the queue, and locations."""
    sizes = {node.name: node.size for node in nodes if _has_room(node)}
    transits = _Transits(sizes)
    for vjob in queue if left_out else ():
        if vjob.name in left_out:
            transits.add(vjob)
        else:
            transits.note(vjob)
    in_transit = transits.vjobs()
    vjobs: list[VJob] = []
    locations: dict[str, Location] = {}
    for vjob in queue:
        if vjob.name in left_out:
            found = in_transit.get(vjob.name, [])
            vjobs += found
            locations |= {vm.name: running_on(_only_node(each)) for each in found for vm in each.vms}
        else:
            vjobs.append(_vjob(vjob))
            locations |= vjob.vms.locations
    return tuple(_node(node, transits) for node in nodes), tuple(vjobs), locations


def _only_node(vjob: VJob) -> str:
    """The only node of a vjob in transit, which stands for a vjob's holdings on one node."""
    return min(confined_to(vjob.rules) or frozenset())


class _Transits:
    """The holdings of vjobs about which nothing is decided: a vjob of its own a node, which runs there and stays.

    Resources that are given back soon count as well as promised ones, for the head of the queue gets its reservation
    after both. If one planned vjob takes what another one gives back, the same resources would be counted twice. A vjob
    that came before the last one has gone is no reason to act: the leaving one takes no more CPUs than are left.
    """

    def __init__(self, sizes: Mapping[str, Resources]) -> None:
        """Take the resources of each usable node that VMs may have."""
        self._sizes = sizes
        self._stay: list[tuple[VJobFacts, str, list[VM]]] = []
        self._go: list[tuple[VJobFacts, str, list[VM]]] = []
        self._settled: list[VJobFacts] = []
        self._here: dict[str, Resources] = {}  # the demands of the vjobs that stay, by node
        self._given_back: dict[str, Resources] = {}
        self._promised: dict[str, Resources] = {}

    def note(self, vjob: VJobFacts) -> None:
        """Add a vjob about which something is decided."""
        self._settled.append(vjob)

    def add(self, vjob: VJobFacts) -> None:
        """Add a vjob about which nothing is decided; the facts about it may contradict each other."""
        stay: dict[str, list[VM]] = {}
        go: dict[str, list[VM]] = {}
        for each in vjob.vms:
            then = each.holds if each.will_hold is None else each.will_hold
            demand = _sound(each.vm.demand)
            if each.location.state is VMState.PAUSED and not each.will_compute:
                demand = Resources(0, demand.memory_mib)
            for node in (each.holds | then) & self._sizes.keys():
                vm = VM(vm_in_transit(vjob.name, each.vm.name, node), demand)
                (stay if node in then else go).setdefault(node, []).append(vm)
                if node not in then:
                    _count(self._given_back, node, demand)
                    continue
                _count(self._here, node, demand)
                if node not in each.holds:
                    _count(self._promised, node, demand)
        self._stay += [(vjob, node, vms) for node, vms in sorted(stay.items())]
        self._go += [(vjob, node, vms) for node, vms in sorted(go.items())]

    def vjobs(self) -> dict[str, list[VJob]]:
        """A vjob for each added vjob and node, by the vjob's name; call it after all were added."""
        found: dict[str, list[VJob]] = {}
        for vjob, node, vms in self._stay:
            runs = vjob.vms.states <= {VMState.RUNNING}
            yields_later = vjob.preemptible and runs
            stays = _transit(vjob, f"{vjob.name}@{node}", node, vms, _left_s(vjob), yields_later=yields_later)
            found.setdefault(vjob.name, []).append(stays)
        left = self._left_cpus({node for _, node, _ in self._go}) if self._go else {}
        for vjob, node, vms in self._go:
            fitting = []
            for vm in vms:
                cpus = max(0.0, min(vm.demand.cpus, math.floor(round(left[node] * 100, 6)) / 100))
                left[node] -= cpus
                fitting.append(replace(vm, demand=replace(vm.demand, cpus=cpus)))
            goes = _transit(vjob, f"{vjob.name}@{node}, until it has gone", node, fitting, _GOES_S, leaves=True)
            found.setdefault(vjob.name, []).append(goes)
        return found

    def _left_cpus(self, nodes: AbstractSet[str]) -> dict[str, float]:
        """The CPUs that leaving vjobs may have of each of these nodes meanwhile."""
        here = dict(self._here)
        for vjob in self._settled:
            for node in nodes & vjob.vms.computing.keys():
                _count(here, node, vjob.vms.computing[node])
        return {
            name: self._sizes[name].cpus + self.counted_twice(name).cpus - here.get(name, NOTHING).cpus
            for name in nodes
        }

    def counted_twice(self, node: str) -> Resources:
        """The resources of a node that one vjob gives back and that are promised to another."""
        back, promised = self._given_back.get(node), self._promised.get(node)
        if back is None or promised is None:
            return NOTHING
        return Resources(min(back.cpus, promised.cpus), min(back.memory_mib, promised.memory_mib))


def _count(amounts: dict[str, Resources], node: str, demand: Resources) -> None:
    amounts[node] = amounts.get(node, NOTHING) + demand


def _transit(
    vjob: VJobFacts,
    name: str,
    node: str,
    vms: list[VM],
    left_s: float | None,
    *,
    yields_later: bool = False,
    leaves: bool = False,
) -> VJob:
    return VJob(
        name,
        tuple(vms),
        preemptible=False,
        rules=allowing(frozenset({node})),
        priority=vjob.priority,
        time_limit_s=left_s,
        in_transit=True,
        yields_later=yields_later,
        leaves=leaves,
        user=vjob.user,
        state_s=vjob.state_s if vjob.state_s is not None and 0 <= vjob.state_s < math.inf else None,
    )


def _has_room(node: NodeFacts) -> bool:
    return not node.out_of_reach and node.room is RoomUse.HELD


def _sound(demand: Resources) -> Resources:
    """A demand that a configuration accepts, and no less than this one."""
    return Resources(max(0, math.ceil(round(demand.cpus * 100, 6))) / 100, max(0, demand.memory_mib))


def _left_s(vjob: VJobFacts) -> float | None:
    """The seconds for which it still runs at most; None: unknown."""
    if vjob.time_limit_s is None or not 0 <= vjob.ran_s <= vjob.time_limit_s < math.inf:
        return None
    return vjob.time_limit_s - vjob.ran_s


def _node(node: NodeFacts, transits: _Transits) -> Node:
    twice = transits.counted_twice(node.name)
    if twice is NOTHING:
        return node.as_decided_about
    return Node(node.name, at_least_nothing(node.size + twice))


def _vjob(vjob: VJobFacts) -> VJob:
    return VJob(
        vjob.name,
        _anchored(vjob) if vjob.can.anchors else vjob.vms.as_decided_about,
        preemptible=vjob.preemptible and vjob.can.makes_way,
        preference=vjob.preference,
        rules=allowing(vjob.nodes),
        priority=vjob.priority,
        time_limit_s=vjob.time_limit_s,
        ran_s=vjob.ran_s,
        state_s=vjob.state_s,
        waited_s=vjob.waited_s,
        weight=vjob.weight,
        user=vjob.user,
        can=vjob.can,
    )


def _anchored(vjob: VJobFacts) -> tuple[VM, ...]:
    return tuple(anchored(vjob.can, each.vm, each.location) for each in vjob.vms)


def _faults(error: InvalidConfigurationError, vjobs: Sequence[VJob]) -> dict[str, LeftOut]:
    """The vjobs that make a configuration invalid, with their first fault; empty if the fault is not theirs."""
    found: dict[str, LeftOut] = {}
    for problem in error.problems:
        if len(problem.place) > 1 and problem.place[0] == "vjobs" and isinstance(problem.place[1], int):
            vjob = vjobs[problem.place[1]]
            if vjob.in_transit:
                continue
            found.setdefault(vjob.name, LeftOut(Why.CONTRADICTION, f"its known state is impossible: {problem.message}"))
    return found
