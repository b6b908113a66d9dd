"""Energy: what `rmsplugin plan` and `rmsplugin pack` tell of the watts of nodes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from rmsplugin.energy.parameters import EnergyParameters
from rmsplugin.energy.standing import standing
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import Location, NodeState, VMState
from rmsplugin.model.node_action import NodeActionKind
from rmsplugin.model.wording import counted
from rmsplugin.proposing.proposal import Proposal


def read(path: str | None, configuration: Configuration) -> EnergyParameters | None:
    """The parameters in a file; None without one. Raises WorkloadError."""
    if path is None:
        return None
    from rmsplugin.cli.shared.energy_file import read_energy

    return read_energy(path, [node.name for node in configuration.nodes])


def of_plan(source: Configuration, proposal: Proposal, energy: EnergyParameters) -> dict[str, Any]:
    """What an hour takes once the plan is carried out."""
    off = [each.node for each in proposal.plan.nodes if each.kind is NodeActionKind.POWER_OFF]
    return _hour(source, {**source.locations, **proposal.target}, off, energy)


def of_packing(source: Configuration, assignment: Mapping[str, str], energy: EnergyParameters) -> dict[str, Any]:
    """What an hour takes with running VMs packed like this, and all nodes off that have nothing."""
    locations = {name: Location(VMState.RUNNING, node) for name, node in assignment.items()}
    used = set(assignment.values())
    idle = [node.name for node in source.nodes if node.state is NodeState.UP and node.name not in used]
    return _hour(source, locations, idle[energy.reserve :], energy)


def line(told: Mapping[str, Any]) -> str:
    """The same for a person."""
    return (
        f"an hour takes {told['kwh']:.3f} kWh with {counted(told['switched_off'], 'node')} off, "
        f"{told['kwh_all_on']:.3f} kWh with all on."
    )


def _hour(
    source: Configuration, locations: Mapping[str, Location], off: Collection[str], energy: EnergyParameters
) -> dict[str, Any]:
    """Kilowatts, which an hour makes kilowatt-hours; nodes that are down take nothing."""
    cpus = {node.name: node.capacity.cpus for node in source.nodes if node.state is not NodeState.DOWN}
    used: dict[str, float] = {}
    for name, at in locations.items():
        if at.state is VMState.RUNNING and at.node is not None:
            used[at.node] = used.get(at.node, 0.0) + source.vm_by_name[name].demand.cpus
    occupied = {at.node for at in locations.values() if at.node is not None}
    found = standing(energy.classes, cpus, used, occupied, off)
    return {
        "kwh": round(found.watts / 1000, 6),
        "kwh_all_on": round(found.all_on_w / 1000, 6),
        "kwh_oracle": round(found.least_w / 1000, 6),
        "switched_off": len(off),
        "delayed_s_mean": 0.0,
    }
