"""Fitness: whether managers can do the work of one: read Slurm, and hear other hosts. Each says so to all.

A manager whose own host keeps it from that, since munge has died there, say, should not lead and have groups while
another one could. Only a manager that says it is fit proves that another one could: when Slurm is away for all, all say
that they are unfit, and everything stays where it is.

A manager that is unfit counts as such for others when it has said so for a while, and it says that it is fit again
after a while without a failure. That while is longer than all managers take to notice the same end, or return, of
Slurm: so at neither does one of them count as fit beside another one that is late to notice.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from rmsplugin.adapters.coordination.words_of_managers import WordsOfManagers
from rmsplugin.engine.context.hearing import CANNOT_HEAR
from rmsplugin.errors import RmspluginError, UnavailableError

log = logging.getLogger(__name__)

#: Seconds between the end of a test and the next one; and between two times at which a manager says what it knows.
TEST_S, TELL_S = 5.0, 1.0
#: A word begins with one of these; behind the first stands why.
_UNFIT, _RECOVERS, _FIT = "unfit: ", "recovers", "fit"


def patience_s(command_s: float) -> float:
    """For how long a manager is unfit before that counts, and is without a failure before it is fit again, in seconds.

    ``command_s``: the bound of one command of Slurm, and so of a test.
    """
    return command_s + 3 * TEST_S


def require_fit(why_deaf: Callable[[], str], require_answer: Callable[[], None]) -> None:
    """Test a manager. Raises UnavailableError with what is wrong.

    Args:
        why_deaf: tells what keeps it from hearing; empty: nothing.
        require_answer: raises RmspluginError unless Slurm answers it.
    """
    if why := why_deaf():
        raise UnavailableError(f"it {CANNOT_HEAR}: {why}")
    try:
        require_answer()
    except RmspluginError as error:
        raise UnavailableError(f"it cannot read Slurm: {error}") from None


class Fitness:
    """What this manager has found of itself, and what all say. One thread tests, one tells; all may ask."""

    def __init__(
        self,
        test: Callable[[], None],
        words: WordsOfManagers,
        name: str,
        while_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Have said nothing yet.

        Args:
            test: reads a little of Slurm, and tests whether this manager hears; raises RmspluginError with what is
                wrong, as a sentence.
            words: where all say it.
            name: of this manager.
            while_s: ``patience_s``.
            clock: seconds that pass.
        """
        self._test, self._words, self._name, self._while_s, self._clock = test, words, name, while_s, clock
        self._why: str | None = None  # what was wrong at the last test; empty: nothing. None: there was none
        self._failed_at = float("-inf")
        self._since: dict[str, float] = {}  # by manager that says that it is unfit, since when
        self._said: Mapping[str, str] = {}
        self._told: Mapping[str, str] = {}

    def test(self) -> None:
        """Test it once. Never raises."""
        try:
            self._test()
        except RmspluginError as error:
            self._failed_at = self._clock()
            self._why = str(error)
        else:
            self._why = ""

    def tell(self) -> None:
        """Say how this manager is, and learn how all are; called again and again. Never raises."""
        try:
            if word := self._word():
                self._words.say(self._name, word)
            said = self._words.all()
        except RmspluginError:
            return  # without the ensemble nobody leads for long
        now = self._clock()
        self._since = {name: self._since.get(name, now) for name, word in said.items() if word.startswith(_UNFIT)}
        self._said = said
        unfit = self.unfit()
        for name in unfit.keys() - self._told.keys():
            log.warning("the manager %s is unfit: %s", name, unfit[name])
        self._told = unfit

    def unfit(self) -> dict[str, str]:
        """By name, why each manager that says that it is unfit is."""
        return {name: word.removeprefix(_UNFIT) for name, word in self._said.items() if word.startswith(_UNFIT)}

    def passed_over(self) -> frozenset[str]:
        """The managers that neither lead nor have groups now, as they are unfit and another one is not."""
        now = self._clock()
        found = frozenset(name for name, since in self._since.items() if now - since >= self._while_s)
        return found if self._another_is_fit() else frozenset()

    def doubted(self) -> frozenset[str]:
        """The managers that are given nothing more now: some keep what they have."""
        found = frozenset(name for name, word in self._said.items() if word != _FIT)
        return found if self._another_is_fit() else frozenset()

    def _another_is_fit(self) -> bool:
        return _FIT in self._said.values()

    def _word(self) -> str:
        if self._why is None:
            return ""
        if self._why:
            return f"{_UNFIT}{self._why}"
        return _FIT if self._clock() - self._failed_at >= self._while_s else _RECOVERS
