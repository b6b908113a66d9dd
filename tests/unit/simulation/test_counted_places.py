"""Counting places: what vjobs in transit hold, and whom of a queue a decision reaches."""

from __future__ import annotations

from rmsplugin.assessment.facts import VMFacts
from rmsplugin.model.elements import VM, WAITING, running_on
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import VJobState
from rmsplugin.simulation.capacity import Cluster
from rmsplugin.simulation.counted import places_left, places_of, reached
from rmsplugin.simulation.vjob import SimulatedVJob
from rmsplugin.workload.activity import Phase
from rmsplugin.workload.jobs import Job

ONE = Resources(1, 512)


def job(number: int, processors: int, memory_mib: int | None = None, preemptible: bool = True) -> Job:
    return Job(number, 0, 100, processors, 100, memory_mib, number, preemptible=preemptible)


def vjob(number: int, vms: int, state: VJobState = VJobState.WAITING, hosts: tuple[str, ...] = ()) -> SimulatedVJob:
    names = tuple(f"{number}-{index}" for index in range(vms))
    found = SimulatedVJob(number, job(number, vms), names, ONE, (Phase(100, (1.0,)),), state=state)
    found.hosts = dict(zip(names, hosts, strict=False))
    return found


def vm(holds: str = "", then: str | None = None) -> VMFacts:
    """One that holds memory on a node, and will on another ("": on none)."""
    will_hold = None if then is None else frozenset({then} - {""})
    return VMFacts(VM("x", ONE), running_on(holds) if holds else WAITING, frozenset({holds} - {""}), will_hold)


def test_places_are_counted_where_all_vms_are_alike_and_may_be_suspended() -> None:
    cluster = Cluster(3, 4, 3000)
    assert places_of([job(1, 2), job(2, 1)], cluster) == 4
    assert places_of([job(1, 2, 1000), job(2, 1, 1000)], cluster) == 3
    assert places_of([job(1, 2, 1000), job(2, 1, 100)], cluster) is None
    assert places_of([job(1, 2), job(2, 1, preemptible=False)], cluster) is None


def test_a_vm_that_boots_or_goes_has_its_place() -> None:
    assert places_left(3, 2, [vm("n1"), vm("n2", then="")], []) == 4


def test_a_place_that_is_given_back_and_promised_is_taken_once() -> None:
    assert places_left(3, 1, [vm("n1", then=""), vm("", then="n1")], []) == 2
    assert places_left(3, 1, [vm("n1", then=""), vm("", then="n2")], []) == 1


def test_a_vm_that_migrates_is_on_both_ends() -> None:
    assert places_left(3, 1, [vm("n1", then="n2")], []) == 1


def test_nothing_is_counted_where_who_goes_shares_cpus_with_who_has_come() -> None:
    here = vjob(1, 1, VJobState.RUNNING, ("n1",))
    assert places_left(3, 2, [vm("n1", then=""), vm("n1")], []) == 4
    assert places_left(3, 2, [vm("n1", then=""), vm("n1")], [here]) is None


def test_who_waits_and_finds_no_place_beside_those_ahead_is_left_out() -> None:
    runs, large, small = vjob(1, 3, VJobState.RUNNING), vjob(2, 3), vjob(3, 1)
    assert reached([runs, large, small], {}, 5) == ([runs, small], True)
    assert reached([runs, large, small], {}, 3) == ([runs], False)


def test_who_runs_and_makes_way_for_one_ahead_stays_in_the_queue() -> None:
    sleeps, runs = vjob(1, 3, VJobState.SLEEPING), vjob(2, 2, VJobState.RUNNING)
    assert reached([sleeps, runs], {}, 4) == ([sleeps, runs], True)


def test_who_sleeps_and_finds_no_place_stays_in_the_queue_and_changes_nothing() -> None:
    runs, sleeps = vjob(1, 3, VJobState.RUNNING), vjob(2, 2, VJobState.SLEEPING)
    assert reached([runs, sleeps], {}, 4) == ([runs, sleeps], False)


def test_who_is_in_transit_takes_no_place_a_second_time() -> None:
    boots, waits = vjob(1, 1, VJobState.STARTING), vjob(2, 2)
    assert reached([boots, waits], {boots}, 2) == ([boots, waits], True)
