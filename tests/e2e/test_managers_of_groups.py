"""Managers on two hosts: each group of VM hosts has an engine, and goes on at the other host when its manager dies."""

from __future__ import annotations

import json
import time

import pytest
from e2e.cluster import Cluster
from e2e.live.site import Site
from e2e.managers import (
    Manager,
    Watched,
    cluster,
    end_well,
    explained,
    group_of,
    groups,
    have_both,
    leader,
    managers,
    no_wrapper_on_front2,
    wait_groups,
    wait_shared_out,
)
from e2e.reliefs import fill, that_waits
from e2e.rooms import Machine, count, last_number, wait_number

from rmsplugin.engine.context.hearing import CANNOT_HEAR

__all__ = ["cluster", "managers", "no_wrapper_on_front2"]

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(1200)]


def test_a_group_is_handed_over_while_its_vjobs_run_and_goes_back(
    cluster: Cluster, managers: dict[str, Manager]
) -> None:
    wait_shared_out(cluster, managers)
    jobs = [count(cluster) for _ in range(3)]
    for job in jobs:
        wait_number(cluster, job, 2)
    before = groups(cluster)
    name, other = sorted(before, key=lambda each: before[each]["host"] == "head")  # that of front2, that of head
    told = cluster.plugin("handover", name, "--to", "head", "--json")
    assert told.code == 0, [told.err, explained(cluster, managers)]
    answer = json.loads(told.out)
    print(f"\n{name} is handed over to head in {answer['seconds']} s")
    assert (answer["group"], answer["from"], answer["to"]) == (name, "front2", "head")
    assert answer["epoch"] > before[name]["epoch"]
    assert groups(cluster)[name]["kept_on"] == "head"
    assert ", by order of root" in cluster.plugin("status").out
    # The loads are as even as they can be: the other group has gone in exchange.
    wait_groups(cluster, managers, {name: "head", other: "front2"})
    kept = groups(cluster)[name]["epoch"]
    told = cluster.plugin("handover", "--all", "--to", "head")
    assert told.code == 0, [told.err, explained(cluster, managers)]
    assert [line.partition(" with")[0] for line in told.out.splitlines()] == [
        f"group {each} is on head" for each in (name, other)
    ]
    assert groups(cluster)[name]["epoch"] == kept, "the engine of the group that was there is not touched"
    wait_groups(cluster, managers, {name: "head", other: "head"})
    for words, why in {
        ("nowhere",): "there is no group nowhere: nothing was done",
        (name, "--to", "n1"): "no manager is on n1: nothing was done. Those that there are: front2, head",
    }.items():
        refused = cluster.plugin("handover", *words)
        assert (refused.code, why in refused.err) == (2, True), refused.err
    assert cluster.plugin("handover", name, user="alice").code == 1, "she is no operator"
    assert cluster.plugin("handover", "--all", "--to", "any").code == 0
    wait_shared_out(cluster, managers)
    for job in jobs:
        wait_number(cluster, job, 2)
    end_well(cluster, jobs)


def test_vjobs_run_in_groups_and_outlive_the_manager_of_theirs(cluster: Cluster, managers: dict[str, Manager]) -> None:
    jobs = [count(cluster) for _ in range(4)]
    for job in jobs:
        wait_number(cluster, job, 2)

    wait_shared_out(cluster, managers)
    for job in jobs:
        wait_number(cluster, job, 2)
    assert {group_of(cluster, job) for job in jobs} <= {"left", "right"}
    listed = (cluster.ask("/v1/vjobs") or {})["vjobs"]
    assert {each["job_id"] for each in listed} >= set(jobs)
    told = cluster.plugin("suspend", str(jobs[0]))
    assert told.code == 0, told.err

    Machine(cluster).lose("front2")
    wait_groups(cluster, managers, {"left": "head", "right": "head"})
    for job in jobs[1:]:
        wait_number(cluster, job, 2)
    told = cluster.plugin("resume", str(jobs[0]))
    assert told.code == 0, told.err
    end_well(cluster, jobs)


def test_a_vjob_that_sleeps_goes_to_a_group_of_another_manager_and_goes_on_there(
    cluster: Site, managers: dict[str, Manager]
) -> None:
    have_both(cluster, managers)
    there = [count(cluster, "-c", "2") for _ in range(3)]  # a whole node each
    for job in there:
        wait_number(cluster, job, 2)
    (goes,) = (job for job in there if group_of(cluster, job) == "left")
    told = cluster.plugin("suspend", str(goes))
    assert told.code == 0, told.err
    counted = last_number(cluster, goes)
    stays = count(cluster, "-c", "2")
    wait_number(cluster, stays, 2)
    assert group_of(cluster, stays) == "left", explained(cluster, managers)
    assert "it is resumed when its turn comes" in cluster.plugin("resume", str(goes)).err, "there is no room"

    end_well(cluster, [job for job in there if job != goes])
    ended = time.monotonic()
    wait_number(cluster, goes, 2)
    print(f"\nit goes on in the other group {time.monotonic() - ended:.1f} s after there was room")
    assert group_of(cluster, goes) == "right" and last_number(cluster, goes) > counted
    assert {each["host"] for each in groups(cluster).values()} == {"head", "front2"}
    assert [each.node for each in Machine(cluster).guests() if each.vm == f"vjob{goes}-0"] in (["n2"], ["n3"])
    end_well(cluster, [goes, stays])
    for job in (goes, stays):
        cluster.wait_gone(job)


def test_a_vjob_that_runs_goes_to_a_group_of_another_manager_so_that_one_with_room_nowhere_starts(
    cluster: Site, managers: dict[str, Manager]
) -> None:
    have_both(cluster, managers)
    wide, stays, goes = fill(cluster)
    waits, submitted = that_waits(cluster), time.monotonic()
    with Watched(cluster, goes) as watched:
        wait_number(cluster, waits)
        took_s = time.monotonic() - submitted
        cluster.wait(f"{goes} on n3", lambda: (cluster.vjob(goes) or {}).get("nodes") == ["n3"], 180)
        wait_number(cluster, goes, 3)
    print(
        f"\nthe vjob that went stood still for {watched.longest_s:.1f} s; "
        f"the other one counted {took_s:.1f} s after it came"
    )
    assert (watched.nodes, watched.twice) == (["n1", "n3"], [])
    assert (group_of(cluster, goes), group_of(cluster, waits)) == ("right", "left")
    told = [each["message"] for each in (cluster.ask(f"/v1/events?vjob={goes}") or {})["events"]]
    assert any(f"vjob {waits} waits for its room" in what for what in told), told
    end_well(cluster, [wide, stays, goes, waits])
    for job in (wide, stays, goes, waits):
        cluster.wait_gone(job)


def have_front2_lead(cluster: Site, managers: dict[str, Manager]) -> None:
    have_both(cluster, managers)
    if leader(cluster) != "front2":
        managers["head"].end()  # the lead goes over
        wait_groups(cluster, managers, {"left": "front2", "right": "front2"})
        have_both(cluster, managers)
    assert leader(cluster) == "front2"


def test_nothing_is_lost_where_munge_ends_on_the_host_of_the_manager_that_leads_and_the_other_one_leads(
    cluster: Site, managers: dict[str, Manager]
) -> None:
    """Longer than a wrapper may be silent."""
    have_front2_lead(cluster, managers)
    jobs = [count(cluster) for _ in range(4)]
    for job in jobs:
        wait_number(cluster, job, 2)
    [theirs] = (name for name, each in groups(cluster).items() if each["host"] == "front2")
    sleeps = next(job for job in jobs if group_of(cluster, job) == theirs)
    assert cluster.plugin("suspend", str(sleeps)).code == 0
    runs = [job for job in jobs if job != sleeps]
    hosts = {job: cluster.qemus(job) for job in runs}
    cluster.kill("front2", "munged")
    ended = time.monotonic()
    try:
        cluster.wait("it to be told", lambda: f"front2:6830 {CANNOT_HEAR}" in cluster.plugin("status").out, 60)
        waits = count(cluster)
        wait_groups(cluster, managers, {"left": "head", "right": "head"})
        print(f"\nboth groups act {time.monotonic() - ended:.1f} s after munge has ended")
        assert leader(cluster) == "head"
        told = cluster.plugin("status").out
        assert "the manager front2:6830 is unfit: it cannot hear: " in told, told
        assert {job: cluster.qemus(job) for job in runs} == hosts and cluster.qemus(sleeps) == []
        wait_number(cluster, waits, 3)
        assert cluster.plugin("resume", str(sleeps)).code == 0
        refused = cluster.plugin("handover", theirs, "--to", "front2")
        assert refused.code == 2 and "the manager on front2 is unfit: " in refused.err, refused.out + refused.err
        for job in runs:
            wait_number(cluster, job, 45)
        assert {cluster.job(job)["Restarts"] for job in (*jobs, waits)} == {"0"}
        end_well(cluster, [*jobs, waits])
    finally:
        cluster.start("front2", "munged")
    have_both(cluster, managers)
    assert leader(cluster) == "head", "the lead stays"


def test_the_host_of_the_manager_that_leads_is_lost_in_the_middle_of_a_switch(
    cluster: Site, managers: dict[str, Manager]
) -> None:
    have_front2_lead(cluster, managers)
    jobs = [count(cluster) for _ in range(4)]
    for job in jobs:
        wait_number(cluster, job, 2)
    theirs = next(name for name, each in groups(cluster).items() if each["host"] == "front2")
    sleeps = next(job for job in jobs if group_of(cluster, job) == theirs)
    others = [job for job in jobs if group_of(cluster, job) == "right" and job != sleeps]
    nodes = {job: cluster.qemus(job) for job in others}
    others.sort(key=lambda job: [*nodes.values()].count(nodes[job]), reverse=True)  # beside others: elsewhere is room
    for words in (("suspend", sleeps), *(("migrate", job) for job in others[:1])):
        told = cluster.plugin(words[0], str(words[1]), "--no-wait")
        assert told.code == 0, told.err

    Machine(cluster).lose("front2")
    lost = time.monotonic()
    wait_groups(cluster, managers, {"left": "head", "right": "head"})
    print(f"\nboth groups act {time.monotonic() - lost:.1f} s after the loss of the leading manager's host")
    assert leader(cluster) == "head"
    for job in jobs:
        if job != sleeps:
            wait_number(cluster, job, 2)
    cluster.wait(
        "the suspend to be carried out",
        lambda: (cluster.vjob(sleeps) or {})["state"] == "sleeping",
        180,
        lambda: explained(cluster, managers),
    )
    told = cluster.plugin("resume", str(sleeps))
    assert told.code == 0, told.err
    end_well(cluster, jobs)
