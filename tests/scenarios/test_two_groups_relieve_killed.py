"""Engines of two groups, killed at any instant while a vjob that runs changes groups: it is one group's, never lost."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from scenarios.test_two_groups_hand_over_killed import Sleepy, SleepyLed, all_delivered
from scenarios.test_two_groups_killed import Day, Led
from scenarios.test_two_groups_relieve import crowd, end_all, is_relieved, wish_relief
from scenarios.two_groups import HOSTS, GroupEngine, Site
from scenarios.world import spread

from rmsplugin.adapters.rms.base import JobState
from rmsplugin.groups.given import Place
from rmsplugin.groups.relieving import Hot
from rmsplugin.model.vjob import VJobState

S = VJobState
#: Of the instants of a life CI tries so many; and so many days by dice.
SAMPLE, DAYS = 6, 2


def relieve(site: Site, killed: str, kill_at: int | None, *, back: bool) -> int:
    """Have a vjob that runs change groups, and kill one engine meanwhile; ``back``: the wish is taken back first."""
    small, wide = crowd(site)
    wish_relief(site, small)
    site.say(small, Place("left"))
    engine = site.engines[killed]
    engine.start_engine(kill_at)
    life = engine.life
    wish_relief(site, small)
    if back:
        for _ in range(4):
            site.tick()
        site.say(small, Place("left"))
        site.tick()
        assert site.where(small).keys() <= {"left"}
        site.say(small, Place("left", "right", relieves=True))

    def arrives() -> bool:
        place = site.given.vjobs[small]
        if place == Place("left", "right", relieves=True) and site.where(small) == {"left": S.RUNNING}:
            # An engine that was killed names nobody until it has seen for a while who is left without room.
            site.engines["left"].territory.hot = Hot(wide, (small,))
        return is_relieved(site, small, wide)

    site.until(arrives)
    site.until(partial(all_delivered, site))
    instants = life.instants
    assert len(site.booted(small)) == len(site.booted(wide)) == 1
    end_all(site)
    return instants


@pytest.mark.parametrize(
    ("back", "one_store"), [(False, False), (True, False), (True, True)], ids=["once", "back", "back, one store"]
)
@pytest.mark.parametrize("killed", list(HOSTS))
@pytest.mark.timeout(900)
def test_killed_at_any_instant_while_a_vjob_that_runs_moves(
    directory: Path, whole: bool, killed: str, back: bool, one_store: bool
) -> None:
    def run(name: str, kill_at: int | None) -> int:
        (directory / name).mkdir()
        site = Site(directory / name, shared=one_store, is_domain=True)
        try:
            return relieve(site, killed, kill_at, back=back)
        except AssertionError as error:
            raise AssertionError(f"killed at instant {kill_at}: {error}") from error
        finally:
            site.close()

    total = run("0", None)
    assert total > 10
    for instant in spread(total, total if whole else SAMPLE):
        run(str(instant), instant)


class Relieved(Sleepy):
    """A day on which the leader also wishes vjobs elsewhere that run, and takes such wishes back."""

    SUBMITS = 5

    def acts(self) -> list[Callable[[], None]]:
        """See Day."""
        return [*super().acts(), self.relieve, self.relieve, self.relieve, self.relieve]

    def relieve(self) -> None:
        """Wish a vjob that runs elsewhere; its engine takes it to be in the way for a cycle."""
        name = self.dice.choice(list(HOSTS))
        engine = self.site.engines[name]
        others = [each for each in HOSTS if each != name]
        running = [
            vjob.job_id
            for vjob in engine.context.ledger.vjobs()
            if vjob.state is S.RUNNING and self.site.given.vjobs[vjob.job_id] == Place(name)
        ]
        if running:
            job = self.dice.choice(running)
            engine.alive(partial(engine.context.ledger.update_vjob, job, script_started=True))
            self.site.say(job, Place(name, self.dice.choice(others), relieves=True))
            engine.territory.hot = Hot(job, (job,))
            self.site.tick(name)


class RelievedLed(SleepyLed):
    """The same under the leader of the managers, which has a migration domain; on days that are not crowded.

    They begin with a vjob that waits, since its CPUs are free in two groups. What comes later has its CPUs somewhere.
    """

    SUBMITS, CYCLE_S = 8, 0.5
    #: CPUs of all nodes.
    CPUS = 8

    def __init__(self, site: Site, seed: int) -> None:
        crowd(site)
        super().__init__(site, seed)
        self.jobs += site.given.vjobs

    def acts(self) -> list[Callable[[], None]]:
        """See Day."""
        return [*super().acts(), *[self.wait_long] * 2]

    def submit(self) -> None:
        """Submit a vjob that has its CPUs somewhere."""
        rms = self.site.world.rms
        live = [job for job in map(rms.job, self.jobs) if job.state is not JobState.ENDED]
        if sum(job.cpus for job in live) + 2 <= self.CPUS:
            super().submit()

    def sleep(self) -> None:
        """Suspend a vjob, but seldom: one that was resumed makes room for nobody for a while."""
        if self.dice.randrange(6) == 0:
            super().sleep()

    def wait_long(self) -> None:
        """All engines and the leader are there, and all scripts have begun: who is in the way is named, and goes."""
        self.silences = ("",)
        for _ in range(12):
            for engine in self.site.engines.values():
                engine.alive(partial(_begin_scripts, engine))
            self.site.tick()
            self.hand_on()
        self.silences = (*HOSTS, "", "")


def _begin_scripts(engine: GroupEngine) -> None:
    for vjob in engine.context.ledger.vjobs():
        if vjob.state is S.RUNNING and not vjob.script_started:
            engine.context.ledger.update_vjob(vjob.job_id, script_started=True)


@pytest.mark.parametrize("kind", [Relieved, RelievedLed])
@pytest.mark.timeout(900)
def test_whatever_happens_a_vjob_that_is_to_go_runs_once_and_is_not_lost(
    directory: Path, whole: bool, kind: type[Day]
) -> None:
    handed = relieved = 0
    for seed in range(60 if whole else DAYS):
        (directory / str(seed)).mkdir()
        site = Site(directory / str(seed), is_domain=True)
        write = site.files.write
        written: list[str] = []

        def noted(epoch: int, text: str, write=write, written=written) -> None:  # type: ignore[no-untyped-def]
            written.append(text)
            write(epoch, text)

        site.files.write = noted  # type: ignore[method-assign]
        try:
            day = kind(site, seed)
            if isinstance(day, Led):
                site.hand_on = day.hand_on  # type: ignore[method-assign]
            day.live(150)
            handed += len({taken for engine in site.engines.values() for taken in site._taken(engine)})
            relieved += any('"relieves"' in text for text in written)
            site.until(partial(all_delivered, site))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        finally:
            site.close()
    print(f"\n{kind.__name__}: {handed} handed over, {relieved} days with a wish for one that runs")
    assert relieved >= 1 or (kind is RelievedLed and not whole)
