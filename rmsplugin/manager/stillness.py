"""Stillness: an engine of this manager that stands still for too long is killed, and so started again.

While the manager lives, its groups go to no other one: without this, the group of an engine that hangs has none. An
engine that was silent for a session, and for as long as one may stand still without its lease, would end if it went on.
So a kill takes nothing from it.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable

from rmsplugin.client import LOOK, LOOK_S
from rmsplugin.manager.children import Children

log = logging.getLogger(__name__)


class Stillness:
    """Looks at the engines again and again, in one thread."""

    def __init__(
        self,
        children: Children,
        socket_of: Callable[[str], str],
        bound_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Look at none yet.

        Args:
            children: the engines.
            socket_of: the path of the socket of a group's engine.
            bound_s: an engine that was silent for so many seconds is killed.
            clock: seconds that pass.
        """
        self._children, self._socket_of = children, socket_of
        self._bound_s, self._clock = bound_s, clock
        self._silent: dict[str, tuple[int, float]] = {}  # by group: the process, and since when it was seen silent

    def look_at_engines(self) -> None:
        """Look at each of them once. Never raises."""
        for group, view in self._children.views().items():
            self._note(group, view["pid"])

    def _note(self, group: str, pid: int | None) -> None:
        now = self._clock()
        if pid is None or not is_silent(self._socket_of(group)):
            self._silent.pop(group, None)
            return
        known, since = self._silent.get(group, (None, now))
        if known != pid:
            self._silent[group] = (pid, now)
        elif now - since >= self._bound_s:
            log.warning("the engine of group %s has stood still for %.0f s: it is killed", group, now - since)
            self._children.kill(group, pid)
            del self._silent[group]


def is_silent(path: str) -> bool:
    """Whether a process listens on a socket and sends no byte in time; one that does not listen is not silent."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(LOOK_S)
        try:
            connection.connect(path)
            connection.sendall(LOOK)
            connection.recv(1)
        except (TimeoutError, BlockingIOError):
            return True  # the kernel takes connections for a stopped process until its queue is full
        except OSError:
            return False
    return False
