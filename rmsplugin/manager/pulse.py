"""Pulse: all engines are told when the queue has changed, by one squeue that stays at the leader. In one event loop.

A manager asks the leader once for all engines that it has. Each value has the number of a period besides: engines that
are told of nothing else look at the same time at least, so that one reading of Slurm is enough for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections.abc import Callable

from rmsplugin.engine.serve.asked import Reply
from rmsplugin.engine.territory.leaders_pulse import PULSE
from rmsplugin.errors import RmspluginError, UnavailableError
from rmsplugin.manager.handing import Handed, Hands
from rmsplugin.manager.site import Site

#: Whoever asks is answered after so long at most; the leader has so long to answer; and so long a value is good: a
#: moment without one costs less than to have a squeue started. In seconds.
_HOLD_S, _LEADER_S, _GOOD_S = 1.5, 2.5, 3.0
#: Seconds between two looks at what squeue has told; between two tries; without a question until nothing is asked.
_LOOK_S, _AGAIN_S, _UNASKED_S = 0.1, 0.5, 5.0


class SharedPulse:
    """The pulse as the leader has it."""

    def __init__(
        self,
        site: Site,
        hands: Hands,
        tell: Callable[[], str],
        period_s: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Ask nobody yet.

        Args:
            site: who leads.
            hands: the way to another leader.
            tell: the pulse here (``Rms.pulse``).
            period_s: engines look once in a period at least.
            monotonic: seconds that pass.
        """
        self._site, self._hands, self._tell = site, hands, tell
        self._period_s, self._monotonic = period_s, monotonic
        self._changed = asyncio.Event()
        self._told, self._told_at = (0, ""), float("-inf")
        self._why = ""  # the last try to know it has failed; empty: it has not
        self._asked_at = 0.0
        self._watch: asyncio.Task[None] | None = None

    async def answer(self, known: str, *, asks_on: bool) -> Reply:
        """The epoch of the leader and its pulse, as soon as that is another one than is known, or after a moment.

        Raises UnavailableError: the leader does not tell. ``asks_on``: whether another manager may be asked.
        """
        if not asks_on and not self._site.lease.held():
            raise UnavailableError(f"the manager {self._site.name} does not lead")
        self._asked_at = self._monotonic()
        if self._watch is None or self._watch.done():
            self._watch = asyncio.create_task(self._keep())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_HOLD_S):
                while self._told[1] == known if self._is_good() else not self._why:
                    await self._changed.wait()
        if not self._is_good():
            raise UnavailableError(self._why or "the leader has told nothing yet")
        epoch, pulse = self._told
        return {"epoch": epoch, "pulse": pulse}

    async def close(self) -> None:
        """Ask nobody any more."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait([self._watch])

    def _is_good(self) -> bool:
        return self._monotonic() - self._told_at < _GOOD_S

    async def _keep(self) -> None:
        """Know the pulse as long as somebody asks."""
        while self._monotonic() - self._asked_at < _UNASKED_S:
            try:
                told = await (self._own() if self._site.lease.held() else self._leaders())
            except (RmspluginError, TimeoutError, KeyError) as error:
                self._why = str(error) or f"the manager {self._site.leader}, which leads, is silent"
                self._tell_all()
                await asyncio.sleep(_AGAIN_S)
                continue
            self._told_at, self._why = self._monotonic(), ""
            if told != self._told:
                self._told = told
                self._tell_all()

    def _tell_all(self) -> None:
        """Have all who wait look again."""
        self._changed.set()
        self._changed.clear()

    async def _own(self) -> tuple[int, str]:
        """What this manager as the leader sees now."""
        await asyncio.sleep(_LOOK_S)
        epoch, pulse = self._site.lease.epoch, await asyncio.to_thread(self._tell)
        digest = hashlib.sha256(pulse.encode()).hexdigest()[:16]
        return epoch, f"{digest}-{int(self._monotonic() / self._period_s)}"

    async def _leaders(self) -> tuple[int, str]:
        """What the leader tells next."""
        if self._site.leader == self._site.name:
            raise UnavailableError(f"the manager {self._site.name} does not lead")
        request = Handed("GET", f"{PULSE}?after={self._told[1]}&handed=1")
        async with asyncio.timeout(_LEADER_S):
            told = await self._hands.ask_manager(self._site.leader, request)
        return told["epoch"], told["pulse"]
