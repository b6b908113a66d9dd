"""Needs: which nodes of the replay have something, and when more of them will be needed, as far as limits tell."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable

from rmsplugin.energy.prediction import Need, need_of
from rmsplugin.model.vjob import VJobState
from rmsplugin.proposing.steps import PlannedStep
from rmsplugin.simulation.capacity import Cluster
from rmsplugin.simulation.vjob import SimulatedVJob

_READY = (VJobState.WAITING, VJobState.PAUSED, VJobState.SLEEPING)


def used_nodes(vjobs: Iterable[SimulatedVJob], steps: Iterable[PlannedStep]) -> set[str]:
    """The nodes that have a VM or a saved state of these vjobs, or to which one comes by these steps."""
    used: set[str] = set()
    for vjob in vjobs:
        used.update(vjob.hosts.values(), vjob.moving.values(), vjob.images.values())
    for step in steps:
        used.update(step.hosts.values())
    return used


def waiting_behind(vjobs: Iterable[SimulatedVJob], boots: Container[str]) -> int:
    """How many vjobs wait, from the first one on that waits for a node to come on.

    Args:
        vjobs: all that have not ended, in the order of the queue.
        boots: names of those that wait for nodes to come on.
    """
    waiting = [vjob.name for vjob in vjobs if vjob.state in _READY]
    return next((len(waiting) - at for at, name in enumerate(waiting) if name in boots), 0)


def known_needs(
    vjobs: Iterable[SimulatedVJob], transit: Collection[SimulatedVJob], cluster: Cluster, now: float
) -> list[Need]:
    """When the vjob that is first in the queue and waits will have its CPUs, by the limits of those that run.

    Args:
        vjobs: all that have not ended, in the order of the queue.
        transit: those of them that are about to do something else; they hold their CPUs.
        cluster: its nodes.
        now: the time.
    """
    head, free, ends = None, 100 * cluster.cpus, []
    for vjob in vjobs:
        centi_cpus = len(vjob.names) * vjob.requested.centi_cpus
        runs = vjob.state is VJobState.RUNNING
        if runs or vjob in transit:
            left_s = vjob.job.estimate_s - vjob.run_s - (now - vjob.since_s if runs else 0.0)
            ends.append((now + max(0.0, left_s), centi_cpus))
            free -= centi_cpus
        elif head is None and vjob.state in _READY:
            head = centi_cpus
    need = None if head is None else need_of(head, free, ends, 100 * cluster.cpus_per_node)
    return [] if need is None else [need]
