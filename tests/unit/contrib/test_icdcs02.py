"""The experiment icdcs02: its workload, its workstations, its books, and the conditions of the paper's section 5."""

from __future__ import annotations

import math
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import replace

import pytest
from experiments import icdcs02
from experiments.icdcs02 import LIMITS, Setup
from experiments.icdcs02.cluster import NETWORK_MB_PER_S, Assumptions, Policy, Result, Simulation
from experiments.icdcs02.policies import LoadSharing, NoSharing, Reconfiguring
from experiments.icdcs02.workload import APP, RATES, SPEC, Group, Program, Rate, Submission, trace
from experiments.icdcs02.workstation import FAULT_S, Paging, resident_mb, speeds

GIVEN = Assumptions()
SMALL = Rate(4.0, 60, 3586.0)
CROWDED = Rate(2.0, 170, 3585.0)


def simulated(submissions: Sequence[Submission], policy: Policy, group: Group = SPEC) -> Result:
    return Simulation(group, submissions, policy, GIVEN).run()


def one(most_mb: float, at_s: float = 0.0, home: int = 0, job: int = 0, lifetime_s: float = 100.0) -> Submission:
    """A job that demands all its memory from the begin."""
    return Submission(job, Program(f"of {most_mb:g}", most_mb, lifetime_s, most_mb), at_s, home)


# -- the workload ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("arrivals", ["lognormal", "uniform"])
def test_a_trace_has_the_papers_jobs_within_the_papers_time(rate: Rate, arrivals: str) -> None:
    jobs = trace(SPEC, rate, 1, arrivals)  # type: ignore[arg-type]
    assert len(jobs) == rate.jobs
    assert [job.at_s for job in jobs] == sorted(job.at_s for job in jobs)
    assert jobs[0].at_s >= 0 and jobs[-1].at_s <= rate.duration_s
    assert {job.home for job in jobs} <= set(range(32))
    assert {job.program.name for job in jobs} == {program.name for program in SPEC.programs}


def test_a_seed_is_always_the_same_trace_and_another_seed_another_one() -> None:
    assert trace(APP, RATES[1], 7) == trace(APP, RATES[1], 7)
    assert trace(APP, RATES[1], 7) != trace(APP, RATES[1], 8)


def test_half_of_the_lognormal_submissions_come_before_the_median_of_the_density() -> None:
    times = [job.at_s for job in trace(SPEC, Rate(1.5, 4000, 3582.0), 3)]
    assert sum(at_s < math.exp(1.5) for at_s in times) / len(times) == pytest.approx(0.5, abs=0.03)


# -- a workstation --------------------------------------------------------------------------------------------------


def test_jobs_that_fit_share_the_cpu_and_have_no_faults() -> None:
    found = speeds([100.0, 200.0], 368.0, Paging())
    assert [speed.work for speed in found] == pytest.approx([0.4995, 0.4995], abs=1e-4)
    assert all(speed.paging == speed.faults_per_s == speed.stalled == 0 for speed in found)
    assert speeds([100.0], 368.0, Paging())[0].work == 1.0


def test_memory_is_short_for_all_by_the_same_part_or_for_the_largest_first() -> None:
    assert resident_mb([100, 300], 200, Paging()) == [50, 150]
    assert resident_mb([60, 100, 300], 200, Paging(memory="equal")) == [60, 70, 70]


def test_faults_are_missing_pages_that_are_visited() -> None:
    """300 of 400 MB are in memory: a quarter of 102,400 pages is missing, and all are visited in 1000 s."""
    (found,) = speeds([400.0], 300.0, Paging(sweep_s=1000.0))
    faults_per_cpu_s = 102_400 / 4 / 1000
    assert found.work == pytest.approx(1 / (1 + faults_per_cpu_s * FAULT_S))
    assert found.faults_per_s == pytest.approx(found.work * faults_per_cpu_s)
    assert found.stalled == pytest.approx(1 - found.work)


def test_one_disk_serves_all_faults_of_a_workstation() -> None:
    found = speeds([400.0, 400.0], 400.0, Paging(sweep_s=10.0))
    assert sum(speed.paging for speed in found) == pytest.approx(1.0)
    assert all(speed.stalled > 0.9 for speed in found)


def test_who_has_its_pages_computes_while_others_wait_for_theirs_if_faults_overlap() -> None:
    demands, user_mb = [50.0, 400.0], 250.0
    overlapped = speeds(demands, user_mb, Paging(memory="equal"))
    serial = speeds(demands, user_mb, Paging(memory="equal", overlaps=False))
    assert overlapped[0].work > 0.9
    assert serial[0].work == pytest.approx(0.5, abs=1e-3)


# -- the books ------------------------------------------------------------------------------------------------------


def test_a_job_alone_takes_its_lifetime() -> None:
    result = simulated([one(100.0)], NoSharing(36))
    assert result.total_s == pytest.approx(100.0)
    assert result.slowdown == pytest.approx(1.0)
    assert result.idle_mb == pytest.approx(32 * 368 - 100, rel=0.01)


def test_a_remote_submission_takes_a_tenth_of_a_second() -> None:
    jobs = [one(360.0, job=0), one(100.0, at_s=5.0, job=1)]
    result = simulated(jobs, LoadSharing(36))
    assert [job.moving_s for job in result.jobs] == pytest.approx([0.0, 0.1])


def test_a_migration_takes_its_fixed_cost_and_its_memory_over_the_network() -> None:
    growing = Submission(0, Program("grows", 300.0, 1000.0, 50.0), 0.0, 0)
    result = simulated([growing, one(200.0, job=1, lifetime_s=1000.0)], LoadSharing(36))
    assert result.moves == 1
    (moved_s,) = (job.moving_s for job in result.jobs if job.moving_s)
    demand_mb = {0: 175.0, 1: 200.0}[next(job.submission.job for job in result.jobs if job.moving_s)]
    assert moved_s == pytest.approx(0.1 + demand_mb / NETWORK_MB_PER_S)
    assert pytest.approx(10e6) == NETWORK_MB_PER_S * 8 * 2**20


@pytest.mark.parametrize("name", icdcs02.POLICIES)
@pytest.mark.parametrize("group", [SPEC, APP], ids=lambda group: group.name)
def test_execution_is_work_faults_queue_and_moves_and_no_part_is_below_nothing(name: str, group: Group) -> None:
    """Section 5: t_exe = t_cpu + t_page + t_que + t_mig, of each job."""
    result = Setup().run(name, group, SMALL)
    assert len(result.jobs) == 60
    for job in result.jobs:
        assert job.done_s == pytest.approx(job.lifetime_s)
        assert min(job.paging_s, job.moving_s) >= 0
        assert job.queue_s >= -1e-6 * job.wall_s
    assert sum(job.done_s for job in result.jobs) <= 32 * result.end_s


def test_the_same_setup_gives_the_same_result() -> None:
    first, second = (Setup().run("ours", SPEC, SMALL) for _ in range(2))
    assert [job.end_s for job in first.jobs] == [job.end_s for job in second.jobs]


# -- the policies, and section 5 --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def crowded() -> dict[str, Result]:
    return {name: Setup().run(name, SPEC, CROWDED) for name in icdcs02.POLICIES}


def test_what_reconfiguration_saves_is_what_faults_queue_and_moves_save(crowded: dict[str, Result]) -> None:
    """Section 5: work is the same, so that the difference of the totals is that of the three other parts."""
    without, with_it = crowded["G-Loadsharing"], crowded["V-Reconfiguration"]
    parts = [each.paging_s + each.queue_s + each.moving_s for each in (without, with_it)]
    assert without.total_s - with_it.total_s == pytest.approx(parts[0] - parts[1])
    assert with_it.reserved > 0
    assert with_it.paging_s < without.paging_s


def test_sharing_is_better_than_none_and_ours_at_least_as_good_as_the_papers(crowded: dict[str, Result]) -> None:
    assert crowded["G-Loadsharing"].total_s < crowded["no sharing"].total_s
    assert crowded["V-Reconfiguration"].total_s < crowded["G-Loadsharing"].total_s
    assert crowded["ours"].total_s < crowded["V-Reconfiguration"].total_s
    assert crowded["ours"].slowdown < crowded["V-Reconfiguration"].slowdown


def both(submissions: Sequence[Submission]) -> tuple[Result, Result]:
    """Without reconfiguration, and with it."""
    return simulated(submissions, LoadSharing(36)), simulated(submissions, Reconfiguring(36, LIMITS))


def test_lightly_loaded_nothing_is_reserved_and_nothing_changes() -> None:
    without, with_it = both(trace(SPEC, SMALL, 1))
    assert with_it.reserved == 0
    assert [job.end_s for job in without.jobs] == [job.end_s for job in with_it.jobs]


def test_jobs_of_equal_sizes_gain_nothing() -> None:
    jobs = [
        Submission(number, Program("equal", 120.0, 300.0, 120.0), number / 10, number % 32) for number in range(200)
    ]
    without, with_it = both(jobs)
    assert with_it.reserved == 0
    assert with_it.total_s == without.total_s


# -- the tables -----------------------------------------------------------------------------------------------------


def test_the_tables_have_a_line_for_each_trace_and_policy_and_the_papers_numbers() -> None:
    parser = ArgumentParser()
    icdcs02.add_options(parser)
    lines = list(icdcs02.run(parser.parse_args(["--traces", "2", "--jobs", "12"])))
    assert sum(line.startswith("| SPEC-Trace-2, ") for line in lines) == len(icdcs02.POLICIES) + 1
    assert "| SPEC-Trace-2 | execution | -32.4 % | +0.0 % | +0.0 % | +0.0 % |" in lines
    assert any(line.startswith("| App-Trace-2 | skew | -10.3 % |") for line in lines)


def test_some_policies_alone_have_the_same_lines_and_are_compared_if_load_sharing_is_one() -> None:
    parser = ArgumentParser()
    icdcs02.add_options(parser)
    few = ["--traces", "2", "--jobs", "12", "--groups", "SPEC"]
    whole = list(icdcs02.run(parser.parse_args(few)))
    lines = list(icdcs02.run(parser.parse_args([*few, "--policies", "G-Loadsharing", "V-Reconfiguration"])))
    rows = [line for line in lines if line.startswith("| SPEC-Trace-2, ")]
    assert len(rows) == 2
    assert set(rows) <= set(whole)
    assert "| SPEC-Trace-2 | execution | -32.4 % | +0.0 % |" in lines
    alone = list(icdcs02.run(parser.parse_args([*few, "--policies", "V-Reconfiguration"])))
    assert [line for line in alone if "SPEC-Trace-2" in line] == rows[1:]


def test_each_assumption_that_is_varied_is_another_setup() -> None:
    setups = [change(Setup()) for change in icdcs02.VARIANTS.values()]
    assert len(set(setups)) == len(setups)
    assert setups[0] == Setup()
    assert replace(setups[-1], seed=1) == Setup()


def test_both_orders_have_a_line_for_each_seed_and_one_with_the_sums() -> None:
    parser = ArgumentParser()
    icdcs02.add_options(parser)
    given = ["--traces", "1", "--groups", "SPEC", "--jobs", "12", "--seeds", "1", "3"]
    lines = list(icdcs02.run(parser.parse_args(given)))
    starts = [line.split(" |")[0] for line in lines if line.startswith("| SPEC")]
    assert starts == ["| SPEC-Trace-1, seed 1", "| SPEC-Trace-1, seed 3", "| SPEC-Trace-1, all 2"]
    alone = [Setup(seed=seed).run("ours", SPEC, replace(RATES[0], jobs=12)).total_s / 3600 for seed in (1, 3)]
    assert [line.split(" | ")[1] for line in lines[2:5]] == [f"{hours:.1f}" for hours in (*alone, sum(alone))]


def test_what_the_other_order_adds_is_of_the_sums_of_all_seeds() -> None:
    one, other = (Setup(seed=seed).run("ours", SPEC, replace(RATES[0], jobs=12)) for seed in (1, 3))
    more = f"{100 * (other.total_s / one.total_s - 1):+.1f} %"
    assert icdcs02.in_both_orders([(one, other)], [lambda each: each.total_s]) == [f"{one.total_s / 3600:.1f}", more]
    assert icdcs02.in_both_orders([(one, other), (other, one)], [lambda each: each.total_s])[1] == "+0.0 %"


def test_idle_memory_and_skew_are_told_of_the_time_of_submissions_and_of_the_whole_run() -> None:
    parser = ArgumentParser()
    icdcs02.add_options(parser)
    words = ["--signs", "--groups", "SPEC", "--traces", "1", "--jobs", "40"]
    lines = list(icdcs02.run(parser.parse_args(words)))
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| SPEC")]
    sharing = ("G-Loadsharing", "V-Reconfiguration", "ours", "ours, slowdown")
    assert [row[0] for row in rows] == [f"SPEC-Trace-1, {policy}" for policy in sharing]
    assert lines[-2].startswith("Measured each 10, 30, 60 s in place of each second")
    for row in rows:
        demanded, idle, skew, later, later_idle, _ = row[1:]
        assert 0 < int(later.rstrip(" %")) < int(demanded.rstrip(" %")) < 100, (
            "40 jobs are few, and end after all have come"
        )
        assert int(idle) < int(later_idle) and float(skew) > 0
