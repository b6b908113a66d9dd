"""Queue watch: notices what users do to Slurm's queue, for nobody tells of jobs that they submit, hold or cancel.

Slurm is asked now and then. A batch job that was submitted is noticed sooner: slurmctld keeps its script in one of ten
directories of its state. When these were changed costs Slurm nothing to tell, and the script's first line says whether
it is a vjob's.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable

from rmsplugin.adapters.rms import slurm_scripts
from rmsplugin.engine.context.context import Context
from rmsplugin.engine.observe.allowance import Allowance
from rmsplugin.errors import RmspluginError

#: Share of the time in which Slurm's queue is looked at: a busy slurmctld is asked less often.
MOST = 0.1
#: Share of the time that cycles take which the queue has caused, and how much of it is saved up while it is quiet: the
#: first of a thousand arrivals is seen to at once, and all together cause no storm of cycles.
CYCLES_SHARE, CYCLES_MOST_S = 0.2, 3.0
#: slurmctld writes a script right after it has made its directory. Of one that it has not written by then nobody knows.
_WRITTEN_S = 2.0
_OURS = re.compile(r"#!\S*/rmsplugin-job ")


class QueueWatch:
    """Wakes the engine when the queue has changed; several threads may call."""

    def __init__(
        self,
        context: Context,
        partitions: Iterable[str],
        wake: Callable[[], None],
        cycle_s: Callable[[], float] = lambda: 0.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Watch the jobs of these partitions.

        Args:
            context: with Slurm.
            partitions: those of vjobs, and those of rooms.
            wake: has a cycle run soon.
            cycle_s: how long the last cycle took.
            monotonic: tells the time.
        """
        self._context = context
        self._partitions = tuple(partitions)
        self._wake_engine = wake
        self._cycle_s = cycle_s
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._pulse = ""
        self._allowance = Allowance(CYCLES_SHARE, CYCLES_MOST_S, monotonic)
        self._submitted = _Submitted(monotonic)

    def look(self) -> None:
        """Ask Slurm."""
        with self._lock:
            try:
                pulse = self._context.rms.pulse(self._partitions)
            except RmspluginError:
                return  # the cycle says so
            if pulse != self._pulse and self._wake():
                self._pulse = pulse

    def look_if_submitted(self) -> None:
        """Wake the engine if a vjob was submitted since the last call. Slurm is not asked."""
        self._submitted.look(self._context.slurm.state_dir)
        if self._submitted.vjobs and self._wake():
            self._submitted.vjobs.clear()

    def _wake(self) -> bool:
        """Whether the queue may cause a cycle now; what has changed is seen again later if it may not."""
        if not self._allowance.take(self._cycle_s()):
            return False
        self._wake_engine()
        return True


class _Submitted:
    """The vjobs that were submitted, as slurmctld's state tells of them. Used in one thread.

    Attributes:
        vjobs: ids of those that nobody was told of yet.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.vjobs: set[int] = set()
        self._monotonic = monotonic
        self._state_dir = ""
        self._changes: slurm_scripts.Changes = ()
        self._again: frozenset[int] = frozenset()
        self._known: dict[int, frozenset[int]] = {}
        self._unread: dict[int, float] = {}  # scripts that are about to be written, and since when they are

    def look(self, state_dir: str) -> None:
        """Find those that have come since the last look; at the first one all are known."""
        now, seen = self._monotonic(), slurm_scripts.changes(state_dir) if state_dir else ()
        is_first = state_dir != self._state_dir or len(seen) != len(self._changes)
        changed = frozenset(digit for digit, change in enumerate(seen) if is_first or change != self._changes[digit])
        # Once more, for the kernel tells the time of changes to some milliseconds: another one may have the same.
        for digit in changed if is_first else changed | self._again:
            there = slurm_scripts.jobs(state_dir, digit)
            if not is_first:
                self._unread |= dict.fromkeys(there - self._known[digit], now)
            self._known[digit] = there
        self._state_dir, self._changes, self._again = state_dir, seen, changed
        self._read(state_dir, now)

    def _read(self, state_dir: str, now: float) -> None:
        for job_id, since in list(self._unread.items()):
            line = slurm_scripts.first_line(state_dir, job_id)
            if line is not None or now - since > _WRITTEN_S:
                del self._unread[job_id]
            if line is not None and _OURS.match(line):
                self.vjobs.add(job_id)
