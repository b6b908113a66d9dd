"""Workloads replayed with nodes that are switched off and on."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from rmsplugin.decision.parameters import Parameters
from rmsplugin.energy.account import Span
from rmsplugin.energy.local_clock import LocalClock
from rmsplugin.energy.parameters import EnergyParameters
from rmsplugin.energy.power import PowerClass
from rmsplugin.model.durations import DEFAULTS as DURATIONS
from rmsplugin.model.given_rules import About
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.search import Search
from rmsplugin.planning.order.transfers import Durations
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.simulation.capacity import Cluster
from rmsplugin.simulation.outcome import Interval, JobRun, Move, Outcome
from rmsplugin.simulation.parameters import ReplayParameters
from rmsplugin.simulation.powered import account_of, spans_of
from rmsplugin.simulation.replay import replay
from rmsplugin.simulation.ruled import Member, SiteRules
from rmsplugin.workload.jobs import Job

#: Its threshold is 198.75 s.
POWER = PowerClass(120.0, 300.0, 8.0, 150.0, off_s=30.0, on_s=120.0)
SIZE = Cluster(nodes=3, cpus_per_node=2, memory_per_node_mib=4096)
LARGER = Cluster(nodes=21, cpus_per_node=2, memory_per_node_mib=4096)
POLICIES = ["fcfs", "easy", "rjsp", "slowdown", "load-sharing"]


def energy(power: PowerClass = POWER, reserve: int = 0) -> EnergyParameters:
    return EnergyParameters(dict.fromkeys(SIZE.node_names, power), reserve=reserve)


def late_at_most(share: float | None) -> EnergyParameters:
    return EnergyParameters(dict.fromkeys(LARGER.node_names, POWER), late_at_most=share)


def job(job_id: int, submit_s: float, run_s: float, processors: int = 2, estimate_s: float = 0) -> Job:
    return Job(job_id, submit_s, run_s, processors, estimate_s or run_s, 1024, job_id)


class Fenced:
    """Job 1 has the first node alone, and no other job may be there."""

    def selecting(self, job: Job) -> tuple[str, ...]:
        return ("fenced",)

    def open_nodes(self, job: Job) -> frozenset[str]:
        first = set(SIZE.node_names[:1])
        return frozenset(first if job.job_id == 1 else {*SIZE.node_names} - first)

    def left_of(self, node: str, size: Resources) -> Resources:
        return size

    def beside(self, members: Sequence[Member]) -> list[About]:
        return []


def replayed(
    jobs: list[Job],
    parameters: EnergyParameters | None,
    policy: str = "fcfs",
    rules: SiteRules | None = None,
    size: Cluster = SIZE,
) -> Outcome:
    static = policy in ("fcfs", "easy")
    zero = Durations.from_values(dict.fromkeys(DURATIONS, 0.0))
    search = Search(time_limit_s=1e9, deterministic_limit=0.05)
    proposal = ProposalParameters(
        policy, decision=Parameters(search=search), search=search, durations=zero if static else Durations()
    )
    return replay(
        jobs, size, ReplayParameters(proposal, cycle_s=0.0 if static else 30.0, energy=parameters, rules=rules)
    )


def starts(outcome: Outcome) -> list[float]:
    return [run.start_s for run in outcome.jobs]


def test_a_vjob_waits_for_the_start_of_a_node_that_is_off() -> None:
    jobs = [job(1, 0, 100), job(2, 5000, 100), job(3, 5050, 100)]
    found = replayed(jobs, energy())
    assert starts(found) == [0, 5120, 5170]
    assert found.powered is not None
    assert found.powered.delays_s == (120, 120)
    assert starts(replayed(jobs, None)) == [0, 5000, 5050]


def test_a_node_that_goes_off_goes_off_wholly_before_it_comes_on() -> None:
    """All nodes are idle from the end of job 1 on, or before, so all go off after at most 198.75 s."""
    found = replayed([job(1, 0, 100, 6), job(2, 310, 100, 6)], energy())
    assert starts(found) == [0, pytest.approx(100 + 198.75 + 30 + 120)]


def test_idle_periods_are_learnt_from() -> None:
    """The first periods are waited out for 198.75 s; then long ones are expected, and nodes go off at once."""
    found = replayed([job(number, 5000 * number, 100, 6) for number in range(3)], energy()).powered
    assert found is not None
    assert sorted({each.begin_s for each in found.off_times}) == [pytest.approx(298.75), 5220]


def test_a_node_in_reserve_takes_a_vjob_at_once() -> None:
    jobs = [job(1, 0, 100), job(2, 5000, 100), job(3, 5050, 100)]
    found = replayed(jobs, energy(reserve=1))
    assert starts(found)[:2] == [0, 5000]
    assert starts(found)[2] > 5050


def test_nodes_stay_on_once_vjobs_were_late_because_of_nodes_that_were_off() -> None:
    jobs = [job(number, 5000 * number, 100) for number in range(1, 5)]
    found = replayed(jobs, late_at_most(0.02), size=LARGER)
    assert starts(found) == [5000, 10120, 15000, 20000], "a tenth of 20 nodes that are off is 2"
    assert starts(replayed(jobs, late_at_most(None), size=LARGER)) == [5000, 10120, 15120, 20120]
    assert starts(replayed(jobs, late_at_most(0.5), size=LARGER))[2] == 15000, "120 s of 320 s is above a quarter"
    assert starts(replayed(jobs, late_at_most(1.0), size=LARGER))[2] == 15120, "and below a half"


def test_nodes_stay_on_for_a_vjob_that_waits_once_vjobs_were_late() -> None:
    """Job 4 needs all nodes. Job 2 leaves most of them first. Job 3 ends long before its limit."""
    late = [job(0, 0, 10), job(1, 5000, 100)]
    jobs = [*late, job(2, 6000, 2500, 40), job(3, 6000, 3000, 2, 90_000), job(4, 7000, 100, 42)]
    end_of_3 = 6120 + 3000
    assert starts(replayed(jobs, late_at_most(0.02), size=LARGER))[4] == end_of_3
    assert starts(replayed(jobs, late_at_most(None), size=LARGER))[4] == end_of_3 + 120


def test_a_node_that_is_on_is_taken_before_one_that_is_off() -> None:
    """Job 3 would go to n2, the first one that is free; it is off, and n3 is on."""
    jobs = [job(1, 0, 9000), job(2, 0, 10), job(3, 0, 3000), job(4, 3050, 10)]
    found = replayed(jobs, energy())
    assert starts(found)[3] == 3050
    assert found.jobs[3].intervals[-1].nodes == ("n3", "n3")


def test_a_vjob_that_waits_for_a_node_takes_one_that_others_leave_meanwhile() -> None:
    """Job 2 has n2 and n3 come on, and job 1 leaves n1 before; job 3 has the one that nobody waits for any more."""
    jobs = [job(1, 0, 5050), job(2, 5000, 1000, 4), job(3, 5060, 1000)]
    found = replayed(jobs, energy())
    assert starts(found) == [0, 5120, 5120]
    jobs[1] = job(2, 5000, 1000)
    found = replayed(jobs, energy())
    assert starts(found) == [0, 5050, 5120]
    assert found.jobs[1].intervals[-1].nodes == ("n1", "n1")
    assert found.powered is not None and found.powered.delays_s == (50, 60)


@pytest.mark.parametrize("policy", ["fcfs", "rjsp"])
def test_a_vjob_takes_no_node_that_rules_close_to_it(policy: str) -> None:
    found = replayed([job(1, 0, 5050), job(2, 5000, 100)], energy(), policy, Fenced())
    assert {*found.jobs[1].intervals[-1].nodes} == {"n2"}
    assert starts(found)[1] >= 5120


def test_least_time_on_and_cycles_bound_how_often_nodes_are_switched() -> None:
    jobs = [job(number, 1000 * number, 10, 6) for number in range(1, 20)]
    often = replayed(jobs, energy()).powered
    seldom = replayed(jobs, energy(PowerClass(120.0, 300.0, 8.0, 150.0, 30.0, 120.0, least_on_s=5000.0))).powered
    twice = replayed(jobs, energy(PowerClass(120.0, 300.0, 8.0, 150.0, 30.0, 120.0, cycles_a_day=2))).powered
    assert often is not None and seldom is not None and twice is not None
    assert len(often.off_times) == 3 * 18
    assert 0 < len(seldom.off_times) <= 3 * 4
    assert len(twice.off_times) == 3 * 2


@pytest.mark.parametrize("submit_s", [10, 1000])
def test_a_node_comes_on_before_the_limit_of_those_that_run_ends_for_who_waits(submit_s: float) -> None:
    """Job 2 needs all nodes when job 1's limit ends, at 4000 s; the two that are off then come on before."""
    found = replayed([job(1, 0, 4000), job(2, submit_s, 100, 6)], energy())
    assert starts(found) == [0, 4000]
    assert found.powered is not None and found.powered.delays_s == ()
    assert [each.on_s for each in found.powered.off_times if each.on_s] == [3880, 3880]


def random_jobs(seed: int) -> list[Job]:
    random = Random(seed)
    jobs, submit_s = [], 0
    for number in range(1, 15):
        submit_s += random.choice((0, 20, 200, 1500, 4000))
        run_s = random.choice((1, 100, 700, 1500))
        jobs.append(job(number, submit_s, run_s, random.randint(1, 6), 2 * run_s))
    return jobs


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(2))
def test_nothing_is_on_a_node_that_is_off_and_nobody_is_lost(policy: str, seed: int) -> None:
    jobs = random_jobs(seed)
    found = replayed(jobs, energy(reserve=seed % 2), policy)
    assert found == replayed(jobs, energy(reserve=seed % 2), policy)
    assert found.powered is not None and found.powered.off_times
    for run in found.jobs:
        computed = sum(each.end_s - each.begin_s for each in run.intervals if each.state is VJobState.RUNNING)
        assert computed >= run.job.run_s - 1e-6
    spans = [span for run in found.jobs for span in spans_of(run)]
    for off in found.powered.off_times:
        end_s = float("inf") if off.on_s is None else off.on_s + POWER.on_s
        there = [s for s in spans if s.node == off.node and s.begin_s < end_s - 1e-9 and s.end_s > off.begin_s + 1e-9]
        assert there == []
    told = account_of(found, energy(), SIZE.cpus_per_node, LocalClock.steady())
    assert told.oracle.kwh <= told.switched.kwh + 1e-9
    assert told.oracle.kwh < told.all_on.kwh


def test_without_energy_all_is_as_it_was() -> None:
    assert replayed(random_jobs(1), None, "rjsp").powered is None


# -- what was on nodes -------------------------------------------------------------------------------------------------

S = VJobState


def test_the_spans_of_a_job_that_moves_sleeps_and_resumes_elsewhere() -> None:
    intervals = (
        Interval(S.WAITING, 0, 10),
        Interval(S.STARTING, 10, 16, ("n1", "n1")),
        Interval(S.RUNNING, 16, 100, ("n1", "n2")),
        Interval(S.SUSPENDING, 100, 120, ("n1", "n2")),
        Interval(S.SLEEPING, 120, 300, ("n1", "n2")),
        Interval(S.RESUMING, 300, 330, ("n2", "n2")),
        Interval(S.RUNNING, 330, 346, ("n2", "n2")),
    )
    run = JobRun(job(1, 0, 100), 2, 150.0, 346, intervals, (Move(50, 60, {1: ("n1", "n2")}),))
    assert list(spans_of(run)) == [
        Span("n1", 10, 16),
        Span("n1", 16, 100, 0.75),
        Span("n1", 16, 60, 0.75),
        Span("n2", 50, 60),
        Span("n2", 60, 100, 0.75),
        Span("n1", 100, 120),
        Span("n2", 100, 120),
        Span("n1", 120, 300),
        Span("n2", 120, 300),
        Span("n2", 300, 330),
        Span("n1", 300, 330),
        Span("n2", 300, 330),
        Span("n2", 330, 346, 1.5),
    ]


def test_a_vm_whose_migration_failed_stays() -> None:
    run = JobRun(
        job(1, 0, 100), 1, 100.0, 100, (Interval(S.RUNNING, 0, 100, ("n1",)),), (Move(50, 60, {0: ("n1", "n2")}, True),)
    )
    assert [(s.node, s.begin_s, s.end_s, s.cpus) for s in spans_of(run)] == [
        ("n1", 0, 60, 1.0),
        ("n2", 50, 60, 0.0),
        ("n1", 60, 100, 1.0),
    ]
