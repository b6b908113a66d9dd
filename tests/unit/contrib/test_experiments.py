"""contrib/run-experiment: each experiment runs in a small form, and what it measures is measured right."""

from __future__ import annotations

import subprocess
from argparse import ArgumentParser
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from experiments import energy, observed, rr6929, slowdown, timeline, traces, vee09
from experiments.bootstrap import mean_of, ratio_of
from unit.replayed import DATA, needs_data

from rmsplugin.model.vjob import VJobState
from rmsplugin.simulation.capacity import Cluster
from rmsplugin.simulation.counted import places_of
from rmsplugin.simulation.outcome import Interval, JobRun, Move, Outcome
from rmsplugin.workload.activity_file import read_activity
from rmsplugin.workload.jobs import Job, read_workload

PROGRAM = str(Path(__file__).resolve().parents[3] / "contrib" / "run-experiment")


def told(experiment: ModuleType, *arguments: str) -> list[str]:
    """What an experiment prints."""
    parser = ArgumentParser()
    experiment.add_options(parser)
    return list(experiment.run(parser.parse_args(arguments)))


def cells(lines: list[str], name: str) -> list[str]:
    """The row of a table that begins with a name."""
    (row,) = (line for line in lines if line.startswith(f"| {name} |"))
    return [cell.strip() for cell in row.strip("|").split("|")][1:]


@pytest.mark.parametrize("name", ["rr6929", "vee09", "icdcs02", "traces", "slowdown", "energy"])
def test_each_experiment_says_what_it_does(name: str) -> None:
    done = subprocess.run([PROGRAM, name, "--help"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"usage: run-experiment {name}" in done.stdout


def test_another_experiment_is_refused() -> None:
    assert subprocess.run([PROGRAM, "gold"], capture_output=True).returncode == 2


def test_rr6929_is_sooner_done_with_context_switches() -> None:
    lines = told(rr6929, "--quick", "--diagrams")
    paper_fcfs, paper_switches, fcfs, rjsp, *_ = cells(lines, "total completion (min)")
    assert (paper_fcfs, paper_switches) == ("250", "150")
    assert float(rjsp) < float(fcfs)
    assert sum(line.startswith("ED  512 MiB") for line in lines) == 4  # two vjobs, in two diagrams


def test_the_queue_of_rr6929_can_be_simulated_by_anybody(tmp_path: Path) -> None:
    (command,) = told(rr6929, "--write", str(tmp_path))
    assert command.startswith("rmsplugin compare --workload")
    jobs = read_workload([(tmp_path / "rr6929.swf").read_bytes()]).jobs
    assert [job.memory_mib for job in jobs] == [memory_mib for _, memory_mib in rr6929.QUEUE]
    expected = rr6929.Queue.of(rr6929.QUEUE, rr6929.TASK_S)
    assert read_activity((tmp_path / "rr6929.json").read_text()) == expected.activity


def test_vee09_needs_fewer_nodes_than_vms_and_less_time_for_each_reconfiguration_than_ffd() -> None:
    lines = told(vee09, "--quick", "--limit", "0.1", "--diagrams")
    *paper, static, ffd, ours, ruled = cells(lines, "node hours until HC ends")
    assert paper == ["24.31", "15.34", "11.72"]
    assert float(static) == pytest.approx(35 * vee09.BENCHMARKS[0][3] / 60 / 10, abs=0.01)
    assert max(float(ffd), float(ours), float(ruled)) < 0.7 * float(static)
    *_, no_cost, ffd_mib, ours_mib, ruled_mib = cells(lines, "their mean cost (MiB)")
    assert no_cost == "-"
    assert max(float(ours_mib), float(ruled_mib)) < float(ffd_mib)


@needs_data
def test_a_trace_is_replayed_under_every_policy() -> None:
    lines = told(traces, "--data", str(DATA), "--jobs", "12", "--windows", "2", "--sites", "SDSC SP2")
    assert all(len(cells(lines, policy)) == 9 for policy in traces.POLICIES)
    assert any(line.startswith("| SDSC SP2, mixed |") for line in lines)


def test_jobs_of_a_kind_use_a_share_of_their_request_about_which_they_scatter() -> None:
    jobs = [job(n, 0, 10, 1)._replace(memory_mib=10000, user="a" if n < 50 else "b") for n in range(100)]
    used = [each.used_mib or 0 for each in observed._using(jobs, 0.1, 0.5, seed=0)]
    assert used == [each.used_mib for each in observed._using(jobs, 0.1, 0.5, seed=0)]
    kinds = [sorted(used[:50])[25], sorted(used[50:])[25]]
    assert all(900 < kind < 5500 for kind in kinds) and abs(kinds[0] - kinds[1]) > 100
    assert len(set(used)) > 50 and max(used) <= 10000


@needs_data
def test_memory_is_requested_and_observed_on_metacentrums_trace() -> None:
    words = ("--jobs", "30", "--windows", "1", "--node-mib", "131072", "--policies", "load-sharing")
    lines = told(observed, "--data", str(DATA), *words)
    rows = [line for line in lines if "requested" in line or "observed" in line]
    assert len(rows) == 3
    together = {line.split("|")[1].strip(): float(line.split("|")[2]) for line in rows}
    assert together["load-sharing, observed, 10 to 50 % used"] > together["load-sharing, requested"]


def job(job_id: int, submit_s: float, run_s: float, processors: int) -> Job:
    return Job(job_id, submit_s, run_s, processors, 2 * run_s, None, job_id)


def test_a_window_begins_with_what_easy_has_left_of_the_jobs_before() -> None:
    site = traces._alike(2, 1)
    jobs = [job(1, 0, 100, 1), job(2, 0, 10, 1), job(3, 20, 50, 2), job(4, 60, 5, 1), job(5, 60, 5, 1)]
    jobs += [job(6, 300, 5, 1)]
    window = traces.spread(traces.Site("a", "a", site), jobs, 1, 2)[0]
    # At 20 s the first one has 80 s left; the second has ended.
    assert [each.job_id for each in window.jobs] == [3, 4]
    assert [(each.job_id, each.submit_s, each.run_s, each.estimate_s) for each in window.before] == [(1, 20, 80, 180)]


def run(*intervals: Interval, moves: tuple[Move, ...] = ()) -> Outcome:
    one = JobRun(job(1, 0, 100, 1), 2, 200, intervals[-1].begin_s, intervals, moves)
    return Outcome("rjsp", [one])


def test_a_vm_that_moves_uses_two_nodes_meanwhile() -> None:
    state = VJobState
    outcome = run(
        Interval(state.WAITING, 0, 5),
        Interval(state.STARTING, 5, 10, ("a", "a")),
        Interval(state.RUNNING, 10, 60, ("a", "c")),
        Interval(state.SUSPENDING, 60, 70, ("a", "c")),
        Interval(state.SLEEPING, 70, 80, ("a", "c")),
        Interval(state.RESUMING, 80, 90, ("c", "c")),
        Interval(state.RUNNING, 90, 100, ("c", "c")),
        Interval(state.STOPPING, 100, 110, ("c", "c")),
        moves=(Move(20, 30, {1: ("a", "b")}, failed=True), Move(40, 45, {1: ("a", "c")})),
    )
    steps = timeline.nodes_used(outcome)
    assert steps == [(5, 1), (20, 2), (30, 1), (40, 2), (45, 2), (70, 0), (80, 1), (110, 0)]
    assert timeline.mean(steps, 0, 20) == pytest.approx(15 / 20)
    assert timeline.mean(steps, 70, 90) == pytest.approx(0.5)
    assert timeline.diagram(outcome, 110, 11) == [" #####s.r#x"]


def test_the_times_in_which_something_is_so_and_how_far_it_rises_meanwhile() -> None:
    steps = [(0.0, 0.0), (10.0, 2.0), (20.0, 3.0), (30.0, 0.0), (40.0, 1.0), (60.0, 0.0)]
    assert timeline.above_nothing(steps, 0, 50) == [20, 10]
    assert timeline.above_nothing(steps, 15, 100) == [15, 20]
    assert timeline.above_nothing(steps, 60, 100) == []
    assert timeline.beyond_both_ends(steps, 10, 30) == 3, "from 0 before it to 0 at its end"
    assert timeline.beyond_both_ends(steps, 20, 25) == 0, "it ends with 3"
    assert timeline.beyond_both_ends([(0.0, 5.0), (10.0, 6.0), (20.0, 4.0)], 10, 20) == 1


def test_a_bootstrap_interval_is_around_the_mean_and_wider_where_neighbours_are_alike() -> None:
    random = np.random.default_rng(1)
    apart = random.normal(3, 1, 1000)
    alike = np.sort(apart)
    narrow, wide = mean_of([apart]), mean_of([alike])
    assert narrow.low < 3 < narrow.high
    assert narrow.high - narrow.low == pytest.approx(4 / 1000**0.5, rel=0.3)
    assert wide.high - wide.low > 3 * (narrow.high - narrow.low)


@needs_data
def test_slowdown_has_jobs_end_sooner_than_under_easy() -> None:
    lines = told(slowdown, "--data", str(DATA), "--sites", "SDSC SP2", "--jobs", "700", "--classes")
    _, completion, _, bounded, _, easy, p99, _, suspends = cells(lines, "SDSC SP2, as it is")
    assert float(completion) < 0.95
    assert float(bounded) < 0.5
    assert float(easy) > 5, "hardly anybody waits under EASY: nothing is compared"
    assert float(p99) < 1.2
    assert 0 < float(suspends) < 1
    assert sum(int(cells(lines, f"SDSC SP2, {name}")[0]) for name in CLASSES) == 700


CLASSES = ("short and narrow", "short and wide", "long and narrow", "long and wide")


def test_what_is_asked_of_a_trace_is_what_a_case_says() -> None:
    jobs = [Job(1, 100, 50, 1, 400, None, 1), Job(2, 200, 90000, 1, 90000, None, 2)]
    good = slowdown.asked(jobs, slowdown.Case(limits="good", stretch=2.0))
    assert [(job.submit_s, job.estimate_s) for job in good] == [(100, 50), (300, 90000)]
    assert [job.estimate_s for job in slowdown.asked(jobs, slowdown.Case(limits="a day"))] == [86400, 90000]


def test_where_jobs_ask_for_different_memory_their_processors_are_counted() -> None:
    site = traces.Site("uneven", "", Cluster(2, 8, 65536))
    jobs = [Job(1, 0, 50, 1, 400, 65536, 1), Job(2, 0, 50, 8, 400, 1, 2)]
    assert places_of(jobs, site.cluster) is None
    alike, counted = slowdown.counted(site, jobs)
    assert places_of(counted, alike.cluster) == 8


def test_a_ratio_of_means_draws_the_same_blocks_of_both() -> None:
    theirs = np.random.default_rng(1).exponential(100, 500)
    found = ratio_of(0.5 * theirs, theirs)
    assert (found.value, found.low, found.high) == pytest.approx((0.5, 0.5, 0.5))
    assert ratio_of(theirs[::-1], theirs).low < 0.97 < 1.03 < ratio_of(theirs[::-1], theirs).high


def test_arrivals_are_stretched_to_a_load() -> None:
    site = next(site for site in traces.SITES if site.name == "KTH SP2")
    jobs = [Job(number, 7 + 100 * number, 1000, 10, 1000, None, number) for number in range(11)]
    found = energy.at_load(site, jobs, 0.5)
    assert [job.submit_s for job in found] == [220 * number for number in range(11)]


@needs_data
def test_the_energy_of_idle_nodes_is_between_an_oracles_and_all_on() -> None:
    lines = told(energy, "--jobs", "30", "--sites", "KTH SP2", "--policies", "easy", "--loads", "0.3")
    all_on, switched, oracle, share, *_ = cells(lines, "KTH SP2, easy, 0.3")
    assert float(oracle) <= float(switched) < float(all_on)
    assert 90 < float(share.rstrip(" %")) <= 100
