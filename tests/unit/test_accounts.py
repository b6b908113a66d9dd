"""Accounts as a host's name service has them, and what of them gets into a guest's files."""

from __future__ import annotations

import grp
import json
import os
import pwd

import pytest

from rmsplugin import accounts
from rmsplugin.accounts import Account, Group, Person
from rmsplugin.adapters.guests.config import group_lines, people_lines
from rmsplugin.errors import RefusedError

ALICE = Account(
    "alice",
    2001,
    2001,
    "Alice",
    "/home/alice",
    "/bin/bash",
    groups=(Group("physics", 2001), Group("proj", 3001, ("bob",))),
    people=(Person("bob", 2002, 2002),),
)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name service with alice, bob, and a group without a name."""
    users = {
        name: pwd.struct_passwd((name, "x", uid, uid, f"{name}\tB", f"/home/{name}", ""))
        for name, uid in (("alice", 2001), ("bob", 2002))
    }
    groups = {
        2001: grp.struct_group(("physics", "x", 2001, [])),
        3001: grp.struct_group(("proj", "x", 3001, ["alice", "bob", "gone"])),
    }
    by_uid = {entry.pw_uid: entry for entry in users.values()}
    monkeypatch.setattr(pwd, "getpwuid", by_uid.__getitem__)
    monkeypatch.setattr(pwd, "getpwnam", users.__getitem__)
    monkeypatch.setattr(grp, "getgrgid", groups.__getitem__)
    monkeypatch.setattr(os, "getgrouplist", lambda name, gid: [3001, gid, 4001])


@pytest.mark.usefixtures("names")
def test_groups_have_their_names_and_the_primary_one_is_first() -> None:
    account = accounts.look_up(2001)
    assert [(group.name, group.gid) for group in account.groups] == [("physics", 2001), ("proj", 3001), ("4001", 4001)]
    assert (account.gecos, account.shell) == ("alice B", "/bin/sh")
    assert account.people == (Person("bob", 2002, 2002),)
    with pytest.raises(RefusedError, match="no account with uid 7"):
        accounts.look_up(7)


def test_an_account_survives_its_way_through_json() -> None:
    assert Account.parse(json.loads(json.dumps(ALICE.facts()))) == ALICE


@pytest.mark.parametrize(
    "change",
    [{"uid": -1}, {"uid": "0"}, {"name": "a\nb"}, {"groups": [["x", 1]]}, {"groups": 1}, {"people": [[1, 2, 3]]}],
)
def test_what_is_no_account_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="no"):
        Account.parse({**ALICE.facts(), **change})


def test_only_a_group_of_the_user_can_be_the_primary_one() -> None:
    assert ALICE.in_group(3001).groups[0].name == "proj"
    assert ALICE.in_group(3001).gid == 3001
    assert ALICE.in_group(9) is ALICE


def test_what_does_not_change_rights_does_not_count_as_a_difference() -> None:
    shuffled = ALICE._replace(gecos="x", people=(), groups=tuple(reversed(ALICE.groups)))
    assert shuffled.rights() == ALICE.rights()
    assert ALICE._replace(groups=ALICE.groups[:1]).rights() != ALICE.rights()


def test_lines_of_the_group_file() -> None:
    assert list(group_lines(ALICE)) == ["physics:x:2001:", "proj:x:3001:alice,bob"]
    odd = ALICE._replace(groups=(Group("a:b", 5), Group("domain users", 6)))
    assert list(group_lines(odd)) == ["5:x:5:alice", "domain users:x:6:alice"]


def test_others_have_names_and_no_way_in() -> None:
    root = Person("toor", 0, 0)
    assert list(people_lines(ALICE._replace(people=(*ALICE.people, root)))) == [
        "bob:*:2002:2002::/nonexistent:/usr/sbin/nologin"
    ]
