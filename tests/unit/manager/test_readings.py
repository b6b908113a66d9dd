"""The leader reads Slurm once for all who have asked by then; no reading is older than the questions it answers."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Coroutine
from typing import Any, cast

import pytest
from patience import PATIENCE_S

from rmsplugin.adapters.rms.base import RmsSnapshot
from rmsplugin.adapters.rms.slurm_reading import SlurmTexts, unpacked
from rmsplugin.engine.serve import sealing
from rmsplugin.errors import RefusedError, UnavailableError
from rmsplugin.manager import readings
from rmsplugin.manager.readings import Readings

TEXTS = SlurmTexts("site", "queue", "token")


class Slurm:
    """It answers when it may."""

    def __init__(self) -> None:
        self.begun, self.may = 0, threading.Event()
        self.may.set()
        self.error: Exception | None = None
        self.readings = Readings(self.read)

    def read(self) -> tuple[RmsSnapshot, SlurmTexts]:
        self.begun += 1
        number = self.begun
        assert self.may.wait(PATIENCE_S)
        if self.error is not None:
            raise self.error
        return cast(Any, number), TEXTS

    async def begins(self, number: int) -> None:
        while self.begun < number:
            await asyncio.sleep(0.001)


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await work

    asyncio.run(bounded())


def test_all_who_ask_before_a_reading_begins_share_it() -> None:
    async def ask() -> None:
        slurm = Slurm()
        found = await asyncio.gather(*(slurm.readings.fresh() for _ in range(10)))
        assert (slurm.begun, {each.snapshot for each in found}) == (1, {1})

    run(ask())


def test_whoever_asks_while_a_reading_is_under_way_gets_the_next_one() -> None:
    async def ask() -> None:
        slurm = Slurm()
        slurm.may.clear()
        first = asyncio.create_task(slurm.readings.fresh())
        await slurm.begins(1)
        later = [asyncio.create_task(slurm.readings.fresh()) for _ in range(3)]
        await asyncio.sleep(0)
        slurm.may.set()
        assert (await first).snapshot == 1
        assert {(await each).snapshot for each in later} == {2}
        assert slurm.begun == 2
        assert slurm.readings.last is not None and slurm.readings.last.snapshot == 2

    run(ask())


@pytest.mark.parametrize("error", [UnavailableError("Slurm does not answer"), ValueError("no number")])
def test_an_error_is_told_to_all_who_have_asked_and_the_next_reading_is_tried(error: Exception) -> None:
    async def ask() -> None:
        slurm = Slurm()
        slurm.error = error
        found = await asyncio.gather(*(slurm.readings.fresh() for _ in range(2)), return_exceptions=True)
        assert found == [error, error]
        slurm.error = None
        assert (await slurm.readings.fresh()).snapshot == 2

    run(ask())


def test_a_reading_that_takes_long_is_asked_for_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readings, "_WAIT_S", 0.01)

    async def ask() -> None:
        slurm = Slurm()
        slurm.may.clear()
        told = await slurm.readings.answer(0, 0)
        assert (told["parts"], told["data"]) == (0, "")
        assert (await slurm.readings.answer(told["reading"], 0))["reading"] == told["reading"]
        slurm.may.set()
        while not told["parts"]:
            told = await slurm.readings.answer(told["reading"], 0)
        assert (slurm.begun, told["parts"], told["age_s"] >= 0) == (1, 1, True)
        assert unpacked(base64.b64decode(told["data"])) == TEXTS

    run(ask())


def test_a_large_reading_has_several_parts_and_is_kept_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readings, "_PART", 16)
    monkeypatch.setattr(readings, "_WAIT_S", PATIENCE_S)

    async def ask() -> None:
        slurm = Slurm()
        told = await slurm.readings.answer(0, 0)
        number, parts = told["reading"], told["parts"]
        assert parts > 2
        whole = [(await slurm.readings.answer(number, part))["data"] for part in range(parts)]
        assert unpacked(base64.b64decode("".join(whole))) == TEXTS
        with pytest.raises(RefusedError, match=f"has {parts} parts"):
            await slurm.readings.answer(number, parts)
        for _ in range(4):
            await slurm.readings.fresh()
        with pytest.raises(RefusedError, match="any more"):
            await slurm.readings.answer(number, 0)
        with pytest.raises(RefusedError, match="any more"):
            await slurm.readings.answer(number + 100, 0)

    run(ask())


def test_a_part_fits_into_an_answer_that_munge_seals() -> None:
    body = {"epoch": 2**53, "reading": 2**53, "parts": 1000, "age_s": 1 / 3, "data": "A" * readings._PART}
    payload = json.dumps({"nonce": "0" * 32, "status": 200, "body": body})
    assert len(payload) < sealing._ANSWER_MAX
