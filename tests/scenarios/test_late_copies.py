"""A copy of a state that arrives after the order to remove it: it goes when its vjob has ended, and not before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from scenarios.test_times_of_day import job_of, run
from scenarios.test_two_groups_hand_over import asleep, parcels
from scenarios.two_groups import HOSTS, Site

from rmsplugin.engine.ledger.rows import RunState
from rmsplugin.errors import UnavailableError
from rmsplugin.groups.given import Place
from rmsplugin.model.vjob import VJobState

S = VJobState


@pytest.fixture(params=[False, True], ids=["own stores", "one store"])
def site(directory: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    site = Site(directory, shared=request.param)
    yield site
    site.close()


def late(site: Site) -> int:
    """A vjob that sleeps in the left group, with a copy of its state in the right one that nobody knows of."""
    job, files = asleep(site), site.world.files
    site.wish(job, "right")
    site.tick("right")  # sets up its stores
    site.tick("left")
    [path] = {*site.states_in("right", job)}
    copies = {node: state for node in HOSTS["right"] if (state := files.get(node, path)) is not None}
    site.wish(job, None)
    site.until(lambda: parcels(site) == [] and site.states_in("right", job) == [])
    for node, state in copies.items():
        files.put(node, path, state)
    return job


def end(site: Site, job: int, detail: str = "COMPLETED") -> None:
    """Have it end, so long ago that slurmctld does not know it any more."""
    site.world.rms.finish(job, detail)
    site.until(lambda: site.where(job) == {"left": S.TERMINATED})
    site.world.rms.forget(job)
    site.tick()


def swept(site: Site) -> str:
    """What the right group's sweep says."""
    engine = site.engines["right"]
    found = run(engine, job_of(engine, "sweep"))
    assert found.state is RunState.DONE
    return found.result


def is_left_alone(site: Site, job: int) -> bool:
    said = f"left alone 1 states of vjobs that the ledger does not know (vjob{job}-0)" in swept(site)
    assert said == (site.states_in("right", job) != [])
    return said


def test_it_is_removed_once_its_vjob_has_ended_and_slurmctld_has_forgotten_the_job(site: Site) -> None:
    job = late(site)
    assert is_left_alone(site, job), "it sleeps in the other group"
    site.world.rms.finish(job)
    site.until(lambda: site.where(job) == {"left": S.TERMINATED})
    assert is_left_alone(site, job), "slurmctld knows it, and may queue it again"
    site.world.rms.forget(job)
    assert "removed 1 saved states of vjobs that have ended" in swept(site)
    assert site.states_in("right", job) == []


def test_an_end_that_proves_nothing_removes_nothing(site: Site) -> None:
    job = late(site)
    end(site, job, "CANCELLED")  # a slurmctld that has thrown its jobs away leaves this word, too
    assert is_left_alone(site, job)


def test_without_accounting_or_an_answer_nothing_is_removed(site: Site) -> None:
    job, rms = late(site), site.world.rms
    end(site, job)
    rms.accounting = False
    assert is_left_alone(site, job)
    rms.accounting = True
    rms.fail_next("jobs", UnavailableError("slurmctld does not answer"))
    assert is_left_alone(site, job)
    assert not is_left_alone(site, job)


@pytest.mark.parametrize("place", [Place("right"), Place("left", "right")])
def test_a_state_of_a_vjob_that_the_leader_gives_to_this_group_stays(site: Site, place: Place) -> None:
    """The ledger that does not know it is an old one, perhaps."""
    job = late(site)
    end(site, job)
    territory = site.engines["right"].territory
    territory._given = replace(territory._given, vjobs={**territory._given.vjobs, job: place})
    assert is_left_alone(site, job)
