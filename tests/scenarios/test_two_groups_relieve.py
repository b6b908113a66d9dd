"""A vjob that runs goes to another group, so that one that has room nowhere starts in its place. None is lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from scenarios.test_two_groups_hand_over import parcels, summary
from scenarios.test_two_groups_killed import Led
from scenarios.two_groups import Site

from rmsplugin.errors import OperationFailedError
from rmsplugin.groups.given import Place
from rmsplugin.groups.relieving import Hot
from rmsplugin.model.vjob import VJobState

S = VJobState


@pytest.fixture(params=[False, True], ids=["own stores", "one store"])
def site(directory: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    site = Site(directory, shared=request.param, is_domain=True)
    yield site
    site.close()


def start(site: Site, group: str, cpus: int, memory_mib: int = 256) -> int:
    """A vjob that runs in a group."""
    job = site.world.submit(vms=1, cpus=cpus, memory_mib=memory_mib)
    site.give(job, group)
    site.until(lambda: site.where(job) == {group: S.RUNNING})
    engine = site.engines[group]
    engine.alive(lambda: engine.context.ledger.update_vjob(job, script_started=True))
    return job


def crowd(site: Site) -> tuple[int, int]:
    """A CPU is free in each group, on different nodes. Returns a vjob that has one, and one that needs two."""
    small = start(site, "left", 1)
    start(site, "left", 2, memory_mib=512)
    start(site, "right", 1)
    start(site, "right", 2, memory_mib=512)
    site.tick()  # the engines' summaries have all of them
    wide = site.world.submit(vms=1, cpus=2)
    site.give(wide, "left")
    return small, wide


def wish_relief(site: Site, small: int) -> None:
    """Have the leader wish it as soon as it was named."""
    site.until(lambda: (hot := site.engines["left"].territory.hot) is not None and small in hot.vjobs)
    site.say(small, Place("left", "right", relieves=True))


def is_relieved(site: Site, small: int, wide: int) -> bool:
    """Whether each of the two runs where it can."""
    return (site.where(small), site.where(wide)) == ({"right": S.RUNNING}, {"left": S.RUNNING})


def end_all(site: Site) -> None:
    """Have all vjobs end; nothing is left of them."""
    for vjob in [vjob for each in site.engines.values() for vjob in each.context.ledger.vjobs()]:
        site.world.rms.finish(vjob.job_id)
    site.until(lambda: not any(each.context.ledger.vjobs() for each in site.engines.values()))
    site.until(lambda: parcels(site) == [])
    site.until(lambda: site.world.leftovers() == [])


def test_a_vjob_that_runs_makes_room_by_going_to_the_other_group(site: Site) -> None:
    small, wide = crowd(site)
    wish_relief(site, small)
    site.until(lambda: is_relieved(site, small, wide))
    assert len(site.booted(small)) == 1
    assert site.given.vjobs[small].group == "right"
    told = [event.message for event in site.engines["left"].context.ledger.events(vjob=str(small))]
    assert any(f"vjob {wide} waits for its room in this one" in what for what in told), told
    end_all(site)


def test_the_leader_moves_it_when_it_was_named_for_long_enough_and_not_again(site: Site) -> None:
    small, wide = crowd(site)
    day = Led(site, 0)
    day.silences, day.CYCLE_S = ("",), 10.0
    day.lead()
    site.hand_on = day.hand_on  # type: ignore[method-assign]
    site.until(lambda: is_relieved(site, small, wide))
    moved, version = day.moved, site.given.version
    for _ in range(5):
        site.tick()
        site.hand_on()
    assert (day.moved, is_relieved(site, small, wide)) == (moved, True)
    assert site.given.version[1] <= version[1] + 1, "the parcel is not named any more, and nothing else is written"
    assert len(site.booted(small)) == 1


def test_a_group_of_no_migration_domain_names_nobody(directory: Path) -> None:
    site = Site(directory)
    small, _ = crowd(site)
    for _ in range(80):
        site.tick("left")
    assert summary(site, "left")[1].hot is None
    site.say(small, Place("left", "right", relieves=True))
    site.tick("left")
    assert site.where(small) == {"left": S.RUNNING}
    site.close()


def test_a_vjob_that_is_not_in_the_way_any_more_is_not_suspended(site: Site) -> None:
    small, wide = crowd(site)
    site.until(lambda: site.engines["left"].territory.hot is not None)
    site.world.rms.cancel(wide)
    site.until(lambda: site.where(wide) == {"left": S.TERMINATED})
    site.say(small, Place("left", "right", relieves=True))
    site.tick("left")
    assert site.where(small) == {"left": S.RUNNING}
    assert small not in summary(site, "left")[1].going, "the leader takes the wish back"


def test_a_vjob_that_the_last_decision_has_not_named_is_not_suspended(site: Site) -> None:
    small, wide = crowd(site)
    left = site.engines["left"]
    (other,) = (vjob.job_id for vjob in left.context.ledger.vjobs() if vjob.job_id not in (small, wide))
    site.until(lambda: left.territory.hot is not None)
    left.territory.hot = Hot(wide, (other,))
    site.say(small, Place("left", "right", relieves=True))
    site.tick("left")
    assert site.where(small) == {"left": S.RUNNING}


def test_while_it_is_suspended_to_go_its_engine_says_so(site: Site) -> None:
    small, _ = crowd(site)
    wish_relief(site, small)
    left = site.engines["left"]
    site.tick("right")
    left.territory.hear()
    left.cycle.run()
    assert summary(site, "left")[1].going == {small}
    left.tick()
    assert site.where(small) in ({"left": S.SUSPENDING}, {"left": S.SLEEPING}, {})


@pytest.mark.parametrize("ticks", [1, 2, 3])
def test_a_wish_that_is_taken_back_lets_it_go_on_where_it_was(site: Site, ticks: int) -> None:
    small, wide = crowd(site)
    wish_relief(site, small)
    for _ in range(ticks):
        site.tick("left")
    site.say(small, Place("left"))
    site.until(lambda: site.where(wide) == {"left": S.RUNNING} or site.where(small) == {"left": S.RUNNING})
    site.world.rms.finish(wide)
    site.until(lambda: site.where(small) == {"left": S.RUNNING})
    site.until(lambda: parcels(site) == [])
    assert len(site.booted(small)) == 1
    assert site.states_in("right", small) == []
    end_all(site)


@pytest.mark.parametrize("ticks", [0, 1, 2, 3, 4])
def test_a_job_that_ends_on_its_way_ends_everywhere(site: Site, ticks: int) -> None:
    small, wide = crowd(site)
    wish_relief(site, small)
    for _ in range(ticks):
        site.tick()
        site.hand_on()
    site.world.rms.cancel(small)
    site.until(lambda: site.ended(small) and {*site.where(small).values()} <= {S.TERMINATED})
    site.until(lambda: site.where(wide) == {"left": S.RUNNING})
    end_all(site)


def test_one_whose_states_cannot_be_copied_goes_on_where_it_was(site: Site) -> None:
    small, wide = crowd(site)
    for _ in range(4):
        site.world.nodes.fail_next(site.sending, OperationFailedError("its store is full"))
    wish_relief(site, small)
    left = site.engines["left"]
    site.until(lambda: bool(left.context.ledger.relocations(small)))
    site.tick("left")
    assert small not in summary(site, "left")[1].going, "the leader takes the wish back"
    site.say(small, Place("left"))
    site.until(lambda: site.where(wide) == {"left": S.RUNNING} or site.where(small) == {"left": S.RUNNING})
    site.world.rms.finish(wide)
    site.until(lambda: site.where(small) == {"left": S.RUNNING})
    assert len(site.booted(small)) == 1


def test_one_that_came_does_not_go_again_for_ten_minutes(site: Site) -> None:
    small, wide = crowd(site)
    wish_relief(site, small)
    site.until(lambda: is_relieved(site, small, wide))
    right = site.engines["right"]
    assert right.cycle._handing is not None
    vjob = right.context.ledger.vjob(small)
    assert not right.cycle._handing.may_leave(vjob)
    site.world.time += 601.0
    assert right.cycle._handing.may_leave(vjob)


def test_a_node_that_dies_under_it_leaves_one_vjob_that_begins_again(site: Site) -> None:
    small, _ = crowd(site)
    wish_relief(site, small)
    (vm,) = site.engines["left"].context.ledger.vms(small)
    site.world.kill_node(vm.host)
    site.until(lambda: site.where(small).keys() <= {"left"} and site.where(small) != {"left": S.RUNNING})
    site.say(small, Place("left"))
    for _ in range(5):
        site.tick()
        site.hand_on()
    assert site.where(small).keys() == {"left"}


def test_a_vjob_of_a_node_that_leaves_is_saved_and_goes_to_the_other_group(site: Site) -> None:
    """Its group has no other node: that it was suspended needs no wish, and then it goes as all that sleep."""
    day = Led(site, 0)
    day.silences, day.CYCLE_S = ("",), 0.0
    wide = start(site, "left", 2)
    goes = start(site, "left", 2)
    day.lead()
    site.hand_on = day.hand_on  # type: ignore[method-assign]
    (vm,) = site.engines["left"].context.ledger.vms(goes)
    site.world.rms.set_node(vm.host, draining=True, reason="new disk")
    site.until(lambda: site.where(goes) == {"right": S.RUNNING})
    assert site.where(wide) == {"left": S.RUNNING}
    assert len(site.booted(goes)) == 1


def test_where_the_administrators_have_switched_suspends_off_nobody_is_named(site: Site) -> None:
    small, _ = crowd(site)
    site.until(lambda: site.engines["left"].territory.hot is not None)
    partitions = site.world.rms.partitions
    partitions["vjob"] = replace(partitions["vjob"], preempt_mode="OFF")
    site.tick("left")
    assert site.engines["left"].territory.hot is None
    site.say(small, Place("left", "right", relieves=True))
    site.tick("left")
    assert site.where(small) == {"left": S.RUNNING}


def test_a_group_tells_whom_it_would_suspend_for_whom(site: Site) -> None:
    small, wide = crowd(site)
    site.until(lambda: site.engines["left"].territory.hot is not None)
    hot = summary(site, "left")[1].hot
    assert hot is not None and (hot.waits, hot.vjobs[0]) == (wide, small)
    assert summary(site, "right")[1].hot is None
    left = site.engines["left"]
    hot_group, deciding = left.cycle._hot_group, left.cycle.deciding
    assert hot_group is not None and deciding.groups is not None
    hot_group.tell_who_is_in_the_way(deciding.groups.configuration, deciding.told, is_quiet=True)
    assert left.territory.hot is None, "in quiet hours nobody makes way"
    hot_group.tell_who_is_in_the_way(deciding.groups.configuration, deciding.told, is_quiet=False)
    assert left.territory.hot == hot
    hot_group.forget()
    assert left.territory.hot is None
    site.until(lambda: summary(site, "left")[1].hot == hot)
    left.context.ledger.update_vjob(small, preference="running")
    site.tick("left")
    assert small not in getattr(summary(site, "left")[1].hot, "vjobs", ())
