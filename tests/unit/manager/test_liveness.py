"""Answers of processes that are asked: what fails as it is given up leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

from rmsplugin.errors import UnreachableError
from rmsplugin.manager.liveness import Liveness


def test_a_request_that_fails_in_the_instant_in_which_it_is_given_up_is_not_logged() -> None:
    """Seen on a busy machine: a traceback in a manager's log, "Task exception was never retrieved"."""

    async def given_up() -> list[dict[str, Any]]:
        logged: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: logged.append(context))
        over = asyncio.Event()

        async def failing() -> str:
            await over.wait()
            raise UnreachableError("the engine cannot be reached")

        waiting = asyncio.ensure_future(Liveness().answer(failing(), "nowhere", "the engine"))
        await asyncio.sleep(0.01)
        over.set()
        await asyncio.sleep(0)  # it has failed now, and nobody has been told yet
        waiting.cancel()
        await asyncio.wait({waiting})
        assert waiting.cancelled()
        del waiting
        gc.collect()
        await asyncio.sleep(0)
        return logged

    assert asyncio.run(given_up()) == []
