"""Room ends: nodes are asked side by side to end rooms, and no cycle waits for one that does not answer.

A call to a node takes milliseconds, or, where the node agent hangs, the time-out of a call. A cycle waits for a moment.
What has not been answered by then is under way, and a later cycle hears of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Set
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass

from rmsplugin.adapters.nodes.base import RoomEnd, RoomsOnNodes
from rmsplugin.engine.context.beside import begun_beside
from rmsplugin.engine.context.rest import Rest
from rmsplugin.errors import DeposedError, RmspluginError

#: The most nodes that are asked at a time, and the seconds for which a cycle waits for all of them.
_MOST = 32
_WAIT_S = 1.0
#: Seconds for which a node that could not end a room is not asked again; doubled with each failure.
_FIRST_S, _MOST_S = 60.0, 3600.0


@dataclass(frozen=True, slots=True)
class Asked:
    """What a node is asked: to end the room of a job, and why."""

    job_id: int
    node: str
    why: str


@dataclass(frozen=True, slots=True)
class Answered:
    """What a node has answered; an error: it has not, or cannot end rooms."""

    asked: Asked
    end: RoomEnd | RmspluginError


class RoomEnds:
    """The ends of rooms that nodes were asked for. One thread calls; what this remembers may be lost."""

    def __init__(self, nodes: RoomsOnNodes, clock: Callable[[], float]) -> None:
        """None yet; ``clock``: seconds."""
        self._nodes, self._clock = nodes, clock
        self._waiting: list[Asked] = []
        self._under_way: dict[Future[RoomEnd], Asked] = {}
        self._failures: dict[int, tuple[Rest, str]] = {}  # by job, with why

    def ask(self, asked: Asked) -> None:
        """Have the node asked in the next ``answers``."""
        self._waiting.append(asked)

    @property
    def unanswered(self) -> Set[int]:
        """The jobs of the rooms that nodes were asked to end, and have not answered for yet."""
        return {each.job_id for each in (*self._waiting, *self._under_way.values())}

    def failure(self, job_id: int) -> str | None:
        """Why the node of this room is not to be asked now: it could not end it lately. None: it may be asked."""
        rest, why = self._failures.get(job_id, (None, ""))
        return None if rest is None or rest.is_over else why

    def failed(self, asked: Asked, why: str) -> None:
        """Note that the node could not end the room."""
        rest, _ = self._failures.setdefault(asked.job_id, (Rest(self._clock, _FIRST_S, _MOST_S), why))
        rest.begin()
        self._failures[asked.job_id] = rest, why

    def forget_others(self, job_ids: Collection[int]) -> None:
        """Forget the failures of all rooms but these."""
        self._failures = {job_id: failure for job_id, failure in self._failures.items() if job_id in job_ids}

    def answers(self, wait_s: float = _WAIT_S) -> list[Answered]:
        """Ask all nodes that are to be asked, and return what has been answered by now, or within ``wait_s``.

        What has not been asked by then is asked no more: whether it is to be is decided anew.

        Raises:
            DeposedError: a node has heard of a higher epoch.
        """
        found: list[Answered] = []
        until = time.monotonic() + wait_s
        while True:
            for future in [each for each in self._under_way if each.done()]:
                found.append(_answered(self._under_way.pop(future), future))
            while self._waiting and len(self._under_way) < _MOST:
                self._begin(self._waiting.pop(0))
            left_s = until - time.monotonic()
            if not self._under_way or left_s <= 0:
                self._waiting.clear()
                return found
            wait(self._under_way, left_s, FIRST_COMPLETED)

    def _begin(self, asked: Asked) -> None:
        future = begun_beside(lambda: self._nodes.end_room(asked.node, asked.job_id), f"end room {asked.job_id}")
        self._under_way[future] = asked


def _answered(asked: Asked, future: Future[RoomEnd]) -> Answered:
    try:
        return Answered(asked, future.result())
    except DeposedError:
        raise
    except RmspluginError as error:
        return Answered(asked, error)
