"""A job that needs fewer CPUs gives them up, and has them back: in its guest, and nowhere in Slurm's books."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from e2e.cluster import Cluster
from e2e.engine_settings import configured

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

#: Computes with two processes until it is signalled; says each second which CPUs its kernel has on line.
TWO = """#!/bin/sh
trap 'enough=1' USR1
echo started >> started.$SLURM_JOB_ID
( while :; do :; done ) & first=$!
( while :; do :; done ) & second=$!
i=0
while [ -z "$enough" ]; do i=$((i + 1)); echo "$i on $(cat /sys/devices/system/cpu/online)"; sleep 1; done
kill $first $second
echo counted to $i
"""


@pytest.fixture(autouse=True)
def short_window(cluster: Cluster) -> Iterator[None]:
    """Demand falls soon after use; in the cluster that tests share it does not within a day."""
    with configured(cluster, "decision", "demand_window_s = 10"):
        yield


def resized(cluster: Cluster, job: int, *words: str, user: str = "alice") -> str:
    """What the command says, to whoever asks."""
    done = cluster.plugin("resize", str(job), *words, user=user)
    return done.out + done.err


def demand(cluster: Cluster, job: int) -> float:
    (vm,) = [each for each in (cluster.ask("/v1/vms") or {"vms": []})["vms"] if each["vjob"] == str(job)]
    return float(vm["cpus"] if vm["cpus_demand"] is None else vm["cpus_demand"])


def test_a_job_gives_up_a_cpu_and_has_it_back_and_slurms_books_stay_as_they_are(cluster: Cluster) -> None:
    job = cluster.sbatch(TWO, "-c", "2", "--mem=96")
    cluster.wait_output(job, r"(?m)^3 on 0-1$", timeout_s=300)
    allocated = cluster.job(job)
    assert "belongs to alice" in resized(cluster, job, "--cpus", "1", user="bob")
    assert f"vjob {job} has 2 CPUs for each VM by its job" in resized(cluster, job, "--cpus", "3")
    assert "nothing on its nodes would hold a guest to less" in resized(cluster, job, "--memory", "50M")
    for update in ("NumCPUs=1", "MinMemoryNode=50"):
        assert cluster.run("scontrol", "update", f"JobId={job}", update).code != 0, "Slurm resizes no job that runs"

    assert resized(cluster, job, "--cpus", "1") == f"{job}: each VM is to have 1 CPU, from the next cycle on\n"
    cluster.wait_output(job, r"(?m)^\d+ on 0$", timeout_s=120)
    cluster.wait("one CPU of demand", lambda: demand(cluster, job) <= 1.1, 180, lambda: cluster.describe(job))
    before = len(cluster.lines(job))
    for verb, state in (("suspend", "sleeping"), ("resume", "running")):
        assert cluster.plugin(verb, str(job), user="alice").code == 0
        cluster.wait_vjob(job, state)
    cluster.wait(
        "lines after the sleep", lambda: len(cluster.lines(job)) > before + 4, 120, lambda: cluster.describe(job)
    )
    assert all(line.endswith(" on 0") for line in cluster.lines(job)[before:])

    assert resized(cluster, job, "--cpus", "all").endswith("all CPUs that are booked, from the next cycle on\n")
    cluster.wait_output(job, r" on 0\n\d+ on 0-1\n", timeout_s=120)
    assert f"vjob{job}-0 uses 1 of its 2 CPUs, and used 2" in cluster.events(job)
    last = f"vjob{job}-0 uses 2 of its 2 CPUs, and used 1"  # told after the guest has them
    cluster.wait(last, lambda: last in cluster.events(job), 60, lambda: cluster.events(job))
    assert cluster.job(job)["NumCPUs"] == allocated["NumCPUs"] == "2"
    cluster.ok("scancel", "--batch", "--signal=USR1", str(job), user="alice")
    assert cluster.wait_job(job)["JobState"] == "COMPLETED", cluster.describe(job)
    counts = [line.split()[0] for line in cluster.lines(job)[:-1]]
    assert counts == [str(number) for number in range(1, len(counts) + 1)], "its output is whole"
    assert (cluster.home() / f"started.{job}").read_text() == "started\n"
    cluster.wait_gone(job)
    (row,) = cluster.accounted(job, "AllocCPUS,State")
    assert (row["AllocCPUS"], row["State"]) == ("2", "COMPLETED")
