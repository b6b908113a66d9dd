"""Leaving: the nodes that our VMs must leave, as one look shows them."""

from __future__ import annotations

from rmsplugin.engine.observe.observation import Observation
from rmsplugin.engine.observe.rooms import RoomState, is_busy, vm_hosts
from rmsplugin.settings import Settings


def leaving_nodes(settings: Settings, seen: Observation) -> dict[str, str]:
    """The nodes that our VMs must leave, with why: the engine's room there is leaving, or another job has the node.

    A node that is too hot is one of them, too.

    Nodes that do not answer are not among them: nobody can act there. Nor is a node that no other job has: the engine
    requests a room there instead.
    """
    found = {}
    for name in vm_hosts(settings, seen.rms):
        node, room = seen.rms.nodes[name], seen.rooms.by_node.get(name)
        if name not in seen.vms:
            continue
        if room is not None and room.state is RoomState.LEAVING:
            found[name] = room.reason
        elif name in seen.hot:
            found[name] = seen.hot[name]
        elif room is None or room.state is RoomState.REQUESTED:
            # A busy node whose job is in no listing may well be held by one of our rooms that the listing left out.
            if is_busy(node) and name in seen.nodes_of_jobs:
                found[name] = "another job has it, and the engine has no room there"
            elif node.draining:
                found[name] = f"it is being drained: {node.reason or 'no reason given'}"
    return found
