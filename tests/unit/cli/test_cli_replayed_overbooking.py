"""`rmsplugin simulate --cpu-overbooking`: more VMs are on a node, and take longer if they use more CPUs than it has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from unit.cli.json_documents import answer_of
from unit.simulation.test_workload import line

from rmsplugin.cli.main import main

CLUSTER = ("--workload", "t.swf", "--nodes", "1", "--cpus-per-node", "1", "--memory-per-node", "4096")


def trace(*jobs: dict[str, object]) -> None:
    """Jobs of one processor that are submitted at once, and last 600 s; each of a partition (queue) of its own."""
    each = {"submit_s": 0, "run_s": 600, "allocated_processors": 1, "requested_s": 6000}
    lines = [line(job_id=number, queue=number, **{**each, **job}) for number, job in enumerate(jobs, start=1)]
    Path("t.swf").write_text("\n".join([*lines, ""]))


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory of its own for each test, with a trace of two jobs."""
    monkeypatch.chdir(tmp_path)
    trace({}, {})


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Run a command in this process: status, standard output, standard error."""
    try:
        status = main(list(words))
    except SystemExit as error:
        status = int(str(error.code))
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    return status, out, err


def simulated(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    status, out, err = call(capsys, "simulate", *CLUSTER, "--json", *words)
    assert (status, err) == (0, "")
    found: dict[str, Any] = answer_of(out)
    return found


def times(*words: str) -> list[tuple[float, float]]:
    """Start and end of each job, in the order of their numbers."""
    assert main(["simulate", *CLUSTER, "--policy", "fcfs", "--jobs-out", "jobs.csv", *words]) == 0
    rows = [row.split(",") for row in Path("jobs.csv").read_text().splitlines()[1:]]
    return [(float(row[2]), float(row[3])) for row in sorted(rows, key=lambda row: int(row[0]))]


def test_two_vms_on_one_cpu_run_at_once_and_take_twice_as_long() -> None:
    assert times() == [(0, 600), (600, 1200)]
    assert times("--cpu-overbooking", "2") == [(0, 1200), (0, 1200)]


def test_a_ratio_holds_as_many_vms_as_it_says() -> None:
    trace({}, {}, {}, {})
    assert times("--cpu-overbooking", "3") == [(0, 1800), (0, 1800), (0, 1800), (1800, 2400)]


def test_vms_that_use_half_of_their_cpu_lose_nothing() -> None:
    trace({"average_cpu_s": 300}, {"average_cpu_s": 300})
    assert times("--cpu-overbooking", "2") == [(0, 600), (0, 600)]


def test_a_vm_is_alone_again_once_the_other_has_ended() -> None:
    trace({"run_s": 100}, {})
    assert times("--cpu-overbooking", "2") == [(0, 200), (0, 700)]


def test_partitions_have_ratios_of_their_own() -> None:
    trace({}, {}, {})
    assert times("--cpu-overbooking", "1=2,2=2") == [(0, 1200), (0, 1200), (1200, 1800)]


@pytest.mark.parametrize("policy", ["easy", "conservative", "rjsp", "mixed", "slowdown", "load-sharing"])
def test_every_policy_books_by_the_ratio_and_suspends_nobody_for_what_vms_share(
    policy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = simulated(capsys, "--policy", policy, "--cpu-overbooking", "2")
    assert found["wait_s"]["mean"] < 60 and found["makespan_s"] >= 1200
    assert found["context_switches"]["suspend"] == 0


def test_an_overbooked_vm_that_is_seen_to_use_its_cpu_is_booked_by_the_ratio_all_the_same(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its demand is observed, for it varies."""
    Path("a.json").write_text('{"jobs": {"1": [{"seconds": 300, "cpus": 0.1}, {"seconds": 300, "cpus": 1}]}}')
    found = simulated(capsys, "--policy", "rjsp", "--cpu-overbooking", "2", "--activity", "a.json")
    assert found["context_switches"]["suspend"] == 0 and found["wait_s"]["mean"] < 60


def test_a_vm_without_memory_in_the_trace_has_its_booked_cpus_share_of_a_node(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = simulated(capsys, "--policy", "fcfs", "--cpu-overbooking", "2", "--memory-per-vm", "4096")
    assert found["makespan_s"] == 1200 and found["wait_s"]["mean"] == 300


def test_the_ratio_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    found = simulated(capsys, "--policy", "fcfs", "--cpu-overbooking", "1=2,2=1.5")
    assert found["cluster"]["cpu_overbooking"] == {"1": 2, "2": 1.5}
    _, out, _ = call(capsys, "simulate", *CLUSTER, "--policy", "fcfs", "--cpu-overbooking", "2")
    assert "on 1 node of 1 CPU and 4096 MiB with CPUs overbooked by 2: makespan" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--cpu-overbooking", "0.5"], "'0.5': the ratio is not a number from 1 to 16"),
        (["--cpu-overbooking", "nan"], "'nan': the ratio is not a number from 1 to 16"),
        (["--cpu-overbooking", "17"], "'17': the ratio is not a number from 1 to 16"),
        (["--cpu-overbooking", "=2"], "'=2': name each partition once"),
        (["--cpu-overbooking", "1=2,1=3"], "'1=3': name each partition once"),
        (["--cpu-overbooking", "9=2"], "no job is in partition 9; the jobs' partitions are 1, 2"),
        (["--cpu-overbooking", "2", "--platform", "native"], "--cpu-overbooking is not for --platform native"),
    ],
)
def test_ratios_that_cannot_be_meant_are_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = call(capsys, "simulate", *CLUSTER, "--policy", "rjsp", *words)
    assert (status, out) == (2, "")
    assert message in err


def test_overbooking_needs_nodes_with_memory(capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        "--workload",
        "t.swf",
        "--nodes",
        "1",
        "--cpus-per-node",
        "2",
        "--policy",
        "easy",
        "--cpu-overbooking",
        "2",
    )
    status, out, err = call(capsys, "simulate", *words)
    assert (status, out) == (2, "")
    assert "--cpu-overbooking needs --memory-per-node" in err
