"""Faults in the middle of a relief: whoever fails, the vjob that goes is one group's, runs once and counts on."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from e2e.live.dice import CUT, KILL, STOP
from e2e.live.site import CONTROLLERS, Site
from e2e.managers import (
    Manager,
    Watched,
    cluster,
    end_well,
    ensemble,
    explained,
    groups,
    have_both,
    leader,
    logs,
    managers,
    no_wrapper_on_front2,
)
from e2e.reliefs import (
    COPYING,
    GIVER,
    PACKED,
    SUSPENDING,
    TAKER,
    WISHED,
    Journal,
    Way,
    fill,
    that_waits,
    under,
    wait_acting,
)
from e2e.rooms import wait_number

__all__ = ["cluster", "ensemble", "logs", "managers", "no_wrapper_on_front2"]

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(1800)]

#: A session, the longest command, and 5 s: after so long each group acts again. With others on the CPUs it is later.
BOUND_S = 6 + 5 + 5
#: What is stopped or cut off stays so for so long.
AWAY_S = 20.0


@pytest.fixture(scope="module")
def journal(cluster: Site, managers: dict[str, Manager], logs: Path) -> Journal:
    """Of all cases: each of them reads on."""
    return Journal(cluster, logs)


@pytest.mark.parametrize(
    ("who", "way", "at"),
    [
        ("giver", CUT, SUSPENDING),
        ("giver", KILL, SUSPENDING),
        ("leader", KILL, WISHED),
        ("leader", STOP, COPYING),
        ("taker", KILL, PACKED),
        ("ensemble", STOP, PACKED),
    ],
)
def test_a_vjob_that_makes_room_is_one_groups_and_counts_on(
    cluster: Site, managers: dict[str, Manager], logs: Path, journal: Journal, who: str, way: str, at: str
) -> None:
    have_both(cluster, managers, logs)
    wide, stays, goes = fill(cluster)
    way_of_it, waits = Way(cluster, goes), that_waits(cluster)
    with Watched(cluster, goes) as watched:
        before = groups(cluster)
        host = {"giver": before[GIVER]["host"], "taker": before[TAKER]["host"], "ensemble": "head"}.get(
            who, leader(cluster)
        )
        lost = {name: each["epoch"] for name, each in before.items() if each["host"] == host and who != "ensemble"}
        far = journal.wait_at(cluster, way_of_it, at, lambda: explained(cluster, managers))
        began = time.time()
        with under(cluster, None if who == "ensemble" else managers[host], way, host):
            if who != "ensemble":
                [other] = {*CONTROLLERS} - {host}
                acted_s = wait_acting(cluster, other, lost, began, BOUND_S)
            if way != KILL:
                time.sleep(max(0.0, began + AWAY_S - time.time()))
        if who == "ensemble":
            acted_s = wait_acting(cluster, host, {}, time.time(), BOUND_S)
        cluster.wait(
            "it to be in one group", way_of_it.is_over, 120, lambda: [way_of_it.states(), explained(cluster, managers)]
        )
        over_s = time.time() - began
        wait_number(cluster, goes, 3)
    [group] = way_of_it.states()
    print(
        f"\n{way} {who} ({host}, of {sorted(lost)}) when it was {far}: both groups act after {acted_s:.1f} s (bound "
        f"{BOUND_S} s); it runs in {group} after {over_s:.1f} s, and stood still for {watched.longest_s:.1f} s"
    )
    assert (watched.nodes, watched.twice) == (["n1", "n3"] if group == TAKER else ["n1"], [])
    end_well(cluster, [wide, stays, goes])
    wait_number(cluster, waits)
    end_well(cluster, [waits])
    for job in (wide, stays, goes, waits):
        cluster.wait_gone(job)
    journal.read()
    assert journal.actors(goes) == {GIVER, group}
    assert journal.breaches() == []
