"""Routes: answers each request of the API, which ``rmsplugin.api.routes`` describes. No HTTP."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

from rmsplugin import __version__
from rmsplugin.api import openapi
from rmsplugin.api.routes import ROUTES, Door, Route
from rmsplugin.client import COMING
from rmsplugin.engine.capacity.capacity import Capacities
from rmsplugin.engine.context.clock import Clock
from rmsplugin.engine.context.job_reader import JobReader
from rmsplugin.engine.controllers.controllers import Controllers
from rmsplugin.engine.cycle import Cycle
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.rows import Operation, RoomReport
from rmsplugin.engine.reconcile.requeues import Requeue, RequeuedBy
from rmsplugin.engine.schedule.timetable import Timetable
from rmsplugin.engine.serve import parsing, plan_views, veiled_views, views, wanted_vjobs
from rmsplugin.engine.serve.asked import Asked, Handled, Reply
from rmsplugin.engine.serve.doors import Doors
from rmsplugin.engine.serve.group_views import group_views
from rmsplugin.engine.serve.ills import ills
from rmsplugin.engine.serve.live_pages import SUBJECT, LivePages
from rmsplugin.engine.serve.naming import own_name
from rmsplugin.engine.serve.previews import Previews
from rmsplugin.engine.serve.privacy import Sight
from rmsplugin.engine.serve.requests import Requests, Several
from rmsplugin.engine.serve.resizing import Size
from rmsplugin.engine.serve.rights import user_name
from rmsplugin.engine.serve.scenes import Scenes
from rmsplugin.engine.serve.schedule_view import schedule_views
from rmsplugin.engine.serve.summary_view import summary_view
from rmsplugin.engine.serve.turns import Turns
from rmsplugin.engine.serve.unmet import unmet_views
from rmsplugin.engine.serve.user_reports import UserReports
from rmsplugin.engine.serve.waits import Waits
from rmsplugin.engine.serve.wanted_vjobs import WantedVJobs
from rmsplugin.engine.territory.territory import Territory
from rmsplugin.errors import NotFoundError, RefusedError, UnavailableError
from rmsplugin.live_page.scene import Viewer
from rmsplugin.live_page.values import values_of
from rmsplugin.model.event_cursor import LEAST_TIME, EventCursor
from rmsplugin.model.preferences import PREFERENCES
from rmsplugin.model.vjob import VJobState
from rmsplugin.settings import Settings

T = TypeVar("T")

#: Who asks how the engine is must be told when its disk, or a file server, hangs; in seconds.
_LEDGER_S = 1.5
_LAST_EXIT_CODE = 255
_PLACE_OF_MANAGERS = (
    "this place in the events is of managers of groups, and one engine answers here: begin anew without it, or with a "
    "time"
)
_LAST_SIGNAL = 127
_MOST_RESTARTS = (1 << 32) - 1


class Routes:
    """Answers requests in the event loop; work that reads or changes the ledger is done in threads, by turns."""

    def __init__(
        self,
        settings: Settings,
        ledger: Ledger,
        clock: Clock,
        jobs: JobReader,
        capacities: Capacities,
        requests: Requests,
        cycle: Cycle,
        turns: Turns,
        slow_turns: Turns,
        waits: Waits,
        timetable: Timetable | None,
        controllers: Controllers | None,
        epoch: int,
        territory: Territory | None = None,
    ) -> None:
        """``slow_turns``: for users' requests that wait for a guest, a node or an operation; ``epoch``: its own."""
        self._settings = settings
        self._epoch, self._territory = epoch, territory
        self._ledger = ledger
        self._clock = clock
        self._capacities = capacities
        self._requests = requests
        self._plain_requests = requests.without_powers()
        self._doors = Doors(settings, ledger, jobs, lambda: cycle.seen)
        self._cycle = cycle
        self._turns = turns
        self._slow_turns = slow_turns
        self._waits = waits
        self._timetable = timetable
        self._controllers = controllers
        # In threads of their own: a proof of origin, a hook or an order about a node is heard, whatever others do.
        self._door_turns, self._hook_turns, self._node_turns = Turns("doors"), Turns("hooks"), Turns("nodes")
        self._previews = Previews(clock, cycle, turns)
        self._reports = UserReports(settings, waits.changed)
        self.pages = LivePages(Scenes(capacities, cycle, requests.standings, controllers, epoch).scene)
        self._started = clock.now()
        self._document: Reply = {}

    def table(self) -> list[Handled]:
        """All kinds of requests of the API, each with the function that answers it."""
        answers: dict[str, Callable[[Asked], Awaitable[Reply]]] = {
            "status": self._status,
            "nodes": self._nodes,
            "groups": self._groups,
            "summary": self._summary,
            "vjobs": self._vjobs,
            "vjob": self._vjob,
            "unmet": self._unmet,
            "vms": self._vms,
            "usage": self._usage,
            "decisions": self._decisions,
            "events": self._events,
            "cycles": self._cycles,
            "cycle": self._one_cycle,
            "plan": self._plan,
            "schedule": self._schedule,
            "page": self._page,
            "page_news": self._page_news,
            "config": self._config,
            "openapi": self._openapi,
            "suspend": self._suspend,
            "resume": self._resume,
            "migrate": self._migrate,
            "prefer": self._prefer,
            "resize": self._resize,
            "operation": self._operation,
            "states": self._states,
            "take_back": self._take_back,
            "drop_states": self._drop_states,
            "pause": self._pause,
            "unpause": self._unpause,
            "handover": self._handover,
            "confirm": self._confirm,
            "new_store": self._new_store,
            "node_gone": self._node_gone,
            "node_fence": self._node_fence,
            "node_back": self._node_back,
            "begin_report": self._begin_report,
            "report": self._report,
            "access": self._access,
            "started": self._script_started,
            "attached": self._attached,
            "finished": self._finished,
            "requeued": self._requeued,
            "prolog": self._prolog,
            "account": self._account,
            "epilog": self._epilog,
            "room_report": self._room_report,
        }
        return [Handled.of(route, answers[route.name]) for route in ROUTES]

    async def admitted(self, route: Route, asked: Asked) -> Asked:
        """The request, with the powers of the host it comes from.

        Raises:
            ForbiddenError: the request is not taken from that host.
            UnavailableError: it is not known yet whether it is taken from that host.
        """
        origin, door = asked.origin, route.door
        if origin.here:
            return asked
        if door is Door.ACCESS:
            door = Door.WRAPPER if asked.query.flag("wrapper") else Door.LOGIN
        if door is Door.ANY or (door is Door.WRAPPER and self._doors.is_open(origin, asked.vjob)):
            return replace(asked, powers=False)
        return await self._door_turns.take(origin, lambda: self._look_at(door, asked))

    def _look_at(self, door: Door, asked: Asked) -> Asked:
        doors, origin = self._doors, asked.origin
        if door is Door.TRUSTED:
            doors.require_trusted(origin)
        elif door is Door.ROOM:
            doors.require_room(origin, asked.body.node("node"), parsing.job_id(asked.path["id"]))
        elif door is Door.FRONT:
            doors.require_front(origin, parsing.job_id(asked.path["id"]))
        elif door is Door.LOGIN:
            doors.require_login(origin)
        else:
            doors.require_wrapper(origin, asked.vjob)
        # Only root may call as a node's hook, and the host of this request was checked.
        hooks = door in (Door.ROOM, Door.FRONT)
        return replace(asked, powers=hooks or doors.trusts(origin))

    def _sight(self, asked: Asked) -> Sight:
        # Not in the event loop: the name of an account may come from afar.
        return self._for(asked).sight(asked.uid)

    def _for(self, asked: Asked) -> Requests:
        return self._requests if asked.powers else self._plain_requests

    async def close(self) -> None:
        """Make no more reports, and begin no more work."""
        await self._reports.close()
        for turns in (self._door_turns, self._hook_turns, self._node_turns):
            turns.close()

    async def _do(self, asked: Asked, work: Callable[[], T], *, wrapper: bool = False) -> T:
        # Wrappers have a line of their own: they are heard, whatever else their user asks.
        return await self._turns.take((asked.uid, wrapper), work)

    async def _do_slowly(self, asked: Asked, work: Callable[[], T]) -> T:
        # In threads of their own: however many users occupy, hooks and wrappers are heard, and root is served.
        ours = asked.powers and asked.uid in self._requests.rights.engine_uids
        turns = self._turns if ours else self._slow_turns
        return await turns.take((asked.uid, "slow"), work)

    async def _hear(self, asked: Asked, work: Callable[[], T]) -> T:
        # Slurm's hooks give up soon, and their reports may be proofs.
        return await self._hook_turns.take(asked.origin, work)

    async def _act_on(self, node: str, work: Callable[[], T]) -> T:
        # A fencing command, or a node that does not answer, may take minutes: no other request waits for it.
        return await self._node_turns.take(node, work)

    # -- hooks ---------------------------------------------------------------------------------------------------

    async def _prolog(self, asked: Asked) -> Reply:
        job_id, seconds = parsing.job_id(asked.path["id"]), asked.query.seconds("wait")
        await self._hear(asked, lambda: self._for(asked).hook(asked.uid, job_id))
        first: list[int] = []

        def enough(answer: Reply) -> bool:
            # After a start that was given up another may follow at once; Slurm runs a prolog of its own for that.
            first[:] = first or [answer["starts"]]
            return answer["state"] not in COMING or answer["nearly_up"] or answer["starts"] != first[0]

        return await self._waits.until(
            ("vjob", job_id),
            (asked.uid, "prolog"),
            seconds,
            lambda: self._hear(asked, lambda: self._requests.state(job_id)),
            enough,
        )

    async def _account(self, asked: Asked) -> Reply:
        job_id, account = parsing.job_id(asked.path["id"]), asked.body.account()
        return await self._do_slowly(asked, lambda: self._for(asked).account(asked.uid, job_id, account))

    async def _epilog(self, asked: Asked) -> Reply:
        job_id = parsing.job_id(asked.path["id"])
        await self._hear(asked, lambda: self._for(asked).hook(asked.uid, job_id))
        return await self._hear(asked, lambda: self._requests.state(job_id))

    async def _room_report(self, asked: Asked) -> Reply:
        room = parsing.job_id(asked.path["id"])
        hook, node = asked.body.choice("hook", ("prolog", "epilog")), asked.body.node("node")
        problem, ended = asked.body.sentence("problem"), asked.body.vms("ended")
        # A late report counts from when its hook looked.
        seen = self._clock.now() - asked.body.seconds("age_s")
        report = RoomReport(seen, room, node, hook, problem, ended)
        return await self._hear(asked, lambda: self._for(asked).room_report(asked.uid, report))

    # -- the wrapper, and users that log in ----------------------------------------------------------------------

    async def _access(self, asked: Asked) -> Reply:
        seconds, wrapper = asked.query.seconds("wait"), asked.query.flag("wrapper")
        name = asked.vjob if wrapper else asked.vjobs
        asked.query.host("host")
        run = asked.query.number("run", 0, _MOST_RESTARTS)
        requests = self._for(asked)
        job_id = await self._do(asked, lambda: requests.owned(asked.uid, name, wrapper=wrapper), wrapper=wrapper)
        return await self._waits.until(
            ("vjob", job_id),
            (asked.uid, "wrapper" if wrapper else "access"),
            seconds,
            lambda: self._do(
                asked, lambda: requests.access(asked.uid, name, wrapper=wrapper, run=run), wrapper=wrapper
            ),
            _runs,
            latest_only=wrapper,
        )

    async def _script_started(self, asked: Asked) -> Reply:
        name = asked.vjob
        return await self._do(asked, lambda: self._for(asked).started(asked.uid, name), wrapper=True)

    async def _attached(self, asked: Asked) -> Reply:
        name = asked.vjob
        vjob_cache = self._requests.vjob_cache
        entry = vjob_cache.known(name)
        if entry is None:
            entry = await self._do(asked, lambda: vjob_cache.look_up(name), wrapper=True)
        return self._for(asked).attached(asked.uid, entry)

    async def _finished(self, asked: Asked) -> Reply:
        name = asked.vjob
        code, signal = (
            asked.body.integer("exit_code", 0, _LAST_EXIT_CODE),
            asked.body.integer("signal", 0, _LAST_SIGNAL),
        )
        return await self._do(asked, lambda: self._for(asked).finished(asked.uid, name, code, signal), wrapper=True)

    async def _requeued(self, asked: Asked) -> Reply:
        name = asked.vjob
        by = RequeuedBy(asked.body.choice("by", [str(each) for each in RequeuedBy]))
        told = Requeue(by, asked.body.integer("restarts", 0, _MOST_RESTARTS))
        return await self._do(asked, lambda: self._for(asked).requeued(asked.uid, name, told), wrapper=True)

    async def _usage(self, asked: Asked) -> Reply:
        name = asked.vjobs
        return {"usage": await self._do_slowly(asked, lambda: self._for(asked).usage(asked.uid, name))}

    # -- operations ----------------------------------------------------------------------------------------------

    async def _suspend(self, asked: Asked) -> Reply:
        name = asked.vjobs
        return await self._begin_operation(asked, lambda: self._for(asked).suspend(asked.uid, name))

    async def _resume(self, asked: Asked) -> Reply:
        name, to = asked.vjobs, asked.body.node("to")
        return await self._begin_operation(asked, lambda: self._for(asked).resume(asked.uid, name, to))

    async def _migrate(self, asked: Asked) -> Reply:
        name, vm, to = asked.vjobs, asked.body.vm("vm"), asked.body.node("to")
        return await self._begin_operation(asked, lambda: self._for(asked).migrate(asked.uid, name, vm, to))

    async def _prefer(self, asked: Asked) -> Reply:
        name, state = asked.vjobs, asked.body.choice("state", PREFERENCES)
        return await self._do(asked, lambda: self._for(asked).prefer(asked.uid, name, state))

    async def _resize(self, asked: Asked) -> Reply:
        name, size = asked.vjobs, Size(asked.body.amount("cpus"), asked.body.amount("memory_mib"))
        if size == Size():
            raise parsing.BadRequestError("cpus or memory_mib has to be given")
        return await self._do(asked, lambda: self._for(asked).resize(asked.uid, name, size))

    async def _begin_operation(self, asked: Asked, begin: Callable[[], Operation | Several]) -> Reply:
        begun = await self._do_slowly(asked, begin)
        return begun.view if isinstance(begun, Several) else {"operation": begun.id}

    async def _states(self, asked: Asked) -> Reply:
        after = asked.query.number("after", 0)
        return await self._do(asked, lambda: self._for(asked).put_aside.page(asked.uid, after))

    async def _take_back(self, asked: Asked) -> Reply:
        number = parsing.aside_number(asked.path["number"])
        return await self._begin_operation(asked, lambda: self._for(asked).put_aside.take_back(asked.uid, number))

    async def _drop_states(self, asked: Asked) -> Reply:
        number = parsing.aside_number(asked.path["number"])
        return await self._do_slowly(asked, lambda: self._for(asked).put_aside.drop(asked.uid, number))

    async def _new_store(self, asked: Asked) -> Reply:
        store = asked.body.node("store")
        return await self._do(asked, lambda: self._for(asked).orders.new_store(asked.uid, store))

    async def _confirm(self, asked: Asked) -> Reply:
        vjobs = asked.body.vjobs("vjobs")
        return {"confirmed": await self._do(asked, lambda: self._for(asked).orders.confirm(asked.uid, vjobs))}

    async def _node_gone(self, asked: Asked) -> Reply:
        node = parsing.node(asked.path["name"])
        preview = asked.body.flag("preview")
        return await self._act_on(node, lambda: self._for(asked).orders.node_gone(asked.uid, node, preview=preview))

    async def _node_fence(self, asked: Asked) -> Reply:
        node = parsing.node(asked.path["name"])
        preview = asked.body.flag("preview")
        return await self._act_on(node, lambda: self._for(asked).orders.node_fence(asked.uid, node, preview=preview))

    async def _node_back(self, asked: Asked) -> Reply:
        node = parsing.node(asked.path["name"])
        return await self._act_on(node, lambda: self._for(asked).orders.node_back(asked.uid, node))

    async def _operation(self, asked: Asked) -> Reply:
        number, seconds = parsing.operation_id(asked.path["number"]), asked.query.seconds("wait")
        return await self._waits.until(
            ("operation", number),
            (asked.uid, "operation"),
            seconds,
            lambda: self._do(asked, lambda: self._for(asked).operation(asked.uid, number)),
            lambda answer: bool(answer["ended"]),
        )

    # -- decisions -----------------------------------------------------------------------------------------------

    async def _pause(self, asked: Asked) -> Reply:
        return await self._do(asked, lambda: self._for(asked).orders.pause(asked.uid))

    async def _unpause(self, asked: Asked) -> Reply:
        return await self._do(asked, lambda: self._for(asked).orders.unpause(asked.uid))

    async def _handover(self, asked: Asked) -> Reply:
        to, group = asked.body.node("to"), asked.body.group("group")
        return await self._act_on(
            "", lambda: self._for(asked).orders.hand_over(asked.uid, self._controllers, to, group)
        )

    async def _plan(self, asked: Asked) -> Reply:
        dot, starts = asked.query.flag("dot"), asked.query.flag("starts")
        preview = await self._previews.newest()

        def show() -> Reply:
            pause = self._ledger.plans.pause
            view = plan_views.preview_view(preview.found, preview.time, pause, dot=dot, starts=starts)
            return veiled_views.preview(view, self._sees(asked), self._sight(asked))

        return await self._do(asked, show)

    async def _cycles(self, asked: Asked) -> Reply:
        limit = asked.query.number("limit", 1000, parsing.MAX_EVENTS)

        def read() -> list[plan_views.View]:
            found, sight = plan_views.cycles_view(self._ledger, self._clock, limit), self._sight(asked)
            return [veiled_views.cycle(view, sight) for view in found]

        return {"cycles": await self._do(asked, read)}

    async def _one_cycle(self, asked: Asked) -> Reply:
        number = parsing.cycle_number(asked.path["number"])

        def read() -> Reply:
            view, sight = plan_views.cycle_view(self._ledger, self._clock, number), self._sight(asked)
            steps = veiled_views.steps(view["steps"], self._sees(asked), sight)
            return {"cycle": veiled_views.cycle(view["cycle"], sight), "steps": steps}

        return await self._do(asked, read)

    async def _decisions(self, asked: Asked) -> Reply:
        name = asked.vjobs

        def read() -> list[plan_views.View]:
            decisions, sight = plan_views.decision_views(self._ledger, name), self._sight(asked)
            if not (decisions and sight.all_jobs):
                self._for(asked).require(asked.uid, name)
            return veiled_views.decisions(decisions, sight)

        return {"decisions": await self._do(asked, read)}

    # -- reports -------------------------------------------------------------------------------------------------

    async def _begin_report(self, asked: Asked) -> Reply:
        body = asked.body
        since, until, users = body.moment("since"), body.moment("until"), body.words("users")
        if since is not None and until is not None and since >= until:
            raise parsing.BadRequestError("since has to be before until")
        owner = await self._do(asked, lambda: self._for(asked).report_owner(asked.uid, users))
        question = {
            "since": since,
            "until": until,
            "users": users if owner is None else (),
            "accounts": body.words("accounts"),
            "partitions": body.words("partitions"),
            "jobs": body.vjobs("jobs"),
            "hosts": body.flag("hosts"),
        }
        return {"report": self._reports.begin(asked.uid, owner, question).number}

    async def _report(self, asked: Asked) -> Reply:
        number, begin = parsing.report_number(asked.path["number"]), asked.query.number("from", 0)
        seconds = asked.query.seconds("wait")

        async def read_report() -> Reply:
            report = self._reports.kept_report(asked.uid, number, seconds)
            if report.size < 0:
                return {"made": False, "doing": report.doing, "part": report.part}
            text = await self._do(asked, lambda: self._reports.piece(report, begin))
            return {"made": True, "bytes": report.size, "text": text}

        return await self._waits.until(
            ("report", number), (asked.uid, "report"), seconds, read_report, lambda answer: bool(answer["made"])
        )

    # -- lists ---------------------------------------------------------------------------------------------------

    async def _vjobs(self, asked: Asked) -> Reply:
        ended = asked.query.flag("ended")
        limit = asked.query.number("limit", views.MOST_AT_ONCE, parsing.MAX_EVENTS)
        after, name = asked.query.number("after", 0), asked.query.job_name("vjob")
        before, at_us = asked.query.number("before", 0), asked.query.number("at", 0)
        wanted, standing = _wanted(asked), self._requests.standings.of
        ledger, clock = self._ledger, self._clock

        def find(sees: views.Sees) -> Reply:
            if name:
                return views.named_vjob_views(ledger, clock, name, after=after, standing=standing, sees=sees)
            if before:
                return views.ended_vjob_views(ledger, clock, limit=limit, before=before, at_us=at_us, sees=sees)
            return views.vjob_views(
                ledger, clock, ended=ended, limit=limit, after=after, wanted=wanted, standing=standing, sees=sees
            )

        def read() -> Reply:
            sight = self._sight(asked)
            return veiled_views.vjobs(find(sight.sees), sight)

        return await self._do(asked, read)

    async def _unmet(self, asked: Asked) -> Reply:
        after, name, wanted = asked.query.number("after", 0), asked.query.job_name("vjob"), _wanted(asked)
        standings = self._requests.standings

        def read() -> Reply:
            sight = self._sight(asked)
            page = unmet_views(standings, wanted, name, after=after, most=views.MOST_AT_ONCE, sees=sight.sees_job)
            return veiled_views.vjobs(page, sight)

        return await self._do(asked, read)

    async def _vjob(self, asked: Asked) -> Reply:
        name = asked.vjobs
        return {"vjob": await self._do(asked, lambda: self._for(asked).vjob(asked.uid, name))}

    async def _vms(self, asked: Asked) -> Reply:
        after, name = asked.query.number("after", 0), asked.query.job_name("vjob")

        def read() -> Reply:
            sees = self._sight(asked).sees
            return views.vm_views(
                self._ledger, self._cycle.traffic, after=after, name=own_name(self._ledger, name), sees=sees
            )

        return await self._do(asked, read)

    async def _nodes(self, asked: Asked) -> Reply:
        def read_nodes() -> list[dict[str, Any]]:
            pressed = self._cycle.memory_care.pressed
            found = views.node_views(self._ledger, self._capacities, self._cycle.seen, pressed)
            return veiled_views.nodes(found, self._sight(asked))

        return {"nodes": await self._do(asked, read_nodes)}

    async def _groups(self, asked: Asked) -> Reply:
        def read() -> list[dict[str, Any]]:
            hot = None if self._territory is None else self._territory.hot
            return group_views(self._cycle.deciding.groups, hot) if self._sight(asked).nodes else []

        return {"groups": await self._do(asked, read)}

    async def _summary(self, asked: Asked) -> Reply:
        decided = self._cycle.deciding.groups
        return await self._do(asked, lambda: summary_view(self._ledger, self._territory, self._epoch, decided))

    async def _events(self, asked: Asked) -> Reply:
        since, after = asked.query.number("since", 0), asked.query.event_cursor("after")
        if since >= LEAST_TIME or (after is not None and after.is_of_managers):
            raise RefusedError(_PLACE_OF_MANAGERS)
        limit = asked.query.number("limit", 1000, parsing.MAX_EVENTS)
        vjob, begin = asked.query.job_name("vjob"), asked.query.moment("from")
        nodes, users, kinds = (asked.query.words(key) for key in ("node", "user", "kind"))

        def read() -> Reply:
            name, sight, whose = own_name(self._ledger, vjob), self._sight(asked), users
            ledger, begins = self._ledger.identity, since
            if after is not None and after.ledger in ("", ledger):  # of another ledger all are told
                begins = max(since, after.number)
            if not sight.all_jobs and vjob:
                self._for(asked).require(asked.uid, vjob)
            elif not sight.all_jobs:
                whose = frozenset({user_name(asked.uid)})
                if users and users.isdisjoint(whose):
                    return {"events": [], "cursor": str(EventCursor(begins, ledger))}
            # Before the events are read: one that comes in between is told next time. To whom not all is told, the
            # number of another one's event would tell that something has happened. In a ledger that was restored it is
            # lower than ``begins``.
            if sight.all_jobs:
                newest = self._ledger.newest_event()
            else:
                newest = max((each.id for each in self._ledger.events(vjob=name, users=whose, limit=1)), default=0)
            events = self._ledger.events(
                since=begins,
                vjob=name,
                limit=limit,
                begin=begin,
                nodes=nodes,
                users=whose,
                kinds=kinds,
                oldest=after is not None,
            )
            if vjob and not events:
                self._for(asked).require(asked.uid, vjob)  # a vjob that does not exist is an error
            told = events if sight.events_of_nodes else [event for event in events if event.vjob]
            if after is not None and len(events) >= limit:  # the next question goes on behind these
                last = events[-1].id if events else min(begins, newest)
            else:
                last = max([newest, *(event.id for event in events)])
            return {"events": veiled_views.events(told, sight), "cursor": str(EventCursor(last, ledger))}

        return await self._do(asked, read)

    async def _schedule(self, asked: Asked) -> Reply:
        def read_schedule() -> list[dict[str, Any]]:
            return schedule_views(self._ledger, self._clock, self._timetable, self._cycle.deciding.windows)

        return {"schedule": await self._do(asked, read_schedule)}

    async def _page(self, asked: Asked) -> Reply:
        node, as_values = asked.query.host("node"), asked.query.flag("scene")
        self._require_own_group(asked)

        def write() -> Reply:
            sight = self._sight(asked)
            viewer = Viewer(user_name(asked.uid), sees_all=sight.all_jobs, sees_nodes=sight.nodes)
            if as_values:
                scene = self.pages.scene(viewer, node)
                return {"number": scene.number, "html": "", "scene": values_of(scene)}
            number, text = self.pages.document(viewer, node)
            return {"number": number, "html": text}

        return await self._do(asked, write)

    async def _page_news(self, asked: Asked) -> Reply:
        after, seconds = asked.query.number("after", 0), asked.query.seconds("wait")
        self._require_own_group(asked)

        async def look_for_news() -> Reply:
            while due_s := self.pages.due_s:
                await asyncio.sleep(due_s)
            number = self.pages.number if due_s is None else await self._do(asked, self.pages.renew)
            return {"number": number, "changed": number != after}

        with self.pages.waiting():
            return await self._waits.until(
                *(SUBJECT, (asked.uid, "page"), min(seconds, self.pages.patience_s), look_for_news),
                lambda answer: bool(answer["changed"]),
            )

    def _require_own_group(self, asked: Asked) -> None:
        group, own = asked.query.group("group"), self._settings.territory
        if group and group != own:
            raise NotFoundError(f"this is not the engine of group {group}; see `rmsplugin groups`")

    async def _config(self, asked: Asked) -> Reply:
        measured = {
            f"durations.{key}": {"value": value, "count": each.count, "since": each.since}
            for each in self._cycle.durations.measured.values()
            for key, value in each.values.items()
        }
        settings = await self._do(asked, lambda: self._settings.model_dump(mode="json"))
        return {"settings": settings, "measured": measured}

    async def _openapi(self, asked: Asked) -> Reply:
        # It never changes: made once, when somebody first asks for it.
        self._document = self._document or dict(await self._do(asked, openapi.document))
        return self._document

    async def _status(self, asked: Asked) -> Reply:
        report, quiet = self._cycle.report, self._cycle.deciding.quiet()

        def read_pause_and_plan() -> Reply:
            with self._ledger.asked_at_once():
                pause, last = (self._ledger.plans.pause, plan_views.last_plan_view(self._ledger, self._clock))
                power = views.power_sentence(self._ledger, self._cycle.seen)
            return {"paused": plan_views.pause_view(pause), "last_plan": last, "power": power}

        reply = {
            "version": __version__,
            "started": self._started,
            "host": socket.gethostname(),
            "epoch": self._epoch,
            "cluster": None if self._controllers is None else self._controllers.view(),
            "last_cycle": {"time": report.time, "seconds": report.seconds, "sentence": report.sentence},
            "cycles": {"number": self._cycle.number, "seconds": self._cycle.seconds},
            "ills": ills(self._cycle, self._started, self._clock.now(), self._settings.engine.cycle_s),
            "problems": report.problems,
            "quiet": quiet.sentence if quiet else None,
            "durations": [
                {"action": each.action, "count": each.count, "since": each.since}
                for each in self._cycle.durations.measured.values()
            ],
            "lateness": self._cycle.powering.felt.view(),
            "held": [views.held_view(held) for held in self._cycle.brake.held],
            **await self._within(_LEDGER_S, self._do(asked, read_pause_and_plan)),
        }
        if not self._requests.keeps_private:
            return reply

        def veil() -> Reply:
            return veiled_views.status(reply, self._sees(asked), self._sight(asked))

        return await self._within(_LEDGER_S, self._do(asked, veil))

    def _sees(self, asked: Asked) -> Callable[[str], bool]:
        """Whether the caller is told of the vjob with a certain name."""
        requests = self._for(asked)
        return lambda name: requests.sees(asked.uid, name)

    async def _within(self, seconds: float, reading: Awaitable[Reply]) -> Reply:
        """What is read, or UnavailableError with the reason as far as it is known: a file server may hang."""
        try:
            return await asyncio.wait_for(reading, seconds)
        except TimeoutError:
            problem = "" if self._controllers is None else self._controllers.shared_problem()
            raise UnavailableError(f"the ledger does not answer{': ' * bool(problem)}{problem}") from None


def _wanted(asked: Asked) -> WantedVJobs:
    """The vjobs that a query chooses."""
    closed = {"state": tuple(VJobState)}
    return WantedVJobs(**{key: asked.query.words(key, closed.get(key, ())) for key in wanted_vjobs.KEYS})


def _runs(answer: Reply) -> bool:
    return bool(answer["state"] == VJobState.RUNNING)
