"""Readings: the leader reads Slurm once for all who have asked by then. In one event loop.

A reading is begun after it was asked for. Whoever asks while one is under way gets the next one, as all others who do.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rmsplugin.adapters.rms.base import RmsSnapshot
from rmsplugin.adapters.rms.slurm_reading import SlurmTexts, packed
from rmsplugin.errors import RefusedError

#: Engines are woken by the same change, and begin to look within so long, in seconds.
_GATHER_S = 0.05
#: A reading that is not there after so long is asked for again, so that a leader is never silent. In seconds.
_WAIT_S = 0.4
#: Readings whose parts can still be asked for, besides the one that is under way.
_KEPT = 3
#: Characters of a part: an answer is sealed by munge, which takes 764 KiB.
_PART = 640 * 1024


@dataclass(frozen=True)
class Reading:
    """One reading of Slurm.

    Attributes:
        begun: when it was begun, by the monotonic clock.
        snapshot: what it means.
        texts: what Slurm has told.
    """

    begun: float
    snapshot: RmsSnapshot
    texts: SlurmTexts

    @cached_property
    def parts(self) -> list[str]:
        """It as texts that fit into answers."""
        whole = base64.b64encode(packed(self.texts)).decode()
        return [whole[begin : begin + _PART] for begin in range(0, len(whole), _PART)]


class Readings:
    """Reads when it is asked to, one at a time."""

    def __init__(
        self, read: Callable[[], tuple[RmsSnapshot, SlurmTexts]], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """Read nothing yet; ``read``: ``SlurmCli.read``."""
        self._read, self._monotonic = read, monotonic
        self.last: Reading | None = None
        self._number = 0  # of the last one that was asked for
        self._asked: dict[int, asyncio.Future[Reading]] = {}
        self._waits = False  # whether that one is still to be begun
        self._reader: asyncio.Task[None] | None = None

    async def fresh(self) -> Reading:
        """A reading that is begun after this call. Raises UnavailableError."""
        return await asyncio.shield(self._asked[self._next()])

    async def answer(self, number: int, part: int) -> dict[str, Any]:
        """A part of a reading as it is handed down; without parts as long as it is under way.

        Args:
            number: that of an answer before; 0: of a reading that is begun after this call.
            part: from 0 on.

        Raises:
            RefusedError: it is not kept any more, or has no such part.
            UnavailableError: Slurm does not answer.
        """
        number = number or self._next()
        if number not in self._asked:
            raise RefusedError(f"there is no reading {number} any more")
        try:
            reading = await asyncio.wait_for(asyncio.shield(self._asked[number]), _WAIT_S)
        except TimeoutError:
            return {"reading": number, "parts": 0, "age_s": 0.0, "data": ""}
        parts = await asyncio.to_thread(lambda: reading.parts)
        if part >= len(parts):
            raise RefusedError(f"reading {number} has {len(parts)} parts")
        age_s = self._monotonic() - reading.begun
        return {"reading": number, "parts": len(parts), "age_s": age_s, "data": parts[part]}

    async def close(self) -> None:
        """Read no more; nobody who waits is answered."""
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait([self._reader])

    def _next(self) -> int:
        """The number of the reading that is begun next."""
        if not self._waits:
            self._number, self._waits = self._number + 1, True
            self._asked[self._number] = asyncio.get_running_loop().create_future()
            self._asked.pop(self._number - 1 - _KEPT, None)
        if self._reader is None or self._reader.done():
            self._reader = asyncio.create_task(self._read_on())
        return self._number

    async def _read_on(self) -> None:
        """Read as long as somebody waits for a reading."""
        await asyncio.sleep(_GATHER_S)
        while self._waits:
            asked, self._waits = self._asked[self._number], False
            begun = self._monotonic()
            try:
                snapshot, texts = await asyncio.to_thread(self._read)
            except Exception as error:  # it is told to those who have asked
                asked.set_exception(error)
                asked.exception()  # they may have gone
            else:
                self.last = Reading(begun, snapshot, texts)
                asked.set_result(self.last)
