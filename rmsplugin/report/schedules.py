"""Schedules: makes the document of simulated schedules of one workload, for the page of `simulate` and `compare`.

A job has ended when its work is done, as in the answers of these commands; the later stop of its VMs is not told. The
boot of its VMs belongs to its wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from rmsplugin.model.vjob import VJobState
from rmsplugin.report.columns import Floats
from rmsplugin.report.document import Consumed, Cost, Head, Interval, Job, Kind, Node, Note, Point, Schedule, Switch
from rmsplugin.report.utilisation import edges_of, means, step_s
from rmsplugin.report.writing import job_json, whole
from rmsplugin.simulation.capacity import Cluster
from rmsplugin.simulation.metrics import SLOWDOWN_THRESHOLD_S
from rmsplugin.simulation.outcome import Interval as SimulatedInterval
from rmsplugin.simulation.outcome import JobRun, Outcome, SwitchRun

_STATES: dict[VJobState, Literal["waiting", "running", "sleeping"]] = {
    VJobState.WAITING: "waiting",
    VJobState.STARTING: "waiting",
    VJobState.RUNNING: "running",
    VJobState.PAUSING: "sleeping",
    VJobState.PAUSED: "sleeping",
    VJobState.UNPAUSING: "sleeping",
    VJobState.SUSPENDING: "sleeping",
    VJobState.SLEEPING: "sleeping",
    VJobState.RESUMING: "sleeping",
}

#: States in which the VMs of a job are saved.
_SAVED = (VJobState.SLEEPING, VJobState.RESUMING)

#: States in which a saved or paused job goes on.
_WAKING = (VJobState.RESUMING, VJobState.UNPAUSING)


@dataclass(frozen=True, slots=True)
class Schedules:
    """Schedules of the same jobs in the same order: the document's own schedule, and those beside it."""

    cluster: Cluster
    own: Outcome
    others: Sequence[Outcome] = ()

    @property
    def all(self) -> tuple[Outcome, ...]:
        """The document's own schedule first."""
        return (self.own, *self.others)


def document(
    kind: Kind, schedules: Schedules, notes: Iterable[Note], made: float, energy: Iterable[Consumed] = ()
) -> dict[str, Any]:
    """The document as a value; its times are seconds as in the trace, and it has no totals.

    Args:
        kind: simulation or comparison.
        schedules: of at least one job.
        notes: the notes on them.
        made: the time of making, in seconds since the epoch.
        energy: of the schedules, as far as it is known.
    """
    own, cluster = schedules.own, schedules.cluster
    since = float(min(run.job.submit_s for run in own.jobs))
    until = float(max(run.end_s for outcome in schedules.all for run in outcome.jobs))
    head = Head(
        kind=kind,
        policy=own.policy,
        others=tuple(other.policy for other in schedules.others),
        made=made,
        since=since,
        until=until,
        selection={"users": [], "accounts": [], "partitions": [], "jobs": []},
        nodes=tuple(Node(name, cluster.cpus_per_node, cluster.memory_per_node_mib or 0) for name in cluster.node_names),
        totals={},
        utilisation_step_s=float(step_s(since, until)),
        utilisation=tuple(_points(schedules, (since, until))),
        switches=tuple(_switch(number, each) for number, each in enumerate(own.switches, start=1)),
        costs=_costs(own, cluster) if own.switches else {},
        notes=tuple(notes),
        energy=tuple(energy),
    )
    return whole(head, map(job_json, _jobs(schedules)))


# -- jobs --------------------------------------------------------------------------------------------------------------


def _jobs(schedules: Schedules) -> Iterator[Job]:
    for own, *others in zip(*(outcome.jobs for outcome in schedules.all), strict=True):
        without: dict[str, Schedule | None] = {
            outcome.policy: Schedule(_rounded(there.start_s), _rounded(there.end_s))
            for outcome, there in zip(schedules.others, others, strict=True)
        }
        yield _job(own, schedules.cluster, without)


def _job(run: JobRun, cluster: Cluster, without: dict[str, Schedule | None]) -> Job:
    job = run.job
    intervals = tuple(_intervals(run))
    spent = {"waiting": 0.0, "running": 0.0, "sleeping": 0.0}
    for each in intervals:
        spent[each.state] += each.until - each.begin
    completion_s = run.end_s - job.submit_s
    return Job(
        id=str(job.job_id),
        user=job.user,
        account=job.account,
        partition=job.partition,
        state="ended",
        vms=cluster.vms_of(job),
        cpus=cluster.vcpus_of(job),
        memory_mib=cluster.vm_memory_mib(job),
        large_vms=cluster.vms_of(job),
        small_cpus=0,
        submit=job.submit_s,
        start=_rounded(run.start_s),
        end=_rounded(run.end_s),
        wait_s=_rounded(spent["waiting"]),
        run_s=_rounded(spent["running"]),
        asleep_s=_rounded(spent["sleeping"]),
        completion_s=_rounded(completion_s),
        slowdown=_rounded(max(1.0, completion_s / max(job.run_s, SLOWDOWN_THRESHOLD_S))),
        slowed_s=0.0,
        suspends=run.suspends,
        resumes=sum(each.state in _WAKING and not each.failed for each in run.intervals),
        migrations=sum(len(move.moves) for move in run.moves if not move.failed),
        limit_s=job.estimate_s,
        slurm=None,
        intervals=intervals,
        without=without,
    )


def _intervals(run: JobRun) -> list[Interval]:
    """Its life up to the end of its work; a migration begins an interval."""
    found: list[Interval] = []
    for each in run.intervals:
        state = _STATES.get(each.state)
        for begin, until, nodes in _pieces(each, run) if state == "running" else [(each.begin_s, each.end_s, ())]:
            until = min(until, run.end_s)
            if state is None or begin >= until:
                continue
            if found and found[-1].state == state != "running":
                begin = found.pop().begin
            found.append(Interval(state, _rounded(begin), _rounded(until), nodes))
    return found


def _pieces(running: SimulatedInterval, run: JobRun) -> list[tuple[float, float, tuple[str, ...]]]:
    """Parts of an interval that its VMs spent on the same nodes: begin, end and nodes of each."""
    nodes, until = running.nodes, running.end_s
    pieces = []
    for move in reversed(run.moves):  # the nodes at the end are known
        if move.failed or not running.begin_s <= move.end_s <= running.end_s:
            continue
        pieces.append((move.end_s, until, nodes))
        nodes = tuple(move.moves[vm][0] if vm in move.moves else node for vm, node in enumerate(nodes))
        until = move.end_s
    pieces.append((running.begin_s, until, nodes))
    return pieces[::-1]


# -- the cluster -------------------------------------------------------------------------------------------------------


def _points(schedules: Schedules, span: tuple[float, float]) -> Iterator[Point]:
    edges = edges_of(*span)
    own, cluster = schedules.own, schedules.cluster
    used = _used(edges, own)
    booked = {outcome.policy: _booked(edges, outcome, cluster) for outcome in schedules.all}
    there = [(run.job.submit_s, run.end_s, _cpus(run, cluster)) for run in own.jobs]
    demanded = _means(edges, there)
    memory, course = cluster.memory_per_node_mib, _course(edges, own, cluster)
    for index, begin in enumerate(edges[:-1].tolist()):
        mem_booked_mib, waiting, asleep, store_mib = (_rounded(float(each[index])) for each in course)
        yield Point(
            t=begin,
            cpu_used=_rounded(float(used[index])),
            cpu_booked=_rounded(float(booked[own.policy][index])),
            cpu_demanded=_rounded(float(demanded[index])),
            cpu_total=float(cluster.cpus),
            without={each.policy: _rounded(float(booked[each.policy][index])) for each in schedules.others},
            mem_booked_mib=None if memory is None else mem_booked_mib,
            mem_total_mib=None if memory is None else float(memory * cluster.nodes),
            waiting=waiting,
            asleep=asleep,
            store_mib=None if memory is None else store_mib,
        )


def _course(edges: Floats, outcome: Outcome, cluster: Cluster) -> tuple[Floats, Floats, Floats, Floats]:
    """In each step: the MiB that running jobs requested, jobs that waited and that slept, the MiB of saved states."""
    memory, waiting, asleep, stored = [], [], [], []
    for run in outcome.jobs:
        booked_mib = run.vms * cluster.vm_memory_mib(run.job)
        saved_mib = booked_mib if run.held_mib is None else run.vms * run.held_mib
        for each in run.intervals:
            begin, until, state = each.begin_s, min(each.end_s, run.end_s), _STATES.get(each.state)
            if begin >= until:
                continue
            if state == "running":
                memory.append((begin, until, booked_mib))
            elif state == "waiting":
                waiting.append((begin, until, 1))
            elif state == "sleeping":
                asleep.append((begin, until, 1))
            if each.state in _SAVED:
                stored.append((begin, until, saved_mib))
    return _means(edges, memory), _means(edges, waiting), _means(edges, asleep), _means(edges, stored)


def _used(edges: Floats, outcome: Outcome) -> Floats:
    usage = outcome.usage
    steps = [(one.time_s, following.time_s, one.used_cpus) for one, following in pairwise(usage)]
    return _means(edges, steps)


def _booked(edges: Floats, outcome: Outcome, cluster: Cluster) -> Floats:
    """The CPUs that running jobs had requested."""
    return _means(
        edges,
        [
            (each.begin_s, min(each.end_s, run.end_s), _cpus(run, cluster))
            for run in outcome.jobs
            for each in run.intervals
            if each.state is VJobState.RUNNING and each.begin_s < run.end_s
        ],
    )


def _means(edges: Floats, spans: Sequence[tuple[float, float, float]]) -> Floats:
    """The mean of weights in each step, given as begin, end and weight."""
    begin, until, weight = np.array(spans, dtype=np.float64).reshape(-1, 3).T
    return means(edges, begin, until, weight)


def _cpus(run: JobRun, cluster: Cluster) -> int:
    return cluster.vms_of(run.job) * cluster.vcpus_of(run.job)


def _switch(number: int, run: SwitchRun) -> Switch:
    return Switch(
        number=number,
        at=_rounded(run.begin_s),
        state="failed" if run.failed else "done",
        cost_mib=run.cost_mib,
        seconds=_rounded(run.end_s - run.begin_s),
        start=run.steps.get("start", 0),
        suspend=run.steps.get("suspend", 0),
        resume=run.steps.get("resume", 0),
        migrate=run.steps.get("migrate", 0),
        pause=run.steps.get("pause", 0),
        unpause=run.steps.get("unpause", 0),
    )


def _costs(outcome: Outcome, cluster: Cluster) -> dict[str, Cost]:
    """The successful actions of each kind: each moves its VMs' memory, and takes the VMs until the last is done."""
    kinds = {VJobState.SUSPENDING: "suspend", VJobState.RESUMING: "resume"}
    parts: dict[str, list[tuple[int, float, int]]] = {"suspend": [], "resume": [], "migrate": []}
    for run in outcome.jobs:
        memory_mib = cluster.vm_memory_mib(run.job) if run.held_mib is None else run.held_mib
        for each in run.intervals:
            if each.state in kinds and not each.failed:
                parts[kinds[each.state]].append((run.vms, each.end_s - each.begin_s, memory_mib))
        parts["migrate"] += [
            (len(move.moves), move.end_s - move.begin_s, memory_mib) for move in run.moves if not move.failed
        ]
    return {
        kind: Cost(
            actions=sum(vms for vms, _, _ in of),
            vm_seconds=_rounded(sum(vms * seconds for vms, seconds, _ in of)),
            bytes=sum(vms * memory_mib for vms, _, memory_mib in of) << 20,
        )
        for kind, of in parts.items()
    }


def _rounded(value: float) -> float:
    return round(value, 3)
