"""ac. Live page: what a page of a large site takes, beside a list of all vjobs from the same engine.

Wall seconds over the socket, by turns. A new page is put together from the ledger and written; one that is kept is only
sent. CPU seconds of the engine's process are told, too: on a machine that does other things they say more.

The page of all groups is a manager's: four engines have a quarter of such a site each. They and the manager share one
process here, and its one interpreter, so nothing of theirs goes on side by side. Where each has a host of its own, a
page takes as long as one engine tells what it sees, and the manager puts that of all together: both are measured, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from bench.large_site import LargeSite
from bench.measure import Report, median, progress, ratio
from rmsplugin.client import EngineClient
from rmsplugin.engine.serve import live_pages
from rmsplugin.engine.serve.asked import Asked, Reply
from rmsplugin.engine.serve.parsing import Body, Query
from rmsplugin.errors import RmspluginError
from rmsplugin.manager.numbers import Numbers
from rmsplugin.manager.site_page import AskEach, SitePage

#: Nodes, VMs that run, vjobs that wait, and rounds.
SIZES: Mapping[str, tuple[int, int, int, int]] = {
    "full": (1000, 5000, 1000, 15),
    "quick": (200, 1000, 200, 7),
    "tiny": (8, 16, 8, 2),
}
#: The most that a new page may take, at a site of 1,000 nodes and 5,000 VMs.
_MOST_S = 0.1
#: The part of all nodes that shows something else on a new page.
_CHANGES = 0.1
_NEW, _ANEW = "new page", "new page, every node changed"
_GROUPS = ("a", "b", "c", "d")
_SCENE = "/v1/page?scene=1"


def run(sizes: tuple[int, int, int, int], report: Report) -> None:
    """Measure both by turns."""
    nodes, running, waiting, rounds = sizes
    report.title("ac", f"a live page beside a list of all vjobs: {nodes} nodes, {running} VMs, {waiting} waiting")
    with tempfile.TemporaryDirectory() as directory:
        site = LargeSite(Path(directory), nodes, running, waiting)
        with contextlib.closing(site), _made_for_each_question():
            _measure(site, rounds, report)
        _measure_groups(Path(directory), sizes, report)
    ways = (_NEW, _ANEW, "kept page", "list of vjobs", "page of all groups", "one engine's part", "the manager's part")
    keys = ("wall_s", "cpu_s")
    found = {way: {key: median([row[key] for row in report.of(way=way)]) for key in keys} for way in ways}
    size = max(row["bytes"] for row in report.of(way=_NEW))
    rows = [[way, 1000 * found[way]["wall_s"], 1000 * found[way]["cpu_s"]] for way in ways]
    report.table(["", "ms of wall", "ms of CPU"], rows)
    print(f"the page has {size} bytes; bound of a new page: {1000 * _MOST_S:.0f} ms")
    report.ratio("CPU time of a list of all vjobs / of a new page", _quotient(found, _NEW, "list of vjobs"))
    report.ratio("CPU time of a new page / of one with every node changed", _quotient(found, _ANEW, _NEW))
    report.ratio("CPU time of a new page / of a kept one", _quotient(found, "kept page", _NEW))
    report.ratio("CPU time of a page of all groups / of a new page", _quotient(found, _NEW, "page of all groups"))


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
    _prepare(site)
    for turn in range(rounds):
        progress(f"ac: round {turn + 1} of {rounds}")
        for way, part in ((_ANEW, 1.0), (_NEW, _CHANGES), ("kept page", 0.0)):
            if part:
                _need(site, 30 + turn % 2 * 20, part)
                site.service.page_changed()
            wall, cpu = time.perf_counter(), time.process_time()
            size = _page(site.socket)
            report.record(way=way, wall_s=time.perf_counter() - wall, cpu_s=time.process_time() - cpu, bytes=size)
        _timed(report, "list of vjobs", lambda: _list(client))
    progress("")


def _prepare(site: LargeSite) -> None:
    """The engine has looked, and knows what each VM needs."""
    site.signs_of_life()
    site.cycle.run()
    _need(site, 40, 1.0)


def _need(site: LargeSite, centi_cpus: int, part: float) -> None:
    """The VMs of the first nodes, such a part of all of them, are seen to need so many CPUs."""
    nodes = set(site.nodes[: max(1, round(part * len(site.nodes)))])
    with site.ledger.transaction():
        for vm in site.ledger.live_vms_on(nodes):
            site.ledger.update_vm(vm.name, centi_cpus=centi_cpus, memory_demand_mib=300)
    site.ledger.live_vms_by_job()  # the engine reads changed rows in its cycle, not for a page


def _measure_groups(directory: Path, sizes: tuple[int, int, int, int], report: Report) -> None:
    """A manager's page of the same site in groups, each time with news of all of them."""
    nodes, running, waiting = (number // len(_GROUPS) for number in sizes[:3])
    with contextlib.ExitStack() as stack:
        sites = {}
        for group in _GROUPS:
            place = directory / group
            place.mkdir()
            sites[group] = stack.enter_context(contextlib.closing(LargeSite(place, nodes, running, waiting)))
        stack.enter_context(_made_for_each_question())
        for site in sites.values():
            _prepare(site)
        clients = {group: EngineClient.unix(site.socket) for group, site in sites.items()}
        for turn in range(sizes[3]):
            progress(f"ac: round {turn + 1} of {sizes[3]}, of all groups")
            for site in sites.values():
                site.service.page_changed()
            _timed(report, "page of all groups", lambda: _site_page(_asking(clients)))
            told = {group: json.dumps(client.request("GET", _SCENE)) for group, client in clients.items()}
            _timed(report, "the manager's part", lambda told=told: _site_page(_telling(told)))
            sites[_GROUPS[0]].service.page_changed()
            _timed(report, "one engine's part", lambda: clients[_GROUPS[0]].request("GET", _SCENE))
    progress("")


def _asking(clients: Mapping[str, EngineClient]) -> AskEach:
    """Asks all engines at the same time, as a manager does."""

    async def ask_each(_: Asked, target: str) -> tuple[dict[str, Reply], dict[str, RmspluginError]]:
        asking = (asyncio.to_thread(client.request, "GET", target) for client in clients.values())
        return dict(zip(clients, await asyncio.gather(*asking), strict=True)), {}

    return ask_each


def _telling(told: Mapping[str, str]) -> AskEach:
    """Engines that have told this JSON already."""

    async def ask_each(_: Asked, __: str) -> tuple[dict[str, Reply], dict[str, RmspluginError]]:
        return {group: json.loads(text) for group, text in told.items()}, {}

    return ask_each


def _site_page(ask_each: AskEach) -> None:
    asked = Asked(0, {}, Query.parse("/v1/page", ()), Body.parse(b"", ()))
    asyncio.run(SitePage(ask_each, _no_numbers).page(asked))


def _timed(report: Report, way: str, act: Callable[[], object]) -> None:
    wall, cpu = time.perf_counter(), time.process_time()
    act()
    report.record(way=way, wall_s=time.perf_counter() - wall, cpu_s=time.process_time() - cpu)


def _no_numbers() -> Numbers:
    return Numbers({})


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
