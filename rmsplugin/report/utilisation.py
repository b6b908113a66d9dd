"""Utilisation: CPUs and memory in use, jobs in the queue and saved states over time, as means over equal steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from rmsplugin.report.columns import Flags, Floats, time_key
from rmsplugin.report.document import Node, Point
from rmsplugin.report.lives import RUNNING, SLEEPING, WAITING
from rmsplugin.report.samples import Samples, VMs
from rmsplugin.report.stored import Stored
from rmsplugin.report.totals import Facts

#: Lengths of a step in seconds: the first one that divides the report's time into at most MOST_STEPS is taken.
STEPS_S = (60, 300, 900, 3600, 4 * 3600, 12 * 3600, 86400, 7 * 86400, 28 * 86400)
MOST_STEPS = 400


def step_s(since: float, until: float) -> int:
    """The length of the steps of that time, in seconds."""
    return next((each for each in STEPS_S if (until - since) / each <= MOST_STEPS), STEPS_S[-1])


def edges_of(since: float, until: float) -> Floats:
    """The beginnings of the steps of that time, and the end of the last one, in seconds like their arguments."""
    length_s = step_s(since, until)
    return np.asarray(since + length_s * np.arange(int(np.ceil((until - since) / length_s)) + 1.0))


def points(
    facts: Facts,
    counted: Flags,
    vms: VMs,
    samples: Samples,
    stored: Stored,
    nodes: Iterable[Node],
    span: tuple[float, float],
) -> Iterator[Point]:
    """The cluster in the time ``span``.

    Args:
        facts: the facts about the jobs of the report.
        counted: the jobs that count.
        vms: the VMs of the jobs.
        samples: their observed demands.
        stored: their saved states.
        nodes: of the cluster.
        span: begin and end of the time.
    """
    jobs, lives, replays = facts.jobs, facts.lives, facts.replays
    edges = edges_of(*span)
    runs = lives.span_state == RUNNING
    weights = np.where(counted, jobs.booked, 0)[lives.row].astype(np.float64)
    booked = means(edges, lives.begin[runs], lives.until[runs], weights[runs])
    demanded = means(edges, lives.begin, lives.until, weights)
    used = booked + _corrections(edges, facts, vms, samples, counted)
    others = {}
    for policy, starts in replays.starts.items():
        there = ~np.isnan(starts) & counted
        others[policy] = means(edges, starts[there], replays.ends[policy][there], jobs.booked[there].astype(np.float64))
    course = _course(edges, facts, stored, counted)
    known = list(nodes)
    total, total_mib = float(sum(node.cpus for node in known)), float(sum(node.memory_mib for node in known))
    for index, begin in enumerate(edges[:-1].tolist()):
        cpu_used, cpu_booked, cpu_demanded = (round(float(each[index]), 3) for each in (used, booked, demanded))
        without = {policy: round(float(each[index]), 3) for policy, each in others.items()}
        mem_booked_mib, waiting, asleep, store_mib = (round(float(each[index]), 3) for each in course)
        yield Point(
            *(begin, cpu_used, cpu_booked, cpu_demanded, total, without, mem_booked_mib, total_mib or None),
            *(waiting, asleep, store_mib),
        )


def _course(edges: Floats, facts: Facts, stored: Stored, counted: Flags) -> tuple[Floats, Floats, Floats, Floats]:
    """In each step: the MiB that running jobs requested, jobs that waited and that slept, the MiB of saved states."""
    lives = facts.lives
    one, mib = (np.where(counted, each, 0.0)[lives.row] for each in (1.0, facts.jobs.booked_mib))

    def mean(state: int, weight: Floats) -> Floats:
        there = lives.span_state == state
        return means(edges, lives.begin[there], lives.until[there], weight[there])

    kept = counted[stored.row]
    store_mib = means(edges, stored.begin[kept], stored.until[kept], stored.mib[kept])
    return mean(RUNNING, mib), mean(WAITING, one), mean(SLEEPING, one), store_mib


def means(edges: Floats, begin: Floats, until: Floats, weight: Floats) -> Floats:
    """The mean of weights from ``begin`` until ``until``, in each step between the edges."""
    if len(edges) < 2:
        return np.zeros(0)
    return np.diff(_integral(edges, begin, weight) - _integral(edges, until, weight)) / np.diff(edges)


def _integral(edges: Floats, since: Floats, weight: Floats) -> Floats:
    """The integral, up to each edge, of weights that count from their times on."""
    order = np.argsort(since)
    # Squares of this century's times leave no digits for seconds: so times count from the first edge.
    since, weight = since[order] - edges[0], weight[order]
    sums = np.append(0.0, np.cumsum(weight))
    moments = np.append(0.0, np.cumsum(weight * since))
    places = np.searchsorted(since, edges - edges[0])
    return np.asarray((edges - edges[0]) * sums[places] - moments[places])


def _corrections(edges: Floats, facts: Facts, vms: VMs, samples: Samples, counted: Flags) -> Floats:
    """The differences between observed and requested CPUs, as means over each step.

    A sample counts until the next one of its VM, or the end of the run: a VM that is resumed demands what it requested.
    """
    lives = facts.lives
    found = np.zeros(len(edges) - 1)
    runs = np.flatnonzero(lives.span_state == RUNNING)
    if not len(runs):
        return found
    origin = min(float(lives.begin.min()), float(edges[0]))
    keys = time_key(lives.row[runs], lives.begin[runs] - origin)
    for part in samples.slices():
        row, time = vms.row[part.vm], part.time.astype(np.float64)
        place = np.searchsorted(keys, time_key(row.astype(np.int64), time - origin), side="right") - 1
        run = runs[np.maximum(place, 0)]
        following = np.append(time[1:], np.inf)
        following[np.append(part.vm[1:] != part.vm[:-1], True)] = np.inf
        begin = np.maximum(time, lives.begin[run])
        until = np.minimum(following, lives.until[run])
        kept = (place >= 0) & (lives.row[run] == row) & (until > begin) & counted[row]
        less = part.centi_cpus / 100 - vms.cpus[part.vm]
        found += means(edges, begin[kept], until[kept], less[kept])
    return found
