"""Sensing: asks the BMCs of nodes for temperature and watts, in threads of its own, since a BMC may take minutes."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from rmsplugin.adapters.power.base import PowerDriver, PowerReading
from rmsplugin.engine.context.sensed import Sensed
from rmsplugin.errors import RmspluginError

log = logging.getLogger(__name__)

#: So many BMCs are asked at the same time.
_THREADS = 16

#: A node, and what its BMC told; None: it was silent, or said that it cannot tell.
Answer = tuple[str, PowerReading | None]


class Sensing:
    """Asks one BMC after the other. ``start`` may be replaced by tests, which wait for the end."""

    def __init__(self, driver: PowerDriver, sensed: Sensed) -> None:
        """``sensed``: receives the last answer of each."""
        self._driver = driver
        self._sensed = sensed
        self._lock = threading.Lock()
        self._asked: dict[str, float] = {}  # by node, when it was asked last
        self._waiting: deque[str] = deque()
        self._under_way: set[str] = set()  # those that wait, too
        self._threads = 0
        self._answers: list[Answer] = []
        self.start: Callable[[Callable[[], None], str], None] = _in_a_thread

    def ask(self, nodes: Iterable[str], now: float, every_s: float) -> None:
        """Have the nodes asked for which it is time. Waits for none."""
        with self._lock:
            for node in nodes:
                if node not in self._under_way and now >= self._asked.get(node, -every_s) + every_s:
                    self._asked[node] = now
                    self._waiting.append(node)
                    self._under_way.add(node)
            more = min(len(self._waiting), _THREADS - self._threads)
            self._threads += more
        for _ in range(more):
            self.start(self._work, "sensors")

    def answers(self) -> list[Answer]:
        """What was answered since the last call, oldest first."""
        with self._lock:
            found, self._answers = self._answers, []
            return found

    def latest(self) -> Mapping[str, PowerReading]:
        """The last readings of the BMCs that answered when they were asked last."""
        return self._sensed.latest()

    # -- inside --------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        """Ask until nobody waits."""
        try:
            while (node := self._next()) is not None:
                reading = self._read(node)
                self._sensed.tell(node, reading)
                with self._lock:
                    self._under_way.discard(node)
                    self._answers.append((node, reading))
        finally:
            with self._lock:
                self._threads -= 1

    def _next(self) -> str | None:
        with self._lock:
            return self._waiting.popleft() if self._waiting else None

    def _read(self, node: str) -> PowerReading | None:
        try:
            return self._driver.reading(node)
        except RmspluginError as error:
            log.debug("sensors of %s: %s", node, error)
        except Exception:  # a fault with one node must not keep the others from being asked
            log.exception("sensors of %s", node)
        return None


def _in_a_thread(act: Callable[[], None], name: str) -> None:
    threading.Thread(target=act, name=name, daemon=True).start()
