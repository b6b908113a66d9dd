"""What a manager tells of itself, of the others, and of the engines of groups."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from rmsplugin.adapters.coordination.assignments import Assignment
from rmsplugin.adapters.coordination.members import Member
from rmsplugin.adapters.coordination.servers import ServerFact
from rmsplugin.errors import UnavailableError
from rmsplugin.manager.standing import OwnStatus

ABOUT = {"host": "c1", "url": "http://c1:6830", "version": "1", "settings": "s", "ledger": "m1"}


def told(replies: dict[str, Any], errors: dict[str, Any], *, children: Any = None, **others: Member) -> dict[str, Any]:
    site = SimpleNamespace(
        name="c1:6830",
        leader="c1:6830",
        leader_since=5.0,
        problem="",
        members={"c1:6830": Member("c1:6830", ABOUT), **others},
        assignments={
            "a": Assignment(("n1",), "c1:6830", kept="c1:6830", kept_by="alice"),
            "b": Assignment(("n2",), "gone"),
        },
    )
    placed = SimpleNamespace(given=SimpleNamespace(epoch=9), problem="")
    running = SimpleNamespace(views=lambda: children or {})
    servers = [ServerFact("z1:2181"), ServerFact("z2:2181", "no answer in time"), ServerFact("z3:2181")]
    leader = SimpleNamespace(problems=("nothing is given",))
    deaf = {"c2:6830": "munged does not answer"}
    unfit = {"c2:6830": "it cannot read Slurm: no route to host"}
    parts: tuple[Any, ...] = (site, placed, leader, running, lambda: servers, lambda: deaf, lambda: unfit)
    status = OwnStatus(ABOUT, *parts)
    return status.tell(replies, errors)


def test_groups_are_told_with_their_hosts_and_why_their_engines_do_not_answer() -> None:
    reply = {"epoch": 4, "cluster": {"leads_since": 3.0}}
    found = told({"a": reply}, {"b": UnavailableError("it is not there")})
    assert (found["host"], found["epoch"], found["problems"]) == ("c1", 9, ["nothing is given"])
    a, b = found["groups"]
    assert (a["host"], a["answers"], a["epoch"], a["leads_since"], a["problem"]) == ("c1", True, 4, 3.0, "")
    assert (b["host"], b["answers"], b["epoch"], b["problem"]) == ("", False, None, "it is not there")
    assert [(each["kept_on"], each["kept_by"]) for each in (a, b)] == [("c1", "alice"), ("", "")]


def test_what_is_not_as_it_should_be_is_said() -> None:
    other = Member("c2:6830", {**ABOUT, "host": "c2", "settings": "other"})
    children = {"a": {"pid": 7, "restarts": 3, "last_end": "ended with status 2: it is: damaged"}}
    degraded = told({}, {}, children=children, **{"c2:6830": other})["cluster"]["degraded"]
    assert any(each.startswith("1 of 3 servers of the ensemble do not serve: z2:2181") for each in degraded)
    assert any(each.startswith("the manager c2:6830 cannot hear: munged does not answer. ") for each in degraded)
    assert any(each.startswith("the manager c2:6830 is unfit: it cannot read Slurm: no route") for each in degraded)
    assert "the settings of c2 differ from those of this host" in degraded
    assert "the engine of group a on this host ended with status 2, 3 times in a row: it is: damaged" in degraded
    alone = told({}, {})["cluster"]
    assert "no other manager is there: no group has an engine if this host dies" in alone["degraded"]
    assert alone["standbys"] == []
