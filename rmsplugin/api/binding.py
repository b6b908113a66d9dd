"""Binding: the API of the engine for programs in Python, with types: for portals, and for the command line.

    from rmsplugin.api.binding import Engine

    engine = Engine.of_site()
    for vjob in engine.vjobs():
        print(vjob["display_id"], vjob["state"], vjob["reason"])
    engine.wait(engine.suspend("12"))

A method is named after its route in ``rmsplugin.api.routes``, which says who may ask for it. The caller is the user as
whom the program runs: the kernel, or munge, proves it to the engine.

Errors are those of ``rmsplugin.errors``. Their text is a sentence for a person, their ``status`` the engine's HTTP
status: NotFoundError (404), ForbiddenError (401, 403), RefusedError (400, 409), UnavailableError (429, 5xx, or 0: no
engine answered).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Literal, cast

from rmsplugin import defaults
from rmsplugin.client import EngineClient
from rmsplugin.errors import (
    NoMungeError,
    RefusedError,
    RmspluginError,
    SettingsError,
    SilentError,
    UnavailableError,
    UnreachableError,
)
from rmsplugin.model import job_names

if TYPE_CHECKING:
    from pathlib import Path

    from rmsplugin.api import answers
    from rmsplugin.settings import Settings

#: Longest wait of one question how far an operation is.
_WAIT_S = 20.0
#: An engine that is restarted while it works goes on with the operation; so long it is waited for.
_PATIENCE_S = 60.0
#: Guests are asked for up to 20 s, and a user has two turns at a time.
_USAGE_S = 60.0
#: A cycle that runs is waited for, and a look at silent nodes and a solver that fails both take their time.
_PLAN_S = 300.0
#: All states are read before anything begins: as long as copying them may take.
_VERIFY_S = 3600.0
#: Both commands of nodes.fence and nodes.fence_status may take their whole bound, an hour each.
_FENCE_S = 7300.0
#: A node that does not answer is noticed at the bound of a connection.
_GONE_S = 120.0
# Others go to the end of the line first; a killed one is there until its session has ended, which is a minute at most.
_MAKE_WAY_S = 90.0
#: The HTTP status of what is refused as things are now.
_CONFLICT = 409
#: The most rows that the engine tells at once.
_MOST_ROWS = 10_000


class SeveralError(RefusedError):
    """The name means several elements of a job array, and nothing was begun: ask for each of them.

    Attributes:
        elements: each with its display id and its state.
    """

    def __init__(self, name: str, elements: list[answers.Element]) -> None:
        super().__init__(f"{name} is a job array of {len(elements)} elements: name one of them")
        self.elements = elements


class Engine:
    """The engine of a cluster; of several engines, the one that answers."""

    def __init__(
        self, clients: Sequence[EngineClient], *, timeout_s: float = 30.0, scancel: str | Path = "scancel"
    ) -> None:
        """Ask these, in their order, beginning with the one that answered last.

        Args:
            clients: at least one.
            timeout_s: the longest silence of the engine, where a request takes no longer by its nature.
            scancel: Slurm's program of that name.
        """
        self._clients = list(clients)
        #: Told the groups that are missing in the answer to a question, as their engines do not answer.
        self.on_silent: Callable[[list[str]], object] = lambda groups: None
        #: Entered while an engine is asked: told its place, and the longest wait in seconds. Not for requests that take
        #: long by their nature.
        self.while_asked: Callable[[str, float], AbstractContextManager[None]] = lambda place, bound_s: nullcontext()
        self._scancel = str(scancel)
        self._timeout_s = timeout_s

    @classmethod
    def here(cls, socket: str = defaults.SOCKET, *, timeout_s: float = 30.0) -> Engine:
        """The engine on this host."""
        return cls([EngineClient.unix(socket)], timeout_s=timeout_s)

    @classmethod
    def at(cls, urls: Sequence[str], *, user: str = defaults.USER, timeout_s: float = 30.0) -> Engine:
        """The engine at one of these addresses, reached over TCP.

        Args:
            urls: each ``http://HOST:PORT``, at least one.
            user: the account that the engine runs as; answers of others but root are refused.
            timeout_s: as of ``Engine``.

        Raises:
            SettingsError: there is no such account here.
            RefusedError: a URL is not of that form.
        """
        uid = _uid(user)
        return cls([EngineClient.tcp(url, uid) for url in urls], timeout_s=timeout_s)

    @classmethod
    def of_site(cls, config: str | None = None) -> Engine:
        """The engine that the settings file names, as the commands find it. Raises SettingsError, UnavailableError.

        Four keys of the file are needed. To check the other ones takes longer than to ask the engine: that is done
        only where these four lead to no engine, because a fault of the file may be why.
        """
        import tomllib

        try:
            with open(config or os.environ.get("RMSPLUGIN_CONFIG") or defaults.CONFIG, "rb") as file:
                sections = tomllib.load(file)
            section, bin_dir = sections.get("engine", {}), sections["slurm"].get("bin_dir", "")
            socket, url = section.get("socket", defaults.SOCKET), section.get("url", "")
            words = (socket, url, section.get("user", defaults.USER), bin_dir)
            if all(isinstance(word, str) for word in words):
                return cls._found(*words)
        except (AttributeError, KeyError, OSError, RmspluginError, ValueError, RecursionError):
            pass
        from rmsplugin import settings

        return cls.of(settings.load(settings.settings_path(config)))

    @classmethod
    def of(cls, settings: Settings) -> Engine:
        """The engine of these settings: by its socket when it is on this host, else over TCP with munge.

        Raises:
            UnavailableError: there is no socket here, and the settings name no address; or none can be looked for.
            SettingsError: the account that the engine runs as does not exist here.
        """
        engine = settings.engine
        return cls._found(str(engine.socket), engine.url, engine.user, settings.slurm.bin_dir)

    @classmethod
    def _found(cls, socket: str, url: str, user: str, bin_dir: str) -> Engine:
        urls = url.split()
        try:
            os.stat(socket)
            found = cls.here(socket)
            if len(urls) > 1:  # the engine of this host may stand by
                found._clients += cls.at(urls, user=user)._clients
        except (FileNotFoundError, NotADirectoryError):
            if not urls:
                raise UnavailableError(
                    f"no engine on this host (there is no {socket}), and engine.url, where it would be reached from "
                    "other hosts, is not set in the settings"
                ) from None
            found = cls.at(urls, user=user)
        except (OSError, ValueError) as error:  # no permission; links in a circle; a null byte
            why = getattr(error, "strerror", None) or error
            raise UnavailableError(f"the engine's socket cannot be looked at: {socket!r}: {why}") from None
        if bin_dir:
            found._scancel = f"{bin_dir}/scancel"
        return found

    @property
    def places(self) -> list[str]:
        """Where it is asked, in that order: the path of a socket of this host, or HOST:PORT, which needs munge."""
        return [str(each) for each in self._clients]

    # -- monitoring ----------------------------------------------------------------------------------------------

    def status(self, *, within_s: float = 0.0) -> answers.Status:
        """The engine, and what it did last; ``within_s``: the longest silence, 0: that of the binding."""
        return cast("answers.Status", self._get("/v1/status", within_s))

    def nodes(self) -> list[answers.Node]:
        """The nodes that may host VMs, and what of them is taken."""
        return cast("list[answers.Node]", rows_of(self._get("/v1/nodes"), "nodes"))

    def groups(self) -> list[answers.Group]:
        """The groups of VM hosts."""
        return cast("list[answers.Group]", rows_of(self._get("/v1/groups"), "groups"))

    def schedule(self) -> list[answers.Scheduled]:
        """What is done at times of day."""
        return cast("list[answers.Scheduled]", rows_of(self._get("/v1/schedule"), "schedule"))

    def config(self) -> answers.Config:
        """The settings that the engine runs with."""
        return cast("answers.Config", self._get("/v1/config"))

    def vjobs(self, *, ended: int = 0) -> list[answers.VJob]:
        """The vjobs that have not ended, and the newest ``ended`` that have, in order of first submission."""
        return self.vjobs_and_more(ended=ended or None)[0]

    def vjobs_and_more(
        self, *, ended: int | None = None, wanted: Mapping[str, Sequence[str]] | None = None
    ) -> tuple[list[answers.VJob], bool]:
        """As ``vjobs``, and whether there are more that have ended than were asked for; None: not asked for.

        ``wanted``: by key of the route, such as ``user``, the values of which one has to fit; of those that have ended
        all are told.
        """
        ends = {} if ended is None else {"ended": ["1"], "limit": [str(ended)]}
        path = _path("/v1/vjobs", {**ends, **(wanted or {})})
        rows, first = self._pages(path, "vjobs")
        try:
            older, more = self._older(first, ended or 0)
        except RefusedError as error:
            if error.status != _CONFLICT:
                raise
            # The manager that has offered the next page is gone, or has begun anew: another one has answered.
            rows, first = self._pages(path, "vjobs")
            older, more = self._older(first, ended or 0)
        found = cast("list[answers.VJob]", [*rows, *older])
        return sorted(found, key=lambda row: (row.get("submitted") or 0, row.get("job_id") or 0)), more

    def vjobs_named(self, name: str) -> list[answers.VJob]:
        """The vjobs of this name, ended or not: one, or elements of an array; none is no error."""
        rows, _ = self._pages(f"/v1/vjobs?ended=1&vjob={_quoted(name)}", "vjobs")
        return cast("list[answers.VJob]", rows)

    def unmet(self, *, vjob: str = "", wanted: Mapping[str, Sequence[str]] | None = None) -> list[answers.UnmetVJobs]:
        """Jobs that Slurm has and the engine does not know yet, elements of arrays folded; ``wanted``: as above."""
        path = _path("/v1/unmet", {**({"vjob": [vjob]} if vjob else {}), **(wanted or {})})
        return cast("list[answers.UnmetVJobs]", self._pages(path, "vjobs")[0])

    def vjob(self, name: str) -> answers.VJob | answers.UnmetVJobs:
        """One vjob, also one that the engine has not met yet. Raises NotFoundError."""
        return cast("answers.VJob | answers.UnmetVJobs", part_of(self._get(_job(name)), "vjob"))

    def vms(self, *, vjob: str = "") -> list[answers.VM]:
        """The VMs of vjobs that have not ended; ``vjob``: only of vjobs of this name."""
        return cast("list[answers.VM]", self._pages(_path("/v1/vms", {"vjob": [vjob] if vjob else []}), "vms")[0])

    def usage(self, name: str) -> list[answers.Usage]:
        """What the processes of vjobs of this name have used; VMs that run are asked now."""
        return cast("list[answers.Usage]", part_of(self._get(_job(name, "/usage"), _USAGE_S), "usage"))

    def decisions(self, name: str) -> list[answers.Decided]:
        """The decisions about vjobs of this name, oldest first."""
        return cast("list[answers.Decided]", rows_of(self._get(_job(name, "/decisions")), "decisions"))

    def events(
        self,
        *,
        since: int = 0,
        vjob: str = "",
        limit: int = 1000,
        begin: float = 0.0,
        wanted: Mapping[str, Sequence[str]] | None = None,
    ) -> list[answers.Event]:
        """What happened after the event number ``since``, oldest first: the newest ``limit`` events.

        Args:
            since: a number of an event.
            vjob: only events of vjobs of this name.
            limit: the most events.
            begin: only those that happened then or later, in seconds since the epoch.
            wanted: by ``node``, ``user`` and ``kind``, the values of which one has to fit.
        """
        return self.events_and_cursor(since=since, vjob=vjob, limit=limit, begin=begin, wanted=wanted)[0]

    def events_and_cursor(
        self,
        *,
        after: str = "",
        since: int = 0,
        vjob: str = "",
        limit: int = 1000,
        begin: float = 0.0,
        wanted: Mapping[str, Sequence[str]] | None = None,
    ) -> tuple[list[answers.Event], str]:
        """As ``events``, and the cursor of the answer: ``after`` of the next question, which so misses no event.

        With ``after`` these are the oldest ``limit`` events since then, and the next question goes on behind them. The
        cursor is empty where an engine of an older release answers.

        Raises:
            RefusedError: with the status 409, one engine answers, and managers have given ``after``, or the reverse.
                With 400, an engine of an older release answers, which takes no ``after``.
        """
        numbers = {"since": [str(since)], "limit": [str(limit)], "vjob": [vjob] if vjob else []}
        times = {"from": [f"{begin:.6f}"] if begin else [], "after": after.split(",") if after else []}
        answer = self._get(_path("/v1/events", {**numbers, **times, **(wanted or {})}))
        return cast("list[answers.Event]", rows_of(answer, "events")), str(answer.get("cursor", ""))

    def cycles(self, *, limit: int = 20) -> list[answers.Cycle]:
        """The newest ``limit`` context switches, oldest first."""
        answer = self._get(f"/v1/cycles?limit={min(limit, _MOST_ROWS)}")
        return cast("list[answers.Cycle]", rows_of(answer, "cycles"))

    def cycle(self, number: int) -> answers.CycleAnswer:
        """One context switch with its steps. Raises NotFoundError."""
        answer = self._get(f"/v1/cycles/{number}")
        rows_of(answer, "steps")
        part_of(answer, "cycle")
        return cast("answers.CycleAnswer", answer)

    def page(self, *, node: str = "", group: str = "") -> answers.Page:
        """The live page, with the VMs of ``node``; with managers, of this group or of all groups."""
        answer = self._get(_path("/v1/page", _given(node=node, group=group)))
        part_of(answer, "html")
        return cast("answers.Page", answer)

    def page_news(self, after: int, *, wait_s: float = 0.0, group: str = "") -> answers.PageNews:
        """Whether there is another live page than that of number ``after``, at the latest after ``wait_s`` seconds."""
        query = _given(after=str(after), wait=f"{wait_s:g}", group=group)
        return cast("answers.PageNews", self._get(_path("/v1/page/news", query), wait_s + _PATIENCE_S))

    def plan(self, *, dot: bool = False, starts: bool = False) -> answers.Preview:
        """The context switch that the next cycle would make; with its graph, and a forecast of ``starts``."""
        flags = {"dot": ["1"] if dot else [], "starts": ["1"] if starts else []}
        answer = self._get(_path("/v1/plan", flags), _PLAN_S)
        part_of(answer, "plan")
        return cast("answers.Preview", answer)

    def openapi(self) -> answers.OpenApi:
        """The description of the API that this engine has."""
        return cast("answers.OpenApi", self._get("/v1/openapi.json"))

    # -- control -------------------------------------------------------------------------------------------------

    def suspend(self, name: str) -> int:
        """Save a running or paused vjob. Returns the number of the operation. Raises SeveralError."""
        return self._begin(name, "suspend", {})

    def resume(self, name: str, *, to: str = "") -> int:
        """Resume a sleeping or paused vjob, ``to`` this node. Returns as ``suspend``."""
        return self._begin(name, "resume", {"to": to})

    def migrate(self, name: str, *, vm: str = "", to: str = "") -> int:
        """Migrate one VM, or all VMs, of a running vjob, ``to`` this node. Returns as ``suspend``."""
        return self._begin(name, "migrate", {"to": to, "vm": vm})

    def prefer(self, name: str, state: str) -> answers.Preferred:
        """Prefer that vjobs of this name are ``running`` or ``sleeping``; ``auto`` takes that back."""
        answer = self._post(_job(name, "/prefer"), {"state": state})
        rows_of(answer, "vjobs")
        return cast("answers.Preferred", answer)

    def resize(self, name: str, *, cpus: int | None = None, memory_mib: int | None = None) -> answers.Resized:
        """Have each VM of vjobs do with so many CPUs or MiB; 0: with all that is booked. None: no change."""
        answer = self._post(_job(name, "/resize"), {"cpus": cpus, "memory_mib": memory_mib})
        rows_of(answer, "vjobs")
        return cast("answers.Resized", answer)

    def cancel(self, name: str) -> None:
        """Cancel the jobs of this name by Slurm's `scancel`, as the user as whom this program runs; no request.

        Raises:
            RefusedError: the name is none, or Slurm refuses, in its words.
            UnavailableError: there is no `scancel` here, or it does not end.
        """
        import subprocess  # here: nothing else needs it

        try:
            job = job_names.parse(name).text
            ended = subprocess.run(
                [self._scancel, job], capture_output=True, text=True, timeout=self._timeout_s, stdin=subprocess.DEVNULL
            )
        except ValueError as error:
            raise RefusedError(str(error)) from None
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UnavailableError(f"scancel cannot be run: {error}") from None
        if ended.returncode != 0:
            said = ended.stderr.strip().partition("\n")[0] or f"scancel ended with {ended.returncode}"
            raise RefusedError(said)

    def operation(self, number: int, *, wait_s: float = 0.0) -> answers.Operation:
        """How far an operation is, at its end or after ``wait_s`` seconds."""
        return cast("answers.Operation", self._get(f"/v1/operations/{number}?wait={wait_s:g}", wait_s + 10))

    def wait(
        self, number: int, *, each_s: float = _WAIT_S, seen: Callable[[answers.Operation], object] = lambda _: None
    ) -> answers.Operation:
        """The operation at its end, done or failed. An engine that is restarted meanwhile is waited for.

        Args:
            number: of the operation.
            each_s: the time between two looks, in seconds; the end is told at once.
            seen: called at each look before the end.

        Raises:
            UnavailableError: no engine answered for a minute; the operation goes on when one is back.
        """
        silent_since: float | None = None
        while True:
            try:
                operation = self.operation(number, wait_s=each_s)
            except UnavailableError as error:
                silent_since = silent_since or time.monotonic()
                if time.monotonic() - silent_since > _PATIENCE_S:
                    raise UnavailableError(
                        f"{error}; operation {number} goes on when the engine is back: see `rmsplugin events`"
                    ) from None
                time.sleep(1)
                continue
            silent_since = None
            if operation.get("state") != "running":
                return operation
            seen(operation)

    def states(self) -> list[answers.SavedStates]:
        """Saved states that were put aside: one's own, for operators all."""
        return cast("list[answers.SavedStates]", self._pages("/v1/states", "states")[0])

    def take_back(self, number: int) -> int:
        """Let a vjob sleep in saved states that were put aside. Returns the number of the operation."""
        return int(part_of(self._post(f"/v1/states/{number}/take-back", None, _VERIFY_S), "operation"))

    def drop_states(self, number: int) -> answers.Ok:
        """Delete saved states that were put aside."""
        return cast("answers.Ok", self._post(f"/v1/states/{number}/drop"))

    # -- orders --------------------------------------------------------------------------------------------------

    def pause(self) -> answers.PauseAnswer:
        """Begin no context switch, start or resume until ``unpause``."""
        return cast("answers.PauseAnswer", self._post("/v1/pause", {}))

    def unpause(self) -> answers.PauseAnswer:
        """End the pause."""
        return cast("answers.PauseAnswer", self._post("/v1/unpause", {}))

    def handover(self, *, to: str = "", group: str = "") -> answers.Handover:
        """Have an engine that stands by lead, that on the host ``to`` or any. The answer comes before it does.

        With managers: have ``group`` go to the manager on the host ``to``, or to another one; ``any``: the leader of
        the managers chooses, as if nobody had said where it is to be.
        """
        body = {"to": to, "group": group} if group else {"to": to}
        return cast("answers.Handover", self._post("/v1/handover", body, _MAKE_WAY_S))

    def confirm(self, vjobs: Sequence[str]) -> list[str]:
        """What is held back about these vjobs is true. Returns the vjobs on which the next cycle acts."""
        return list(part_of(self._post("/v1/confirm", {"vjobs": list(vjobs)}), "confirmed"))

    def new_store(self, store: str) -> answers.Ok:
        """The store of this node, or the one called ``shared``, is a new one."""
        return cast("answers.Ok", self._post("/v1/new-store", {"store": store}))

    def node_gone(self, node: str, *, preview: bool = False) -> answers.NodeOrder:
        """The node is dead, or its VMs are gone."""
        return cast("answers.NodeOrder", self._post(f"/v1/nodes/{_quoted(node)}/gone", _previewed(preview), _GONE_S))

    def node_fence(self, node: str, *, preview: bool = False) -> answers.NodeOrder:
        """Cut the power of the node."""
        return cast("answers.NodeOrder", self._post(f"/v1/nodes/{_quoted(node)}/fence", _previewed(preview), _FENCE_S))

    def node_back(self, node: str) -> answers.Ok:
        """The node is there again."""
        return cast("answers.Ok", self._post(f"/v1/nodes/{_quoted(node)}/back"))

    # -- reports, and the way to VMs -----------------------------------------------------------------------------

    def begin_report(self, question: Mapping[str, Any]) -> int:
        """Have a report made; the keys of the question are those of the route. Returns its number."""
        return int(part_of(self._post("/v1/reports", dict(question)), "report"))

    def report(self, number: int, *, begin: int = 0, wait_s: float = 1.0) -> answers.ReportComing | answers.ReportPiece:
        """A piece of a report from that byte on, or how far it is after ``wait_s`` seconds."""
        path = f"/v1/reports/{number}?wait={wait_s:g}&from={begin}"
        return cast("answers.ReportPiece", self._get(path, wait_s + _PATIENCE_S))

    def access(self, name: str, *, wait_s: float = 10.0) -> answers.Access | answers.Waits:
        """The way to the VMs of one's own vjob, once they are up, at the latest after ``wait_s`` seconds."""
        return cast("answers.Access", self._get(_job(name, f"/access?wait={wait_s:g}"), wait_s + 10))

    # -- one request ---------------------------------------------------------------------------------------------

    def _get(self, path: str, timeout_s: float = 0.0) -> dict[str, Any]:
        # A question may be asked again, whatever became of it.
        answer = self._ask("GET", path, None, timeout_s, UnavailableError)
        if silent := answer.get("silent"):
            self.on_silent(silent)
        return answer

    def _post(self, path: str, body: Mapping[str, Any] | None = None, timeout_s: float = 0.0) -> dict[str, Any]:
        # An order that an engine may have taken is not given to another.
        return self._ask("POST", path, body, timeout_s, UnreachableError)

    def _ask(
        self,
        method: Literal["GET", "POST"],
        path: str,
        body: Mapping[str, Any] | None,
        timeout_s: float,
        passed_over: type[UnavailableError],
    ) -> dict[str, Any]:
        """The answer of the first engine that gives one; the next is asked only after an error of ``passed_over``."""
        clients, timeout_s = list(self._clients), timeout_s or self._timeout_s
        several, silent = len(clients) > 1, list[EngineClient]()
        error = UnavailableError("there is no engine to ask")
        for client in clients:
            try:
                return self._answer(client, method, path, body, timeout_s, several)
            except passed_over as found:
                # Without munge here nobody was asked: that others are gone or not says less than this.
                error = error if isinstance(error, NoMungeError) else found
                silent += [client] if isinstance(found, SilentError) else []
        if not silent:
            raise error
        return self._answer(silent[0], method, path, body, timeout_s, False)  # it may be slow

    def _answer(
        self,
        client: EngineClient,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        timeout_s: float,
        looks: bool,
    ) -> dict[str, Any]:
        by_nature = timeout_s != self._timeout_s
        with nullcontext() if by_nature else self.while_asked(str(client), timeout_s):
            answer = client.request(method, path, body, timeout_s=timeout_s, looks=looks)
        self._clients.sort(key=lambda each: each is not client)
        return answer

    def _begin(self, name: str, what: str, wishes: Mapping[str, str]) -> int:
        body = {key: value for key, value in wishes.items() if value}
        answer = self._post(_job(name, f"/{what}"), body)
        if "elements" in answer:
            raise SeveralError(name, answer["elements"])
        return int(part_of(answer, "operation"))

    # -- lists that are told a part at a time --------------------------------------------------------------------

    def _pages(self, path: str, key: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """All rows of a list, read page by page; and the first answer, for what else it says."""
        first = answer = self._get(path)
        rows = list(rows_of(answer, key))
        last = 0
        while (following := answer.get("next")) and following > last:  # or it would have no end
            last = following
            answer = self._get(f"{path}{'&' if '?' in path else '?'}after={following}")
            rows += rows_of(answer, key)
        return rows, first

    def _older(self, first: Mapping[str, Any], most: int) -> tuple[list[dict[str, Any]], bool]:
        """The vjobs that have ended and are older than those of a first page, ``most`` in all; are there more?"""
        rows: list[dict[str, Any]] = []
        told, answer = int(first.get("ended") or 0), first
        while (before := answer.get("older")) and told < most:
            answer = self._get(f"/v1/vjobs?ended=1&before={before}&limit={most - told}")
            page = rows_of(answer, "vjobs")
            if not page:
                break  # or it might have no end
            rows += page
            told += len(page)
        return rows, bool(answer.get("more"))


def part_of(answer: Mapping[str, Any], key: str) -> Any:
    """A part of an answer. Raises UnavailableError: it has none."""
    if key not in answer:
        raise _without(key)
    return answer[key]


def rows_of(answer: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """The rows of an answer. Raises UnavailableError: it has none."""
    rows = answer.get(key)
    if not isinstance(rows, list):
        raise _without(key)
    return rows


def pieces_of(engine: Engine, number: int, show: Callable[[str, float], None]) -> Iterator[str]:
    """The text of a report, once it is made; ``show`` is called with what is done, and the part of it that is."""
    fetched, size = 0, 1
    while fetched < size:
        answer = engine.report(number, begin=fetched)
        if answer["made"] is False:
            show(answer["doing"], answer["part"])
            continue
        if not answer["text"]:
            raise UnavailableError("the engine's report ends in the middle; ask for it again")
        yield answer["text"]
        size = answer["bytes"]
        fetched += len(answer["text"])
        show("fetching the report", fetched / size)


def _without(key: str) -> UnavailableError:
    return UnavailableError(f"the engine answered without {key!r}; are engine and command of the same version?")


def _previewed(preview: bool) -> dict[str, bool] | None:
    """The body of an order; an engine of an older release knows no previews."""
    return {"preview": True} if preview else None


def _job(name: str, ending: str = "") -> str:
    return f"/v1/jobs/{_quoted(name)}{ending}"


def _path(path: str, query: Mapping[str, Sequence[str]]) -> str:
    """The path with a query; several values have commas between them, and a key without any is left out."""
    keys = "&".join(f"{key}={','.join(map(_quoted, values))}" for key, values in query.items() if values)
    return f"{path}?{keys}" if keys else path


def _given(**keys: str) -> dict[str, list[str]]:
    """A query of the keys that have a value."""
    return {key: [value] for key, value in keys.items() if value}


def _quoted(word: str) -> str:
    if word.isascii() and word.replace("_", "").isalnum():
        return word
    from urllib.parse import quote  # here: most names need none of it

    return quote(word, safe="")


def _uid(user: str) -> int:
    import pwd

    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        raise SettingsError(f"engine.user: no account {user!r} on this host") from None
