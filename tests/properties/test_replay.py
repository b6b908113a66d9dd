"""A replay creates and loses nothing: recomputed from what became of each job, by code that shares nothing with it."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from rmsplugin.decision.parameters import Parameters
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.operation import OperationKind
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.search import Search
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.prepared import Prepared
from rmsplugin.simulation.capacity import Cluster, fitting
from rmsplugin.simulation.deciding import Deciding
from rmsplugin.simulation.measured import Measured, Went
from rmsplugin.simulation.operations import Operation, Operations
from rmsplugin.simulation.outcome import JobRun, Outcome, events_of
from rmsplugin.simulation.parameters import ReplayParameters
from rmsplugin.simulation.replay import _Replay, replay
from rmsplugin.simulation.vjob import SimulatedVJob
from rmsplugin.workload.activity import Activity, Phase
from rmsplugin.workload.faults import Faults
from rmsplugin.workload.jobs import Job

S = VJobState
CLUSTER = Cluster(nodes=3, cpus_per_node=2, memory_per_node_mib=4096)
SEEDS = range(32)
SWITCHING = ("easy-preempt", "rjsp", "rjsp-exact", "mixed", "slowdown", "load-sharing", "v-reconfiguration")
ON_NODES = {S.STARTING, S.RUNNING, S.SUSPENDING, S.RESUMING, S.STOPPING}


@dataclass(frozen=True)
class Case:
    jobs: list[Job]
    activity: dict[int, Activity]
    parameters: ReplayParameters


@cache
def case_of(seed: int) -> Case:
    """Jobs that are in each other's way, some of which use little of what they requested for a while."""
    random = Random(seed)
    jobs, activity = [], {}
    submit_s = 0
    for number in range(1, random.randint(3, 8)):
        submit_s += random.choice((0, 20, 200))
        run_s, vms = random.choice((1, 100, 700, 1500)), random.randint(1, 6)
        jobs.append(Job(number, submit_s, run_s, vms, 2 * run_s, random.choice((512, 1500, 2500)), number))
        if random.random() < 0.5:
            quiet = tuple(random.choice((0.0, 0.3, 1.0)) for _ in range(vms))
            activity[number] = (Phase(run_s / 2, quiet), Phase(run_s / 2, (random.choice((0.2, 1.0)),)))
    search = Search(time_limit_s=math.inf, deterministic_limit=0.01)
    decision = Parameters(search=search, exempt_s=random.choice((0.0, 120.0)), patience_s=600.0)
    parameters = ReplayParameters(
        ProposalParameters(SWITCHING[seed % len(SWITCHING)], decision=decision, search=search),
        failure_rate=random.choice((0.0, 0.1, 0.5)),
        seed=seed,
        activity=activity,
    )
    return Case(fitting(jobs, CLUSTER, Faults()), activity, parameters)


@cache
def replayed(seed: int) -> Outcome:
    case = case_of(seed)
    return replay(case.jobs, CLUSTER, case.parameters)


def hosts_at(run: JobRun, now: float) -> tuple[str, ...]:
    """Where its VMs are in the interval that begins at or before ``now``; none while it waits or sleeps."""
    hosts: list[str] = []
    for each in run.intervals:
        if each.begin_s > now or each.end_s <= now:
            continue
        if each.state not in ON_NODES:
            return ()
        hosts = list(each.nodes)
        # The nodes of an interval are those at its end.
        for move in reversed(run.moves):
            if not move.failed and now < move.end_s <= each.end_s and each.state is S.RUNNING:
                for vm, (source, _) in move.moves.items():
                    hosts[vm] = source
    return tuple(hosts)


def instants(outcome: Outcome) -> list[float]:
    """All times at which anything changes."""
    found = {run.job.submit_s for run in outcome.jobs} | {run.end_s for run in outcome.jobs}
    found |= {usage.time_s for usage in outcome.usage}
    for run in outcome.jobs:
        found |= {time for each in (*run.intervals, *run.moves) for time in (each.begin_s, each.end_s)}
    return sorted(found)


def state_at(run: JobRun, now: float) -> VJobState | None:
    return next((each.state for each in run.intervals if each.begin_s <= now < each.end_s), None)


def actions_at(outcome: Outcome, now: float) -> tuple[set[str], set[str]]:
    """Nodes on which memory is saved or read now, and those between which it is copied."""
    local: set[str] = set()
    remote: set[str] = set()
    for run in outcome.jobs:
        for before, each in zip((None, *run.intervals), run.intervals, strict=False):
            if not each.begin_s <= now < each.end_s:
                continue
            if each.state is S.SUSPENDING:
                local |= set(each.nodes)
            elif each.state is S.RESUMING and before is not None:
                for image, host in zip(before.nodes, each.nodes, strict=True):
                    (local if image == host else remote).update({image, host})
        for move in run.moves:
            if move.begin_s <= now < move.end_s:
                remote |= {node for pair in move.moves.values() for node in pair}
    return local, remote


@pytest.mark.parametrize("seed", SEEDS)
def test_each_job_runs_exactly_its_work(seed: int) -> None:
    """The speed of each job is computed anew between all instants, from where all VMs are and what is done there."""
    case, outcome = case_of(seed), replayed(seed)
    left = {
        run.job.job_id: [[phase.work_s, phase] for phase in CLUSTER.activity_of(run.job, case.activity)]
        for run in outcome.jobs
    }
    times = instants(outcome)
    for begin_s, end_s in pairwise(times):
        local, remote = actions_at(outcome, begin_s)
        demanded: Counter[str] = Counter()
        working = {}
        for run in outcome.jobs:
            if state_at(run, begin_s) is S.RUNNING and begin_s < run.end_s:
                phase = left[run.job.job_id][0][1]
                working[run.job.job_id] = [
                    (node, phase.of(vm)) for vm, node in enumerate(hosts_at(run, begin_s)) if round(100 * phase.of(vm))
                ]
                for node, cpus in working[run.job.job_id]:
                    demanded[node] += cpus
        for job_id, places in working.items():
            speeds = [
                min(1.0, CLUSTER.cpus_per_node / demanded[node])
                / (1.5 if node in remote else 1.3 if node in local else 1)
                for node, _ in places
            ]
            left[job_id][0][0] -= (end_s - begin_s) * min(speeds, default=1.0)
            assert left[job_id][0][0] >= -1e-6, "a phase went on after its end"
            if left[job_id][0][0] < 1e-6 and len(left[job_id]) > 1:
                left[job_id].pop(0)
    for run in outcome.jobs:
        assert len(left[run.job.job_id]) == 1
        assert left[run.job.job_id][0][0] == pytest.approx(0, abs=1e-6), run.job
        assert run.cpu_s == pytest.approx(
            sum(p.work_s * sum(p.of(vm) for vm in range(run.vms)) for p in CLUSTER.activity_of(run.job, case.activity))
        )


@pytest.mark.parametrize("seed", SEEDS)
def test_no_node_ever_holds_more_memory_than_it_has_and_none_is_lost(seed: int) -> None:
    outcome = replayed(seed)
    for now in instants(outcome):
        held: Counter[str] = Counter()
        for run in outcome.jobs:
            memory_mib = CLUSTER.vm_memory_mib(run.job)
            state = state_at(run, now)
            hosts = hosts_at(run, now)
            assert len(hosts) == (run.vms if state in ON_NODES else 0), "a VM is where it is, and nowhere else"
            for node in hosts:
                held[node] += memory_mib
            for move in run.moves:
                if move.begin_s <= now < move.end_s:
                    for _, destination in move.moves.values():
                        held[destination] += memory_mib
        assert all(amount <= (CLUSTER.memory_per_node_mib or 0) for amount in held.values())


@pytest.mark.parametrize("seed", SEEDS)
def test_a_job_is_told_without_a_gap_and_what_failed_leaves_it_where_it_was(seed: int) -> None:
    back = {S.STARTING: S.WAITING, S.SUSPENDING: S.RUNNING, S.RESUMING: S.SLEEPING}
    case, outcome = case_of(seed), replayed(seed)
    assert [run.job for run in outcome.jobs] == case.jobs
    for run in outcome.jobs:
        assert run.intervals[0].state is S.WAITING
        assert run.intervals[0].begin_s == run.job.submit_s
        assert run.intervals[-1].state is S.STOPPING
        for one, other in pairwise(run.intervals):
            assert one.end_s == other.begin_s
            assert one.begin_s <= one.end_s
            if one.failed:
                assert other.state is back[one.state]
        if not case.parameters.failure_rate:
            assert not any(each.failed for each in (*run.intervals, *run.moves))
    assert [event.time_s for event in events_of(outcome)] == sorted(event.time_s for event in events_of(outcome))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_sleeping_job_uses_no_cpu_and_the_same_input_gives_the_same_outcome(seed: int) -> None:
    case, outcome = case_of(seed), replayed(seed)
    assert outcome == replay(case.jobs, CLUSTER, case.parameters)
    lasting = [one for one, after in zip(outcome.usage, outcome.usage[1:], strict=False) if one.time_s < after.time_s]
    for usage in (*lasting, outcome.usage[-1]):  # of one instant the last is what is used from then on
        works = [run for run in outcome.jobs if state_at(run, usage.time_s) is S.RUNNING and usage.time_s < run.end_s]
        assert 0 <= usage.used_cpus <= usage.demanded_cpus + 1e-6
        assert usage.used_cpus <= CLUSTER.cpus + 1e-6
        assert usage.demanded_cpus <= sum(run.vms for run in works) + 1e-6
    assert not outcome.faults


def test_who_was_suspended_is_decided_about_and_goes_on_with_the_demand_that_it_had(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    had: dict[str, list[float]] = {}  # by job: what its VMs demanded when its last suspend began
    asleep, resumed = [], []
    begin, find, went_on = Operations.begin, Deciding.find, _Replay._ended

    def beginning(self: Operations, vjob: SimulatedVJob, kind: OperationKind, *rest: Any) -> None:
        begin(self, vjob, kind, *rest)
        if kind is OperationKind.SUSPEND and vjob.observed is not None:
            had[vjob.name] = [vjob.observed.cpus(vm) for vm in range(len(vjob.names))]

    def finding(self: Deciding, source: Configuration) -> Prepared | None:
        for vjob in source.vjobs:
            if vjob.name in had and source.state(vjob) is S.SLEEPING:
                asleep.append(([vm.demand.cpus for vm in vjob.vms], had[vjob.name]))
        return find(self, source)

    def ending(self: _Replay, operation: Operation, now: float) -> None:
        vjob = operation.vjob
        if operation.kind is OperationKind.RESUME and not operation.fails and vjob.observed is not None:
            resumed.append(([vjob.observed.cpus(vm) for vm in range(len(vjob.names))], had[vjob.name]))
        went_on(self, operation, now)

    monkeypatch.setattr(Operations, "begin", beginning)
    monkeypatch.setattr(Deciding, "find", finding)
    monkeypatch.setattr(_Replay, "_ended", ending)
    for seed in SEEDS:
        had.clear()
        replay(case_of(seed).jobs, CLUSTER, case_of(seed).parameters)
    for found in (asleep, resumed):
        assert all(now == then for now, then in found)
        assert any(min(then) < 1 for _, then in found), "no case in which less was demanded than requested"


@pytest.mark.parametrize("policy", SWITCHING)
def test_a_decision_that_is_left_out_would_have_changed_nothing(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody is ready and all VMs are alike nothing is decided."""
    random = Random(policy)
    jobs = [
        Job(number, 300 * number, random.choice((200, 900)), random.randint(1, 5), 900, 1024, number)
        for number in range(12)
    ]
    search = Search(time_limit_s=math.inf, deterministic_limit=0.01)
    parameters = ReplayParameters(ProposalParameters(policy, decision=Parameters(search=search), search=search))
    found = replay(jobs, CLUSTER, parameters)
    monkeypatch.setattr(_Replay, "_all_stays", False)
    full = replay(jobs, CLUSTER, parameters)
    assert full.decisions > found.decisions
    assert (full.jobs, full.switches) == (found.jobs, found.switches)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_replay_with_the_durations_that_were_measured_of_it_is_the_same_once_more(seed: int) -> None:
    case = case_of(seed)
    smooth = replace(case.parameters, failure_rate=0.0)
    once = replay(case.jobs, CLUSTER, smooth)
    again = replay(case.jobs, CLUSTER, replace(smooth, measured=measured(once)))
    assert [run.suspends for run in again.jobs] == [run.suspends for run in once.jobs]
    assert [run.end_s for run in again.jobs] == pytest.approx([run.end_s for run in once.jobs])


def measured(outcome: Outcome) -> Measured:
    """How what was done to each vjob went."""
    found: dict[tuple[int, OperationKind], list[Went]] = defaultdict(list)
    for run in outcome.jobs:
        for each in run.intervals:
            if each.state in DURING:
                found[run.job.job_id, DURING[each.state]].append(Went(each.end_s - each.begin_s, each.failed))
        for move in run.moves:
            found[run.job.job_id, OperationKind.MIGRATE].append(Went(move.end_s - move.begin_s, move.failed))
    return Measured(found)


DURING = {
    S.STARTING: OperationKind.START,
    S.SUSPENDING: OperationKind.SUSPEND,
    S.RESUMING: OperationKind.RESUME,
    S.STOPPING: OperationKind.STOP,
}
