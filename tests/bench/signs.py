"""g. Signs of life: what one costs the controller, next to a process for each credential and a transaction for each."""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import resource
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from unit.munged import Munged
from unit.served import ME, Served

from bench.measure import Report, progress, ratio
from rmsplugin.client import EngineClient
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.serve import front, sealing
from rmsplugin.model.vjob import VJobState

_TICKS = os.sysconf("SC_CLK_TCK")
_WRAPPERS = 1000


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    signs: int = 4000
    processes: int = 500  # signs of the way with processes, which is slow


SIZES = {"full": Sizes(), "quick": Sizes(signs=1000, processes=100), "tiny": Sizes(signs=20, processes=5)}


def run(sizes: Sizes, report: Report) -> None:
    """Measure over TCP, where munge says who asks, and over the unix socket, where the kernel does."""
    report.title("g", f"signs of life: CPU of the controller, ms a sign, and cores for {_WRAPPERS} wrappers")
    with tempfile.TemporaryDirectory() as name:
        munged = Munged(Path(name))
        try:
            results = {
                "TCP, libmunge, in memory": _served(Path(name), munged, sizes.signs, tcp=True),
                "unix socket, in memory": _served(Path(name), munged, sizes.signs, tcp=False),
                "munge processes and a transaction, without HTTP": _processes(Path(name), munged, sizes.processes),
            }
        finally:
            munged.stop()
    rows = []
    for way, (signs, engine_s, munged_s) in results.items():
        total_ms = 1000 * (engine_s + munged_s) / signs
        report.record(way=way, signs=signs, engine_s=engine_s, munged_s=munged_s)
        each = [1000 * engine_s / signs, 1000 * munged_s / signs, total_ms]
        rows.append([way, signs, *each, *(_WRAPPERS / every_s * total_ms / 1000 for every_s in (10, 20))])
    report.table(["way", "n", "engine ms", "munged ms", "both ms", "cores, every 10 s", "cores, every 20 s"], rows)
    report.ratio("CPU of a sign over TCP: with processes and a transaction / ours", ratio(rows[0][4], rows[2][4]))


def _served(directory: Path, munged: Munged, signs: int, *, tcp: bool) -> tuple[int, float, float]:
    """CPU seconds of an engine of its own process, and of munged, for that many signs of life."""
    progress(f"g: {'TCP' if tcp else 'unix'}")
    ours, theirs = multiprocessing.Pipe()
    where = Path(tempfile.mkdtemp(dir=directory))
    engine = multiprocessing.get_context("fork").Process(target=_engine, args=(where, munged.socket, tcp, theirs))
    engine.start()
    port = ours.recv()
    unix = EngineClient.unix(str(where / "engine.sock"))
    over_tcp = EngineClient.tcp(f"http://127.0.0.1:{port}", ME, munge_socket=munged.socket) if tcp else None
    client = over_tcp or unix
    assert engine.pid is not None
    client.request("POST", "/v1/jobs/12/attached")  # what is done once is not counted
    before = _cpu_s(engine.pid), _cpu_s(munged.pid)
    clients_s = _each(signs, lambda: client.request("POST", "/v1/jobs/12/attached"), munged)
    engine_s, munged_s = _cpu_s(engine.pid) - before[0], _cpu_s(munged.pid) - before[1] - clients_s
    ours.send("end")
    engine.join()
    return signs, engine_s, max(munged_s, 0.0)


def _each(signs: int, act: Callable[[], Any], munged: Munged) -> float:
    """Do it so often; returns what munged does on the other host: half of the credentials are made or checked there."""
    before = _cpu_s(munged.pid)
    for _ in range(signs):
        act()
    return (_cpu_s(munged.pid) - before) / 2


def _engine(directory: Path, munge_socket: str, tcp: bool, pipe: Connection) -> None:
    for name in ("verify_request", "seal_response"):
        setattr(front, name, functools.partial(getattr(sealing, name), munge_socket=munge_socket))
    served = Served(directory, tcp=tcp)
    served.add_vjob(12, ME, VJobState.RUNNING)
    pipe.send(served.port)
    pipe.recv()
    served.close()


def _processes(directory: Path, munged: Munged, signs: int) -> tuple[int, float, float]:
    """The same work with unmunge, a transaction and munge for each sign; neither HTTP nor JSON is counted."""
    progress("g: processes")
    served = Served(Path(tempfile.mkdtemp(dir=directory)))
    served.add_vjob(12, ME, VJobState.RUNNING)
    payload = json.dumps({"nonce": "0" * 32, "status": 200, "body": {"state": "running"}}).encode()
    requests = [munged.encode_as(ME, payload) for _ in range(signs)]
    before, munged_before = _own_s(), _cpu_s(munged.pid)
    for request in requests:
        _sign_by_processes(served.ledger, munged.socket, request.encode(), payload)
    found = _own_s() - before, _cpu_s(munged.pid) - munged_before
    served.close()
    progress("")
    return signs, *found


def _sign_by_processes(ledger: Ledger, munge_socket: str, request: bytes, payload: bytes) -> None:
    option = f"--socket={munge_socket}"
    subprocess.run(["unmunge", option, "--numeric"], input=request, capture_output=True, check=True)
    ledger.update_vjob(ledger.find_vjob("12").job_id, wrapper_seen=1.0)
    subprocess.run(["munge", option, f"--restrict-uid={ME}"], input=payload, capture_output=True, check=True)


def _own_s() -> float:
    """CPU seconds of this process and of those that it started and waited for."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def _cpu_s(pid: int) -> float:
    """CPU seconds of a process that runs."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
