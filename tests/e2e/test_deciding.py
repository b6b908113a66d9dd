"""The engine decides by itself who runs: tiers, demands that change, and a switch in the admin's hand (issue 8, 6)."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from e2e.cluster import Cluster
from e2e.conftest import minicluster
from e2e.queued import WHOLE, nothing_left, wait_rooms

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]

#: Prints a number each second until it is told to end: each has to arrive, once.
COUNTER = """#!/bin/sh
number=0
until [ -e "$1" ]; do
    number=$((number + 1))
    echo $number
    sleep 1
done
echo end
"""

#: Idles until it is told to compute, and then keeps a CPU of each of its VMs busy for a while.
BUSY = """#!/bin/sh
echo idles
until [ -e "$1" ]; do sleep 1; done
echo computes
srun -n "$SLURM_NTASKS" sh -c 'end=$(($(date +%s) + 40)); while [ $(date +%s) -lt $end ]; do :; done'
echo has computed
"""


class Word:
    """A file by which scripts are told something; of its own for each test, for the file server remembers names."""

    def __init__(self, cluster: Cluster) -> None:
        self._path = cluster.home() / f"word-{time.monotonic_ns()}"
        self.inside = f"/home/alice/{self._path.name}"

    def say(self) -> None:
        self._path.touch()


@pytest.fixture(scope="module")
def observant() -> Iterator[Cluster]:
    """A minicluster where the demand of VMs that idle falls soon."""
    yield from minicluster("hold", "--demand-window-s", "6")


def count(cluster: Cluster) -> tuple[Word, list[int]]:
    """A vjob that counts for each node, the last one with the least priority, and what ends them."""
    word = Word(cluster)
    return word, [
        cluster.sbatch(COUNTER, *WHOLE, f"--nice={1000 * place}", arguments=(word.inside,))
        for place, _ in enumerate(cluster.nodes)
    ]


def numbers(cluster: Cluster, job: int) -> list[int]:
    return [int(line) for line in cluster.output(job).split() if line.isdecimal()]


def plans(cluster: Cluster) -> list[dict[str, Any]]:
    result = cluster.plugin("cycles", "--json")
    assert result.code == 0, result.err
    return list(json.loads(result.out)["cycles"])


def check_counted(cluster: Cluster, job: int) -> None:
    """It counted on, and never began anew."""
    found = numbers(cluster, job)
    assert found == list(range(1, len(found) + 1))
    vjob = cluster.vjob(job)
    assert vjob is not None and vjob["losses"] == 0


def test_a_vjob_of_a_higher_tier_runs_at_once_and_those_that_made_way_go_on(cluster: Cluster) -> None:
    wait_rooms(cluster)
    word, low = count(cluster)
    for job in low:
        cluster.wait_output(job, "^2$", timeout_s=240)
    high = cluster.sbatch("#!/bin/sh\necho here; sleep 10\n", *WHOLE, "-p", "urgent", user="bob")
    slept = low[-1]
    cluster.wait_vjob(slept, "sleeping", timeout_s=120)
    assert cluster.job(slept)["JobState"] == "SUSPENDED"
    assert cluster.wait_job(high, timeout_s=240)["JobState"] == "COMPLETED"
    before = len(numbers(cluster, slept))
    cluster.wait("the last in the queue to go on", lambda: len(numbers(cluster, slept)) >= before + 2, 240)
    assert [cluster.vjob(job)["state"] for job in low] == ["running"] * 3  # type: ignore[index]
    word.say()
    for job in low:
        assert cluster.wait_job(job)["JobState"] == "COMPLETED"
        check_counted(cluster, job)
    assert cluster.sacct(slept, "Suspended")[0]["Suspended"] > "00:00:05"
    nothing_left(cluster, [*low, high])


def test_context_switches_are_switched_off_and_on_while_jobs_run(cluster: Cluster) -> None:
    wait_rooms(cluster)
    cluster.ok("scontrol", "update", "PartitionName=vjob", "PreemptMode=OFF")
    try:
        word, low = count(cluster)
        for job in low:
            cluster.wait_output(job, "^2$", timeout_s=240)
        high = cluster.sbatch("#!/bin/sh\nsleep 1\n", *WHOLE, "-p", "urgent")
        cluster.wait("its reason", lambda: "needs" in (cluster.vjob(high) or {"reason": ""})["reason"], 60)
        seen = len(numbers(cluster, low[-1]))
        cluster.wait("the others to run on", lambda: len(numbers(cluster, low[-1])) >= seen + 8, 120)
        assert [cluster.vjob(job)["state"] for job in (*low, high)] == ["running"] * 3 + ["waiting"]  # type: ignore[index]
        cluster.ok("scontrol", "update", "PartitionName=vjob", "PreemptMode=REQUEUE")
        assert cluster.wait_job(high, timeout_s=240)["JobState"] == "COMPLETED"
        cluster.ok("scontrol", "update", "PartitionName=vjob", "PreemptMode=OFF")
        cluster.wait_vjob(low[-1], "running", timeout_s=240)
        word.say()
        for job in low:
            assert cluster.wait_job(job)["JobState"] == "COMPLETED"
            check_counted(cluster, job)
    finally:
        cluster.ok("scontrol", "update", "PartitionName=vjob", "PreemptMode=REQUEUE")


def test_vjobs_that_idle_are_packed_together_and_the_last_sleeps_when_all_compute(observant: Cluster) -> None:
    """RR-6929 in small: 8 VMs of a CPU each on 6 CPUs, while nobody computes; when all do, the last makes way."""
    cluster = observant
    wait_rooms(cluster)
    sizes = (3, 2, 1, 2)
    word = Word(cluster)
    jobs = [
        cluster.sbatch(
            BUSY,
            *("-N", str(size), "--ntasks-per-node=1", "--mem=96", f"--nice={1000 * place}"),
            arguments=(word.inside,),
        )
        for place, size in enumerate(sizes)
    ]
    for job in jobs:
        cluster.wait_output(job, "idles", timeout_s=300)
    word.say()
    cluster.wait_vjob(jobs[-1], "sleeping", timeout_s=180)
    for job in jobs:
        assert cluster.wait_job(job, timeout_s=600)["JobState"] == "COMPLETED", cluster.output(job)
        assert cluster.output(job).splitlines() == ["idles", "computes", "has computed"]
        vjob = cluster.vjob(job)
        assert vjob is not None and vjob["losses"] == 0
    ends = [cluster.job(job)["EndTime"] for job in jobs]
    assert ends[-1] == max(ends), "the last in the queue made way, and ended last"
    assert any(re.search(r"suspend", each["sentence"]) for each in plans(cluster))
    nothing_left(cluster, jobs)
