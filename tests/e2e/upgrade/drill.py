"""Drill: the steps of docs/operator/upgrading.md, and what has to be true after each."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from e2e.rooms import count, finish, host_of, last_number, wait_number
from e2e.upgrade.site import Site

Say = Callable[[str], object]
#: Vjobs run for so many seconds longer than releases are mixed, at least: the other steps take minutes.
_BESIDE_S = 7200


def upgrade(cluster: Site, older: str, mixed_s: float, say: Say) -> None:
    """Upgrade controller, fronts and VM hosts while vjobs run and sleep.

    Args:
        cluster: of the older release, up and idle, with two fronts and three VM hosts.
        older: the version that it says it has.
        mixed_s: how long the newer engine works with older fronts and VM hosts, in seconds at least.
        say: takes a sentence about each step.

    Raises:
        AssertionError: something was lost, or is not as the guide says.
    """
    up_to = longest(mixed_s)
    runs, moves, sleeps = (counting(cluster, up_to) for _ in range(3))
    ordered(cluster, "suspend", sleeps, "sleeping")
    say(f"{older}: two vjobs run, one sleeps")
    judge_before(cluster, older, say)

    assert cluster.manage("stop", "head", "engine").code == 0
    waits = count(cluster, up_to=up_to)
    before = last_number(cluster, runs)
    cluster.install("head")
    cluster.copy_files()
    cluster.restart_engine()
    say("the controller and its front have the newer release; a job was submitted meanwhile")
    wait_number(cluster, runs, 2)
    assert last_number(cluster, runs) > before
    wait_number(cluster, waits)
    assert cluster.plugin("ledger", "check").code == 0
    assert_names_older_nodes(cluster, older)

    work_mixed(cluster, mixed_s, moves, [runs, waits], say)

    cluster.install("front2")
    upgrade_nodes(cluster, moves, say)
    ordered(cluster, "resume", sleeps, "running")
    wait_number(cluster, sleeps, 2)
    last = counting(cluster, up_to)
    assert_no_errors(cluster)
    assert_whole(cluster, [runs, moves, sleeps, waits, last])
    say("all ended whole, with one start each, and nothing of them is left")


def longest(mixed_s: float) -> int:
    """The most numbers that a vjob counts to, one in a second of its own time, which no drill lasts for."""
    return round(mixed_s) + _BESIDE_S


def work_mixed(cluster: Site, mixed_s: float, moves: int, run_on: list[int], say: Say) -> None:
    """Order context switches of ``moves`` with two releases in the site, for so long at least; others run on."""
    until = time.monotonic() + mixed_s
    rounds = 0
    while time.monotonic() < until or not rounds:
        rounds += 1
        switch(cluster, moves, say)
        for job in run_on:
            wait_number(cluster, job, 3)
    say(f"{rounds} rounds of suspend, resume and migrate with the older release beside the newer one")


def upgrade_nodes(cluster: Site, moves: int, say: Say) -> None:
    """Upgrade the VM hosts one by one, with context switches of ``moves`` after each."""
    for node in cluster.nodes:
        cluster.install(node)
        switch(cluster, moves, say)
        say(f"{node} has the newer release")


def assert_no_errors(cluster: Site) -> None:
    """`rmsplugin check` finds none."""
    told = cluster.plugin("check", "--json")
    errors = [each for each in json.loads(told.out)["findings"] if each["level"] == "error"]
    assert errors == [], errors


def judge_before(cluster: Site, older: str, say: Say) -> None:
    """The newer release's look at the older one's site, before anything is stopped."""
    told = cluster.newer("check", "--upgrade")
    assert told.code == 0, f"{told.out}\n{told.err}"
    say(told.out.rstrip())
    for words in ("ledger: ", f"engine: is of release {older}", f"that answer are of release {older}"):
        assert words in told.out, f"{words!r} is not said"


def assert_names_older_nodes(cluster: Site, older: str) -> None:
    """`rmsplugin check` names each node that was not upgraded yet."""
    told = cluster.plugin("check", "--json")
    findings = json.loads(told.out)["findings"]
    named = {each["subject"] for each in findings if f"has rmsplugin {older}" in each["what"]}
    assert named == {f"node {node}" for node in cluster.nodes}, told.out


def switch(cluster: Site, job: int, say: Say) -> None:
    """Suspend, resume and migrate the vjob: each works, or says why not and leaves it running."""
    for order, state in (("suspend", "sleeping"), ("resume", "running"), ("migrate", "running")):
        was = host_of(cluster, job)
        told = cluster.plugin(order, str(job))
        if told.code != 0:
            say(f"{order} on {was}: {told.err.strip()}")
            assert "Traceback" not in told.err, told.err
            assert "release" in told.err, f"the sentence does not say what is missing: {told.err}"
            state = "running"
        cluster.wait_vjob(job, state, timeout_s=300)
    wait_number(cluster, job, 2)


def counting(cluster: Site, up_to: int) -> int:
    """A vjob that has begun to count; it ends by itself after so many seconds of its own time."""
    job = count(cluster, up_to=up_to)
    wait_number(cluster, job)
    return job


def ordered(cluster: Site, order: str, job: int, state: str) -> None:
    told = cluster.plugin(order, str(job))
    assert told.code == 0, told.err
    cluster.wait_vjob(job, state, timeout_s=300)


def assert_whole(cluster: Site, jobs: list[int]) -> None:
    """All end; output, accounting and nodes are as if there had been no upgrade."""
    finish(cluster, *jobs)
    for job in jobs:
        cluster.wait_gone(job)
        cluster.accounted(job, "JobID")
        rows = cluster.sacct(job, "JobID,State", "--duplicates")
        assert [row["State"] for row in rows] == ["COMPLETED"], rows
