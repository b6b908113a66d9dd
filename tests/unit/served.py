"""The real service of an engine on a simulated cluster: real sockets, real threads, a real ledger."""

from __future__ import annotations

import asyncio
import dataclasses
import http.client
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from apscheduler.schedulers.base import BaseScheduler
from patience import PATIENCE_S
from scenarios.world import World
from unit.api_forms import faults_of

from rmsplugin.engine.controllers.controllers import Controllers
from rmsplugin.engine.ledger.rows import VJobRow, VMRow
from rmsplugin.engine.schedule.jobs import jobs_of
from rmsplugin.engine.schedule.programs import Programs
from rmsplugin.engine.schedule.runs import Runs
from rmsplugin.engine.schedule.timetable import Timetable
from rmsplugin.engine.serve.requests import Requests
from rmsplugin.engine.serve.service import Service
from rmsplugin.model.vjob import Geometry, VJobState
from rmsplugin.model.vm_phase import VMPhase
from rmsplugin.settings.cluster import Cluster
from rmsplugin.settings.page import Page

ME = os.getuid()


class Still(BaseScheduler):
    """A scheduler that knows the times of all jobs, and begins none."""

    def wakeup(self) -> None:
        """Do nothing."""

    def shutdown(self, wait: bool = True) -> None:
        super().shutdown(wait)


class Served:
    """An engine whose service listens until ``close``."""

    def __init__(
        self,
        directory: Path,
        *,
        tcp: bool = False,
        state_dir: Path | None = None,
        controllers: Controllers | None = None,
        cluster: Cluster | None = None,
        page: Page | None = None,
        **engine: Any,
    ) -> None:
        """Begin to listen.

        Args:
            directory: of the world.
            tcp: whether it listens on a port, too.
            state_dir: where reports find a ledger, if not that of the world.
            controllers: of several engines.
            cluster: settings of several engines.
            page: settings of the live page.
            engine: more settings of the engine.
        """
        self.socket = str(directory / "engine.sock")
        self.port = _free_port() if tcp else 0
        listen = f"127.0.0.1:{self.port}" if tcp else ""
        self.world = World(directory)
        settings = self.world.context.settings
        places = {"socket": Path(self.socket), "state_dir": state_dir or directory}
        section = settings.engine.model_copy(update={**places, "listen": listen, **engine})
        changes = {"engine": section, "cluster": cluster or settings.cluster, "page": page or settings.page}
        self.context = dataclasses.replace(self.world.context, settings=settings.model_copy(update=changes))
        self.ledger = self.context.ledger
        self.ledger.checks_phases = False  # type: ignore[attr-defined]
        cycle = self.world.cycle
        requests = Requests(self.context, self.world.executor, self.world.placing, cycle, lambda: None)
        programs = Programs(directory / "rmsplugin.toml")
        jobs = jobs_of(self.context, programs, cycle.gate, lambda: cycle.seen)
        clock, last = self.context.clock, self.ledger.schedule.last
        self.runs = Runs(self.ledger, clock)
        self.timetable = Timetable(jobs, self.runs, last, clock.of_the_host, Still(timezone="UTC"))
        self.timetable.start()
        self.leads: Callable[[], bool] = lambda: True
        self.service = Service(self.context, requests, cycle, self.timetable, controllers, leads=lambda: self.leads())
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="event loop")
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.service.open(), self._loop).result(PATIENCE_S)

    def close(self) -> None:
        """End it, and whatever it serves."""
        asyncio.run_coroutine_threadsafe(self.service.close(), self._loop).result(PATIENCE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()
        self.ledger.close()

    @property
    def waiting(self) -> int:
        """How many requests wait for a change."""
        return self.service.waiting

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return self.service.connections

    def connect(self) -> socket.socket:
        """A connection of ours."""
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(PATIENCE_S)
        connection.connect(self.socket)
        return connection

    def send(self, method: str, path: str, body: object = None) -> socket.socket:
        """Send a request and do not wait for its answer."""
        connection = self.connect()
        connection.sendall(request_bytes(method, path, b"" if body is None else json.dumps(body).encode()))
        return connection

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, dict[str, Any]]:
        """Send a request; status and body of its answer, which has the form that the API describes."""
        with self.send(method, path, body) as connection:
            status, answer = answer_of(connection)
        assert faults_of(method, path, status, answer) == []
        return status, answer

    def add_vjob(self, job_id: int, uid: int, state: VJobState = VJobState.WAITING, **changes: Any) -> None:
        """A vjob with one VM."""
        self.ledger.add_vjob(
            VJobRow(
                **{
                    "job_id": job_id,
                    "display_id": str(job_id),
                    "user": f"u{uid}",
                    "uid": uid,
                    "partition": "vjob",
                    "geometry": Geometry(1, 1, 256),
                    "state": state,
                    "reason": "for a test",
                    "submitted": 100.0,
                    "state_since": 100.0,
                    "private_key": "SECRET",
                    **changes,
                }
            )
        )
        row = VMRow(f"vjob{job_id}-0", job_id, 0, "u", "m", f"10.0.0.{job_id % 200}", "n1", memory_mib=512)
        self.ledger.set_vms(job_id, [row])
        if state.is_live and state is not VJobState.STARTING:
            self.ledger.enter_phase(row.name, VMPhase.BOOTING)
            self.ledger.enter_phase(row.name, VMPhase.LIVE)


def request_bytes(method: str, path: str, body: bytes = b"") -> bytes:
    """A request as it goes over the wire."""
    return f"{method} {path} HTTP/1.1\r\nHost: engine\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def answer_of(connection: socket.socket) -> tuple[int, dict[str, Any]]:
    """Status and body of the answer that comes."""
    response = http.client.HTTPResponse(connection)
    response.begin()
    answer = json.loads(response.read())
    assert isinstance(answer, dict)
    return response.status, answer


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.01)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
