"""Faults in the middle of a relief: whoever fails, the vjob that goes is one group's, runs once and counts on."""

from __future__ import annotations

import time

import pytest
from e2e.live import faults
from e2e.live.dice import CUT, KILL, STOP
from e2e.live.site import CONTROLLERS, Keeper, Site
from e2e.managers import (
    Manager,
    Watched,
    cluster,
    end_well,
    explained,
    groups,
    have_both,
    leader,
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
    fault,
    fill,
    that_waits,
    wait_acting,
)
from e2e.rooms import wait_number

__all__ = ["cluster", "managers", "no_wrapper_on_front2"]

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(1800)]

#: A session, the longest command, and 5 s: after so long each group acts again. With others on the CPUs it is later.
BOUND_S = 6 + 5 + 5
#: What is stopped or cut off stays so for so long.
AWAY_S = 20.0


@pytest.fixture(scope="module")
def journal(cluster: Site, managers: dict[str, Manager]) -> Journal:
    """Of all cases: each of them reads on."""
    return Journal(cluster)


@pytest.mark.parametrize(
    ("who", "way", "at"),
    [
        ("giver", CUT, SUSPENDING),
        ("giver", KILL, SUSPENDING),
        ("leader", KILL, WISHED),
        ("leader", STOP, COPYING),
        ("taker", KILL, PACKED),
        ("ensemble", KILL, SUSPENDING),
        ("quorum", KILL, COPYING),
        ("quorum", STOP, PACKED),
    ],
)
def test_a_vjob_that_makes_room_is_one_groups_and_counts_on(
    cluster: Site, managers: dict[str, Manager], journal: Journal, who: str, way: str, at: str
) -> None:
    """``ensemble``: its leader; ``quorum``: two of its three servers."""
    have_both(cluster, managers)
    wide, stays, goes = fill(cluster)
    way_of_it, waits = Way(cluster, goes), that_waits(cluster)
    with Watched(cluster, goes) as watched:
        before = groups(cluster)
        struck = {"giver": before[GIVER]["host"], "taker": before[TAKER]["host"], "leader": leader(cluster)}.get(who)
        # A manager fails with its engines, or is cut off from the ensemble.
        throw = fault(("leader" if way == CUT else "halted") if struck else who, way)
        hosts = [struck] if struck else faults.places(cluster, throw)
        lost = {name: each["epoch"] for name, each in before.items() if each["host"] == struck}
        far = journal.wait_at(cluster, way_of_it, at, lambda: explained(cluster, managers))
        began = time.time()
        with faults.under(cluster, Keeper(cluster), throw, hosts):
            if who != "quorum":
                [other] = {*CONTROLLERS} - {struck or "head"}
                acted_s = wait_acting(cluster, other, lost, began, BOUND_S)
            if way != KILL or who == "quorum":
                time.sleep(max(0.0, began + AWAY_S - time.time()))
        if who == "quorum":
            acted_s = wait_acting(cluster, "head", {}, time.time(), BOUND_S)
        cluster.wait(
            "it to be in one group", way_of_it.is_over, 120, lambda: [way_of_it.states(), explained(cluster, managers)]
        )
        over_s = time.time() - began
        wait_number(cluster, goes, 3)
    [group] = way_of_it.states()
    print(
        f"\n{way} {who} ({', '.join(hosts)}, of {sorted(lost)}) when it was {far}: both groups act after "
        f"{acted_s:.1f} s (bound {BOUND_S} s); it runs in {group} after {over_s:.1f} s, "
        f"and stood still for {watched.longest_s:.1f} s"
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
