"""Handing down: a manager gives what the leader has read of Slurm to the engines of its groups.

A manager that does not lead asks the one that leads, in a request that is marked: nobody asks on for that.
"""

from __future__ import annotations

import asyncio

from rmsplugin.engine.serve.asked import Reply
from rmsplugin.engine.territory.leaders_readings import READING
from rmsplugin.errors import RmspluginError, UnavailableError
from rmsplugin.manager.handing import Handed, Hands
from rmsplugin.manager.readings import Readings
from rmsplugin.manager.site import Site

#: An engine waits for a second.
_LEADER_S = 0.9
#: The status of an answer to a request that a manager does not know, with keys or without.
_UNKNOWN = (400, 404)


class HandingDown:
    """Answers engines; in one event loop."""

    def __init__(self, site: Site, readings: Readings, hands: Hands) -> None:
        """Answer none yet.

        Args:
            site: who leads.
            readings: those of this manager as the leader.
            hands: the way to another leader.
        """
        self._site, self._readings, self._hands = site, readings, hands

    async def answer(self, number: int, part: int, *, asks_on: bool) -> Reply:
        """A part of a reading (``Readings.answer``), with the epoch of the leader that has made it.

        Args:
            number: see there.
            part: see there.
            asks_on: whether another manager may be asked.

        Raises:
            RefusedError: see there.
            UnavailableError: the leader does not answer, or nobody leads.
        """
        lease = self._site.lease
        if lease.held():
            epoch = lease.epoch
            reply = await self._readings.answer(number, part)
            if not lease.held() or lease.epoch != epoch:
                raise UnavailableError("this manager does not lead any more")
            return {"epoch": epoch, **reply}
        if not asks_on or self._site.leader == self._site.name:
            raise UnavailableError(f"the manager {self._site.name} does not lead")
        request = Handed("GET", f"{READING}?reading={number}&part={part}&handed=1")
        try:
            async with asyncio.timeout(_LEADER_S):
                return await self._hands.ask_manager(self._site.leader, request)
        except RmspluginError as error:
            if error.status in _UNKNOWN:
                raise UnavailableError(
                    f"the manager {self._site.leader}, which leads, is of a release that hands nothing down ({error})"
                ) from None
            raise
        except TimeoutError:
            raise UnavailableError(f"the manager {self._site.leader}, which leads, is silent") from None
