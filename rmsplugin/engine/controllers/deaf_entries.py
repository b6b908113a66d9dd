"""Deaf entries: a manager that cannot hear keeps signs of life from the engines of all groups, on any host."""

from __future__ import annotations

from collections.abc import Callable

from rmsplugin.adapters.coordination.words_of_managers import WordsOfManagers
from rmsplugin.engine.context.hearing import Hearing
from rmsplugin.errors import RmspluginError


class DeafEntries:
    """Takes other managers' deafness for the engine's own. One thread looks."""

    def __init__(self, managers: WordsOfManagers, hearing: Hearing, clock: Callable[[], float]) -> None:
        """Have seen nothing yet; ``clock``: the engine's, as of ``hearing``."""
        self._managers, self._hearing, self._clock = managers, hearing, clock

    def note_deaf(self) -> None:
        """See which managers say that they cannot hear; called again and again. Never raises."""
        try:
            found = self._managers.all()
        except RmspluginError:
            return
        for name, why in found.items():
            self._hearing.note_deaf(f"wrappers that ask the manager {name} are not heard: {why}", self._clock())
