"""A manager tells its engines of changes as soon as the leader does, and asks once for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest
from patience import PATIENCE_S

from rmsplugin.errors import UnavailableError
from rmsplugin.manager import pulse
from rmsplugin.manager.handing import Handed
from rmsplugin.manager.pulse import SharedPulse


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing ends, or is too old, because this machine is busy."""
    for name in ("_HOLD_S", "_LEADER_S", "_GOOD_S"):
        monkeypatch.setattr(pulse, name, PATIENCE_S)


class World:
    """A manager and the one that leads; ``asks``: what the first one has asked the other."""

    def __init__(self) -> None:
        self.queue, self.asks = "jobs", list[str]()
        self.leader = self.make("leader", leads=True)
        self.other = self.make("other", leads=False)

    def make(self, name: str, *, leads: bool) -> SharedPulse:
        lease = SimpleNamespace(held=lambda: leads, epoch=5)
        site = cast(Any, SimpleNamespace(name=name, leader="leader", lease=lease))
        return SharedPulse(site, cast(Any, self), self.tell, 1e9)

    def tell(self) -> str:
        if not self.queue:
            raise UnavailableError("squeue has ended")
        return self.queue

    async def ask_manager(self, name: str, request: Handed) -> dict[str, Any]:
        assert (name, request.method, request.target.endswith("&handed=1")) == ("leader", "GET", True)
        known = request.target.partition("after=")[2].removesuffix("&handed=1")
        self.asks.append(known)
        return await self.leader.answer(known, asks_on=False)


async def value_of(shared: SharedPulse) -> str:
    """Its first value, however long that takes."""
    while True:
        try:
            return str((await shared.answer("", asks_on=True))["pulse"])
        except UnavailableError:
            await asyncio.sleep(0.01)


async def refuses(shared: SharedPulse, known: str, why: str) -> None:
    """Ask it until it refuses for this reason."""
    while True:
        try:
            assert (await shared.answer(known, asks_on=True))["pulse"] == known
        except UnavailableError as error:
            if why in str(error):
                return
        await asyncio.sleep(0.01)


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await work

    asyncio.run(bounded())


def test_all_engines_are_told_at_once_and_the_leader_is_asked_by_their_manager_alone() -> None:
    async def ask() -> None:
        world = World()
        first = await asyncio.gather(*(world.other.answer("", asks_on=True) for _ in range(20)))
        assert len({each["pulse"] for each in first}) == 1 and {each["epoch"] for each in first} == {5}
        known, asked = first[0]["pulse"], len(world.asks)
        waiting = [asyncio.create_task(world.other.answer(known, asks_on=True)) for _ in range(20)]
        await asyncio.sleep(0)
        world.queue = "more jobs"
        assert known not in {(await each)["pulse"] for each in waiting}
        assert len(world.asks) - asked < 10

    run(ask())


def test_who_knows_the_newest_is_answered_after_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask() -> None:
        world = World()
        known = await value_of(world.leader)
        monkeypatch.setattr(pulse, "_HOLD_S", 0.2)
        assert (await world.leader.answer(known, asks_on=True))["pulse"] == known

    run(ask())


def test_another_period_is_another_value() -> None:
    async def ask() -> None:
        world = World()
        world.leader._period_s = 0.01
        known = (await world.leader.answer("", asks_on=True))["pulse"]
        assert (await world.leader.answer(known, asks_on=True))["pulse"] != known

    run(ask())


def test_engines_are_told_when_the_leader_does_not_know_and_when_nobody_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "_AGAIN_S", 0.01)

    async def ask() -> None:
        world = World()
        world.queue = ""
        with pytest.raises(UnavailableError, match="squeue has ended"):
            await world.leader.answer("", asks_on=True)
        with pytest.raises(UnavailableError, match="squeue has ended"):
            await world.other.answer("", asks_on=True)
        with pytest.raises(UnavailableError, match="the manager other does not lead"):
            await world.other.answer("", asks_on=False)
        world.queue = "jobs"
        assert await value_of(world.other)

    run(ask())


def test_a_manager_that_takes_itself_for_the_leader_without_the_lead_asks_nobody() -> None:
    async def ask() -> None:
        world = World()
        world.other._site.leader = "other"
        with pytest.raises(UnavailableError, match="does not lead"):
            await world.other.answer("", asks_on=True)
        assert world.asks == []

    run(ask())


def test_a_value_that_nobody_confirms_is_good_for_a_moment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask() -> None:
        world = World()
        known = await value_of(world.leader)
        monkeypatch.setattr(pulse, "_HOLD_S", 0.1)
        monkeypatch.setattr(pulse, "_GOOD_S", 0.3)
        world.queue = ""
        await refuses(world.leader, known, "squeue has ended")

    run(ask())
