"""ab. Metrics: what a scrape takes, beside a list of all vjobs from the same engine; and what a cycle takes for it.

Wall seconds over the sockets, by turns; the text is made anew for each scrape.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from bench.large_site import LargeSite
from bench.measure import Report, median, progress, ratio
from rmsplugin.client import EngineClient
from rmsplugin.engine.capacity.capacity import Capacities
from rmsplugin.engine.metrics import listener
from rmsplugin.engine.metrics.metrics import Metrics

#: Nodes, VMs that run, vjobs that wait, and rounds.
SIZES: Mapping[str, tuple[int, int, int, int]] = {
    "full": (1000, 5000, 1000, 15),
    "quick": (200, 1000, 200, 7),
    "tiny": (4, 8, 2, 2),
}
#: The most that a scrape may take and bring, at a site of 1,000 nodes and 5,000 VMs.
_MOST_S, _MOST_BYTES = 0.1, 1_000_000


def run(sizes: tuple[int, int, int, int], report: Report) -> None:
    """Measure both by turns."""
    nodes, running, waiting, rounds = sizes
    report.title("ab", f"a scrape beside a list of all vjobs: {nodes} nodes, {running} VMs, {waiting} waiting")
    with tempfile.TemporaryDirectory() as directory:
        site = LargeSite(Path(directory), nodes, running, waiting)
        with contextlib.closing(site):
            _measure(site, rounds, report)
    ways = ("scrape", "list of vjobs", "figures of a cycle", "cycle")
    found = {way: median([row["wall_s"] for row in report.of(way=way)]) for way in ways}
    size = max(row["bytes"] for row in report.of(way="scrape"))
    report.table(["", "ms of wall"], [[way, 1000 * found[way]] for way in ways])
    print(f"the text has {size} bytes; bounds: {1000 * _MOST_S:.0f} ms and {_MOST_BYTES} bytes")
    report.ratio("time of a scrape / of a list of all vjobs", ratio(found["scrape"], found["list of vjobs"]))
    report.ratio("time of the figures of a cycle / of the cycle", ratio(found["figures of a cycle"], found["cycle"]))


def _measure(site: LargeSite, rounds: int, report: Report) -> None:
    context, client = site.context, EngineClient.unix(site.socket)
    address = f"127.0.0.1:{_free_port()}"
    section = context.settings.metrics.model_copy(update={"listen": address})
    settings = context.settings.model_copy(update={"metrics": section})
    capacities = Capacities(settings, context.ledger, context.clock, context.demanded_cpus)
    metrics = Metrics(capacities, site.cycle, context.agents_told)
    with _listening(metrics):
        for turn in range(rounds):
            progress(f"ab: round {turn + 1} of {rounds}")
            site.signs_of_life()
            report.record(way="cycle", wall_s=_seconds(site.cycle.run))
            report.record(way="figures of a cycle", wall_s=_seconds(metrics.cycle_ended))
            began = time.perf_counter()
            text = _scrape(address)
            report.record(way="scrape", wall_s=time.perf_counter() - began, bytes=len(text))
            report.record(way="list of vjobs", wall_s=_seconds(lambda: _list(client)))
    progress("")


@contextlib.contextmanager
def _listening(metrics: Metrics):  # type: ignore[no-untyped-def]
    """Have it listen in an event loop of its own, and make its text for each scrape."""
    loop, fresh_s = asyncio.new_event_loop(), listener._FRESH_S
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    listener._FRESH_S = 0.0
    asyncio.run_coroutine_threadsafe(metrics.listener.open(), loop).result(60)
    try:
        yield
    finally:
        listener._FRESH_S = fresh_s
        asyncio.run_coroutine_threadsafe(metrics.listener.close(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()


def _seconds(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def _scrape(address: str) -> bytes:
    with contextlib.closing(http.client.HTTPConnection(address, timeout=60)) as connection:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        if answer.status != 200:
            raise RuntimeError(f"a scrape was answered with {answer.status}")
        return answer.read()


def _list(client: EngineClient) -> None:
    """All pages of the vjobs that have not ended."""
    after = 0
    while after is not None:
        after = client.request("GET", f"/v1/vjobs?after={after}")["next"]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
