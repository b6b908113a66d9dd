"""Outages: those that the engine needs and that do not answer; the begin and the end of each is an event."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rmsplugin.decision.reasons import seconds
from rmsplugin.engine.ledger.ledger import Ledger

#: The newest events in which an engine that starts looks for outages that have not ended.
_NEWEST = 10_000


class Neighbour(enum.StrEnum):
    """A kind of those that the engine asks."""

    SLURMCTLD = "slurmctld"
    SLURMDBD = "slurmdbd"
    NODE = "node"  # the platform there
    STORE = "store"  # of saved states, on a node: it answers, and shows no marker
    STORE_SERVER = "store server"  # what keeps the files of a store: they cannot be read, and no error says so


@dataclass(frozen=True, slots=True)
class _Words:
    """Kinds of events, and what has ended, after the name."""

    began: str
    ended: str
    again: str


_WORDS = {
    Neighbour.SLURMCTLD: _Words("slurmctld-silent", "slurmctld-answers", "answers again"),
    Neighbour.SLURMDBD: _Words("slurmdbd-silent", "slurmdbd-answers", "answers again"),
    Neighbour.NODE: _Words("node-silent", "node-answers", "answers again"),
    Neighbour.STORE: _Words("store-missing", "store-back", "is back"),
    Neighbour.STORE_SERVER: _Words("store-silent", "store-answers", "answers again"),
}


class Outages:
    """Remembers outages; used by one thread, that of the cycle."""

    def __init__(self, ledger: Ledger, clock: Callable[[], float]) -> None:
        """Take up outages that an earlier engine saw begin, and did not see end.

        Args:
            ledger: has the events.
            clock: seconds since the epoch.
        """
        self._ledger, self._clock = ledger, clock
        self._since: dict[tuple[Neighbour, str], float] = {}
        kinds = frozenset(kind for words in _WORDS.values() for kind in (words.began, words.ended))
        for event in ledger.events(limit=_NEWEST, kinds=kinds):
            for what, words in _WORDS.items():
                if event.kind == words.began:
                    self._since[what, event.node] = event.time
                elif event.kind == words.ended:
                    self._since.pop((what, event.node), None)

    def note(self, what: Neighbour, why: Mapping[str, str]) -> None:
        """Record what has begun or ended.

        Args:
            what: the kind.
            why: by node, or "" where there is only one, why it does not answer; all others of the kind do.
        """
        words = _WORDS[what]
        for node, reason in why.items():
            if (what, node) not in self._since:
                self._since[what, node] = self._clock()
                self._ledger.event(words.began, f"{_name(what, node)} does not answer: {reason}", node=node)
        for key, since in [*self._since.items()]:
            if key[0] is what and key[1] not in why:
                del self._since[key]
                after = seconds(max(0.0, self._clock() - since))
                self._ledger.event(words.ended, f"{_name(*key)} {words.again}, after {after}", node=key[1])


def _name(what: Neighbour, node: str) -> str:
    if what in (Neighbour.STORE, Neighbour.STORE_SERVER):
        return f"the store of saved states on {node}"
    return node or str(what)
