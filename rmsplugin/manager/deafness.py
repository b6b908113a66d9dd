"""Deafness: what a manager does when it cannot hear: clients go to the next one, and all groups' engines are told.

An engine on another host would count it as silence of wrappers that ask this manager.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from rmsplugin.adapters.coordination.words_of_managers import WordsOfManagers
from rmsplugin.engine.context.hearing import TEST_LATE_S, TEST_PERIOD_S, Hearing
from rmsplugin.errors import RmspluginError

log = logging.getLogger(__name__)

#: A sign of life that came while it was deaf may wait for its answer for so many seconds, and is lost then.
_LOST_S = 10.0


class Deafness:
    """What this manager, and others, say of their hearing. One thread tells; all threads may ask."""

    def __init__(
        self, hearing: Hearing, managers: WordsOfManagers, name: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Have said nothing yet.

        Args:
            hearing: this manager's own, by ``clock``.
            managers: where all say it.
            name: of this manager.
            clock: seconds that pass.
        """
        self._hearing, self._managers, self._name, self._clock = hearing, managers, name, clock
        self._may_be_said = True  # by a manager of this name before
        self.deaf: Mapping[str, str] = {}  # by manager, why it cannot hear

    def note(self, why: str) -> None:
        """Record that a request could not be heard just now."""
        self._hearing.note_deaf(why, self._clock())

    def hears(self) -> bool:
        """Whether this manager hears, as far as its last test says."""
        return not self.why()

    def why(self) -> str:
        """What keeps this manager from hearing, as far as its last test says; empty: it hears."""
        return self._hearing.why(self._clock(), TEST_PERIOD_S + TEST_LATE_S)

    def tell(self) -> None:
        """Say whether this manager hears, and learn which do not; called again and again. Never raises."""
        why = self._hearing.why(self._clock(), _LOST_S)
        try:
            if why:
                self._may_be_said = True
                self._managers.say(self._name, why)
            elif self._may_be_said:
                self._managers.take_back(self._name)
                self._may_be_said = False
            found = self._managers.all()
        except RmspluginError:
            return  # without the ensemble nobody acts for long
        for name in found.keys() - self.deaf.keys():
            log.warning("the manager %s cannot hear: %s", name, found[name])
        self.deaf = found
