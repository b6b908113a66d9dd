"""Turns: who asks much waits for himself only."""

from __future__ import annotations

import asyncio
import threading

import pytest
from patience import PATIENCE_S

from rmsplugin.engine.serve.turns import Turns


@pytest.mark.parametrize("broken_off", [False, True])
def test_one_who_asks_much_has_two_threads_and_the_others_are_served(broken_off: bool) -> None:
    running, most = 0, 0
    lock, gate = threading.Lock(), threading.Event()

    def slow() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        gate.wait(PATIENCE_S)
        with lock:
            running -= 1

    async def scenario() -> None:
        turns = Turns("test")
        greedy = [asyncio.create_task(turns.take("greedy", slow)) for _ in range(100)]
        while running < 2:
            await asyncio.sleep(0.01)
        if broken_off:
            # Its connections are closed while the work goes on: this must not free its turns.
            for task in greedy[:50]:
                task.cancel()
        assert [await turns.take(number, lambda: "served") for number in range(20)] == ["served"] * 20
        gate.set()
        await asyncio.gather(*greedy, return_exceptions=True)
        turns.close()

    asyncio.run(scenario())
    assert most == 2


def test_work_that_fails_gives_its_turn_back() -> None:
    def fail() -> None:
        raise ValueError("no")

    async def scenario() -> None:
        turns = Turns("test")
        for _ in range(5):
            with pytest.raises(ValueError, match="no"):
                await turns.take("who", fail)
        assert turns._lines == {}
        turns.close()

    asyncio.run(scenario())
