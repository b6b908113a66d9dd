"""Queue watch: notices that users submit, hold or cancel jobs, since Slurm does not tell the engine.

Slurm tells its queue now and then. A submitted batch job is noticed sooner: slurmctld keeps its script in one of ten
directories of its state. Reading when these directories changed costs Slurm nothing, and the first line of the script
says whether the job is a vjob.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable

from rmsplugin.adapters.rms import slurm_scripts
from rmsplugin.adapters.rms.base import Rms
from rmsplugin.engine.context.slurm_facts import SeenSlurm
from rmsplugin.engine.observe.allowance import Allowance
from rmsplugin.errors import RmspluginError

#: The share of all time that looks for submitted jobs may take.
MOST = 0.1
#: The share of all time that cycles caused by the queue may take, and the most that a quiet time saves up, in seconds.
#: The first of a thousand arrivals is served at once, and all of them together cause no storm of cycles.
CYCLES_SHARE, CYCLES_MOST_S = 0.2, 3.0
#: slurmctld writes a script right after making its directory. A script that is not there after so many seconds is not
#: waited for any longer.
_WRITTEN_S = 2.0
_OURS = re.compile(r"#!\S*/rmsplugin-job ")


class QueueWatch:
    """Wakes the engine when the queue has changed; several threads may call."""

    def __init__(
        self,
        rms: Rms,
        slurm: SeenSlurm,
        partitions: Iterable[str],
        wake: Callable[[], None],
        cycle_s: Callable[[], float] = lambda: 0.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Watch the jobs of these partitions.

        Args:
            rms: with the queue.
            slurm: with the directory of Slurm's scripts.
            partitions: those of vjobs, and those of rooms.
            wake: has a cycle run soon.
            cycle_s: how long the last cycle took.
            monotonic: tells the time.
        """
        self._rms = rms
        self._slurm = slurm
        self._partitions = tuple(partitions)
        self._wake_engine = wake
        self._cycle_s = cycle_s
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._pulse = ""
        self._allowance = Allowance(CYCLES_SHARE, CYCLES_MOST_S, monotonic)
        self._submitted = _Submitted(monotonic)

    def ask_slurm(self) -> None:
        """Wake the engine if the queue has changed, as Slurm told it last."""
        with self._lock:
            try:
                pulse = self._rms.pulse(self._partitions)
            except RmspluginError:
                return  # the cycle says so
            if pulse != self._pulse and self._wake():
                self._pulse = pulse

    def ask_slurm_if_submitted(self) -> None:
        """Wake the engine if a vjob was submitted since the last call. Slurm is not asked."""
        self._submitted.find_new(self._slurm.state_dir)
        if self._submitted.vjobs and self._wake():
            self._submitted.vjobs.clear()

    def _wake(self) -> bool:
        """Wake the engine if the queue may cause a cycle now; else the change is seen again later. Returns whether."""
        if not self._allowance.take(self._cycle_s()):
            return False
        self._wake_engine()
        return True


class _Submitted:
    """The vjobs that were submitted, as slurmctld's state tells of them. Used in one thread.

    Attributes:
        vjobs: ids of the vjobs for which the engine was not woken yet.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.vjobs: set[int] = set()
        self._monotonic = monotonic
        self._state_dir = ""
        self._changes: slurm_scripts.Changes = ()
        self._again: frozenset[int] = frozenset()
        self._known: dict[int, frozenset[int]] = {}
        self._unread: dict[int, float] = {}  # job id -> since when its script is about to be written

    def find_new(self, state_dir: str) -> None:
        """Find the vjobs that were submitted since the last look; the first look takes all jobs as known."""
        now, seen = self._monotonic(), slurm_scripts.changes(state_dir) if state_dir else ()
        is_first = state_dir != self._state_dir or len(seen) != len(self._changes)
        changed = frozenset(digit for digit, change in enumerate(seen) if is_first or change != self._changes[digit])
        # A changed directory is read once more at the next look: the kernel tells the time of a change only to some
        # milliseconds, so a second change may bear the same time.
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
