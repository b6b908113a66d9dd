"""Settled: the configuration of the vjobs about which something can be decided, and why the others are left out.

- A vjob that is left out holds what it holds: the demand of its VMs is subtracted from every node on which they hold
  memory or are about to, both ends of a migration.
- A node has its size less what its host keeps, while the engine has a room there; nothing without one, and nothing
  from the moment that the room is to be given back: the VMs on it should leave. Where a room is missing and nobody else
  has the node (an admin cancelled the room), the VMs stay as they are until there is one (docs/decisions/0015).
- Nodes out of reach are quarantined. Whoever has a VM or a saved state there is left out, and nobody comes.
- A vjob whose facts contradict each other is left out, too: it hurts only itself.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rmsplugin.assessment.facts import NodeFacts, RoomUse, VJobFacts, VMFacts
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import SHARED, Node, NodeState, VJob, VMState
from rmsplugin.model.resources import NOTHING, Resources
from rmsplugin.model.validation import InvalidConfigurationError


class Why(enum.StrEnum):
    """Why nothing is decided about a vjob."""

    UNSETTLED = "unsettled"  # an operation is under way, or it may not run now
    QUARANTINED = "quarantined"  # a VM or a saved state of it is where nobody can act
    ROOMLESS = "roomless"  # a VM of it is where the engine has no room, and nobody else wants the node
    NO_HOST = "no-host"  # no VM host is left by what its user said
    CONTRADICTION = "contradiction"  # what is known of it cannot be


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Why nothing is decided about a vjob: for programs, and in a sentence for people that goes on from its name."""

    why: Why
    sentence: str

    def __str__(self) -> str:
        return self.sentence


@dataclass(frozen=True)
class Settled:
    """What can be decided about, and what not: vjobs by name, nodes out of reach by name."""

    configuration: Configuration
    left_out: Mapping[str, LeftOut]
    quarantined: Mapping[str, str]


def settled(nodes: Sequence[NodeFacts], queue: Sequence[VJobFacts]) -> Settled:
    """Sort out what can be decided about.

    Args:
        nodes: all VM hosts, each once, in the order in which they are tried.
        queue: all vjobs, each once, head of the queue first.

    Raises:
        InvalidConfigurationError: the facts about nodes contradict each other (two of one name, an amount below 0).
    """
    known = {node.name: node for node in nodes}
    left_out: dict[str, LeftOut] = {}
    for vjob in queue:
        reason = _objection(vjob, known)
        if reason is not None:
            left_out[vjob.name] = reason
    quarantined = {node.name: node.out_of_reach for node in nodes if node.out_of_reach}
    while True:
        inside = [vjob for vjob in queue if vjob.name not in left_out]
        try:
            configuration = _configuration(nodes, inside, [vjob for vjob in queue if vjob.name in left_out])
        except InvalidConfigurationError as error:
            faults = _faults(error, inside)
            if not faults:
                raise
            left_out |= faults
        else:
            return Settled(configuration, left_out, quarantined)


def _objection(vjob: VJobFacts, nodes: Mapping[str, NodeFacts]) -> LeftOut | None:
    """Why nothing can be decided about a vjob; None if something can."""
    if vjob.unsettled:
        return LeftOut(Why.UNSETTLED, vjob.unsettled)
    for each in vjob.vms:
        place = each.location.node
        for name in sorted(each.holds | ({place} if place and place != SHARED else set())):
            what = f"its saved state {each.vm.name}" if each.location.state is VMState.SLEEPING else each.vm.name
            if name not in nodes:
                return LeftOut(Why.CONTRADICTION, f"{what} is on {name}, which is no VM host (any more)")
            if nodes[name].out_of_reach:
                return LeftOut(Why.QUARANTINED, f"{what} is on {name}: {nodes[name].out_of_reach}")
            if name in each.holds and nodes[name].room is RoomUse.NONE:
                return LeftOut(Why.ROOMLESS, f"{what} is on {name}, and stays while the engine has no room there")
    states = {each.location.state for each in vjob.vms}
    if len(states) > 1:
        return LeftOut(Why.CONTRADICTION, f"its VMs are in different states: {', '.join(sorted(states))}")
    if any(each.holds != _held(each.location.state, each.location.node) for each in vjob.vms):
        return LeftOut(Why.CONTRADICTION, "its VMs hold memory elsewhere than where they are")
    if not vjob.nodes & nodes.keys():
        return LeftOut(Why.NO_HOST, "no node that hosts VMs is left by its partition and its options")
    return None


def _held(state: VMState, node: str | None) -> frozenset[str]:
    """Where a VM that is settled holds memory."""
    return frozenset({node}) if state is VMState.RUNNING and node is not None else frozenset()


def _configuration(
    nodes: Iterable[NodeFacts], inside: Sequence[VJobFacts], outside: Iterable[VJobFacts]
) -> Configuration:
    now: dict[str, Resources] = {}
    then: dict[str, Resources] = {}
    for vjob in outside:
        for each in vjob.vms:
            _take(now, each, each.holds)
            _take(then, each, each.holds if each.will_hold is None else each.will_hold)
    # What one planned vjob gives back another one may be about to take: neither sum alone, nor both together.
    taken = {name: _most(now.get(name, NOTHING), then.get(name, NOTHING)) for name in now.keys() | then.keys()}
    return Configuration(
        tuple(_node(node, taken.get(node.name, NOTHING)) for node in nodes),
        tuple(_vjob(vjob) for vjob in inside),
        {each.vm.name: each.location for vjob in inside for each in vjob.vms},
    )


def _take(taken: dict[str, Resources], vm: VMFacts, nodes: Iterable[str]) -> None:
    for name in nodes:
        taken[name] = taken.get(name, NOTHING) + vm.vm.demand


def _most(one: Resources, other: Resources) -> Resources:
    return Resources(max(one.cpus, other.cpus), max(one.memory_mib, other.memory_mib))


def _node(node: NodeFacts, taken: Resources) -> Node:
    if node.out_of_reach or node.room is RoomUse.LEAVING:
        return Node(node.name, NOTHING, NodeState.DRAINING)
    if node.room is RoomUse.NONE:
        return Node(node.name, NOTHING)
    left = node.size - node.reserved - taken
    # Where more is held than there is, nothing is left.
    return Node(node.name, Resources(max(0.0, left.cpus), max(0, left.memory_mib)))


def _vjob(vjob: VJobFacts) -> VJob:
    return VJob(
        vjob.name,
        tuple(each.vm for each in vjob.vms),
        preemptible=vjob.preemptible,
        nodes=vjob.nodes,
        priority=vjob.priority,
        time_limit_s=vjob.time_limit_s,
        ran_s=vjob.ran_s,
        state_s=vjob.state_s,
    )


def _faults(error: InvalidConfigurationError, inside: Sequence[VJobFacts]) -> dict[str, LeftOut]:
    """The vjobs that make a configuration invalid, with their first fault; none if it is not theirs."""
    found: dict[str, LeftOut] = {}
    for problem in error.problems:
        if len(problem.place) > 1 and problem.place[0] == "vjobs" and isinstance(problem.place[1], int):
            name = inside[problem.place[1]].name
            found.setdefault(name, LeftOut(Why.CONTRADICTION, f"what is known of it cannot be: {problem.message}"))
    return found
