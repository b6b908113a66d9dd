"""A front that the network keeps away from the engine: its wrappers are not silent, and their jobs go on."""

from __future__ import annotations

import pytest
from scenarios.test_deaf_engine import requeued
from scenarios.world import World

from rmsplugin.engine.context.fronts import KNOCK_PERIOD_S


class Cut:
    """The network between the engine and all fronts."""

    def __init__(self, world: World) -> None:
        self.world, self.away = world, False
        world.context.fronts._knock = lambda host, port: bool(host) and port == 6818 and not self.away

    def pass_time(self, seconds: float) -> None:
        """Cycles and knocks, each in its period."""
        until = self.world.time + seconds
        while self.world.time < until:
            self.world.tick(KNOCK_PERIOD_S)
            self.world.context.fronts.knock_at_all()


@pytest.mark.parametrize("cut_s", [10, 15, 600])
def test_wrappers_of_a_front_that_was_cut_off_are_not_silent_during_the_cut_nor_right_after_it(
    world: World, cut_s: int
) -> None:
    jobs, cut = [world.running(memory_mib=64) for _ in range(3)], Cut(world)
    world.wrappers_answer = False
    cut.pass_time(18)  # so long they may have said nothing before
    cut.away = True
    cut.pass_time(cut_s)
    cut.away = False
    cut.pass_time(20)  # until they say something again
    assert requeued(world, *jobs) == [False] * 3
    world.wrappers_answer = True
    cut.pass_time(60)
    assert requeued(world, *jobs) == [False] * 3


def test_a_wrapper_that_says_nothing_though_its_front_answers_is_missed(world: World) -> None:
    job, cut = world.running(), Cut(world)
    world.wrappers_answer = False
    cut.pass_time(world.settings.engine.orphan_s)
    assert requeued(world, job) == [False], "its front has not answered for long enough"
    cut.pass_time(20)
    assert requeued(world, job) == [True]


def test_a_wrapper_that_has_told_of_the_scripts_end_may_be_gone_before_slurm_tells_of_it(world: World) -> None:
    """Seen: slurmd could not tell slurmctld of the end for 30 s, and a job that was over was requeued."""
    job, cut = world.running(), Cut(world)
    world.context.ledger.update_vjob(job, finished=True, finished_at=world.context.clock.now(), exit_code=0)
    world.wrappers_answer = False
    cut.pass_time(80)
    world.context.hearing.note_deaf("Slurm did not answer `scontrol` within 5 s", world.context.clock.now())
    cut.pass_time(80)
    assert requeued(world, job) == [False]
    cut.pass_time(50)
    assert requeued(world, job) == [True], "it is not waited for for ever"


def test_it_is_missed_after_a_cut_as_well(world: World) -> None:
    job, cut = world.running(), Cut(world)
    world.wrappers_answer, cut.away = False, True
    cut.pass_time(60)
    assert requeued(world, job) == [False]
    cut.away = False
    cut.pass_time(world.settings.engine.orphan_s + 2 * KNOCK_PERIOD_S)
    assert requeued(world, job) == [True]
