"""Deaf managers: session nodes of managers that cannot hear, each with the reason.

A manager hands signs of life on to the engines of other hosts' groups, too. So these have to know when it hears none.
"""

from __future__ import annotations

from contextlib import suppress

from rmsplugin.adapters.coordination.tree import ChangedError, MissingError, Tree, make_folder


class DeafManagers:
    """The managers that say that they cannot hear."""

    def __init__(self, tree: Tree, site: str) -> None:
        """``site``: the path of all that the ensemble has of the site."""
        self._tree, self._folder = tree, f"{site}/deaf"

    def say(self, name: str, why: str) -> None:
        """Have this manager say so; its session's end takes it back. Raises UnavailableError."""
        path, data = f"{self._folder}/{name}", why.encode()
        try:
            if self._tree.read(path).data != data:
                self._tree.write(path, data)
        except MissingError:
            make_folder(self._tree, self._folder)
            with suppress(ChangedError):  # of its session before a restart; said again when that has ended
                self._tree.make_of_session(path, data)

    def take_back(self, name: str) -> None:
        """Have this manager say so no more. Raises UnavailableError."""
        self._tree.remove(f"{self._folder}/{name}")

    def all(self) -> dict[str, str]:
        """By name, why each of them cannot hear. Raises UnavailableError."""
        found = {}
        try:
            for name in sorted(self._tree.children(self._folder)):
                with suppress(MissingError):  # it has just taken it back
                    found[name] = self._tree.read(f"{self._folder}/{name}").data.decode("utf-8", "replace")
        except MissingError:
            return {}
        return found
