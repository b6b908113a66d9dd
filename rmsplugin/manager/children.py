"""Children: the engines of the groups that this manager has, each a process that never outlives the manager.

Each has the end of a pipe of its own as its standard input, into which nothing is ever written: the kernel kills an
engine as soon as no process holds the other end (``rmsplugin.child_process``). Only the manager holds it.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rmsplugin.child_process import environment
from rmsplugin.manager.backoff import Backoff
from rmsplugin.manager.said import Said, pipe

log = logging.getLogger(__name__)

#: Seconds between two looks whether an ending child has ended.
_LOOK_S = 0.05


@dataclass
class _Child:
    """The engine of one group, or what is left of it."""

    process: subprocess.Popen[bytes] | None = None
    lifeline: int = -1  # the manager's end of its pipe
    started: float = 0.0
    backoff: Backoff = field(default_factory=Backoff)
    next: float = 0.0  # not started before
    told_at: float | None = None  # when it was told to end
    last: str = ""  # how the one before ended, in words, and its last sentence
    said: Said | None = None


class Children:
    """The processes. All threads may call."""

    def __init__(
        self,
        command: Callable[[str], Sequence[str]],
        patience_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start none yet.

        Args:
            command: the words by which the engine of a group is started.
            patience_s: an engine that is told to end is killed after so long.
            clock: seconds that pass.
        """
        self._command, self._patience_s, self._clock = command, patience_s, clock
        self._lock = threading.Lock()
        self._children: dict[str, _Child] = {}
        self._wanted: frozenset[str] = frozenset()

    def want(self, groups: Collection[str]) -> None:
        """Have the engines of these groups run, and no others: see to it now, and again and again."""
        with self._lock:
            self._wanted = frozenset(groups)
            for name in groups:
                self._children.setdefault(name, _Child())
            for name in list(self._children):
                self._see_to(name, self._children[name])

    def views(self) -> dict[str, dict[str, Any]]:
        """By group, how its engine here is: for people."""
        with self._lock:
            return {
                name: {
                    "pid": None if child.process is None else child.process.pid,
                    "restarts": child.backoff.failures,
                    "last_end": child.last,
                }
                for name, child in self._children.items()
            }

    def why_ended(self, group: str) -> str:
        """How the engine of a group here ended, and its last sentence; empty: it runs, or never ran here."""
        with self._lock:
            child = self._children.get(group)
            return "" if child is None or child.process is not None else child.last

    def kill(self, group: str, pid: int) -> None:
        """Kill the engine of a group, if it is still this process: it is started again as after each end."""
        with self._lock:
            child = self._children.get(group)
            if child is not None and child.process is not None and child.process.pid == pid:
                child.process.kill()  # a process that has ended, and was not waited for, keeps its id

    def close(self) -> None:
        """Have all engines end, and wait for that: as long as they may take."""
        while True:
            self.want(())
            with self._lock:
                if not self._children:
                    return
            time.sleep(_LOOK_S)

    def _see_to(self, name: str, child: _Child) -> None:
        now = self._clock()
        process = child.process
        if process is not None and (code := process.poll()) is not None:
            self._note_end(name, child, code, now)
            process = None
        if name in self._wanted:
            if process is None and now >= child.next:
                self._start(name, child, now)
        elif process is None:
            del self._children[name]
        elif child.told_at is None:
            child.told_at = now
            process.send_signal(signal.SIGTERM)
        elif now - child.told_at >= self._patience_s:
            log.warning("the engine of group %s does not end: it is killed", name)
            process.kill()

    def _note_end(self, name: str, child: _Child, code: int, now: float) -> None:
        how = f"ended with status {code}" if code >= 0 else f"was ended by signal {-code}"
        os.close(child.lifeline)
        if child.said is not None and (sentence := child.said.last_sentence()):
            how = f"{how}: {sentence}"
        told = child.told_at is not None
        child.backoff = Backoff() if told else child.backoff.ended(now - child.started)
        child.process, child.told_at, child.next, child.last = None, None, now + child.backoff.pause_s, how
        if not told:
            log.warning("the engine of group %s %s; it is started again in %g s", name, how, child.backoff.pause_s)

    def _start(self, name: str, child: _Child, now: float) -> None:
        read, child.lifeline = os.pipe()
        heard, says = pipe()
        try:
            child.process = subprocess.Popen(
                self._command(name), stdin=read, stderr=says, env=_variables(), cwd="/", start_new_session=True
            )
        except OSError as error:
            os.close(child.lifeline)
            os.close(heard)
            child.backoff = child.backoff.ended(0.0)
            child.next, child.last = now + child.backoff.pause_s, f"could not be started: {error.strerror}"
            log.error("the engine of group %s %s", name, child.last)
            return
        finally:
            os.close(read)
            os.close(says)
        child.started, child.said = now, Said(name, heard)
        log.info("the engine of group %s is started", name)


def _variables() -> Mapping[str, str]:
    """The environment of an engine: the service manager hears from the manager alone."""
    return {name: value for name, value in environment().items() if name != "NOTIFY_SOCKET"}
