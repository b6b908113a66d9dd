"""Threshold: a configuration planned up to a share of each node's memory, with what becomes of nodes that are short."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from rmsplugin.decision.outgrown import MemoryFacts, Outgrown, bearable, outgrown
from rmsplugin.decision.policies import RESERVES
from rmsplugin.decision.reservation import ReservationLimits, Reservations
from rmsplugin.decision.unblocking import Prices
from rmsplugin.model.configuration import Configuration


def up_to(configuration: Configuration, share: float) -> Configuration:
    """The configuration with only this share, above 0 to 1, of each node's memory to plan with."""
    nodes = tuple(
        replace(node, capacity=replace(node.capacity, memory_mib=math.floor(share * node.capacity.memory_mib)))
        for node in configuration.nodes
    )
    return replace(configuration, nodes=nodes, checked=True)


def relieved(configuration: Configuration, share: float, policy: str, durations: Mapping[str, float]) -> Outgrown:
    """What to decide about where VMs are planned up to a share of each node's memory, and nothing is reserved yet.

    Args:
        configuration: with the whole memory of each node, and observed demands.
        share: of the memory, above 0 to 1; with 1 there is nothing to look at.
        policy: before some of them nodes are reserved.
        durations: of actions, keys and values as of section [durations] of the settings.
    """
    before = Reservations()
    if share == 1:
        return Outgrown(configuration, before)
    planned = up_to(configuration, share)
    if policy not in RESERVES:
        return Outgrown(bearable(planned), before)
    real_mib = {node.name: node.capacity.memory_mib for node in configuration.nodes}
    prices = Prices.from_values(durations)
    return outgrown(planned, MemoryFacts(real_mib), before, 0.0, ReservationLimits(), prices)
