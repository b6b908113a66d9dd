"""Assignments: lasting nodes that say which manager each group of hosts is given to. Only the leader gives groups.

Managers of two releases may write to one node while a site is upgraded: what an older one does not know stays there.

Any manager writes down where an operator wants a group to be: that is a wish to the leader, which stays with the group.

A manager that a group is given to then campaigns for it (``elected.Elected``, one for each group): the assignment says
who may, and the campaign waits until the manager before has ended.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rmsplugin.adapters.coordination.tree import ChangedError, MissingError, Tree, make_folder
from rmsplugin.errors import RefusedError

#: What this release says of a group.
_KNOWN = frozenset({"hosts", "manager", "kept", "ledger"})
#: And of an operator's wish.
_KNOWN_OF_WISHES = frozenset({"to", "by"})


@dataclass(frozen=True, slots=True)
class Assignment:
    """One group."""

    hosts: tuple[str, ...]
    manager: str  # its name; empty: none yet
    version: int = -1  # of the node; -1: it is not there yet
    kept: str = ""  # the manager that is to have it by an operator's word; empty: nobody has said so
    kept_by: str = ""  # that operator
    others: Mapping[str, Any] = field(default_factory=dict)  # what a newer release says besides: it is written again
    kept_others: Mapping[str, Any] = field(default_factory=dict)  # the same of the operator's word, as long as it holds
    ledger: str = ""  # the newest step of the schema that a manager which had the group knows: its ledger may have it

    def kept_at(self, manager: str, by: str) -> Assignment:
        """The group with another operator's word; with none, if it names no manager."""
        return replace(self, kept=manager, kept_by=by if manager else "", kept_others={})


class Assignments:
    """The nodes of all groups."""

    def __init__(self, tree: Tree, folder: str) -> None:
        """Read nothing yet; ``folder``: path of their parent, made with the first of them."""
        self._tree, self._folder = tree, folder

    def all(self) -> dict[str, Assignment]:
        """By name, all groups. Raises UnavailableError, and RefusedError for a node that cannot be read."""
        try:
            names = self._tree.children(self._folder)
        except MissingError:
            return {}
        found = {}
        for name in sorted(names):
            try:
                stored = self._tree.read(f"{self._folder}/{name}")
            except MissingError:
                continue  # removed meanwhile
            found[name] = self._parse(name, stored.data, stored.version)
        return found

    def one(self, name: str) -> Assignment | None:
        """A group; None if it is not there. Raises as ``all``."""
        try:
            stored = self._tree.read(f"{self._folder}/{name}")
        except MissingError:
            return None
        return self._parse(name, stored.data, stored.version)

    def _parse(self, name: str, data: bytes, version: int) -> Assignment:
        try:
            said = json.loads(data)
            kept = said.get("kept") or {}
            return Assignment(
                tuple(map(str, said["hosts"])),
                str(said["manager"]),
                version,
                str(kept.get("to", "")),
                str(kept.get("by", "")),
                _besides(_KNOWN, said),
                _besides(_KNOWN_OF_WISHES, kept),
                str(said.get("ledger", "")),
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            raise RefusedError(f"the node {self._folder}/{name} holds no group: {data[:60]!r}") from None

    def write(self, name: str, assignment: Assignment) -> Assignment:
        """Write a group in place of the version that was read; return it with its new one.

        Raises:
            ChangedError: somebody else has written, or removed, it since.
            UnavailableError: nobody answers; it may be written all the same.
        """
        path = f"{self._folder}/{name}"
        said: dict[str, Any] = {**assignment.others, "hosts": assignment.hosts, "manager": assignment.manager}
        if assignment.ledger:
            said["ledger"] = assignment.ledger
        if assignment.kept:
            said["kept"] = {**assignment.kept_others, "to": assignment.kept, "by": assignment.kept_by}
        data = json.dumps(said).encode()
        if assignment.version < 0:
            make_folder(self._tree, self._folder)
            self._tree.make(path, data)
            version = 0
        else:
            try:
                version = self._tree.write(path, data, version=assignment.version)
            except MissingError as error:
                raise ChangedError(str(error)) from None
        return replace(assignment, version=version)

    def remove(self, name: str) -> None:
        """Remove a group, if it is there. Raises UnavailableError."""
        self._tree.remove(f"{self._folder}/{name}")


def _besides(known: Collection[str], said: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in said.items() if key not in known}
