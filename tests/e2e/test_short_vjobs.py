"""The policy slowdown on real Slurm and real VMs: short vjobs on a cluster that long ones fill (issue 28, 4)."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import mean

import pytest
from e2e.cluster import Cluster
from e2e.engine_settings import configured
from e2e.queued import WHOLE, begun, nothing_left, submit_all, wait_reason, wait_rooms
from e2e.rooms import count, ended_whole, finish, ledger, output_is_whole, wait_number
from e2e.slurm_conf import edited
from e2e.test_deciding import set_mode, why
from e2e.whole_files import write_whole

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(1500)]

#: What one loses by a switch is charged to whom it is made for.
DURATIONS = """
[durations]
suspend_s = {seconds}
suspend_s_per_mib = 0
resume_s = {seconds}
resume_s_per_mib = 0
"""
SHORT = """#!/bin/sh
echo started >> started.$SLURM_JOB_ID
for i in 1 2 3; do echo $i; sleep 1; done
echo counted to 3
"""
REASON = r"is expected to need \d+ s more, has waited \d+ s: expansion \d+\.\d"


@pytest.fixture
def ruled(cluster: Cluster) -> Iterator[Cluster]:
    """The engine decides by slowdown, with switches as quick as those of this machine."""
    with deciding(cluster, 1):
        yield cluster


@pytest.fixture
def steady(cluster: Cluster) -> Iterator[Cluster]:
    """The engine decides by slowdown, and switches are so slow that no running vjob makes way in the time of a test."""
    with deciding(cluster, 600):
        yield cluster


@contextmanager
def deciding(cluster: Cluster, switch_s: int) -> Iterator[None]:
    """An engine that decides by slowdown; half a switch takes so many seconds, as far as it knows."""
    path = cluster.host_path("head", "/etc/rmsplugin/rmsplugin.toml")
    before = path.read_text()
    write_whole(path, before + DURATIONS.format(seconds=switch_s))
    try:
        with configured(cluster, "decision", 'policy = "slowdown"'):
            yield
    finally:
        write_whole(path, before)
        cluster.kill("head", "engine")
        cluster.restart_engine()


@pytest.fixture
def pausing(cluster: Cluster) -> Iterator[Cluster]:
    """The engine decides by slowdown, and pauses vjobs that make way."""
    with configured(cluster, "decision", 'policy = "slowdown"', "pause_limit_s = 600"):
        yield cluster


def fill(cluster: Cluster) -> list[int]:
    """A long vjob on each node."""
    longs = [count(cluster, *WHOLE, "-t", "600") for _ in cluster.nodes]
    for job in longs:
        wait_number(cluster, job)
    return longs


def short(cluster: Cluster) -> int:
    """Submit one of three seconds."""
    return cluster.sbatch(SHORT, *WHOLE, "-t", "2")


def completion_s(cluster: Cluster, job: int) -> float:
    """From submission to end, as the ledger has it."""
    sql = "select state_since - submitted from vjobs where job_id = ? and state = 'terminated'"
    cluster.wait(f"the end of {job} in the ledger", lambda: ledger(cluster, sql, job), 60)
    [(seconds,)] = ledger(cluster, sql, job)
    return round(float(seconds), 1)


def asleep(cluster: Cluster, jobs: list[int]) -> set[int]:
    """Those that sleep, in the engine's books and in Slurm's."""
    known = {each["job_id"]: each["state"] for each in cluster.vjobs()}
    return {job for job in jobs if known.get(job) == "sleeping" and cluster.job(job)["JobState"] == "SUSPENDED"}


def test_short_vjobs_are_served_on_a_full_cluster_and_the_long_ones_go_on_from_where_they_were(ruled: Cluster) -> None:
    """And where PreemptMode=OFF they wait until a long one has ended."""
    cluster = ruled
    wait_rooms(cluster)
    longs = fill(cluster)
    shorts: list[int] = []
    for _ in range(2):
        shorts.append(short(cluster))
        wait_reason(cluster, shorts[-1], "expansion")
    listed = cluster.plugin("vjobs", "--parsable2", "--format", "jobid,state,reason", str(shorts[0])).out
    assert re.search(REASON, listed), listed
    assert "FAIRSHARE" in cluster.ok("sprio", "-l", "-j", str(shorts[0]))
    slept: set[int] = set()

    def served() -> bool:
        slept.update(asleep(cluster, longs))
        return all(cluster.job(job)["JobState"] == "COMPLETED" for job in shorts)

    cluster.wait("the end of the short ones", served, 500, lambda: why(cluster))
    assert slept, why(cluster)
    for job in longs:
        cluster.wait_vjob(job, "running", timeout_s=120)
        wait_number(cluster, job, 2)
    with edited(cluster) as change:
        set_mode(cluster, change, "OFF")
        began = time.time()
        last = short(cluster)
        switched = [completion_s(cluster, job) for job in shorts]
        wait_reason(cluster, last, "needs")
        sprio = cluster.ok("sprio", "-l", "-j", str(last))
        # Longer than with switches, and every long one counts on.
        while time.time() < began + max(switched):
            for job in longs:
                wait_number(cluster, job, 10)
        assert asleep(cluster, longs) == set()
        assert cluster.job(last)["JobState"] == "PENDING"
        finish(cluster, longs[0])
        ended_whole(cluster, last)
    finish(cluster, *longs[1:])
    for job in shorts:
        ended_whole(cluster, job)
    unswitched = completion_s(cluster, last)
    print(f"completion with switches {switched} s, without {unswitched} s; {len(slept)} slept\n{sprio}")
    assert max(switched) < unswitched
    nothing_left(cluster, [*longs, *shorts, last])


@pytest.fixture
def bob_has_more(cluster: Cluster) -> Iterator[None]:
    """More for bob, whatever both have used."""
    cluster.ok("sacctmgr", "-i", "modify", "user", "bob", "set", "fairshare=1000")
    yield
    cluster.ok("sacctmgr", "-i", "modify", "user", "bob", "set", "fairshare=1")


@pytest.mark.usefixtures("bob_has_more")
def test_who_has_used_up_his_share_does_not_come_first_by_having_waited_a_little_longer(steady: Cluster) -> None:
    """With `slurm_priority = "weight"`: of two alike who wait for one node, the one whose fair share `sprio` has."""
    cluster, there = steady, (*WHOLE, "-w", "n3")
    wait_rooms(cluster)
    [running] = submit_all(cluster, there)
    cluster.wait_output(running, "up", timeout_s=240)
    [alices] = submit_all(cluster, there)
    [bobs] = submit_all(cluster, there, user="bob")

    def expansion(job: int) -> float:
        found = re.search(r"expansion (\d+\.\d)", str((cluster.vjob(job) or {}).get("reason", "")))
        return float(found[1]) if found else 0.0

    def weighed() -> bool:
        # sprio: 75001 for bob, 50001 for alice; both have waited for as long
        return 1.7 > expansion(bobs) / max(expansion(alices), 1e-9) > 1.3

    def shown() -> str:
        waiting = {job: cluster.vjob(job) for job in (alices, bobs)}
        return f"{cluster.ok('sprio', '-l')} {waiting}"

    # Slurm computes usage and shares once a minute; until then both may be the same.
    cluster.wait("bob's share to count", weighed, 200, lambda: why(cluster) + shown())
    print(shown())
    cluster.ok("scancel", str(running))
    first = cluster.wait("one of them to begin", lambda: begun(cluster, [str(alices), str(bobs)]), 120)
    assert first == {str(bobs)}
    cluster.ok("scancel", str(alices), str(bobs))
    nothing_left(cluster, [running, alices, bobs])


ACTIONS = """select actions.kind, actions.ended - actions.created from actions
    join operations on operations.id = operation_id where job_id = ?"""


def happened(cluster: Cluster, job: int, kind: str) -> list[float]:
    """When this happened to a vjob, as the ledger has it."""
    return [
        float(time) for (time,) in ledger(cluster, "select time from events where vjob = ? and kind = ?", job, kind)
    ]


def hosts(cluster: Cluster, job: int) -> list[str]:
    """Where its VMs are."""
    return [host for (host,) in ledger(cluster, "select host from vms where job_id = ? order by idx", job)]


def test_with_pauses_a_short_vjob_runs_at_once_and_the_long_one_goes_on_in_its_place(pausing: Cluster) -> None:
    cluster = pausing
    wait_rooms(cluster)
    longs = fill(cluster)
    for job in longs:
        wait_number(cluster, job, 20)  # nobody is exempt any more
    before = {job: hosts(cluster, job) for job in longs}
    reactions, returns = [], []
    for _ in range(3):
        submitted = time.time()
        last = short(cluster)
        cluster.wait("its end", lambda job=last: cluster.job(job)["JobState"] == "COMPLETED", 120, lambda: why(cluster))
        [paused] = [job for job in longs if happened(cluster, job, "vjob-paused")[-1:] > [submitted]]
        assert cluster.vjob(paused) is not None
        cluster.wait_vjob(paused, "running", timeout_s=60)
        cluster.wait("Slurm", lambda job=paused: cluster.job(job)["JobState"] == "RUNNING", 20)
        reactions.append(round(happened(cluster, last, "script-started")[0] - submitted, 1))
        returns.append(
            round(happened(cluster, paused, "vjob-running")[-1] - happened(cluster, last, "script-ended")[0], 1)
        )
        ended_whole(cluster, last)
        wait_number(cluster, paused, 12)  # PreemptExemptTime
    assert {job: hosts(cluster, job) for job in longs} == before
    done = [each for job in longs for each in ledger(cluster, ACTIONS, job)]
    assert {kind for kind, _ in done} == {"run", "pause", "unpause"}
    pauses = [(kind, round(seconds, 2)) for kind, seconds in done if kind != "run"]
    print(f"from sbatch to the script: {reactions} s; from its end until the paused one runs: {returns} s; {pauses}")
    finish(cluster, *longs)
    for job in longs:
        ended_whole(cluster, job)
    nothing_left(cluster, longs)


#: The number of short vjobs that come one by one.
STREAM = 30


def figures(cluster: Cluster, jobs: Sequence[int]) -> tuple[float, float]:
    """Mean completion, and mean bounded slowdown, as the ledger has them: a pause is no run."""
    completions, slowdowns = [], []
    sql = "select state_since - submitted, ran_s from vjobs where job_id = ?"
    for job in jobs:
        [(completion, ran)] = ledger(cluster, sql, job)
        completions.append(completion)
        slowdowns.append(max(1.0, completion / max(ran, 10.0)))
    return round(mean(completions), 1), round(mean(slowdowns), 2)


def acts(cluster: Cluster, jobs: Sequence[int]) -> set[str]:
    """What was done to VMs of these vjobs."""
    return {kind for job in jobs for kind, _ in ledger(cluster, ACTIONS, job)}


def serve_stream(cluster: Cluster) -> tuple[list[int], list[int], list[float]]:
    """Long vjobs, and short ones that come as soon as the one before has ended and somebody may make way again."""
    longs, shorts, gaps = fill(cluster), [], []
    for job in longs:
        wait_number(cluster, job, 12)  # PreemptExemptTime
    places = {job: hosts(cluster, job) for job in longs}
    for _ in range(STREAM):
        came = time.time()
        shorts.append(short(cluster))
        wait_end(cluster, shorts[-1])
        for job in longs:
            cluster.wait_vjob(job, "running", timeout_s=60)
        gaps.append(time.time() - came)
    assert {job: hosts(cluster, job) for job in longs} == places
    return longs, shorts, gaps


def is_over(cluster: Cluster, job: int) -> bool:
    """Whether it has ended, as the ledger has it."""
    return ledger(cluster, "select state from vjobs where job_id = ?", job) == [("terminated",)]


def wait_end(cluster: Cluster, job: int) -> None:
    """A short one runs to its end, whole."""
    cluster.wait(f"{job} to end", lambda: cluster.job(job)["JobState"] == "COMPLETED", 120, lambda: why(cluster))
    output_is_whole(cluster, job)  # at once: Slurm forgets it soon


def all_whole(cluster: Cluster, longs: list[int], shorts: list[int]) -> tuple[float, float]:
    """The long ones are told to end; nothing was lost, nothing ran twice. Returns the figures of all."""
    finish(cluster, *longs)
    for job in shorts:
        cluster.wait(f"{job} to be over", lambda job=job: is_over(cluster, job), 300, lambda: why(cluster))
        output_is_whole(cluster, job)
    nothing_left(cluster, [*longs, *shorts])
    return figures(cluster, [*longs, *shorts])


@pytest.mark.timeout(5400)
def test_thirty_short_vjobs_come_one_by_one_and_end_sooner_than_with_preemptmode_off(pausing: Cluster) -> None:
    """The same short ones at the same distances beside long ones of the same length, from the ledger."""
    cluster = pausing
    wait_rooms(cluster)
    longs, shorts, gaps = serve_stream(cluster)
    paused = all_whole(cluster, longs, shorts)
    assert acts(cluster, longs) == {"run", "pause", "unpause", "stop"}
    assert acts(cluster, shorts) == {"run", "stop"}
    with edited(cluster) as change:
        set_mode(cluster, change, "OFF")
        longs = fill(cluster)
        for job in longs:
            wait_number(cluster, job, 12)
        shorts = []
        for gap in gaps:
            shorts.append(short(cluster))
            time.sleep(gap)
        assert acts(cluster, shorts) == set()
        waiting = all_whole(cluster, longs, shorts)
    assert acts(cluster, longs) == {"run", "stop"}
    print(f"mean completion and bounded slowdown of {STREAM} short and {len(longs)} long: {paused}, OFF: {waiting}")
    assert paused[0] < waiting[0]
    assert paused[1] < waiting[1]
