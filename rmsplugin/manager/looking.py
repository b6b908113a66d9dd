"""Looking: what the leader knows of Slurm. It reads anew only where something may have changed, or after a while.

squeue, which stays, tells of jobs that move on; slurmctld's state tells of new scripts. What neither tells, such as
priorities and nodes, is as old as the last reading, which engines ask for in each of their cycles.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from rmsplugin.adapters.rms import slurm_scripts
from rmsplugin.adapters.rms.base import RmsSnapshot
from rmsplugin.errors import RmspluginError
from rmsplugin.manager.readings import Reading, Readings


class LeadersLook:
    """Slurm as the leader sees it. Used by one thread."""

    def __init__(
        self,
        readings: Readings,
        fresh: Callable[[], Reading],
        tell: Callable[[], str],
        epoch: Callable[[], int],
        longest_s: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Look at nothing yet.

        Args:
            readings: of which the last one is used.
            fresh: waits for one that is begun after the call; raises UnavailableError.
            tell: the pulse (``Rms.pulse``).
            epoch: that of the lead. A new one begins with a reading of its own: others may have given what an older
                reading lacks.
            longest_s: no reading is used for longer.
            monotonic: seconds that pass.
        """
        self._readings, self._fresh, self._tell, self._epoch = readings, fresh, tell, epoch
        self._longest_s, self._monotonic = longest_s, monotonic
        self._signs: object = None  # before the last reading that was made for this look

    def snapshot(self) -> RmsSnapshot:
        """Slurm as it was read last, or as it is read now. Raises UnavailableError."""
        last = self._readings.last
        signs = self._seen(last)
        is_old = last is None or self._monotonic() - last.begun >= self._longest_s
        if last is None or is_old or signs is None or signs != self._signs:
            last = self._fresh()
            self._signs = signs
        return last.snapshot

    def _seen(self, last: Reading | None) -> object:
        """All signs of a change, as they are now; None: they cannot be seen."""
        try:
            pulse = self._tell()
        except RmspluginError:
            return None
        state_dir = last.snapshot.state_dir if last is not None else ""
        return self._epoch(), pulse, slurm_scripts.changes(state_dir) if state_dir else ()
