"""Fronts: whether a host whose wrappers say nothing could have said anything, so that no cut counts as their silence.

A wrapper on a host that the network keeps away from the engine is as silent as one that is gone. So the front of a
wrapper that is overdue is knocked at, again and again, and its silence counts from the last knock without an answer.
In memory only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

#: A wrapper that was not heard of for so long is overdue: two signs of life are no further apart, in seconds.
OVERDUE_S = 19.0
#: Seconds between the end of a round of knocks and the next round.
KNOCK_PERIOD_S = 2.0
#: A front has to have answered for so long before silence there counts, however old it is: for two signs of life.
_ANSWERS_S = 20.0
_PARALLEL = 16

#: Whether a host answers at a port.
Knock = Callable[[str, int], bool]


class Fronts:
    """Fronts that are knocked at, by name. Times are the engine's. Several threads may call."""

    def __init__(self, clock: Callable[[], float], knock: Knock | None = None) -> None:
        """Knock at nobody yet; ``knock``: None where every front can be reached."""
        self._clock, self._knock = clock, knock
        self._lock = threading.Lock()
        self._places: dict[str, tuple[str, int]] = {}
        self._since: dict[str, float] = {}  # it began to be knocked at
        self._away: dict[str, float] = {}  # the last knock without an answer

    def watch(self, places: Mapping[str, tuple[str, int]]) -> None:
        """Knock at these fronts from now on, each with its address and a port, and at no others."""
        now = self._clock()
        with self._lock:
            self._places = dict(places)
            self._since = {name: self._since.get(name, now) for name in places}
            self._away = {name: at for name, at in self._away.items() if name in places}

    def knock_at_all(self) -> None:
        """Knock once at each that is watched. Never raises."""
        with self._lock:
            places = dict(self._places)
        if not places or self._knock is None:
            return
        with ThreadPoolExecutor(min(len(places), _PARALLEL), thread_name_prefix="knock") as pool:
            answers = dict(zip(places, pool.map(lambda place: self._answers(*place), places.values()), strict=True))
        now = self._clock()
        with self._lock:
            self._away |= {name: now for name, answers_now in answers.items() if not answers_now}

    def silent_s(self, name: str, silent_s: float, now: float) -> float:
        """For how long a wrapper on this front counts as silent, of the time for which nothing was heard of it.

        As long as it is not known whether it could have said anything, that is not at all.

        Args:
            name: of the front.
            silent_s: since a sign of life, in seconds.
            now: the moment to which this is counted.
        """
        if self._knock is None or silent_s <= OVERDUE_S:
            return silent_s
        with self._lock:
            since, away = self._since.get(name, now), self._away.get(name)
        if away is not None:
            return max(0.0, min(silent_s, now - away))
        return silent_s if now - since >= _ANSWERS_S else 0.0

    def _answers(self, host: str, port: int) -> bool:
        assert self._knock is not None
        return self._knock(host, port)
