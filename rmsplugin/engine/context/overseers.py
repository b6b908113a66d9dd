"""Known overseers: who may know of others' jobs by the RMS, read beside cycles, now and then."""

from __future__ import annotations

from collections.abc import Callable

from rmsplugin.adapters.rms.base import Overseers, Rms
from rmsplugin.engine.context.rest import Rest
from rmsplugin.errors import RmspluginError

#: Seconds for which what was read counts.
_FRESH_S = 300.0


class KnownOverseers:
    """Keeps what was read last; one thread reads, and any number ask."""

    def __init__(self, rms: Rms, clock: Callable[[], float]) -> None:
        """Nobody is known yet. ``clock``: seconds."""
        self._rms, self._clock = rms, clock
        self._rest = Rest(clock, _FRESH_S, _FRESH_S)
        self._read_at = float("-inf")
        self.newest = Overseers()

    @property
    def is_due(self) -> bool:
        """Whether they are to be read again."""
        return self._rest.is_over and self._clock() - self._read_at >= _FRESH_S

    def read(self) -> None:
        """Read them. While the RMS does not tell, those that it told last count."""
        try:
            self.newest = self._rms.overseers()
        except RmspluginError:
            self._rest.begin()
            return
        self._rest.end()
        self._read_at = self._clock()
