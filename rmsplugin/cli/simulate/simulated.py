"""Simulated: one workload on a cluster under one policy: what was read, what became of it, and what it was worth."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from rmsplugin.cli.shared.bar import Show
from rmsplugin.cli.shared.policies import deciding
from rmsplugin.cli.simulate import trace_file
from rmsplugin.cli.simulate.parameters import cluster_of, memory_of, read_activity_of, replay_parameters, search_of
from rmsplugin.cli.simulate.wishes import switches_of, wishing
from rmsplugin.energy.account import Account
from rmsplugin.energy.local_clock import LocalClock
from rmsplugin.energy.meter import Energy
from rmsplugin.energy.parameters import EnergyParameters
from rmsplugin.errors import WorkloadError
from rmsplugin.input_file import Tell, shown_name
from rmsplugin.latency import uncollected
from rmsplugin.model.durations import DEFAULTS
from rmsplugin.model.policy_names import COUNTING, STATIC
from rmsplugin.simulation.capacity import EVERYWHERE, Cluster, fitting, interchangeable
from rmsplugin.simulation.feedback import Links, linked_starts, links_of
from rmsplugin.simulation.measured import Measured
from rmsplugin.simulation.metrics import Metrics, measure
from rmsplugin.simulation.outcome import Outcome, Powered, of_schedule
from rmsplugin.simulation.short_way import queue_of, start_times
from rmsplugin.workload.activity import Activity, cpu_s
from rmsplugin.workload.jobs import Job, MemoryUnit, Workload

if TYPE_CHECKING:
    from rmsplugin.cli.simulate.replayed_rules import ReplayedRules

#: So many lines that are not simulated are named on standard error.
NAMED = 10
#: The digits of any time in seconds; Python refuses to read thousands of them.
_LONGEST_TIME = 15


@dataclass(frozen=True)
class Input:
    """What is simulated, whatever the policy.

    Attributes:
        name: of the file.
        workload: as it was read.
        cluster: that it runs on.
        jobs: those that fit on the cluster.
        activity: what the VMs of jobs do, by job id.
        measured: how what is done to them goes; None: it takes what is expected.
        reading_s: how long reading took.
        energy: the watts of nodes, and how these are switched; None: all are on, and nothing is told of energy.
        rules: the placement rules, and the wishes of jobs; None: there are none.
    """

    name: str
    workload: Workload
    cluster: Cluster
    jobs: Sequence[Job]
    activity: Mapping[int, Activity]
    measured: Measured | None
    reading_s: float
    energy: EnergyParameters | None = None
    rules: ReplayedRules | None = None

    @property
    def on_processors(self) -> bool:
        """Whether it does not matter on which nodes jobs run."""
        return self.energy is None and self.rules is None and not self.cluster.cpu_overbooking

    @property
    def clock(self) -> LocalClock:
        """The clock of UTC; it begins at midnight where the trace does not tell when it began."""
        told = (self.workload.header.get("UnixStartTime") or ["0"])[0]
        is_time = told.isascii() and told.isdigit() and len(told) <= _LONGEST_TIME
        return LocalClock.steady(float(int(told) % 86400) if is_time else 0.0)

    @cached_property
    def links(self) -> Links:
        """Which jobs are submitted only after others have ended."""
        return links_of(self.jobs, self.workload.following)

    @property
    def unlinked(self) -> str:
        """That some jobs are not submitted after the one that they name, in a sentence; empty if there are none."""
        naming = sum(job.job_id in self.workload.following for job in self.jobs) if self.workload.following else 0
        left = naming - len(self.links)
        if not left:
            return ""
        return (
            f"{left} of {naming} jobs that name a preceding job (field 17) are submitted at their "
            "submit times all the same: the one that they name is not simulated, or does not stand "
            "before them"
        )

    @cached_property
    def cpu_s(self) -> float | None:
        """CPU seconds that all jobs use; None: all that they requested, as far as anybody knows."""
        if not self.activity and all(job.average_cpu_s is None for job in self.jobs):
            return None
        cluster = self.cluster
        return sum(cpu_s(cluster.activity_of(job, self.activity), cluster.vms_of(job)) for job in self.jobs)


@dataclass(frozen=True)
class Energized:
    """The energy that a policy took, what became of nodes, and the mean completion with all nodes on.

    Attributes:
        not_emptied: the energy, and the mean completion in seconds, of a replay in which no node is emptied; None if
            none is in the first one either.
    """

    account: Account
    powered: Powered
    completion_all_on_s: float
    not_emptied: tuple[Energy, float] | None = None


@dataclass(frozen=True)
class Simulated:
    """What became of it under a policy; ``replayed`` is None where processors were only counted."""

    input: Input
    policy: str
    platform: str
    started: Sequence[float]  # seconds, by job
    metrics: Metrics
    replayed: Outcome | None
    simulation_s: float
    energy: Energized | None = None

    @property
    def switches(self) -> bool:
        """Whether the policy may suspend and move VMs."""
        return self.policy not in STATIC

    @cached_property
    def outcome(self) -> Outcome:
        """Each job with its intervals."""
        return self.replayed or of_schedule(self.policy, self.input.jobs, self.started)


def read_input(arguments: argparse.Namespace, show: Show) -> Input:
    """Read the trace, and leave out what does not fit on the cluster.

    Raises:
        WorkloadError: the trace cannot be read, or has no job that can be simulated.
    """
    began = time.perf_counter()
    name, cluster = shown_name(arguments.ledger or arguments.workload), cluster_of(arguments)
    show(f"reading {name}", 0.0)
    workload, observed, measured = _read(arguments, lambda part: show(f"reading {name}", part))
    jobs = fitting(workload.jobs, cluster, workload.faults, _planned_mib(arguments))
    if not jobs:
        faults = "\n".join(faulty_lines(name, workload))
        raise WorkloadError(f"{name}: has no job" + (f" that can be simulated\n{faults}" if faults else ""))
    if cluster.memory_per_node_mib is None and len({cluster.vcpus_of(job) for job in jobs}) > 1:
        raise WorkloadError(f"{name}: has VMs with different numbers of CPUs: --memory-per-node is needed")
    activity = {**observed, **read_activity_of(arguments, jobs, cluster)}
    if activity:  # a job runs for as long as what it does takes
        jobs = [_lasting(job, activity.get(job.job_id)) for job in jobs]
    energy = None if arguments.energy is None else _energy_of(arguments.energy, cluster)
    _require_partitions(cluster, jobs)
    rules, jobs = None, wishing(arguments, jobs)
    if arguments.rules is not None or arguments.wishes is not None:
        rules, jobs = _ruled(arguments, cluster, jobs, workload)
        if not jobs:
            raise WorkloadError(f"{name}: has no job that can be simulated\n" + "\n".join(faulty_lines(name, workload)))
    return Input(name, workload, cluster, jobs, activity, measured, time.perf_counter() - began, energy, rules)


def _require_partitions(cluster: Cluster, jobs: Sequence[Job]) -> None:
    """Refuse to overbook a partition that no job is in: a typo."""
    there = {job.partition for job in jobs} | {EVERYWHERE}
    if unknown := sorted(cluster.cpu_overbooking.keys() - there):
        known = ", ".join(sorted(there - {EVERYWHERE, ""})) or "none"
        raise WorkloadError(f"--cpu-overbooking: no job is in partition {unknown[0]}; the jobs' partitions are {known}")


def _ruled(
    arguments: argparse.Namespace, cluster: Cluster, jobs: Sequence[Job], workload: Workload
) -> tuple[ReplayedRules, list[Job]]:
    """The placement rules and the wishes of jobs, and the jobs that they let run."""
    from rmsplugin.cli.simulate.replayed_rules import ReplayedRules
    from rmsplugin.cli.simulate.rules_file import read_rules
    from rmsplugin.decision.parameters import Parameters
    from rmsplugin.simulation.runnable import runnable

    named = {} if arguments.rules is None else read_rules(arguments.rules, cluster, jobs)
    rules = ReplayedRules(named, cluster.node_names, switches_of(arguments, cluster))
    parameters = Parameters(search=search_of(arguments).part(0.5))
    return rules, runnable(jobs, cluster, rules, workload.faults, parameters)


def _energy_of(path: str, cluster: Cluster) -> EnergyParameters:
    from rmsplugin.cli.shared.energy_file import read_energy

    return read_energy(path, cluster.node_names)


def _planned_mib(arguments: argparse.Namespace) -> int | None:
    """What of a node VMs are planned up to; None: all of it."""
    memory = memory_of(arguments, DEFAULTS)
    return None if memory is None else memory.planned_mib(arguments.memory_per_node)


def _read(arguments: argparse.Namespace, tell: Tell) -> tuple[Workload, Mapping[int, Activity], Measured | None]:
    """The workload, what its jobs were seen to do, and how what was done to them went, if that shall count."""
    if arguments.ledger is not None:
        from rmsplugin.cli.simulate import ledger_history

        found = ledger_history.read(arguments)
        return found.workload, found.activity, found.measured
    unit = MemoryUnit(arguments.trace_memory or MemoryUnit.KIB_PER_PROCESSOR)
    return trace_file.read(arguments.workload, tell, memory_unit=unit), {}, None


def _lasting(job: Job, activity: Activity | None) -> Job:
    return job._replace(run_s=sum(phase.work_s for phase in activity)) if activity else job


def simulate(arguments: argparse.Namespace, given: Input, policy: str, show: Show) -> Simulated:
    """Replay and measure.

    Raises:
        WorkloadError: the file with the durations cannot be read, or has something wrong in it.
        OwnPolicyError: the policy is one of the site, and errs.
    """
    began = time.perf_counter()
    jobs, cluster, doing = given.jobs, given.cluster, f"simulating {len(given.jobs)} jobs"

    def tell(submitted: int) -> None:
        show(doing, submitted / len(jobs))

    vms = interchangeable(jobs, cluster) if policy in COUNTING and given.on_processors else None
    if vms is not None:
        equal = all(cluster.vcpus_of(job) == 1 for job in jobs)
        sized = jobs if equal else [job._replace(processors=cluster.vms_of(job)) for job in jobs]
        if given.links:
            starts, submits = linked_starts(queue_of(sized), given.links, vms, backfill=policy == "easy", tell=tell)
            given = _submitted(given, submits)
            metrics = measure(given.jobs, starts, cluster.cpus, cpu_s=given.cpu_s)
            return Simulated(given, policy, arguments.platform, starts, metrics, None, time.perf_counter() - began)
        started = start_times(sized, vms, backfill=policy == "easy", tell=tell)
        metrics = measure(jobs, started, cluster.cpus, cpu_s=given.cpu_s)
        return Simulated(given, policy, arguments.platform, started, metrics, None, time.perf_counter() - began)
    from rmsplugin.simulation.replay import replay  # with solvers, which those that count processors do not wait for

    with uncollected(), deciding(policy) as decides:
        parameters = replay_parameters(arguments, policy, given.activity, given.measured)
        parameters = replace(parameters, energy=given.energy, rules=given.rules, decides=decides)
        outcome = replay(jobs, cluster, parameters, tell, given.links)
    energy = None if given.energy is None else _energized(arguments, given, outcome, show)
    # Where nothing takes time, times are those of the trace: whole numbers stay whole.
    started = [int(run.start_s) if run.start_s == int(run.start_s) else run.start_s for run in outcome.jobs]
    if given.links:
        given = _submitted(given, [run.job.submit_s for run in outcome.jobs])
    metrics = measure(given.jobs, started, cluster.cpus, [run.end_s for run in outcome.jobs], given.cpu_s)
    return Simulated(given, policy, arguments.platform, started, metrics, outcome, time.perf_counter() - began, energy)


def _energized(arguments: argparse.Namespace, given: Input, outcome: Outcome, show: Show) -> Energized:
    """The energy of a replay, and the completion of the same jobs with all nodes on."""
    from rmsplugin.simulation.powered import account_of

    assert given.energy is not None and outcome.powered is not None
    found = account_of(outcome, given.energy, given.cluster.cpus_per_node, given.clock)
    all_on = simulate(arguments, replace(given, energy=None), outcome.policy, show)
    not_emptied = None
    if outcome.powered.emptied:
        without = simulate(arguments, replace(given, energy=replace(given.energy, emptying=None)), outcome.policy, show)
        assert without.energy is not None
        not_emptied = without.energy.account.switched, without.metrics.completion_s.mean
    return Energized(found, outcome.powered, all_on.metrics.completion_s.mean, not_emptied)


def _submitted(given: Input, submits_s: Sequence[float]) -> Input:
    """The input with the times at which jobs were submitted in a simulation."""
    whole = [int(submit_s) if submit_s == int(submit_s) else submit_s for submit_s in submits_s]
    jobs = [job._replace(submit_s=submit_s) for job, submit_s in zip(given.jobs, whole, strict=True)]
    return replace(given, jobs=jobs)


def counted_beside(arguments: argparse.Namespace, given: Input, simulated: Simulated, show: Show) -> list[Simulated]:
    """The same under fcfs and easy, for a policy that switches, where processors can be counted; else nothing.

    Args:
        arguments: of the command line.
        given: as it was read: when jobs are submitted may depend on the policy.
        simulated: under the policy.
        show: how far it is.
    """
    if not simulated.switches or interchangeable(given.jobs, given.cluster) is None:
        return []
    return [simulate(arguments, replace(given, energy=None), policy, show) for policy in COUNTING]


def warnings(file: str, workload: Workload) -> list[str]:
    """What of a trace, or of the jobs of a ledger, is not simulated, or not believed."""
    found = faulty_lines(file, workload)
    if workload.disbelieved:
        found.append(f"{file}: {disbelieved(workload)}")
    return found


def idle_rules(given: Input) -> list[str]:
    """The placement rules that are about VMs, and select none of them, each in a sentence."""
    if given.rules is None:
        return []
    selecting = {name for job in given.workload.jobs for name in given.rules.selecting(job)}
    return [f"[rule.{name}] selects no job" for name in given.rules.names if name not in selecting]


def disbelieved(workload: Workload) -> str:
    """That the average CPU time of a trace says nothing, in a sentence."""
    return (
        f"field 6 (average CPU time) is {workload.disbelieved_cpu_s:g} s for all {workload.disbelieved} jobs that have "
        "one, however long they ran: it is not believed, and VMs use all CPUs that were requested"
    )


def faulty_lines(file: str, workload: Workload) -> list[str]:
    """The first lines of a trace, or jobs of a ledger, that are not simulated, and how many for each reason."""
    faults = workload.faults
    named = zip(faults, range(NAMED), strict=False)
    found = [f"{file}:{f'{fault.line}:' if fault.line else ''} {fault.message}" for fault, _ in named]
    if faults:
        found.append(f"{file}: {faults.told(workload.lines, workload.records)}")
    return found
