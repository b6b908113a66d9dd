"""The engine decides by itself who runs: tiers, demands that change, and a switch in the admin's hand (issue 8, 6)."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pytest
from e2e.agreement import PERIODS as AGREED
from e2e.agreement import the_simulator_agrees
from e2e.cluster import Cluster
from e2e.conftest import minicluster
from e2e.engine_settings import BY_QUEUE, configured
from e2e.queued import WHOLE, nothing_left, wait_reason, wait_rooms
from e2e.rooms import count, explain, finish, ledger, wait_number
from e2e.slurm_conf import edited

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]

#: PreemptExemptTime of the minicluster.
EXEMPT_S = 10

#: Idles until it is told to compute, and then keeps a CPU of each of its VMs busy until it is told that it is enough.
BUSY = """#!/bin/sh
told=0
trap 'told=$((told + 1))' USR1
export phase=phase.$SLURM_JOB_ID
echo going >$phase
echo idles
until [ $told -ge 1 ]; do sleep 1; done
echo computes
srun -n "$SLURM_NTASKS" sh -c 'until grep -q enough $phase; do
    end=$(($(date +%s) + 3)); while [ $(date +%s) -lt $end ]; do :; done
done' &
until [ $told -ge 2 ]; do sleep 1; done
echo enough >$phase
wait
echo has computed
"""


@pytest.fixture(scope="module")
def observant() -> Iterator[Cluster]:
    """A minicluster where the demand of VMs that idle falls soon, and the last in the queue makes way."""
    for cluster in minicluster("hold", "--demand-window-s", "6", *AGREED):
        with configured(cluster, *BY_QUEUE):
            yield cluster


@pytest.fixture
def by_queue(cluster: Cluster) -> Iterator[None]:
    """The engine decides in the order of the queue."""
    with configured(cluster, *BY_QUEUE):
        yield


def fill(cluster: Cluster) -> list[int]:
    """A vjob that counts for each node, the last one with the least priority; returns them once all have begun."""
    jobs = [count(cluster, *WHOLE, f"--nice={1000 * place}") for place, _ in enumerate(cluster.nodes)]
    for job in jobs:
        wait_number(cluster, job)
    return jobs


def plans(cluster: Cluster) -> list[dict[str, Any]]:
    result = cluster.plugin("cycles", "--json")
    assert result.code == 0, result.err
    return list(json.loads(result.out)["cycles"])


@pytest.mark.usefixtures("by_queue")
def test_a_vjob_of_a_higher_tier_runs_at_once_and_those_that_made_way_go_on(cluster: Cluster) -> None:
    """Those that made way are not overtaken by newer ones of their user, whose priority in Slurm grows with their age.

    Slurm shows none of a suspended job, and the engine goes on counting by Slurm's rules.
    """
    wait_rooms(cluster)
    with edited(cluster) as change:
        # Age counts for much, and the user's share for nothing: it falls while the jobs run, and Slurm's priority of
        # the newer one with it, below that which the sleeping one had at its start.
        change(
            "PriorityWeightAge=1000\nPriorityWeightFairshare=100000\n",
            f"PriorityWeightAge={100 * 7 * 86400}\nPriorityWeightPartition=100000\n",
        )
        low = fill(cluster)
        high = count(cluster, *WHOLE, "-p", "urgent")

        def asleep() -> list[int]:
            return [job for job, state in zip(low, states(cluster, *low), strict=True) if state == "sleeping"]

        # All have begun a moment ago: the first that is not exempt any more makes way (PreemptExemptTime).
        [slept] = cluster.wait("one of them to sleep", asleep, 120, lambda: cluster.describe(high))
        assert cluster.job(slept)["JobState"] == "SUSPENDED"
        assert cluster.job(slept)["Priority"] == "0"
        [(last_seen,)] = ledger(cluster, "select priority from vjobs where job_id = ?", slept)
        newer = count(cluster, *WHOLE, f"--nice={1000 * (len(low) - 1)}")

        def is_higher() -> bool:
            cluster.ok("scontrol", "update", f"JobId={newer}", "Requeue=1")  # Slurm computes it anew
            return int(cluster.job(newer)["Priority"]) > last_seen + 100

        cluster.wait("the newer one's priority to be higher than was the sleeping one's", is_higher, 120)
        finish(cluster, high)
        wait_number(cluster, slept, 2)
        assert states(cluster, *low, newer) == ["running"] * 3 + ["waiting"], why(cluster)
    finish(cluster, *low)
    wait_number(cluster, newer)
    finish(cluster, newer)
    assert cluster.accounted(slept, "Suspended")[0]["Suspended"] > "00:00:05"
    nothing_left(cluster, [*low, high, newer])


def test_context_switches_are_switched_off_and_on_and_off_in_slurm_conf_while_jobs_run(cluster: Cluster) -> None:
    """The administrator edits slurm.conf and says ``scontrol reconfigure``; the engine is told nothing."""
    wait_rooms(cluster)
    with edited(cluster) as change:
        set_mode(cluster, change, "OFF")
        low = fill(cluster)
        high = count(cluster, *WHOLE, "-p", "urgent")
        wait_reason(cluster, high, "needs")
        # Longer than PreemptExemptTime and many cycles: a vjob that is not suspended now never is.
        wait_number(cluster, low[-1], 12)
        assert states(cluster, *low, high) == ["running"] * 3 + ["waiting"]

        set_mode(cluster, change, "REQUEUE")
        wait_number(cluster, high)
        # The other one has its memory, and may begin, while the saved state of the one that made way is still sealed.
        asleep = ["running", "running", "sleeping"]
        cluster.wait("one to sleep", lambda: sorted(states(cluster, *low)) == asleep, 60, lambda: why(cluster))

        set_mode(cluster, change, "OFF")
        finish(cluster, high)
        for job in low:
            wait_number(cluster, job, 2)
        finish(cluster, *low)
        assert sum(cluster.events(job).count("vjob-sleeping") for job in low) == 1
        assert "vjob-sleeping" not in cluster.events(high)
    nothing_left(cluster, [*low, high])


def set_mode(cluster: Cluster, change: Callable[[str, str], None], mode: str) -> None:
    """Give the vjob partition a PreemptMode in slurm.conf; slurmctld answers while it still reads the file."""
    line = "State=UP PriorityTier=1 PreemptMode="
    change(f"{line}REQUEUE", f"{line}{mode}")
    shown = ("scontrol", "-o", "show", "partition", "vjob")
    cluster.wait(f"PreemptMode={mode}", lambda: f"PreemptMode={mode}" in cluster.ok(*shown), 30)


def states(cluster: Cluster, *jobs: int) -> list[str]:
    return [(cluster.vjob(job) or {"state": "unknown"})["state"] for job in jobs]


def why(cluster: Cluster) -> str:
    """What was decided, cycle by cycle, and what came of it."""
    return "\n".join([*(f"{each['number']}: {each['sentence']}" for each in plans(cluster)), explain(cluster)])


def signal(cluster: Cluster, *jobs: int) -> None:
    """Tell the scripts of vjobs that run to go on with what comes next."""
    cluster.ok("scancel", "--batch", "--signal=USR1", *map(str, jobs), user="alice")


def without_room(cluster: Cluster, sizes: Mapping[int, int]) -> set[int]:
    """Who finds too few CPUs left when the vjobs, in the order of the queue, take one for each VM.

    The queue is that of the engine. All are of one user: what differs is neither their age, by much, nor fair share.
    """
    left = sum(int(line) for line in cluster.ok("sinfo", "-h", "-N", "-p", "plain", "-o", "%c").split())
    order = ledger(
        cluster, "select job_id from vjobs where state = 'running' order by standing ->> 'rest' desc, job_id"
    )
    assert {job for (job,) in order} == set(sizes), order
    out = set()
    for (job,) in order:
        if sizes[job] <= left:
            left -= sizes[job]
        else:
            out.add(job)
    return out


def none_exempt(cluster: Cluster, jobs: Iterable[int]) -> bool:
    """Whether all have run for longer than PreemptExemptTime."""
    running = [vjob for job in jobs if (vjob := cluster.vjob(job)) and vjob["state"] == "running"]
    return all(time.time() - vjob["state_since"] > EXEMPT_S for vjob in running)


@pytest.mark.long
def test_vjobs_that_idle_are_packed_together_and_the_last_sleeps_when_all_compute(observant: Cluster) -> None:
    """RR-6929 in small: 8 VMs of a CPU each on 6 CPUs, while nobody computes; when all do, the last makes way."""
    cluster = observant
    wait_rooms(cluster)
    jobs = {
        cluster.sbatch(BUSY, "-N", str(size), "--ntasks-per-node=1", "--mem=96", f"--nice={1000 * place}"): size
        for place, size in enumerate((3, 2, 1, 2))
    }
    for job in jobs:
        cluster.wait_output(job, "idles", timeout_s=300)
    cluster.wait("the end of all exemptions", lambda: none_exempt(cluster, jobs), 60)
    last = without_room(cluster, jobs)
    first = jobs.keys() - last
    signal(cluster, *jobs)
    asleep = ["sleeping"] * len(last)
    cluster.wait(f"{last} to sleep", lambda: states(cluster, *last) == asleep, 180, lambda: why(cluster))
    signal(cluster, *first)
    for job in last:
        cluster.wait_vjob(job, "running", timeout_s=300)
    signal(cluster, *last)
    for job in jobs:
        assert cluster.wait_job(job, timeout_s=300)["JobState"] == "COMPLETED", cluster.output(job)
        assert cluster.output(job).splitlines() == ["idles", "computes", "has computed"]
        vjob = cluster.vjob(job)
        assert vjob is not None and vjob["losses"] == 0
    slept = {job for job in jobs if "vjob-sleeping" in cluster.events(job)}
    assert slept == last, f"others than the last in the queue made way: {why(cluster)}"
    assert any(re.search(r"suspend", each["sentence"]) for each in plans(cluster))
    nothing_left(cluster, jobs)
    the_simulator_agrees(cluster, jobs)
