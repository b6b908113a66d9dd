"""Schedules: the document that the page of `simulate` and `compare` shows."""

from __future__ import annotations

from typing import Any

import pytest

from rmsplugin.model.vjob import VJobState as S
from rmsplugin.report.placing import placed
from rmsplugin.report.schedules import Schedules, document
from rmsplugin.simulation.capacity import Cluster
from rmsplugin.simulation.outcome import Interval, JobRun, Move, Outcome, SwitchRun, Usage, of_schedule
from rmsplugin.simulation.short_way import start_times
from rmsplugin.workload.jobs import Job

CLUSTER = Cluster(nodes=2, cpus_per_node=2, memory_per_node_mib=4096)

#: Two VMs; one migrates, both sleep, and resume elsewhere at the second try. When their work is done, one migrates.
RUN = JobRun(
    Job(7, 100.0, 500.0, 2, 900.0, 1024, line=1),
    vms=2,
    cpu_s=1000.0,
    end_s=800.0,
    intervals=(
        Interval(S.WAITING, 100.0, 140.0),
        Interval(S.STARTING, 140.0, 150.0, ("n1", "n1")),
        Interval(S.RUNNING, 150.0, 400.0, ("n1", "n2")),
        Interval(S.SUSPENDING, 400.0, 420.0, ("n1", "n2")),
        Interval(S.SLEEPING, 420.0, 500.0, ("n1", "n2")),
        Interval(S.RESUMING, 500.0, 510.0, ("n2", "n2"), failed=True),
        Interval(S.SLEEPING, 510.0, 530.0, ("n1", "n2")),
        Interval(S.RESUMING, 530.0, 550.0, ("n2", "n2")),
        Interval(S.RUNNING, 550.0, 810.0, ("n1", "n2")),
        Interval(S.STOPPING, 810.0, 825.0, ("n1", "n2")),
    ),
    moves=(
        Move(200.0, 230.0, {1: ("n1", "n2")}),
        Move(300.0, 310.0, {0: ("n1", "n2")}, failed=True),
        Move(790.0, 810.0, {0: ("n2", "n1")}),
    ),
)
SWITCH = SwitchRun(400.0, 420.0, 2048, 18.0, {"suspend": 2}, {"suspend": 1})
USAGE = (Usage(150.0, 2.0, 2.0), Usage(400.0, 0.0, 0.0), Usage(550.0, 1.0, 2.0), Usage(800.0, 0.0, 0.0))
OWN = Outcome("rjsp", [RUN], [SWITCH], USAGE)


@pytest.fixture
def told() -> dict[str, Any]:
    other = of_schedule("fcfs", [RUN.job], [100.0])
    return document("simulation", Schedules(CLUSTER, OWN, [other]), [], made=5.0)


def test_a_job_lives_until_its_work_is_done_and_a_migration_begins_an_interval(told: dict[str, Any]) -> None:
    (job,) = told["jobs"]
    assert [(each["state"], each["from"], each["until"], each["nodes"]) for each in job["intervals"]] == [
        ("waiting", 100, 150, []),
        ("running", 150, 230, ["n1", "n1"]),
        ("running", 230, 400, ["n1", "n2"]),
        ("sleeping", 400, 550, []),
        ("running", 550, 800, ["n2", "n2"]),
    ]
    assert (job["wait_s"], job["run_s"], job["asleep_s"], job["completion_s"]) == (50, 500, 150, 700)
    assert (job["suspends"], job["resumes"], job["migrations"], job["slowdown"]) == (1, 1, 2, 1.4)
    assert (job["id"], job["vms"], job["memory_mib"], job["limit_s"]) == ("7", 2, 1024, 900)
    assert job["without"] == {"fcfs": {"start": 100, "end": 600}}


def test_one_that_is_paused_sleeps_and_goes_on_as_from_a_resume() -> None:
    spans = (Interval(S.RUNNING, 150.0, 400.0, ("n1",)), Interval(S.PAUSING, 400.0, 401.0, ("n1",)))
    spans += (Interval(S.PAUSED, 401.0, 500.0, ("n1",)), Interval(S.UNPAUSING, 500.0, 501.0, ("n1",)))
    spans += (Interval(S.RUNNING, 501.0, 800.0, ("n1",)),)
    run = JobRun(RUN.job, vms=1, cpu_s=549.0, end_s=800.0, intervals=spans, moves=())
    (job,) = document("simulation", Schedules(CLUSTER, Outcome("rjsp", [run], [], USAGE)), [], made=5.0)["jobs"]
    assert [(each["state"], each["from"], each["until"]) for each in job["intervals"]][1] == ("sleeping", 400, 501)
    assert (job["asleep_s"], job["suspends"], job["resumes"]) == (101, 1, 1)


def test_cpus_over_time_are_means_of_each_minute(told: dict[str, Any]) -> None:
    points = told["utilisation"]
    assert (told["since"], told["until"], told["utilisation_step_s"], len(points)) == (100, 800, 60, 12)
    # From 100 to 160: it runs from 150 on; under fcfs all the time.
    first = {"cpu_used": 0.333, "cpu_booked": 0.333, "cpu_demanded": 2, "cpu_total": 4, "without": {"fcfs": 2}}
    first |= {"mem_booked_mib": 341.333, "mem_total_mib": 8192, "waiting": 0.833, "asleep": 0, "store_mib": 0}
    assert points[0] == {"t": 100, **first}
    total = [sum(60 * point[name] for point in points) for name in ("cpu_used", "cpu_booked", "cpu_demanded")]
    assert total == pytest.approx([2 * 250 + 250, 2 * 500, 2 * 700], abs=0.5)


def test_memory_queue_and_saved_states_over_time_are_those_of_the_jobs(told: dict[str, Any]) -> None:
    points = told["utilisation"]
    names = ("mem_booked_mib", "waiting", "asleep", "store_mib")
    total = [sum(60 * point[name] for point in points) for name in names]
    # Two VMs of 1024 MiB run for 500 s; the suspend takes 20 s of the 150 s in which they sleep.
    assert total == pytest.approx([2048 * 500, 50, 150, 2048 * 130], rel=1e-3)


def test_switches_count_vjobs_and_costs_count_vms(told: dict[str, Any]) -> None:
    assert list(told["switches"]) == [
        {"number": 1, "at": 400, "state": "done", "cost_mib": 2048, "seconds": 20}
        | {"start": 0, "suspend": 1, "resume": 0, "migrate": 0, "pause": 0, "unpause": 0}
    ]
    assert told["costs"] == {
        "suspend": {"actions": 2, "vm_seconds": 40, "bytes": 2 << 30},
        "resume": {"actions": 2, "vm_seconds": 40, "bytes": 2 << 30},
        "migrate": {"actions": 2, "vm_seconds": 50, "bytes": 2 << 30},
    }


def test_counted_processors_are_placed_without_two_vms_on_one_cpu() -> None:
    sizes = [(0, 100, 3), (0, 50, 1), (10, 30, 2), (20, 0, 4), (60, 40, 1), (60, 10, 4)]
    jobs = [Job(number, submit, run, size, run, None, 1) for number, (submit, run, size) in enumerate(sizes)]
    outcome = placed(of_schedule("easy", jobs, start_times(jobs, CLUSTER.cpus, backfill=True)), CLUSTER)
    running = [each for run in outcome.jobs for each in run.intervals if each.state is S.RUNNING]
    assert [len(each.nodes) for each in running] == [3, 1, 2, 0, 1, 4]
    for moment in (each.begin_s for each in running):
        there = [node for each in running if each.begin_s <= moment < each.end_s for node in each.nodes]
        assert max(there.count(name) for name in CLUSTER.node_names) <= CLUSTER.cpus_per_node


def test_vms_of_a_ledgers_job_have_their_own_number_of_cpus() -> None:
    job = Job(9, 0.0, 120.0, 4, 120.0, 1024, line=0, cpus_per_vm=2)
    told = document("simulation", Schedules(CLUSTER, of_schedule("fcfs", [job], [0.0])), [], made=5.0)
    (row,) = told["jobs"]
    assert (row["vms"], row["cpus"]) == (2, 2)
    assert [point["cpu_booked"] for point in told["utilisation"]] == [4.0, 4.0]
