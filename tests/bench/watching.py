"""ac. Live page: what a page of a large site takes, beside a list of all vjobs from the same engine.

Wall seconds over the socket, by turns. A new page is put together from the ledger and written; one that is kept is only
sent. CPU seconds of the engine's process are told, too: on a machine that does other things they say more.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from bench.large_site import LargeSite
from bench.measure import Report, median, progress, ratio
from rmsplugin.client import EngineClient
from rmsplugin.engine.serve import live_pages

#: Nodes, VMs that run, vjobs that wait, and rounds.
SIZES: Mapping[str, tuple[int, int, int, int]] = {
    "full": (1000, 5000, 1000, 15),
    "quick": (200, 1000, 200, 7),
    "tiny": (4, 8, 2, 2),
}
#: The most that a new page may take, at a site of 1,000 nodes and 5,000 VMs.
_MOST_S = 0.1


def run(sizes: tuple[int, int, int, int], report: Report) -> None:
    """Measure both by turns."""
    nodes, running, waiting, rounds = sizes
    report.title("ac", f"a live page beside a list of all vjobs: {nodes} nodes, {running} VMs, {waiting} waiting")
    with tempfile.TemporaryDirectory() as directory:
        site = LargeSite(Path(directory), nodes, running, waiting)
        with contextlib.closing(site), _made_for_each_question():
            _measure(site, rounds, report)
    ways = ("new page", "kept page", "list of vjobs")
    keys = ("wall_s", "cpu_s")
    found = {way: {key: median([row[key] for row in report.of(way=way)]) for key in keys} for way in ways}
    size = max(row["bytes"] for row in report.of(way="new page"))
    rows = [[way, 1000 * found[way]["wall_s"], 1000 * found[way]["cpu_s"]] for way in ways]
    report.table(["", "ms of wall", "ms of CPU"], rows)
    print(f"the page has {size} bytes; bound of a new page: {1000 * _MOST_S:.0f} ms")
    report.ratio("CPU time of a list of all vjobs / of a new page", _quotient(found, "new page", "list of vjobs"))
    report.ratio("CPU time of a new page / of a kept one", _quotient(found, "kept page", "new page"))


def _quotient(found: Mapping[str, Mapping[str, float]], one: str, other: str) -> float:
    return ratio(found[one]["cpu_s"], found[other]["cpu_s"])


@contextlib.contextmanager
def _made_for_each_question():  # type: ignore[no-untyped-def]
    """Have a page made anew as soon as something has changed."""
    fresh_s = live_pages.FRESH_S
    live_pages.FRESH_S = 0.0
    try:
        yield
    finally:
        live_pages.FRESH_S = fresh_s


def _measure(site: LargeSite, rounds: int, report: Report) -> None:
    client = EngineClient.unix(site.socket)
    site.signs_of_life()
    site.cycle.run()
    for turn in range(rounds):
        progress(f"ac: round {turn + 1} of {rounds}")
        site.service.page_changed()
        for way in ("new page", "kept page"):
            wall, cpu = time.perf_counter(), time.process_time()
            size = _page(site.socket)
            report.record(way=way, wall_s=time.perf_counter() - wall, cpu_s=time.process_time() - cpu, bytes=size)
        wall, cpu = time.perf_counter(), time.process_time()
        _list(client)
        report.record(way="list of vjobs", wall_s=time.perf_counter() - wall, cpu_s=time.process_time() - cpu)
    progress("")


def _page(path: str) -> int:
    """The bytes of a page, as a browser gets it."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        connection.sendall(b"GET /v1/page HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\n\r\n")
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        if answer.status != 200:
            raise RuntimeError(f"a page was answered with {answer.status}")
        return len(answer.read())


def _list(client: EngineClient) -> None:
    """All pages of the vjobs that have not ended."""
    after = 0
    while after is not None:
        after = client.request("GET", f"/v1/vjobs?after={after}")["next"]
