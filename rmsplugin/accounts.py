"""Accounts: users' groups and names on this host, by its name service. Standard library only: the hooks use it, too."""

from __future__ import annotations

import grp
import os
import pwd
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rmsplugin.errors import RefusedError

#: The members of the user's groups whose names are looked up, and the seconds for it: names are for `ls -l` only.
_MOST_PEOPLE = 256
_PEOPLE_S = 1.0
#: The number of groups that Linux lets a process have.
_MOST_GROUPS = 65536


class Group(NamedTuple):
    """A group of the user, and those of its members who are among ``Account.people``."""

    name: str
    gid: int
    members: tuple[str, ...] = ()


class Person(NamedTuple):
    """Another user, so that his files can be shown with a name."""

    name: str
    uid: int
    gid: int


class Account(NamedTuple):
    """A user with all groups: the primary one, of number ``gid``, first."""

    name: str
    uid: int
    gid: int
    gecos: str
    home: str
    shell: str
    groups: tuple[Group, ...] = ()
    people: tuple[Person, ...] = ()

    def in_group(self, gid: int) -> Account:
        """The account with another of its groups as the primary one; itself where it has no group of that number."""
        primary = [group for group in self.groups if group.gid == gid]
        if not primary:
            return self
        return self._replace(gid=gid, groups=(*primary, *(group for group in self.groups if group.gid != gid)))

    def rights(self) -> tuple[object, ...]:
        """The facts that decide what the user may do, and where; accounts with equal rights differ in words at most."""
        groups = tuple(sorted((group.gid, group.name) for group in self.groups))
        return (self.name, self.uid, self.gid, self.home, self.shell, groups)

    def described(self) -> str:
        """The account in the form of `id`."""
        groups = ",".join(f"{group.gid}({group.name})" for group in self.groups)
        return f"uid={self.uid}({self.name}) gid={self.gid} groups={groups}"

    def facts(self) -> dict[str, Any]:
        """The input of ``parse``, fit for JSON."""
        return {
            **{key: getattr(self, key) for key in ("name", "uid", "gid", "gecos", "home", "shell")},
            "groups": [[group.name, group.gid, list(group.members)] for group in self.groups],
            "people": [[person.name, person.uid, person.gid] for person in self.people],
        }

    @classmethod
    def parse(cls, facts: Mapping[str, Any]) -> Account:
        """Read the output of ``facts``.

        Raises:
            ValueError: the input is not of that form.
        """
        try:
            words = {key: _text(facts[key]) for key in ("name", "gecos", "home", "shell")}
            return cls(
                **words,
                uid=_number(facts["uid"]),
                gid=_number(facts["gid"]),
                groups=tuple(Group(_text(n), _number(g), tuple(map(_text, m))) for n, g, m in facts["groups"]),
                people=tuple(Person(_text(n), _number(u), _number(g)) for n, u, g in facts["people"]),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"not an account: {error}") from None


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise ValueError(f"{value!r} is no text of one line")
    return value


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value < 2**32 - 1:
        raise ValueError(f"{value!r} is no number of a user or a group")
    return value


def look_up(uid: int) -> Account:
    """Return the account of a user, with the groups that a login on this host would have.

    Raises:
        RefusedError: this host knows no such user.
    """
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        raise RefusedError(f"no account with uid {uid} is known on {os.uname().nodename}") from None
    others = [gid for gid in os.getgrouplist(entry.pw_name, entry.pw_gid) if gid != entry.pw_gid]
    entries = [_group(gid) for gid in dict.fromkeys([entry.pw_gid, *others][:_MOST_GROUPS])]
    people = {person.name: person for person in _people(entries, entry.pw_name)}
    return Account(
        name=entry.pw_name,
        uid=entry.pw_uid,
        gid=entry.pw_gid,
        gecos="".join(letter if letter.isprintable() else " " for letter in entry.pw_gecos),
        home=entry.pw_dir,
        shell=entry.pw_shell or "/bin/sh",
        groups=tuple(
            Group(group.gr_name, group.gr_gid, tuple(name for name in group.gr_mem if name in people))
            for group in entries
        ),
        people=tuple(people.values()),
    )


def _group(gid: int) -> grp.struct_group:
    try:
        return grp.getgrgid(gid)
    except KeyError:  # `id` then shows the number
        return grp.struct_group((str(gid), "x", gid, []))


def _people(groups: list[grp.struct_group], user: str) -> Iterator[Person]:
    """The other members of these groups, as far as they are found in a moment."""
    deadline = time.monotonic() + _PEOPLE_S
    names = dict.fromkeys(name for group in groups for name in group.gr_mem if name != user)
    for name in list(names)[:_MOST_PEOPLE]:
        if time.monotonic() > deadline:
            return
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        yield Person(entry.pw_name, entry.pw_uid, entry.pw_gid)
