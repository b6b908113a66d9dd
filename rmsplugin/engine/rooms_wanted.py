"""Rooms wanted: of which nodes rooms are to be asked for, or kept, because of those whom a decision left waiting."""

from __future__ import annotations

from collections.abc import Sequence

from rmsplugin.decision.wanted import nodes_wanted
from rmsplugin.engine.capacity import host_capacities
from rmsplugin.engine.context import Context
from rmsplugin.engine.observation import Observation
from rmsplugin.engine.queue import Waiting, candidate
from rmsplugin.engine.rooms import RoomState
from rmsplugin.model.configuration import Configuration


def rooms_wanted(context: Context, seen: Observation, left: Sequence[Waiting], after: Configuration) -> frozenset[str]:
    """The nodes whose rooms those left waiting need, besides what is coming, and what is free after a decision."""
    hosts = host_capacities(context, seen)
    rooms = seen.rooms.by_node
    reserved = context.ledger.reservations.read().nodes
    coming = (RoomState.REQUESTED, RoomState.STARTING)
    soon = {
        name: host.free if name in rooms and rooms[name].state in coming else after.free(name)
        for name, host in hosts.items()
        if name not in reserved and (not host.why_not or (name in rooms and rooms[name].state in coming))
    }
    others = {name: host.capacity for name, host in hosts.items() if name not in rooms and _idle(seen, name)}
    resting = context.ledger.failures.resting()
    candidates = [candidate(context, seen, waiting, resting) for waiting in left]
    return nodes_wanted(candidates, soon, others)


def _idle(seen: Observation, name: str) -> bool:
    node = seen.rms.nodes[name]
    return node.up and not node.draining and "IDLE" in node.state and name in seen.vms
