"""Group views: the groups of VM hosts as last decided about, with their summaries, as JSON to be shown. No secrets."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rmsplugin.engine.decide.deciding import DecidedGroups
from rmsplugin.groups import told
from rmsplugin.groups.assignment import homes
from rmsplugin.groups.relieving import Hot
from rmsplugin.groups.summary import Summary, summaries
from rmsplugin.model.resources import NOTHING, Resources
from rmsplugin.model.vjob import VJobState


def group_views(seen: DecidedGroups | None, hot: Hot | None = None) -> list[dict[str, Any]]:
    """All groups; none before the first decision of an engine.

    Args:
        seen: the groups as they were last decided about.
        hot: who has no room, and without whom it would have some, in the only group; None: nobody.
    """
    if seen is None:
        return []
    configuration, groups = seen.configuration, seen.formed.groups
    group_of = homes(configuration, groups) | {name: each.group for name, each in seen.assignment.items()}
    count: Counter[tuple[str, VJobState]] = Counter()
    demand: dict[str, Resources] = {}
    for vjob in configuration.vjobs:
        name, state = group_of.get(vjob.name, ""), configuration.state(vjob)
        if not vjob.in_transit:
            count[name, state] += 1
        if vjob.in_transit or state is not VJobState.TERMINATED:
            demand[name] = demand.get(name, NOTHING) + vjob.demand
    return [
        _view(summary, group.hosts, count, demand.get(group.name, NOTHING), hot)
        for group, summary in zip(groups, summaries(configuration, groups), strict=True)
    ]


def _view(
    summary: Summary,
    hosts: tuple[str, ...],
    count: Counter[tuple[str, VJobState]],
    demand: Resources,
    hot: Hot | None,
) -> dict[str, Any]:
    name = summary.name
    return {
        "name": name,
        "state": str(summary.state),
        "nodes": len(hosts),
        "nodes_up": summary.up,
        "hosts": list(hosts),
        "cpus": summary.size.cpus,
        "memory_mib": summary.size.memory_mib,
        "cpus_free": summary.free.cpus,
        "memory_free_mib": summary.free.memory_mib,
        "cpus_largest": summary.largest.cpus,
        "memory_largest_mib": summary.largest.memory_mib,
        "running": count[name, VJobState.RUNNING],
        "paused": count[name, VJobState.PAUSED],
        "sleeping": count[name, VJobState.SLEEPING],
        "waiting": count[name, VJobState.WAITING],
        "cpus_demanded": round(demand.cpus, 2),
        "memory_demanded_mib": demand.memory_mib,
        "hot": told.hot_view(hot),
    }
