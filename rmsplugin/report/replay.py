"""Replay: the same jobs under FCFS and EASY, without context switches, on nodes that are there all the time.

A cluster that suspends nothing cannot take back what it gave, so each job has what it requested from start to end. It
runs for the time that it really ran, without its sleeps, and without the time that it lost because its VMs shared CPUs
(sharing.py). VMs are counted in equal processors: one for each CPU, or more where their memory is more than the share
of these CPUs in the memory of the nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rmsplugin.report.columns import Flags, Floats, Ints, Jobs
from rmsplugin.report.document import Node
from rmsplugin.simulation.short_way import Queue, starts_of

#: Policies by name, and whether they backfill.
POLICIES = {"fcfs": False, "easy": True}

#: EASY's stand-in for no time limit.
UNLIMITED_S = 365 * 86400.0


@dataclass(frozen=True, slots=True)
class Replays:
    """Each job's start and end under the replay, by policy; NaN for a job that is not replayed, by row.

    Attributes:
        starts, ends: seconds since the epoch.
        replayed: whether the job is replayed.
        too_large: whether the job ran, and these nodes could not host it at once.
        by_memory: whether the job is replayed and counts for more processors than it has CPUs.
    """

    starts: dict[str, Floats]
    ends: dict[str, Floats]
    replayed: Flags
    too_large: Flags
    by_memory: Flags


def replay(
    jobs: Jobs,
    work_s: Floats,
    limits_s: Floats,
    nodes: Sequence[Node],
    taken_mib: Ints,
    tell: Callable[[str, float], None] = lambda _doing, _part: None,
) -> Replays:
    """Replay all jobs that have run.

    Args:
        jobs: of the report.
        work_s: the run time that each job needs; 0 for a job that is left out.
        limits_s: time limits of their users; NaN where unknown: the run time then stands for the limit.
        nodes: the part of each node that VMs may take; none: nothing is replayed.
        taken_mib: the memory that a VM of each job takes of its node; of a larger VM, where they differ.
        tell: called now and then with the present stage, and the part of the work that is done, from 0 to 1.
    """
    processors = sum(node.cpus for node in nodes)
    sizes, by_memory = _sizes(jobs, nodes, taken_mib)
    ran = work_s > 0
    rows = np.flatnonzero(ran & (sizes <= processors))
    replayed = np.zeros(len(jobs), dtype=bool)
    if not len(rows):
        return Replays({}, {}, replayed, ran & (sizes > processors), replayed)
    rows = rows[np.argsort(jobs.submit[rows], kind="stable")]
    replayed[rows] = True
    work_s = work_s[rows]
    limits_s = limits_s[rows]
    estimates_s = np.minimum(np.where(np.isnan(limits_s), work_s, limits_s), UNLIMITED_S)
    columns = (jobs.submit[rows], work_s, sizes[rows], np.maximum(estimates_s, 1.0))
    queue = Queue(*(each.tolist() for each in columns))
    starts, ends = {}, {}
    for policy, backfill in POLICIES.items():
        doing = f"replaying {len(rows)} jobs under {policy}"
        begun = starts_of(
            *(queue, processors),
            backfill=backfill,
            tell=lambda submitted, doing=doing: tell(doing, submitted / len(rows)),  # type: ignore[misc]
        )
        starts[policy], ends[policy] = np.full(len(jobs), np.nan), np.full(len(jobs), np.nan)
        starts[policy][rows] = begun
        ends[policy][rows] = starts[policy][rows] + work_s
    return Replays(starts, ends, replayed, ran & (sizes > processors), by_memory & replayed)


def _sizes(jobs: Jobs, nodes: Sequence[Node], taken_mib: Ints) -> tuple[Ints, Flags]:
    """The processors of each job, and whether it has more of them than CPUs."""
    share_mib = sum(node.memory_mib for node in nodes) / max(1, sum(node.cpus for node in nodes))
    if not share_mib:
        return jobs.booked, np.zeros(len(jobs), dtype=bool)
    large = np.maximum(jobs.cpus, np.ceil(taken_mib / share_mib).astype(np.int64))
    small_mib = taken_mib - jobs.memory_mib + jobs.small_memory_mib
    small = np.maximum(jobs.small_cpus, np.ceil(small_mib / share_mib).astype(np.int64))
    sizes = jobs.large * large + (jobs.vms - jobs.large) * small
    return sizes, sizes > jobs.booked
