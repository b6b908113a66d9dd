"""Orders that give a group to a certain manager: who may, what is refused, in which words, and what is written."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rmsplugin.adapters.coordination.assignments import Assignment
from rmsplugin.adapters.coordination.members import Member
from rmsplugin.engine.serve.asked import Asked
from rmsplugin.engine.serve.doors import LOCAL, HostNames, Origin
from rmsplugin.engine.serve.parsing import BadRequestError, Body, Query
from rmsplugin.engine.serve.rights import Rights
from rmsplugin.errors import ForbiddenError, NotFoundError, RefusedError, RmspluginError
from rmsplugin.manager.fitness import Fitness
from rmsplugin.manager.group_handover import GroupHandover
from rmsplugin.manager.handing import Hands

ROOT, NOBODY = 0, 65534


def member(name: str, **about: str) -> Member:
    return Member(f"{name}:6830", {"host": name, "url": f"http://{name}:6830", "ledger": "m5", "version": "1", **about})


class Site:
    """Three managers and three groups: two small ones at one manager, a larger one at another."""

    def __init__(self) -> None:
        self.name = "c1:6830"
        self.members = {f"{name}:6830": member(name) for name in ("c1", "c2.site", "c3")}
        self.assignments = {
            "a": Assignment(("n1",), "c1:6830"),
            "b": Assignment(("n2", "n3", "n5"), "c2.site:6830"),
            "c": Assignment(("n4",), "c1:6830"),
        }
        self.kept: list[tuple[str, str, str]] = []

    def keep_at(self, group: str, manager: str, by: str) -> None:
        self.kept.append((group, manager, by))


@pytest.fixture
def site() -> Site:
    return Site()


def order(
    site: Site,
    *,
    uid: int = ROOT,
    origin: Origin = LOCAL,
    silent: str = "",
    unfit: Mapping[str, str] | None = None,
    recovers: str = "",
    **body: object,
) -> dict[str, Any]:
    """The answer to an order.

    Args:
        site: the managers.
        uid: who orders.
        origin: from where.
        silent: what is wrong with all other managers.
        unfit: by manager, why it is unfit.
        recovers: one that is not fit again yet.
        body: the words of the order.
    """
    hands = SimpleNamespace()

    async def require_manager(chosen: Member) -> None:
        if silent and chosen.name != site.name:
            from rmsplugin.errors import UnreachableError

            raise UnreachableError(silent)

    hands.require_manager = require_manager
    handover = GroupHandover(
        site,  # type: ignore[arg-type]
        hands,  # type: ignore[arg-type]
        Rights(frozenset({ROOT}), frozenset()),
        HostNames(),
        ("10.9.9.9",),
        cast(Fitness, SimpleNamespace(unfit=lambda: unfit or {}, doubted=lambda: {*(unfit or {}), recovers} - {""})),
    )
    data = json.dumps(body).encode()
    asked = Asked(uid, {}, Query.parse("/v1/handover", ()), Body.parse(data, ("to", "group")), origin, data=data)
    return asyncio.run(handover.hand_over(asked))


def refused(site: Site, kind: type[RmspluginError], **words: Any) -> str:
    with pytest.raises(kind) as found:
        order(site, **words)
    assert site.kept == [], "nothing was done"
    return str(found.value)


def test_a_group_goes_to_the_manager_that_is_named_in_short_or_in_full(site: Site) -> None:
    answer = order(site, group="a", to="c2")
    assert answer == {"to": "c2.site", "url": "http://c2.site:6830", "version": "1", "group": "a"}
    order(site, group="b", to="c3")
    assert site.kept == [("a", "c2.site:6830", "root"), ("b", "c3:6830", "root")]


def test_without_a_name_it_goes_to_the_other_manager_with_the_fewest_hosts(site: Site) -> None:
    order(site, group="a")
    order(site, group="b")
    assert [to for _, to, _ in site.kept] == ["c3:6830", "c3:6830"]
    site.assignments["d"] = Assignment(("n9",), "c3:6830")
    order(site, group="d")
    assert site.kept[-1][1] == "c1:6830", "not to where it is, though that one has the fewest"
    del site.members["c3:6830"]
    order(site, group="b")
    assert site.kept[-1][1] == "c1:6830"


def test_a_group_can_be_kept_where_it_is_and_be_let_go(site: Site) -> None:
    assert order(site, group="a", to="c1")["to"] == "c1"
    assert order(site, group="a", to="any") == {"to": "", "url": "", "version": "", "group": "a"}
    assert site.kept == [("a", "c1:6830", "root"), ("a", "", "root")]


def test_of_two_managers_on_one_host_it_stays_at_its_own(site: Site) -> None:
    site.members["c1:6829"] = Member("c1:6829", member("c1").about)
    order(site, group="a", to="c1")
    assert site.kept[-1][:2] == ("a", "c1:6830")


def test_what_is_not_there_is_named_with_what_is(site: Site) -> None:
    assert refused(site, NotFoundError, group="x") == (
        "there is no group x: nothing was done. Those that there are: a, b, c"
    )
    assert refused(site, NotFoundError, group="a", to="c9") == (
        "no manager is on c9: nothing was done. Those that there are: c1, c2.site, c3"
    )
    site.assignments = {}
    assert refused(site, NotFoundError, group="a").endswith("No group is known yet")


def test_a_manager_alone_hands_nothing_over_and_without_a_group_it_says_how(site: Site) -> None:
    said = refused(site, RefusedError)
    assert "name a group" in said and "stop the manager" in said
    site.members = {site.name: member("c1")}
    assert refused(site, RefusedError, group="a").startswith("no other manager is there: nothing was done. Start one")
    assert order(site, group="a", to="any")["group"] == "a", "that needs no other one"


def test_a_group_is_not_given_to_a_manager_that_is_unfit(site: Site) -> None:
    why = {"c3:6830": "it cannot read Slurm: munged does not answer"}
    assert refused(site, RefusedError, group="a", to="c3", unfit=why) == (
        f"the manager on c3 is unfit: {why['c3:6830']}; nothing was done. Mend that first, or name another host"
    )
    assert order(site, group="a", unfit=why)["to"] == "c2.site", "though that one has more hosts"
    assert order(site, group="a", recovers="c3:6830")["to"] == "c2.site"
    assert order(site, group="a", to="c3", recovers="c3:6830")["to"] == "c3", "an operator may know that it is mended"
    site.kept.clear()
    both = {**why, "c2.site:6830": "it cannot hear: munged does not answer"}
    assert refused(site, RefusedError, group="a", unfit=both).startswith("the manager on c3 is unfit: ")


def test_a_manager_that_is_not_ready_is_refused_with_the_reason(site: Site) -> None:
    silent = "it does not answer: its process stands still, or its host is cut off"
    assert refused(site, RefusedError, group="a", to="c3", silent=silent) == (
        f"the manager on c3 is there, but not ready: {silent}; nothing was done"
    )
    site.members["c3:6830"] = member("c3", ledger="m4", version="0.9")
    said = refused(site, RefusedError, group="a", to="c3")
    assert said.startswith("the manager on c3 is of release 0.9, which cannot read the ledger of a group")
    site.members["c1:6830"] = member("c1", ledger="m4")
    assert order(site, group="a", to="c3")["to"] == "c3", "its owner is of that release, too"
    site.kept.clear()
    site.assignments["a"] = Assignment(("n1",), "c1:6830", ledger="m5")
    assert refused(site, RefusedError, group="a", to="c3") == said, "a newer one has had it before"


def test_only_operators_on_controllers_may(site: Site) -> None:
    assert "only operators may hand a group over" in refused(site, ForbiddenError, uid=NOBODY, group="a")
    stranger, controller = Origin.of("10.1.1.1", "10.0.0.1"), Origin.of("10.9.9.9", "10.0.0.1")
    assert "this is for the controller" in refused(site, ForbiddenError, origin=stranger, group="a")
    assert order(site, origin=controller, group="a")["group"] == "a"


@pytest.mark.parametrize("name", ["", "a b", "a/../b", "x" * 65, 7])
def test_names_are_read_strictly(site: Site, name: object) -> None:
    if name == "":
        refused(site, RefusedError, group=name)
    else:
        refused(site, BadRequestError, group=name)


# -- whether another manager serves --------------------------------------------------------------------------------


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


def ready(url: str) -> str:
    """Why the manager at this address is not ready, in words."""
    hands = Hands(SimpleNamespace(), SimpleNamespace(name="c1:6830"), lambda group: "", 0)  # type: ignore[arg-type]
    try:
        asyncio.run(hands.require_manager(Member("c3:6830", {"url": url})))
    except RmspluginError as error:
        return str(error)
    return ""


def test_a_manager_whose_process_is_gone_stands_still_or_has_no_address_is_not_ready(
    listening: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rmsplugin.manager import handing

    monkeypatch.setattr(handing, "LOOK_S", 0.1)
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    assert ready(url).startswith("it does not answer: its process stands still"), "its kernel takes the connection"
    listening.close()
    assert ready(url).startswith("it cannot be reached: ")
    assert ready("").startswith("it has no address")


def test_a_manager_that_answers_looks_is_ready() -> None:
    async def run() -> str:
        async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        found = await asyncio.to_thread(ready, url)
        server.close()
        return found

    assert asyncio.run(run()) == ""
