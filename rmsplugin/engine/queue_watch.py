"""Queue watch: notices what users do to Slurm's queue, for nobody tells of jobs that they submit, hold or cancel.

Slurm is asked now and then. A batch job that was submitted is noticed sooner: slurmctld keeps its script in one of ten
directories of its state, and when these were changed costs Slurm nothing to tell.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable

from rmsplugin.engine.context import Context
from rmsplugin.errors import RmspluginError

#: Share of the time in which Slurm's queue is looked at: a busy slurmctld is asked less often.
MOST = 0.1
_SCRIPTS = tuple(f"hash.{number}" for number in range(10))


class QueueWatch:
    """Wakes the engine when the queue has changed; several threads may call."""

    def __init__(
        self,
        context: Context,
        partitions: Iterable[str],
        wake: Callable[[], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Watch the jobs of these partitions."""
        self._context = context
        self._partitions = tuple(partitions)
        self._wake = wake
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._pulse = ""
        self._changes: tuple[int, ...] | None = None
        self._rests_until = 0.0

    def look(self) -> None:
        """Ask Slurm."""
        with self._lock:
            began = self._monotonic()
            try:
                pulse = self._context.rms.pulse(self._partitions)
            except RmspluginError:
                return  # the cycle says so
            finally:
                ended = self._monotonic()
                self._rests_until = ended + (ended - began) * (1 / MOST - 1)
            if pulse == self._pulse:
                return
            self._pulse = pulse
        self._wake()

    def look_if_submitted(self) -> None:
        """Ask Slurm if a batch job was submitted since the last call; later, if it was asked just now and took long."""
        changes = self._last_changes()
        if changes == self._changes or self._monotonic() < self._rests_until:
            return
        was_known, self._changes = self._changes is not None, changes
        if was_known:
            self.look()

    def _last_changes(self) -> tuple[int, ...]:
        """When each directory was changed last; none where they cannot be seen."""
        state_dir = self._context.slurm.state_dir
        try:
            return tuple(os.stat(os.path.join(state_dir, name)).st_mtime_ns for name in _SCRIPTS) if state_dir else ()
        except OSError:
            return ()
