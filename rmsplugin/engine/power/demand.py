"""Demand: the nodes that vjobs left waiting would start on if they were on, and what is known of later ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rmsplugin.energy.prediction import Need, need_of
from rmsplugin.engine.assess.queue import Waiting
from rmsplugin.engine.capacity.capacity import Capacities
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.model.configuration import Configuration


@dataclass(frozen=True, slots=True)
class PowerDemand:
    """What a decision leaves to be done by nodes that are off.

    Attributes:
        wanted: nodes, without a room, on which vjobs left waiting would start.
        kept: all nodes on which they would.
        needs: what limits tell of later ones.
        places: by display id, the nodes on which each of them would start.
    """

    wanted: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()
    needs: tuple[Need, ...] = ()
    places: Mapping[str, frozenset[str]] = field(default_factory=dict)


def needs_of(capacities: Capacities, seen: Observation, head: Waiting, after: Configuration) -> tuple[Need, ...]:
    """When the first vjob that finds no place has its CPUs, by the limits of those that run."""
    hosts = capacities.hosts(seen)
    if not hosts:
        return ()
    free = {name: host.free.cpus if host.why_not else after.free(name).cpus for name, host in hosts.items()}
    ends = [
        (float(job.end_time), vjob.geometry.total_cpus)
        for vjob in capacities.ledger.vjobs()
        if vjob.state.is_live and (job := seen.jobs.get(vjob.job_id)) is not None and job.end_time
    ]
    each = max(1, int(max(host.capacity.cpus for host in hosts.values())))
    need = need_of(head.geometry.total_cpus, int(sum(free.values())), ends, each)
    return () if need is None else (need,)
