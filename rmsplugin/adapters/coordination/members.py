"""Members: session nodes, one for each manager that is there, with what it says of itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from rmsplugin.adapters.coordination.tree import ChangedError, MissingError, Tree, make_folder


@dataclass(frozen=True, slots=True)
class Member:
    """A manager, as it says."""

    name: str
    about: Mapping[str, str] = field(default_factory=dict)


class Members:
    """The nodes of all managers, and this one's own."""

    def __init__(self, tree: Tree, folder: str, own: Member) -> None:
        """Be nowhere yet.

        Args:
            tree: this manager's session.
            folder: path of the nodes' parent; made with the first of them.
            own: this manager; its name is the same after a restart.
        """
        self._tree, self._folder, self._own = tree, folder, own
        self._made = 0  # the number of the write that made the own node

    def stay(self) -> None:
        """Be there: called again and again. Raises UnavailableError."""
        path = f"{self._folder}/{self._own.name}"
        try:
            if self._made and self._tree.read(path).made == self._made:
                return
        except MissingError:
            pass  # the session has ended
        make_folder(self._tree, self._folder)
        data = json.dumps({**self._own.about}).encode()
        try:
            _, self._made = self._tree.make_of_session(path, data)
        except ChangedError:
            # A session of this manager before its restart, or one that was replaced: it would end at some time.
            self._tree.remove(path)
            _, self._made = self._tree.make_of_session(path, data)

    def all(self) -> dict[str, Member]:
        """By name, the managers that are there. Raises UnavailableError."""
        try:
            names = self._tree.children(self._folder)
        except MissingError:
            return {}
        found = {}
        for name in sorted(names):
            try:
                data = self._tree.read(f"{self._folder}/{name}").data
            except MissingError:
                continue  # it has just left
            found[name] = Member(name, _about(data))
        return found

    def leave(self) -> None:
        """Be there no more, which others see at once. Raises UnavailableError."""
        self._made = 0
        self._tree.remove(f"{self._folder}/{self._own.name}")


def _about(data: bytes) -> dict[str, str]:
    """What a manager, also of another release, has said of itself."""
    try:
        return {str(key): str(value) for key, value in json.loads(data).items()}
    except (ValueError, AttributeError):
        return {}
