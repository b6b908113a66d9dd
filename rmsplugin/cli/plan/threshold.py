"""Threshold: a configuration planned up to a share of each node's memory, with what becomes of nodes that are short."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from rmsplugin.decision.outgrown import MemoryFacts, Shortage, bearable
from rmsplugin.decision.reservation import ReservationLimits, Reservations
from rmsplugin.decision.traits import COMPARES, RESERVES
from rmsplugin.decision.unblocking import Prices
from rmsplugin.model.configuration import Configuration


def up_to(configuration: Configuration, share: float) -> Configuration:
    """The configuration with only this share, above 0 to 1, of each node's memory to plan with."""
    if share == 1:
        return configuration
    nodes = tuple(
        replace(node, capacity=replace(node.capacity, memory_mib=math.floor(share * node.capacity.memory_mib)))
        for node in configuration.nodes
    )
    return bearable(replace(configuration, nodes=nodes, checked=True))


def shortage(
    configuration: Configuration, share: float, policy: str, durations: Mapping[str, float]
) -> Shortage | None:
    """What to ask about short nodes where VMs are planned up to a share of the memory, and nothing is reserved yet.

    Args:
        configuration: with the whole memory of each node.
        share: of the memory, above 0 to 1; with 1 there is nothing to ask.
        policy: before some of them nodes are reserved.
        durations: of actions, keys and values as of section [durations] of the settings.
    """
    if share == 1 or policy not in RESERVES:
        return None
    real_mib = {node.name: node.capacity.memory_mib for node in configuration.nodes}
    prices = Prices.from_values(durations) if policy in COMPARES else None
    return Shortage(MemoryFacts(real_mib), Reservations(), 0.0, ReservationLimits(), prices)
