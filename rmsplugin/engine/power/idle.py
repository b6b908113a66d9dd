"""Idle: which nodes have nothing, and which of those may be switched off."""

from __future__ import annotations

from collections.abc import Mapping

from rmsplugin.adapters.power.base import PowerDriver
from rmsplugin.engine.context.machines import has_disk
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.engine.observe.rooms import RoomState, is_busy, is_idle, next_reservation
from rmsplugin.model.vm_phase import VMPhase
from rmsplugin.settings import Settings


def switchable(settings: Settings, driver: PowerDriver, seen: Observation) -> list[str]:
    """The nodes that the settings let the engine switch, in Slurm's order."""
    elastic = {
        node
        for name in settings.hosts_partitions
        if settings.hosts_of(name).rooms == "elastic" and name in seen.rms.partitions
        for node in seen.rms.partitions[name].nodes
    }
    known = [node for node in seen.rms.nodes if node in elastic]
    return [node for node in known if driver.drives(node) and settings.power.watts_of(node) is not None]


def with_something(ledger: Ledger, seen: Observation) -> frozenset[str]:
    """The nodes that have VMs or files of vjobs, whose saved states count too, or that are to have some."""
    found = {node for node, vms in seen.vms.items() if vms}
    for vm in ledger.live_vms():
        found.update((vm.host, vm.destination, vm.image_node, *vm.touched))
    return frozenset(found | _with_other_files(ledger))


def with_files(settings: Settings, ledger: Ledger) -> frozenset[str]:
    """The nodes that would still have something of vjobs, if all VMs that run there had moved."""
    found: set[str] = set()
    for vm in ledger.live_vms():
        found.add(vm.image_node)
        if vm.phase is not VMPhase.LIVE or has_disk(settings, ledger.vjob(vm.job_id)):
            found.update((vm.host, vm.destination, *vm.touched))
    return frozenset(found | _with_other_files(ledger))


def _with_other_files(ledger: Ledger) -> frozenset[str]:
    """The nodes with states put aside, checkpoints, copies, or what was left behind; and those that steps touch."""
    found = {vm.image_node for aside in ledger.set_aside.all() for vm in aside.vms}
    for checkpoint in ledger.checkpoints.newest().values():
        found.update(node for vm in checkpoint.vms for node in vm.nodes)
    found.update(node for step in ledger.plans.open_steps() for node in step.hosts.values())
    found.update(copy.node for copy in ledger.parcels.copies())
    return frozenset(found | {node for node, _ in ledger.nodes.left_behind()})


def is_used(seen: Observation, node: str, something: frozenset[str]) -> bool:
    """Whether the node has something of vjobs, or a job of others."""
    room = seen.rooms.by_node.get(node)
    held = room is not None and room.state in (RoomState.HELD, RoomState.LEAVING, RoomState.STARTING)
    return node in something or (is_busy(seen.rms.nodes[node]) and not held)


def stays_on(settings: Settings, ledger: Ledger, seen: Observation, node: str, period_s: float) -> str:
    """Why an idle node may not be switched off, in a sentence; empty: it may.

    Args:
        settings: of the site.
        ledger: of the engine.
        seen: one look.
        node: its name.
        period_s: no reservation of others may begin sooner.
    """
    known, room = seen.rms.nodes[node], seen.rooms.by_node.get(node)
    if node not in seen.vms:
        return f"it does not answer: {seen.unreachable.get(node, 'it was not asked')}"
    if node in ledger.nodes.gone():
        return "it is gone"
    if room is None and not is_idle(known):
        return f"Slurm says that it is {known.state}"
    if room is not None and (room.state is not RoomState.HELD or node in seen.faults):
        return f"the engine's room there is {room.state}"
    if next_reservation(settings, seen.rms, node, seen.taken) - seen.taken <= period_s:
        return "a reservation needs it"
    return seen.rms.kept_on(node)


def used_first(seen: Observation, nodes: Mapping[str, object]) -> list[str]:
    """The nodes in the order in which vjobs take them: those with a room of the engine's first."""
    order = {node: place for place, node in enumerate(seen.rms.nodes)}
    return sorted(nodes, key=lambda node: (node not in seen.rooms.by_node, order.get(node, 0)))
