"""Prediction: how long a node will be idle: what is known of the queue first, then a moving average (equation 9)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class Average:
    """The exponential moving average of idle periods (RR-7398, equation 9).

    Attributes:
        weight: of the latest period (c), from 0 to 1.
        expected_s: the period that is predicted; None until one has ended.
    """

    weight: float
    expected_s: float | None = None

    def see(self, idle_s: float) -> None:
        """Take in a period that has ended."""
        before_s = idle_s if self.expected_s is None else self.expected_s
        self.expected_s = self.weight * idle_s + (1 - self.weight) * before_s


@dataclass(frozen=True, slots=True)
class Need:
    """Nodes that will be needed at a time that is known, as far as limits tell."""

    at_s: float
    nodes: int


def predicted_s(average: Average, idle_so_far_s: float, needed_in_s: float = math.inf) -> float:
    """The length of the idle period of a node.

    Args:
        average: of the periods of its class.
        idle_so_far_s: how long it has been idle already: it is idle for no less.
        needed_in_s: the time until a known need of the node; infinite if none is known. Such a time is believed,
            whatever the average says.
    """
    if math.isfinite(needed_in_s):
        return idle_so_far_s + max(0.0, needed_in_s)
    return max(idle_so_far_s, average.expected_s or 0.0)


def need_of(cpus: int, free_cpus: int, ends: Iterable[tuple[float, int]], cpus_per_node: int) -> Need | None:
    """When the vjob that waits longest has its CPUs by the limits of those that run, and how many nodes it needs.

    Args:
        cpus: that it needs.
        free_cpus: on all nodes, whether on or off.
        ends: of each vjob that runs, when its limit ends, and its CPUs.
        cpus_per_node: of each node.

    Returns:
        None if it never has them.
    """
    for at_s, freed in [(-math.inf, 0), *sorted(ends)]:
        free_cpus += freed
        if free_cpus >= cpus:
            return Need(at_s, -(-cpus // cpus_per_node))
    return None


def needed_in_s(needs: Sequence[Need], rank: int, now: float) -> float:
    """The time until the first need of the idle node of this rank (0 is taken first); infinite if there is none."""
    times = [max(0.0, need.at_s - now) for need in needs if rank < need.nodes]
    return min(times, default=math.inf)
