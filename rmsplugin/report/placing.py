"""Placing: assigns nodes to a schedule over counted processors, which leaves open where the VMs of its jobs run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush

from rmsplugin.model.vjob import VJobState
from rmsplugin.simulation.capacity import Cluster
from rmsplugin.simulation.outcome import JobRun, Outcome

#: At one instant, ends make room for starts.
_END, _START = 0, 1


def placed(outcome: Outcome, cluster: Cluster) -> Outcome:
    """The outcome with nodes: each job takes the first nodes that are free when it starts, and keeps them to its end.

    Args:
        outcome: an outcome of ``of_schedule``, where equal VMs are interchangeable.
        cluster: the cluster on which it was simulated.
    """
    vm_mib = max((cluster.vm_memory_mib(run.job) for run in outcome.jobs), default=0)
    vcpus = max((cluster.vcpus_of(run.job) for run in outcome.jobs), default=1)
    free = [node for node in range(cluster.nodes) for _ in range(cluster.room_for(vm_mib, vcpus) // cluster.nodes)]
    heapify(free)
    taken: dict[int, list[int]] = {}
    runs = list(outcome.jobs)
    names = cluster.node_names
    for _, event, place in sorted(_events(outcome.jobs)):
        if event == _END:
            for node in taken.pop(place):
                heappush(free, node)
            continue
        run = runs[place]
        taken[place] = [heappop(free) for _ in range(cluster.vms_of(run.job))]
        runs[place] = _on(run, tuple(names[node] for node in taken[place]))
    return replace(outcome, jobs=runs)


def _events(runs: Sequence[JobRun]) -> list[tuple[float, int, int]]:
    """Time, kind and the job's place; a job that runs for no time at all takes no node."""
    lasting = [(place, run) for place, run in enumerate(runs) if run.end_s > run.start_s]
    starts = [(run.start_s, _START, place) for place, run in lasting]
    return starts + [(run.end_s, _END, place) for place, run in lasting]


def _on(run: JobRun, nodes: tuple[str, ...]) -> JobRun:
    intervals = (replace(each, nodes=nodes) if each.state is VJobState.RUNNING else each for each in run.intervals)
    return replace(run, intervals=tuple(intervals))
