"""Switched: the nodes that may have no power by the engine's own acts, and are asked nothing. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from rmsplugin.adapters.rms.base import NodePower, RmsNode
from rmsplugin.engine.ledger.power_book import NodeSwitch, SwitchState


def has_booted(node: RmsNode, switch: NodeSwitch) -> bool:
    """Whether Slurm has the node with a newer boot time than the one from before it was switched off."""
    return node.up and node.power is NodePower.ON and node.boot_time > switch.boot_before


def without_power(switches: Mapping[str, NodeSwitch], nodes: Mapping[str, RmsNode]) -> dict[str, str]:
    """Why nodes are asked nothing, in a sentence each, by name.

    A node that failed is asked again once Slurm has it: somebody may have helped it up.
    """
    found = {name: each for name, each in switches.items() if each.answers_nothing}
    helped = {
        name
        for name, each in found.items()
        if each.state is SwitchState.FAILED and name in nodes and has_booted(nodes[name], each)
    }
    return {name: each.sentence for name, each in found.items() if name not in helped}
