"""Words of managers: session nodes in which each manager says one thing of itself to all, such as that it cannot hear.

They are nodes of their own, and not those of ``members``: whoever wants to know one thing reads no more than that.
"""

from __future__ import annotations

from contextlib import suppress

from rmsplugin.adapters.coordination.tree import ChangedError, MissingError, Tree, make_folder

#: Below the site's path: why each manager that cannot hear cannot; and whether each can do the work of a manager.
DEAF, FITNESS = "deaf", "fitness"


class WordsOfManagers:
    """What managers say of one thing."""

    def __init__(self, tree: Tree, site: str, thing: str) -> None:
        """Say nothing yet.

        Args:
            tree: a session.
            site: the path of all that the ensemble has of the site.
            thing: the folder of the words.
        """
        self._tree, self._folder = tree, f"{site}/{thing}"

    def say(self, name: str, word: str) -> None:
        """Have this manager say so; its session's end takes it back. Raises UnavailableError."""
        path, data = f"{self._folder}/{name}", word.encode()
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
        """By name, the word of each manager that says one. Raises UnavailableError."""
        found = {}
        try:
            for name in sorted(self._tree.children(self._folder)):
                with suppress(MissingError):  # it has just taken it back
                    found[name] = self._tree.read(f"{self._folder}/{name}").data.decode("utf-8", "replace")
        except MissingError:
            return {}
        return found
