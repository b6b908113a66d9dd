"""Engines of two groups, killed at any instant while a sleeping vjob changes groups: it is one group's, never lost."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from scenarios.test_two_groups_hand_over import asleep, parcels
from scenarios.test_two_groups_killed import Day, Led
from scenarios.two_groups import HOSTS, Site
from scenarios.world import spread

from rmsplugin.errors import RefusedError
from rmsplugin.model.vjob import VJobState

S = VJobState
#: Of the instants of a life CI tries so many; and so many days by dice.
SAMPLE, DAYS = 6, 1


def all_delivered(site: Site) -> bool:
    """Whether nothing is on the way between groups."""
    return parcels(site) == []


def move(site: Site, killed: str, kill_at: int | None, *, back: bool) -> int:
    """Hand a sleeping vjob over, and kill one engine meanwhile; ``back``: the wish is taken back first."""
    job = asleep(site)
    engine = site.engines[killed]
    engine.start_engine(kill_at)
    life = engine.life
    site.wish(job, "right")
    if back:
        for _ in range(6):
            site.tick()
        site.wish(job, None)
        site.tick()
        assert site.where(job).keys() <= {"left"}
        site.wish(job, "right")
    site.until(lambda: site.where(job) == {"right": S.RUNNING})
    site.until(lambda: parcels(site) == [])
    instants = life.instants
    for vjob in [vjob for each in site.engines.values() for vjob in each.context.ledger.vjobs()]:
        site.world.rms.finish(vjob.job_id)
    site.until(lambda: not any(each.context.ledger.vjobs() for each in site.engines.values()))
    assert site.where(job) == {"right": S.TERMINATED}
    assert len(site.booted(job)) == 1
    site.until(lambda: site.world.leftovers() == [])
    return instants


@pytest.mark.parametrize(
    ("back", "one_store"), [(False, False), (True, False), (True, True)], ids=["once", "back", "back, one store"]
)
@pytest.mark.parametrize("killed", list(HOSTS))
@pytest.mark.timeout(600)
def test_killed_at_any_instant_while_a_sleeping_vjob_moves(
    directory: Path, whole: bool, killed: str, back: bool, one_store: bool
) -> None:
    def run(name: str, kill_at: int | None) -> int:
        (directory / name).mkdir()
        site = Site(directory / name, shared=one_store)
        try:
            return move(site, killed, kill_at, back=back)
        except AssertionError as error:
            raise AssertionError(f"killed at instant {kill_at}: {error}") from error
        finally:
            site.close()

    total = run("0", None)
    assert total > 10
    for instant in spread(total, total if whole else SAMPLE):
        run(str(instant), instant)


class Sleepy(Day):
    """A day on which vjobs are also suspended, to go on when there is room; and wished elsewhere as they sleep."""

    SUBMITS = 4

    def acts(self) -> list[Callable[[], None]]:
        """See Day."""
        return [*super().acts(), self.sleep, self.sleep, self.sleep, self.wish_sleepers, self.wish_sleepers]

    def sleep(self) -> None:
        """Suspend a vjob; one that is in the way of nobody is resumed soon."""
        engine = self.site.engines[self.dice.choice(list(HOSTS))]
        running = [vjob for vjob in engine.context.ledger.vjobs() if vjob.state is S.RUNNING]
        if running:
            vjob = self.dice.choice(running)
            with suppress(RefusedError):
                engine.alive(partial(engine.context.ledger.update_vjob, vjob.job_id, script_started=True))
                engine.alive(partial(engine.placing.suspend, vjob, "asked", "root", resumes=True))

    def wish_sleepers(self) -> None:
        """Wish what sleeps elsewhere."""
        for name, engine in self.site.engines.items():
            for vjob in engine.context.ledger.vjobs():
                place = self.site.given.vjobs.get(vjob.job_id)
                if vjob.state is S.SLEEPING and place is not None and place.group == name:
                    self.site.wish(vjob.job_id, self.dice.choice([each for each in HOSTS if each != name]))
                    return


class SleepyLed(Sleepy, Led):
    """The same under the leader of the managers."""

    SUBMITS, CYCLE_S = 6, 0.0

    def wish_sleepers(self) -> None:
        """The leader does, when it has heard all for a while."""
        self.silences = ("",)
        for _ in range(4):
            self.site.tick()
            self.hand_on()
        self.silences = (*HOSTS, "", "")


@pytest.mark.parametrize("kind", [Sleepy, SleepyLed])
@pytest.mark.timeout(600)
def test_whatever_happens_a_vjob_that_sleeps_runs_once_and_is_not_lost(
    directory: Path, whole: bool, kind: type[Day]
) -> None:
    handed = 0
    for seed in range(100 if whole else DAYS):
        (directory / str(seed)).mkdir()
        site = Site(directory / str(seed))
        try:
            day = kind(site, seed)
            if isinstance(day, Led):
                site.hand_on = day.hand_on  # type: ignore[method-assign]
            day.live(150)
            handed += len({taken for engine in site.engines.values() for taken in site._taken(engine)})
            site.until(partial(all_delivered, site))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        finally:
            site.close()
    assert handed >= 10 or not whole, "vjobs that slept went to other groups"
