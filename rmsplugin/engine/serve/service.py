"""Service: the engine's HTTP+JSON API (docs/protocols.md, section 2)."""

from __future__ import annotations

from collections.abc import Callable

from rmsplugin.engine.capacity.capacity import Capacities
from rmsplugin.engine.context.context import Context
from rmsplugin.engine.controllers.controllers import Controllers
from rmsplugin.engine.cycle import Cycle
from rmsplugin.engine.schedule.timetable import Timetable
from rmsplugin.engine.serve.browsers import Browsers
from rmsplugin.engine.serve.front import Front
from rmsplugin.engine.serve.live_pages import SUBJECT
from rmsplugin.engine.serve.requests import Requests
from rmsplugin.engine.serve.routes import Routes
from rmsplugin.engine.serve.turns import Turns
from rmsplugin.engine.serve.waits import Waits


class Service:
    """Serves requests until closed. Runs in the event loop of the caller; the work is done in threads, by turns."""

    def __init__(
        self,
        context: Context,
        requests: Requests,
        cycle: Cycle,
        timetable: Timetable | None = None,
        controllers: Controllers | None = None,
        *,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        """Listen to nobody yet.

        Args:
            context: of this engine.
            requests: what is asked of it.
            cycle: its cycle.
            timetable: what is done at times of day.
            controllers: the engines that stand by; None for one that is alone.
            leads: whether this engine may act: asked before each answer.
        """
        self._turns = Turns("service")
        self._slow_turns = Turns("slow service")
        self._waits = Waits()
        self._answers = Routes(
            context.settings,
            context.ledger,
            context.clock,
            context.jobs,
            Capacities(context.settings, context.ledger, context.clock, context.demanded_cpus),
            requests,
            cycle,
            self._turns,
            self._slow_turns,
            self._waits,
            timetable,
            controllers,
            context.epoch,
            context.territory,
        )
        self._front = Front(
            context.settings.engine,
            requests.rights.engine_uids,
            self._answers,
            self._turns,
            leads=leads,
            browsers=Browsers(context.settings.page, requests.rights.engine_uids),
            behind_a_manager=context.territory is not None,
            unheard=lambda why: context.hearing.note_deaf(why, context.clock.now()),
            answered=context.ledger.tally.answered,
        )
        context.ledger.subscribe(self._waits.changed)
        context.ledger.subscribe(lambda _subjects: self.page_changed())

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return self._front.connections

    @property
    def waiting(self) -> int:
        """How many requests wait for a change."""
        return len(self._waits)

    def page_changed(self) -> None:
        """The live page shows what was. May be called in any thread; waits for nothing."""
        self._answers.pages.note_change()
        self._waits.changed(frozenset({SUBJECT}))

    async def open(self) -> None:
        """Listen on the unix socket and, if the settings say so, on TCP.

        Raises:
            UnavailableError: an address cannot be used.
        """
        self._waits.open()
        await self._front.open()

    async def close(self) -> None:
        """Stop listening, and drop all connections."""
        await self._answers.close()
        await self._front.close()
        self._turns.close()
        self._slow_turns.close()
