"""Engines of two groups that are killed at any instant, and a leader that changes: a vjob is never two groups'."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from scenarios.two_groups import HOSTS, GroupEngine, Site
from scenarios.world import spread

from rmsplugin.adapters.rms.base import JobState
from rmsplugin.engine.serve.summary_view import summary_view
from rmsplugin.groups.forming import Formed, Group
from rmsplugin.groups.giving import Heard
from rmsplugin.groups.told import heard
from rmsplugin.manager.leader import Leader
from rmsplugin.manager.queue import SlurmQueue
from rmsplugin.model.vjob import VJobState

S = VJobState
#: Of the instants of a life CI tries so many; and so many days by dice.
SAMPLE, DAYS = 20, 6


def move_one(site: Site, group: str, kill_at: int | None) -> int:
    """Move a waiting vjob from a full group to the other one, of which one engine is killed; returns its instants."""
    blockers = [site.world.submit(vms=1, cpus=2) for _ in HOSTS["left"]]
    for job in blockers:
        site.give(job, "left")
    site.until(lambda: all(site.where(job) == {"left": S.RUNNING} for job in blockers))
    engine = site.engines[group]
    engine.start_engine(kill_at)
    life = engine.life
    job = site.world.submit(vms=1, cpus=2)
    site.give(job, "left")
    site.tick()
    site.wish(job, "right")
    site.until(lambda: site.where(job) == {"right": S.RUNNING})
    instants = life.instants
    while not (right := site.engines["right"]).context.ledger.vjob(job).script_started:
        right.alive(lambda: right.context.ledger.update_vjob(job, script_started=True))
        site.tick()
    for each in (*blockers, job):
        site.world.rms.finish(each)
    site.until(lambda: all(state is S.TERMINATED for each in (*blockers, job) for state in site.where(each).values()))
    assert site.where(job) == {"right": S.TERMINATED}
    assert not [call for call in site.world.hypervisor.calls if call[0] == "boot"][3:], "each VM was booted once"
    assert site.world.leftovers() == []
    return instants


@pytest.mark.parametrize("group", list(HOSTS))
@pytest.mark.timeout(600)
def test_killed_at_any_instant_while_a_vjob_moves(directory: Path, whole: bool, group: str) -> None:
    def run(name: str, kill_at: int | None) -> int:
        (directory / name).mkdir()
        site = Site(directory / name)
        try:
            return move_one(site, group, kill_at)
        except AssertionError as error:
            raise AssertionError(f"killed at instant {kill_at}: {error}") from error
        finally:
            site.close()

    total = run("0", None)
    assert total > 10
    for instant in spread(total, total if whole else SAMPLE):
        run(str(instant), instant)


class Day:
    """Jobs come and go, the leader gives and wishes, leaders and engines die, all by dice."""

    SUBMITS = 2  # how often jobs are submitted, beside other events

    def __init__(self, site: Site, seed: int) -> None:
        self.site, self.dice = site, Random(seed)
        self.jobs: list[int] = []
        self.new: list[int] = []
        self.moved = 0

    def live(self, events: int) -> None:
        """Live it, and see that all ends well."""
        acts = self.acts()
        for _ in range(events):
            self.dice.choice(acts)()
            self.site.look()
        while self.new:
            self.give()
        site = self.site
        for group in HOSTS:
            site.engines[group].life._kill_at = None
        site.until(self.is_over, ticks=250)
        for job in self.jobs:
            assert len(site.where(job)) == 1, f"vjob {job}: {site.where(job)}"
            assert len(site.booted(job)) == 1, f"the VM of vjob {job} was booted {site.booted(job)}"
        # What a vjob that went to another group has left behind goes once its old group has the proof that it arrived.
        site.until(lambda: site.world.leftovers() == [])

    def acts(self) -> list[Callable[[], None]]:
        """What may happen."""
        acts: list[Callable[[], None]] = [*[self.submit] * self.SUBMITS, self.give, self.give, self.wish, self.wish]
        return [*acts, self.kill, self.lead, self.finish, self.tick, self.tick, self.tick, self.hand_on]

    def submit(self) -> None:
        job = self.site.world.submit(vms=1, cpus=self.dice.choice((1, 2)))
        self.jobs.append(job)
        self.new.append(job)

    def give(self) -> None:
        if self.new:
            self.site.give(self.new.pop(0), self.dice.choice(list(HOSTS)))

    def wish(self) -> None:
        if given := [job for job in self.jobs if job not in self.new]:
            before = {job: place.group for job, place in self.site.given.vjobs.items()}
            self.site.wish(self.dice.choice(given), self.dice.choice([*HOSTS, None]))
            self.moved += before != {job: place.group for job, place in self.site.given.vjobs.items()}

    def hand_on(self) -> None:
        before = self.site.given
        self.site.hand_on()
        self.moved += before.version != self.site.given.version

    def kill(self) -> None:
        self.site.engines[self.dice.choice(list(HOSTS))].start_engine(self.dice.randrange(1, 60))

    def lead(self) -> None:
        self.site.lead()

    def tick(self) -> None:
        self.site.tick(self.dice.choice(list(HOSTS)))

    def finish(self, *groups: str) -> None:
        for group in groups or HOSTS:
            engine = self.site.engines[group]
            for vjob in engine.context.ledger.vjobs():
                if vjob.state is S.RUNNING and self.site.world.rms.job(vjob.job_id).state is JobState.RUNNING:
                    engine.alive(partial(self.script_ended, group, vjob.job_id))
                    return

    def script_ended(self, group: str, job: int) -> None:
        self.site.engines[group].context.ledger.update_vjob(job, script_started=True)
        self.site.world.rms.finish(job)

    def is_over(self) -> bool:
        """Whether all have ended; vjobs that run end one after the other."""
        self.finish()
        return all(self.site.ended(job) and {*self.site.where(job).values()} == {S.TERMINATED} for job in self.jobs)


class Led(Day):
    """A day on which the leader of the managers gives; groups may be silent, and old leaders go on writing."""

    SUBMITS = 8
    silences: Sequence[str] = (*HOSTS, "", "")
    CYCLE_S = 1e6  # so long no group is taken to have refused a vjob

    def __init__(self, site: Site, seed: int) -> None:
        super().__init__(site, seed)
        self.ends = list(HOSTS)[seed % 2]  # by day vjobs end in one group only: those that wait in the other one move
        self.leaders: list[Leader] = []
        self.lead()

    def lead(self) -> None:
        self.site.epoch += 1
        world, lease = self.site.world, SimpleNamespace(epoch=self.site.epoch, held=lambda: True)
        queue, grouping = SlurmQueue(world.settings, world.rms), SimpleNamespace(of=lambda seen: FORMED)
        self.leaders.append(
            Leader(
                cast(Any, lease),
                world.rms,
                cast(Any, grouping),
                queue,
                self.site.files,
                self.hear,
                lambda groups: None,
                self.CYCLE_S,
                world.settings.cluster.migration_domains,
                lambda: world.time,
            )
        )
        self.hand_on()

    def hear(self, groups: Collection[str]) -> dict[str, tuple[int, Heard]]:
        """What the engines that live say; one of them may be silent."""
        silent = self.dice.choice(self.silences)
        found: dict[str, tuple[int, Heard]] = {}

        def ask(name: str, engine: GroupEngine) -> None:
            context, decided = engine.context, engine.cycle.deciding.groups
            found[name] = heard(summary_view(context.ledger, context.territory, context.epoch, decided))

        for name, engine in self.site.engines.items():
            if name != silent and not engine.life.dead:
                engine.alive(partial(ask, name, engine))
        return found

    def hand_on(self) -> None:
        """The leader's turn; before, perhaps that of one which was followed."""
        before = self.site.given
        if self.dice.randrange(4) == 0:
            self.dice.choice(self.leaders).turn()
        self.leaders[-1].turn()
        assert self.leaders[-1].problems in [(), *((each,) for each in self.leaders[-1].problems if "answer" in each)]
        given = self.leaders[-1]._given
        assert given is not None
        self.site.given = given
        for job, place in given.vjobs.items():
            self.moved += job in before.vjobs and before.vjobs[job].group != place.group

    def finish(self, *groups: str) -> None:
        super().finish(*(groups or (self.ends,)))

    def is_over(self) -> bool:
        self.finish(*HOSTS)
        return super().is_over()

    def give(self) -> None:
        self.new.clear()
        self.hand_on()

    def wish(self) -> None:
        self.hand_on()


FORMED = Formed(tuple(Group(name, hosts) for name, hosts in HOSTS.items()))


@pytest.mark.timeout(600)
def test_whatever_happens_under_the_managers_leader_each_vjob_runs_once(directory: Path, whole: bool) -> None:
    moved = 0
    for seed in range(100 if whole else DAYS // 2):
        (directory / str(seed)).mkdir()
        site = Site(directory / str(seed))
        day = Led(site, seed)
        site.hand_on = day.hand_on  # type: ignore[method-assign]
        try:
            day.live(120)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        finally:
            site.close()
        moved += day.moved
    assert moved >= DAYS // 2, "vjobs went to other groups"


@pytest.mark.timeout(600)
def test_whatever_happens_each_each_vjob_runs_once_in_one_group(directory: Path, whole: bool) -> None:
    moved = 0
    for seed in range(100 if whole else DAYS):
        (directory / str(seed)).mkdir()
        site = Site(directory / str(seed))
        day = Day(site, seed)
        try:
            day.live(120)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        finally:
            site.close()
        moved += day.moved
    assert moved >= DAYS // 2, "vjobs went to other groups"
