"""Hearing: when this engine could not hear others, so that its own deafness never counts as their silence.

A munge that does not answer, a process that was stopped, or a listener that serves nobody keeps every sign of life
away, and looks like wrappers and nodes that are gone. In memory only.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime

#: In each sentence about deafness.
CANNOT_HEAR = "cannot hear"
#: Seconds between the end of a test of the engine's own hearing and the next test.
TEST_PERIOD_S = 2.0
#: A test that takes longer, or begins later by as much, means that the engine is deaf, in seconds.
TEST_LATE_S = 3.0
#: Moments of deafness that lie no further apart belong together, in seconds.
_ONE_S = 15.0
#: Deafness is told when it has lasted for so long, in seconds.
_TOLD_S = 5.0


class Hearing:
    """Moments of deafness, in seconds since the epoch, by the engine's clock. Several threads may call."""

    def __init__(self) -> None:
        """Take the engine for one that hears, until something says otherwise."""
        self._lock = threading.Lock()
        self._deaf_until, self._deaf_since = 0.0, 0.0
        self._found: dict[str, float] = {}  # by cause of the deafness that lasts, when it was found last
        self._guessed = ""  # its cause as long as none is found
        self._test_began: float | None = None  # a test is under way since then
        self._test_ended: float | None = None  # None: nobody tests

    def note_deaf(self, why: str, now: float) -> None:
        """Record that something kept a sign of life from being heard just now; ``why``: what, without a full stop."""
        with self._lock:
            self._note(why, now)

    def test_begins(self, now: float) -> None:
        """Record that the engine begins to test whether it can be heard of."""
        with self._lock:
            self._find_late(now)
            self._test_began = now

    def test_ends(self, now: float, why: str = "") -> None:
        """Record the end of the test. ``why``: what keeps the engine from hearing; empty: nothing does."""
        with self._lock:
            self._find_late(now)
            self._test_began, self._test_ended = None, now
            if why:
                self._note(why, now)

    def deaf_until(self, now: float) -> float:
        """The last moment at which this engine could not hear: ``now``, if it cannot hear now; 0 if there was none."""
        with self._lock:
            self._find_late(now)
            return self._deaf_until

    def why(self, now: float, within_s: float) -> str:
        """What kept the engine from hearing within the last ``within_s`` seconds; empty if nothing did."""
        with self._lock:
            self._find_late(now)
            return self._causes(now) if self._deaf_until and now - self._deaf_until <= within_s else ""

    def problem(self, now: float) -> str:
        """A sentence about deafness that lasts; empty if there is none."""
        with self._lock:
            self._find_late(now)
            if not self._deaf_until or now - self._deaf_until > _ONE_S or now - self._deaf_since < _TOLD_S:
                return ""
            since = datetime.fromtimestamp(self._deaf_since, UTC).strftime("%H:%M:%S UTC")
            return (
                f"this engine {CANNOT_HEAR}, since {since}: {self._causes(now)}. Until it can, nobody counts as "
                "silent: no job is requeued because its wrapper says nothing, and the engine has no node fenced by "
                "itself"
            )

    def _find_late(self, now: float) -> None:
        if self._test_began is not None and now - self._test_began > TEST_LATE_S:
            self._note("the test of its own hearing hangs", now, guessed=True)
            return
        idle_s = 0.0 if self._test_ended is None else now - self._test_ended
        if self._test_began is None and idle_s > TEST_PERIOD_S + TEST_LATE_S:
            self._note("its process stood still", now)

    def _note(self, why: str, now: float, *, guessed: bool = False) -> None:
        begins = now - self._deaf_until > _ONE_S
        if begins:
            self._deaf_since, self._found, self._guessed = now, {}, ""
        if guessed:
            self._guessed = self._guessed or why
        else:
            self._found[why] = now
        self._deaf_until = max(self._deaf_until, now)

    def _causes(self, now: float) -> str:
        lasting = [why for why, found in self._found.items() if now - found <= _ONE_S]
        return "; ".join(lasting or [*self._found][-1:]) or self._guessed
