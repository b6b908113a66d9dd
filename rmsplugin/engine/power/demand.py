"""Demand: the nodes that vjobs left waiting would start on if they were on, and what is known of later ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from rmsplugin.energy.prediction import Need, need_of
from rmsplugin.energy.switching import too_soon_s
from rmsplugin.engine.assess.queue import Waiting
from rmsplugin.engine.capacity.capacity import Capacities
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.engine.power.classes import PowerClasses
from rmsplugin.model.configuration import Configuration
from rmsplugin.settings import Settings

#: Why a node comes on on which a vjob left waiting would start.
NEEDED = "a vjob needs it"


@dataclass(frozen=True, slots=True)
class PowerDemand:
    """What a decision leaves to be done by nodes that are off.

    Attributes:
        wanted: nodes, without a room, on which vjobs left waiting would start.
        kept: all nodes on which they would.
        needs: what limits, and begin times, tell of later ones.
        places: by display id, the nodes on which each of them would start.
        begins: by node, when a vjob with a begin time would start there.
        left: display ids of all vjobs left waiting, in the order of the queue.
    """

    wanted: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()
    needs: tuple[Need, ...] = ()
    places: Mapping[str, frozenset[str]] = field(default_factory=dict)
    begins: Mapping[str, float] = field(default_factory=dict)
    left: tuple[str, ...] = ()

    def has(self, node: str) -> bool:
        """Whether a vjob would start on a node, now or at its begin time."""
        return node in self.kept or node in self.begins


def horizon_s(settings: Settings, classes: PowerClasses) -> float:
    """A begin time that is further away than this changes nothing about the power of any node."""
    times = [too_soon_s(each) for each in classes.all()]
    return max((each for each in times if math.isfinite(each)), default=0.0) + settings.engine.cycle_s


def needs_of(
    capacities: Capacities, seen: Observation, head: Waiting | None, late: Waiting | None, after: Configuration
) -> tuple[Need, ...]:
    """When vjobs that find no place have their CPUs, by the limits of those that run.

    Args:
        capacities: of the nodes.
        seen: one look at the cluster.
        head: the first one of the queue; None: each finds a place.
        late: the first one with a begin time; the same.
        after: the configuration that the decision leads to.
    """
    found = [_need_of(capacities, seen, each, after) for each in (head, late) if each is not None]
    return tuple(each for each in found if each is not None)


def _need_of(capacities: Capacities, seen: Observation, waiting: Waiting, after: Configuration) -> Need | None:
    hosts = capacities.hosts(seen)
    if not hosts:
        return None
    free = {name: host.free.cpus if host.why_not else after.free(name).cpus for name, host in hosts.items()}
    ends = [
        (float(job.end_time), vjob.geometry.total_cpus)
        for vjob in capacities.ledger.vjobs()
        if vjob.state.is_live and (job := seen.jobs.get(vjob.job_id)) is not None and job.end_time
    ]
    each = max(1, int(max(host.capacity.cpus for host in hosts.values())))
    need = need_of(waiting.geometry.total_cpus, int(sum(free.values())), ends, each)
    return None if need is None else Need(max(need.at_s, waiting.job.begin_time), need.nodes)
