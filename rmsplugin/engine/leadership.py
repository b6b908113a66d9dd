"""Leadership: waits until this engine leads, keeps its lease, and ends the process when it is lost.

A lease that has run out, because the ensemble did not answer in time, is not lost yet: the engine stands still, and
goes on where nobody else can have led. An ensemble whose leader is gone answers nobody for some seconds.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from rmsplugin.adapters.lease.base import Lease
from rmsplugin.adapters.lease.clocked import steady_s
from rmsplugin.errors import UnavailableError

log = logging.getLogger(__name__)


class Leadership:
    """The lease of this process over time."""

    def __init__(
        self, lease: Lease, period_s: float, still_s: float = 0.0, clock: Callable[[], float] = steady_s
    ) -> None:
        """Hold nothing yet.

        Args:
            lease: of this process.
            period_s: pause between two requests for it.
            still_s: so long at most the engine stands still, in seconds; then what it was about to do is too old.
            clock: that of the lease.
        """
        self.lease = lease
        self._period_s, self._still_s, self._clock = period_s, still_s, clock
        self._closed = threading.Event()

    def wait(
        self,
        told_to_end: threading.Event,
        tell: Callable[[str], object] = lambda why: None,
        lives: Callable[[], None] = lambda: None,
    ) -> bool:
        """Wait until this engine leads, or is told to end. Returns whether it leads.

        Args:
            told_to_end: set when it is.
            tell: called with the reason, where it is another one than before.
            lives: called at each turn.

        Raises:
            RefusedError: it can never lead here.
        """
        said = ""
        while not told_to_end.is_set():
            lives()
            try:
                self.lease.acquire()
                return True
            except UnavailableError as error:
                # Sentences with a count-down differ at each time, and say the same.
                if said != (said := str(error).partition(",")[0]):
                    log.info("waiting: %s", error)
                    tell(str(error))
            told_to_end.wait(self._period_s)
        return False

    def keep(self, lost: Callable[[str], None]) -> None:
        """Keep the lease in a thread of its own; ``lost`` is called once, with why, when it is lost."""
        threading.Thread(target=self._renew_until_lost, args=(lost,), name="lease", daemon=True).start()

    def release(self, *, at_rest: bool) -> None:
        """Release the lease, as of ``Lease``. It is not lost then."""
        self._closed.set()
        self.lease.release(at_rest=at_rest)

    def _renew_until_lost(self, lost: Callable[[str], None]) -> None:
        held_at, still = self._clock(), False
        while not self._closed.wait(self._period_s):
            now = self._clock()
            try:
                self.lease.renew()
            except Exception as error:
                if self._closed.is_set():
                    return
                if self.lease.lost() or now - held_at >= self._still_s:
                    lost(str(error))
                    return
                if not still:
                    log.warning("this engine stands still, for its lease has run out: %s", error)
                still = True
                continue
            if still:
                log.warning("this engine goes on, after %.1f s: nobody else has led meanwhile", self._clock() - held_at)
            held_at, still = now, False
