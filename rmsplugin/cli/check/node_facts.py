"""Node facts: what was seen of a node, and of the way from one to another."""

from __future__ import annotations

from dataclasses import dataclass

from rmsplugin.adapters.nodes.base import NodeCheck, Reach
from rmsplugin.adapters.platform.base import HostInfo
from rmsplugin.errors import RmspluginError


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What was seen of one node; a text instead of a fact says why it could not be seen."""

    name: str
    hypervisor: HostInfo | str
    agent: NodeCheck | str
    skew_s: float = 0.0  # its clock minus ours
    fault: type[RmspluginError] = RmspluginError  # the kind of failure of an agent that could not be seen


@dataclass(frozen=True, slots=True)
class PairFacts:
    """Whether one node can reach another; a text says why that could not be tried."""

    source: str
    destination: str
    reach: Reach | str
