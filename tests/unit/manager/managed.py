"""Managers that answer for real engines on simulated clusters: real sockets, and munge between managers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from patience import PATIENCE_S
from unit.api_forms import faults_of
from unit.served import ME, Served, answer_of, request_bytes

from rmsplugin.adapters.coordination.assignments import Assignment
from rmsplugin.adapters.coordination.members import Member
from rmsplugin.adapters.rms.slurm_reading import SlurmTexts
from rmsplugin.client import EngineClient
from rmsplugin.engine.serve.doors import HostNames
from rmsplugin.engine.serve.front import Front
from rmsplugin.engine.serve.rights import Rights
from rmsplugin.engine.serve.turns import Turns
from rmsplugin.errors import RmspluginError
from rmsplugin.groups.given import Given, Place
from rmsplugin.manager.entry import Entry
from rmsplugin.manager.group_handover import GroupHandover
from rmsplugin.manager.handing import Hands
from rmsplugin.manager.handing_down import HandingDown
from rmsplugin.manager.pulse import SharedPulse
from rmsplugin.manager.readings import Readings
from rmsplugin.settings.cluster import Cluster


def engine(directory: Path, cluster: Cluster | None = None) -> Served:
    """The engine of a group, whose socket only managers reach."""
    directory.mkdir()
    made = Served(directory, cluster=cluster)
    made.service._front._behind_a_manager = True
    return made


class Managed:
    """A manager without processes: its engines are those that a test has made."""

    def __init__(
        self,
        directory: Path,
        name: str,
        sockets: Mapping[str, str],
        managers: Mapping[str, str],
        urls: Mapping[str, str],
        given: Given,
        *,
        munge_socket: str = "",
        port: int = 0,
        trusted: tuple[str, ...] = (),
        base: Served,
    ) -> None:
        """``sockets``: of engines here; ``managers``: by group, its manager; ``urls``: by manager."""
        self.socket = str(directory / f"{name}.sock")
        listen = f"127.0.0.1:{port}" if port else ""
        section = base.context.settings.engine.model_copy(
            update={"socket": Path(self.socket), "listen": listen, "trusted_hosts": trusted}
        )
        settings = base.context.settings.model_copy(update={"engine": section})
        self.site = SimpleNamespace(
            name=name,
            assignments={group: Assignment((), manager) for group, manager in managers.items()},
            members={each: Member(each, {"url": url}) for each, url in urls.items()},
            lease=SimpleNamespace(held=lambda: self.leads, epoch=7),
            leader=next(iter(urls), name),
        )
        self.leads = self.site.leader == name
        self.readings = 0
        self.placed = SimpleNamespace(
            given=given,
            group_of=lambda array: given.vjobs[array].group if array in given.vjobs else "",
            group_with=lambda node: next((g for g, hosts in given.groups.items() if node in hosts), ""),
            read=lambda: None,
        )
        hands = self._hands = Hands(
            settings,
            self.site,  # type: ignore[arg-type]
            lambda group: sockets.get(group, str(directory / "no.sock")),
            ME,
            munge_socket=munge_socket,
        )
        self.kept: list[tuple[str, str, str]] = []  # where operators want groups
        self.site.keep_at = lambda *wish: self.kept.append(wish)
        names = HostNames()
        rights = Rights(frozenset({0, ME}), frozenset())
        fit = SimpleNamespace(unfit=dict, doubted=frozenset)
        handover = GroupHandover(self.site, hands, rights, names, trusted, fit)  # type: ignore[arg-type]
        self._shared = Readings(self._read)
        self._pulse = SharedPulse(self.site, hands, lambda: f"{name}'s jobs", 1e9)  # type: ignore[arg-type]
        self.entry = Entry(
            settings,
            self.placed,  # type: ignore[arg-type]
            hands,
            {0, ME},
            _own_status,
            names,
            handover=handover,
            handing_down=HandingDown(self.site, self._shared, hands),  # type: ignore[arg-type]
            pulse=self._pulse,
        )
        self._turns = Turns("entry")
        self.cannot_hear = ""
        self.front = Front(
            section,
            {0, ME},
            self.entry,
            self._turns,
            unheard=self._not_heard,
            hears=lambda: not self.cannot_hear,
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="manager")
        self._thread.start()
        self._run(self.front.open())

    def _read(self) -> tuple[Any, SlurmTexts]:
        self.readings += 1
        return None, SlurmTexts("site", f"jobs as {self.site.name} has read them", "token")

    def _not_heard(self, why: str) -> None:
        self.cannot_hear = why

    def _run(self, coroutine: Any) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE_S)

    def close(self) -> None:
        self._run(self.front.close())
        self._run(self._pulse.close())
        self._run(self._shared.close())
        self._run(self._hands.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()
        self._turns.close()

    def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, dict[str, Any]]:
        """Status and body of the answer, which has the form that the API describes."""
        import socket

        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE_S)
            connection.connect(self.socket)
            connection.sendall(request_bytes(method, path, body))
            status, answer = answer_of(connection)
        assert faults_of(method, path, status, answer) == []
        return status, answer


def _own_status(replies: Mapping[str, Any], errors: Mapping[str, RmspluginError]) -> dict[str, Any]:
    return {"version": "1", "started": 0.0, "host": "h", "epoch": 3, "cluster": None, "problems": [], "groups": []}


def given(groups: Mapping[str, tuple[str, ...]], **vjobs: str) -> Given:
    """``vjobs``: by "jID", the group."""
    return Given(3, 1, groups, {int(job[1:]): Place(group) for job, group in vjobs.items()})


def client_of(port: int, munge_socket: str) -> EngineClient:
    return EngineClient.tcp(f"http://127.0.0.1:{port}", ME, munge_socket=munge_socket)


Closing = Callable[[], None]
