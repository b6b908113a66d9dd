"""Entry: answers requests for all groups, by the engines that own what is asked about. No HTTP.

It proves nobody's rights: it says who asks, and from where, and the engines decide as if they had been asked.
"""

from __future__ import annotations

import asyncio
import json
import time
import urllib.parse
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from weakref import WeakValueDictionary

from rmsplugin.api import openapi
from rmsplugin.api.answers import Ok
from rmsplugin.api.routes import ROUTES, Door, Key, Route, Tag, Who
from rmsplugin.engine.serve import parsing
from rmsplugin.engine.serve.asked import Asked, Handled, Reply
from rmsplugin.engine.serve.doors import HostNames, read_address
from rmsplugin.engine.territory.leaders_pulse import PULSE
from rmsplugin.engine.territory.leaders_readings import READING
from rmsplugin.errors import (
    ForbiddenError,
    NotFoundError,
    RefusedError,
    RmspluginError,
    UnavailableError,
)
from rmsplugin.manager import merging, site_events
from rmsplugin.manager.group_handover import GroupHandover
from rmsplugin.manager.handing import HAND_ON, Handed, Hands, opened
from rmsplugin.manager.handing_down import HandingDown
from rmsplugin.manager.numbers import Numbers
from rmsplugin.manager.placed import Placed
from rmsplugin.manager.pulse import SharedPulse
from rmsplugin.manager.site_page import SitePage
from rmsplugin.manager.where import WHERE, Where
from rmsplugin.model import job_names
from rmsplugin.model.event_cursor import LEAST_TIME
from rmsplugin.settings import Settings

#: Engines that have not answered a list within so many seconds are left out of it.
_LIST_S = 10.0
#: `rmsplugin status` waits for two seconds, whatever hangs.
_STATUS_S = 1.5
#: A preview waits for a cycle that runs.
_PLAN_S = 300.0
#: Rows of a list unless a caller asks for another number.
_ROWS = 1000
#: How many ids of elements of arrays, and of vjobs before which there are pages, are remembered.
_ARRAYS = 100_000
#: An answer about an element begins so many ids before it: hooks come in any order, and a page has twice as many vjobs.
_BEFORE = _ROWS // 2
#: The most pages that are asked of one engine.
_PAGES = 100

_PLACE_OF_AN_ENGINE = (
    "this place in the events is of one engine, and managers of groups answer here: begin anew without it, or with a "
    "time"
)

_TEXT = {"type": "string", "examples": [""]}
#: The request between managers, which is none of the API.
_BETWEEN = Route(
    "hand_on",
    "POST",
    HAND_ON,
    Ok,
    "A request that another manager hands on.",
    Who.ENGINE,
    Tag.HOOKS,
    Door.TRUSTED,
    body=tuple(Key(name, _TEXT, name) for name in ("group", "method", "target", "data", "uid", "origin")),
)
#: Questions of engines to their manager, and of managers to the one that leads; none of the API either.
_READING = Route(
    "slurm_reading",
    "GET",
    READING,
    Ok,
    "What the leader has read of Slurm.",
    Who.ENGINE,
    Tag.MANAGERS,
    Door.TRUSTED,
    query=tuple(Key(name, _TEXT, name) for name in ("reading", "part", "handed")),
    long=True,
)
_PULSE = Route(
    "slurm_pulse",
    "GET",
    PULSE,
    Ok,
    "Whether Slurm's queue has changed, as the leader sees it.",
    Who.ENGINE,
    Tag.MANAGERS,
    Door.TRUSTED,
    query=tuple(Key(name, _TEXT, name) for name in ("after", "handed")),
)


class Entry:
    """The ``Answers`` of a manager."""

    def __init__(
        self,
        settings: Settings,
        placed: Placed,
        hands: Hands,
        engine_uids: Iterable[int],
        own_status: Callable[[Mapping[str, Reply], Mapping[str, RmspluginError]], Reply],
        names: HostNames | None = None,
        *,
        handover: GroupHandover,
        handing_down: HandingDown,
        pulse: SharedPulse,
    ) -> None:
        """Answer nobody yet.

        Args:
            settings: of the site.
            placed: which group has what.
            hands: ways to engines.
            engine_uids: of root, and of the engine's user.
            own_status: what the manager says itself, given what engines have answered.
            names: addresses of hosts.
            handover: takes orders about whole groups.
            handing_down: has what the leader has read of Slurm.
            pulse: tells when Slurm's queue has changed.
        """
        self._handover, self._handing_down, self._pulse = handover, handing_down, pulse
        self._settings, self._placed, self._hands = settings, placed, hands
        self._engine_uids, self._own_status = frozenset(engine_uids), own_status
        self._names = names or HostNames()
        self._arrays: dict[int, int] = {}  # by the id of an element, that of its array
        #: By the ids that one answer tells of; each as long as somebody asks.
        self._asking_for_arrays: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()
        self._submitted: dict[int, int] = {}  # by the id of a vjob before which a page was offered, in microseconds
        self._document: Reply = {}
        self._site_page = SitePage(self._page_parts, self._numbers)
        self._ways: Mapping[Where, Callable[[Route, Asked], Awaitable[Reply]]] = {
            Where.OWNER: self._of_owner,
            Where.NODE: self._of_node,
            Where.NODE_IN_BODY: self._of_node_in_body,
            Where.NUMBER: self._of_number,
            Where.ALL: self._of_all,
            Where.MERGED: self._of_each,
            Where.VJOBS: self._of_vjobs,
            Where.STORE: self._of_store,
            Where.GROUP: self._of_group,
            Where.FIRST: self._of_any,
            Where.MANAGER: self._of_manager,
        }

    def table(self) -> list[Handled]:
        """All kinds of requests of the API, and those between managers."""
        own = [Handled.of(route, partial(self._ways[WHERE[route.name]], route)) for route in ROUTES]
        between = ((_BETWEEN, self._between), (_READING, self._reading), (_PULSE, self._next_pulse))
        return [*own, *(Handled.of(route, answer) for route, answer in between)]

    async def admitted(self, route: Route, asked: Asked) -> Asked:
        """The request: the engines look at the host that it comes from."""
        return asked

    # -- between managers ----------------------------------------------------------------------------------------

    async def _require_manager(self, asked: Asked, what: str) -> None:
        """Raise ForbiddenError unless engine.user or root asks, on this host or another controller."""
        origin = asked.origin
        trusted = self._settings.engine.trusted_hosts
        if asked.uid not in self._engine_uids or not (
            origin.here or await asyncio.to_thread(self._names.has, origin, trusted)
        ):
            raise ForbiddenError(
                f"only managers {what}, as {self._settings.engine.user}, and {origin} is no controller; see "
                "engine.trusted_hosts in the settings"
            )

    async def _reading(self, asked: Asked) -> Reply:
        await self._require_manager(asked, "are told what the leader has read")
        number, part = asked.query.number("reading", 0), asked.query.number("part", 0)
        return await self._handing_down.answer(number, part, asks_on=not asked.query.flag("handed"))

    async def _next_pulse(self, asked: Asked) -> Reply:
        await self._require_manager(asked, "are told what the leader sees")
        return await self._pulse.answer(asked.query.text("after"), asks_on=not asked.query.flag("handed"))

    async def _between(self, asked: Asked) -> Reply:
        await self._require_manager(asked, "hand requests on")
        origin = asked.origin
        try:
            group, request = opened(asked.data)
            if request.origin:
                read_address(request.origin)
            elif not origin.here:
                # It was asked on a host of that manager itself.
                request = Handed(request.method, request.target, request.data, request.uid, str(origin))
        except ValueError as error:
            raise parsing.BadRequestError(str(error)) from None
        return await self._hands.ask_here(group, request, wait_s=parsing.MAX_WAIT_S)

    # -- one engine ----------------------------------------------------------------------------------------------

    async def _of_owner(self, route: Route, asked: Asked) -> Reply:
        array = job_names.parse(parsing.job_name(asked.path["id"])).job
        if route.tag is Tag.HOOKS:
            array = await self._array_of(array, lets_begin=route.name != "epilog")
        group = self._placed.group_of(array)
        if not group and route.tag is Tag.WRAPPERS:
            raise UnavailableError(f"job {asked.path['id']} is not given to a group now; try again in a moment")
        if not group:
            return await self._of_nobody(route, asked)
        try:
            return await self._from(group, route, asked)
        except NotFoundError:
            await asyncio.to_thread(self._placed.read)  # it may just have been given to another group
            other = self._placed.group_of(array)
            if not other or other == group:
                raise
            return await self._from(other, route, asked)

    async def _array_of(self, job_id: int, *, lets_begin: bool) -> int:
        """The array of an element that a hook of Slurm's calls by its own id; the id itself of any other job.

        Args:
            job_id: the id that the hook has.
            lets_begin: whether the answer of a group that does not know the job would let it begin.

        Raises UnavailableError: such an answer is to be feared, since a group that may have the element is silent.
        """
        if self._placed.group_of(job_id):
            return job_id
        if job_id in self._arrays:
            return self._arrays[job_id]
        # One answer tells of many elements, whose hooks come together.
        async with self._asking_for_arrays.setdefault(job_id // _BEFORE, asyncio.Lock()):
            silent = [] if job_id in self._arrays else await self._ask_for_arrays(job_id)
        if silent and lets_begin:
            raise silent[0]
        return self._arrays.get(job_id, job_id)

    async def _ask_for_arrays(self, job_id: int) -> list[UnavailableError]:
        """Learn the arrays of elements with ids about this one. Returns the errors of silent groups that may have it.

        Slurm gives an element a higher id than its array, but to the last one, which has the same. After the highest
        id it begins again: then it is lower. So the groups with lower ids are asked first.
        """
        lower = {place.group for array, place in self._placed.given.vjobs.items() if array < job_id}
        silent: list[UnavailableError] = []
        for groups in (lower, {place.group for place in self._placed.given.vjobs.values()} - lower):
            errors = await self._learn_arrays(groups, max(0, job_id - _BEFORE))
            silent += [error for error in errors.values() if isinstance(error, UnavailableError)]
            if job_id in self._arrays:
                return []
        return silent

    async def _learn_arrays(self, groups: Iterable[str], after: int) -> Mapping[str, RmspluginError]:
        """Ask these groups for the arrays of elements with ids after this one. Returns the errors of those."""
        request = Handed("GET", f"/v1/vjobs?after={after}", uid=self._engine_uid())
        replies, errors = await self._hands.ask_each(dict.fromkeys(sorted(groups), request), _LIST_S)
        if len(self._arrays) >= _ARRAYS:
            self._arrays.clear()
        for reply in replies.values():
            for row in reply["vjobs"]:
                array, _, element = row["display_id"].partition("_")
                if element:
                    self._arrays[row["job_id"]] = int(array)
        return errors

    async def _of_nobody(self, route: Route, asked: Asked) -> Reply:
        """The answer about a job that no group is given: of the engine that remembers it, or as of one it never met."""
        if route.method != "GET":
            return await self._of_any(route, asked)
        replies, errors = await self._ask_each(self._handed(route, asked))
        told = [merging.of_site(route.name, group, reply, self._numbers()) for group, reply in replies.items()]
        if found := [*filter(merging.is_remembered, told), *map(merging.of_nobody, told)]:
            return found[0]
        silent = [group for group, error in errors.items() if isinstance(error, UnavailableError)]
        others = [error for error in errors.values() if not isinstance(error, UnavailableError)]
        if refusal := next((error for error in others if not isinstance(error, NotFoundError)), None):
            raise refusal
        if silent:
            raise UnavailableError(
                f"no group has a vjob {asked.path['id']}, but group {', '.join(silent)} does not answer: "
                f"{errors[silent[0]]}"
            )
        raise others[0]

    async def _of_any(self, route: Route, asked: Asked) -> Reply:
        """The answer of the first engine that gives one: for what any engine can answer."""
        unknown: NotFoundError | None = None
        silent: UnavailableError | None = None
        for group in self._groups():
            try:
                return await self._from(group, route, asked)
            except UnavailableError as found:
                silent = found
            except NotFoundError as found:
                unknown = found
        raise silent or unknown or UnavailableError("no group has an engine; try again in a moment")

    async def _of_group(self, route: Route, asked: Asked) -> Reply:
        if not asked.query.group("group") and len(self._groups()) > 1:
            return await (self._site_page.page(asked) if route.name == "page" else self._site_page.news(asked))
        group = asked.query.group("group") or self._groups()[0]
        if group not in self._groups():
            raise NotFoundError(f"there is no group {group}; `rmsplugin groups` lists them")
        keys = "".join(_chosen(asked, (key.name for key in route.query if key.name != "group")))
        return await self._from(group, route, asked, f"{route.path}?{keys.removeprefix('&')}")

    async def _of_node(self, route: Route, asked: Asked) -> Reply:
        return await self._from(self._of_host(parsing.node(asked.path["name"])), route, asked)

    async def _of_node_in_body(self, route: Route, asked: Asked) -> Reply:
        return await self._from(self._of_host(asked.body.node("node")), route, asked)

    def _of_host(self, node: str) -> str:
        group = self._placed.group_with(node)
        if not group:
            raise NotFoundError(f"no group has a node {node}; `rmsplugin groups` lists them")
        return group

    async def _of_number(self, route: Route, asked: Asked) -> Reply:
        group, number = self._numbers().group(parsing.operation_id(asked.path["number"]))
        query = asked.target.partition("?")[2]
        path = route.path.replace("{number}", str(number)) + (f"?{query}" if query else "")
        return await self._from(group, route, asked, path)

    async def _from(self, group: str, route: Route, asked: Asked, target: str = "") -> Reply:
        wait_s = asked.query.seconds("wait") if any(key.name == "wait" for key in route.query) else 0.0
        reply = await self._hands.ask(group, self._handed(route, asked, target), wait_s=wait_s)
        return merging.of_site(route.name, group, reply, self._numbers())

    # -- several -------------------------------------------------------------------------------------------------

    async def _of_each(self, route: Route, asked: Asked) -> Reply:
        target, limit = asked.target, _ROWS
        if any(key.name == "limit" for key in route.query):
            limit = asked.query.number("limit", _ROWS, parsing.MAX_EVENTS)
        if route.name == "events":
            return await self._events(route, asked, limit)
        if route.name == "states":
            return await self._states(route, asked)
        if route.name == "vjobs":
            limit = min(limit, _ROWS)  # the most that an engine tells at a time
            target += self._older(asked.query.number("before", 0))
        within_s = _PLAN_S if route.name == "plan" else _LIST_S
        replies, errors = await self._ask_each(self._handed(route, asked, target), within_s)
        found = self._merged(route, replies, errors, limit)
        if route.name == "vjobs" and found.get("older"):
            self._remember_older(found)
        return found

    async def _events(self, route: Route, asked: Asked, limit: int) -> Reply:
        since, begin = asked.query.number("since", 0), asked.query.moment("from")
        after = asked.query.event_cursor("after")
        if 0 < since < LEAST_TIME or (after is not None and not after.is_of_managers):
            raise RefusedError(_PLACE_OF_AN_ENGINE)
        before = after or site_events.start(time.time(), since, begin)
        common = f"{route.path}?limit={limit}" + "".join(_chosen(asked, ("vjob", "node", "user", "kind")))

        async def ask(parts: Mapping[str, str]) -> tuple[dict[str, Reply], dict[str, RmspluginError]]:
            handed = {group: self._handed(route, asked, common + part) for group, part in parts.items()}
            return await self._hands.ask_each(handed, _LIST_S)

        parts = {group: site_events.part_of(group, after, since, begin) for group in self._groups()}
        replies, errors = await ask(parts)
        if after is not None:
            if again := site_events.once_more(after, replies, errors, since, begin):
                more, failed = await ask(again)
                replies = {group: reply for group, reply in replies.items() if group not in again} | more
                errors = {group: error for group, error in errors.items() if group not in again} | failed
            replies = site_events.oldest(replies, limit)
        found = self._merged(route, replies, errors, limit)
        found["events"] = [each for each in found["events"] if each["id"] > since]
        return {**found, **({"cursor": cursor} if (cursor := site_events.told(before, replies)) else {})}

    def _older(self, before: int) -> str:
        """What is added to the question for the page before this vjob, which only one group's engine has."""
        if not before:
            return ""
        if before not in self._submitted:
            raise RefusedError("this page is not known here any more; begin with the first one")
        return f"&at={self._submitted[before]}"

    def _remember_older(self, found: Reply) -> None:
        """Remember when the vjob was submitted with which the next page begins."""
        if len(self._submitted) >= _ARRAYS:
            self._submitted.clear()
        row = next(row for row in found["vjobs"] if row["job_id"] == found["older"])
        self._submitted[found["older"]] = int(row["submitted"] * 1e6)

    async def _states(self, route: Route, asked: Asked) -> Reply:
        if asked.query.number("after", 0):
            return {"states": [], "next": None}  # all are on the first page
        whole: dict[str, Reply] = {}
        targets = dict.fromkeys(self._groups(), "/v1/states")
        errors: dict[str, RmspluginError] = {}
        for _ in range(_PAGES):
            handed = {group: self._handed(route, asked, target) for group, target in targets.items()}
            replies, failed = await self._hands.ask_each(handed, _LIST_S)
            errors |= failed
            for group, reply in replies.items():
                whole.setdefault(group, {"states": []})["states"] += reply["states"]
            targets = {
                group: f"/v1/states?after={reply['next']}"
                for group, reply in replies.items()
                if reply["next"] is not None
            }
            if not targets:
                break
        return self._merged(route, whole, errors, _ROWS)

    def _merged(
        self, route: Route, replies: Mapping[str, Reply], errors: Mapping[str, RmspluginError], limit: int
    ) -> Reply:
        """The answers put together, with the names of the groups that are missing. Raises an error if all are."""
        silent = [group for group, error in errors.items() if isinstance(error, UnavailableError)]
        others = [error for error in errors.values() if not isinstance(error, UnavailableError)]
        refusals = [error for error in others if not isinstance(error, NotFoundError)]
        if refusals:
            raise refusals[0]  # the engines agree about who may ask
        if not replies:
            raise errors[silent[0]] if silent else others[0]
        numbers = self._numbers()
        found = merging.merged(
            route.name,
            {group: merging.of_site(route.name, group, reply, numbers) for group, reply in replies.items()},
            limit,
        )
        return {**found, "silent": silent} if silent else found

    async def _of_all(self, route: Route, asked: Asked) -> Reply:
        replies, errors = await self._ask_each(self._handed(route, asked))
        self._require_all(replies, errors)
        return merging.orders(list(replies.values()))

    def _require_all(self, replies: Mapping[str, Reply], errors: Mapping[str, RmspluginError]) -> None:
        """Raise an error that says which engines have not done what all were told to do."""
        if not errors:
            return
        kind = type(next(iter(errors.values())))
        if not replies and all(isinstance(each, kind) for each in errors.values()):
            raise next(iter(errors.values()))
        failed = "; ".join(f"group {group}: {error}" for group, error in errors.items())
        done = f"done in {', '.join(replies)}" if replies else "done nowhere"
        raise UnavailableError(f"{done}, but not everywhere; do it again. {failed}")

    async def _of_vjobs(self, route: Route, asked: Asked) -> Reply:
        of: dict[str, list[str]] = {}
        for name in asked.body.vjobs("vjobs"):
            group = self._placed.group_of(job_names.parse(name).job)
            if not group:
                raise NotFoundError(f"no group has a vjob {name}")
            of.setdefault(group, []).append(name)
        handed = {
            group: self._handed(route, asked, data=json.dumps({"vjobs": names}).encode()) for group, names in of.items()
        }
        replies, errors = await self._hands.ask_each(
            handed or {each: self._handed(route, asked) for each in self._groups()}, _LIST_S
        )
        self._require_all(replies, errors)
        return {"confirmed": [vjob for reply in replies.values() for vjob in reply["confirmed"]]}

    async def _of_store(self, route: Route, asked: Asked) -> Reply:
        store = asked.body.node("store")
        if self._placed.group_with(store):
            return await self._from(self._placed.group_with(store), route, asked)
        replies, errors = await self._ask_each(self._handed(route, asked))
        self._require_all(
            replies, {group: each for group, each in errors.items() if not isinstance(each, NotFoundError)}
        )
        if not replies:
            raise next(iter(errors.values()))
        return {"ok": True}

    async def _of_manager(self, route: Route, asked: Asked) -> Reply:
        if route.name == "status":
            groups = sorted(self._placed.given.groups)
            replies, errors = await self._hands.ask_each(
                {group: self._handed(route, asked) for group in groups}, _STATUS_S
            )
            numbers = Numbers(groups)
            told = {group: merging.of_site("status", group, reply, numbers) for group, reply in replies.items()}
            return merging.status(told, self._own_status(told, errors))
        if route.name == "openapi":
            self._document = self._document or dict(await asyncio.to_thread(openapi.document))
            return self._document
        if route.name == "config":
            replies, _ = await self._hands.ask_each(
                {group: self._handed(route, asked) for group in self._placed.given.groups}, _STATUS_S
            )
            measured = merging.measured_values(replies)
            return {"settings": self._settings.model_dump(mode="json"), "measured": measured}
        if route.name == "handover":
            return await self._handover.hand_over(asked)
        raise RefusedError("a manager has no group of its own; ask the engine of a group, on its socket")

    # -- parts ---------------------------------------------------------------------------------------------------

    def _handed(self, route: Route, asked: Asked, target: str = "", data: bytes | None = None) -> Handed:
        origin = "" if asked.origin.here else str(asked.origin)
        return Handed(route.method, target or asked.target, asked.data if data is None else data, asked.uid, origin)

    async def _ask_each(
        self, request: Handed, within_s: float = _LIST_S
    ) -> tuple[dict[str, Reply], dict[str, RmspluginError]]:
        return await self._hands.ask_each(dict.fromkeys(self._groups(), request), within_s)

    async def _page_parts(self, asked: Asked, target: str) -> tuple[dict[str, Reply], dict[str, RmspluginError]]:
        origin = "" if asked.origin.here else str(asked.origin)
        return await self._ask_each(Handed("GET", target, b"", asked.uid, origin), _STATUS_S)

    def _groups(self) -> list[str]:
        groups = sorted(self._placed.given.groups)
        if not groups:
            raise UnavailableError("no manager has given groups yet; try again in a moment")
        return groups

    def _numbers(self) -> Numbers:
        return Numbers(self._placed.given.groups)

    def _engine_uid(self) -> int:
        return max(self._engine_uids)


def _chosen(asked: Asked, keys: Iterable[str]) -> Iterator[str]:
    """The keys of a query that an engine understands as the manager does, for another query."""
    for key in keys:
        if value := asked.query.text(key):
            yield f"&{key}={urllib.parse.quote(value, safe='')}"
