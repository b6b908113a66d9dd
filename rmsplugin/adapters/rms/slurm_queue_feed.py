"""Slurm queue feed: one squeue that stays and tells the queue again and again, so that no process is started for that.

squeue asks slurmctld for what has changed since its last answer, which costs less than a tenth of a new process. If it
fails, or its answers take long, it is ended, and another one is started later.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable

from rmsplugin.adapters.rms import slurm_text
from rmsplugin.adapters.rms.slurm_commands import SlurmCommands
from rmsplugin.errors import UnavailableError

#: The share of all time that the answers may take: a busy slurmctld is asked less often.
_MOST = 0.1
#: A squeue that has stayed for so long is replaced: it knows slurm.conf and its programs as they were at its start.
_LONGEST_S = 3600.0

_FIELDS = "JobArrayID:64,StateCompact:8,PreemptTime:24,Reason:40"


class QueueFeed:
    """The pulse of some partitions. Several threads may call."""

    def __init__(
        self,
        commands: SlurmCommands,
        period_s: float,
        timeout_s: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start nothing yet.

        Args:
            commands: starts squeue.
            period_s: pause between two answers; squeue rests for whole seconds, one at least.
            timeout_s: bound of one answer.
            monotonic: tells the time.
        """
        self._commands = commands
        self._pause_s = max(1, round(period_s))
        self._timeout_s = timeout_s
        self._monotonic = monotonic
        self._changed = threading.Condition()  # of the fields below
        self._process: subprocess.Popen[str] | None = None
        self._partitions: tuple[str, ...] = ()
        self._started = 0.0
        self._asks_at = 0.0  # the time when it asked the question that it is to answer next
        self._rests_until = 0.0
        self._pulse: str | UnavailableError | None = None  # the last answer; None: none yet

    def latest(self, partitions: tuple[str, ...]) -> str:
        """The pulse (``Rms.pulse``) as squeue told it last; waits only for a first answer. Raises UnavailableError."""
        with self._changed:
            if self._partitions != partitions:
                self._end()
                self._rests_until = 0.0  # what is known is of others
            if self._process is None and self._monotonic() >= self._rests_until:
                self._start(partitions)
                self._changed.wait_for(lambda: self._pulse is not None, self._timeout_s)
            if self._process is not None and self._monotonic() - self._asks_at > self._timeout_s:
                self._fail(f"Slurm did not answer `squeue` within {self._timeout_s:.0f} s")
            pulse = self._pulse
        if isinstance(pulse, str):
            return pulse
        raise pulse or UnavailableError("squeue has not answered yet")

    def end(self) -> None:
        """Have no squeue stay until somebody asks for the pulse."""
        with self._changed:
            self._end()
            self._rests_until, self._pulse = 0.0, None

    def _start(self, partitions: tuple[str, ...]) -> None:
        self._partitions, self._pulse = partitions, None
        self._started = self._asks_at = self._monotonic()
        which = ("-h", "-a", f"--partition={','.join(partitions)}", "-O", _FIELDS)
        try:
            process = self._commands.follow("squeue", *which, f"--iterate={self._pause_s}")
        except UnavailableError as error:
            self._fail(str(error))
            return
        self._process = process
        threading.Thread(target=self._read, args=(process,), name="slurm-queue", daemon=True).start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        """Read answers until squeue ends, or is not wanted any more; each answer ends with an empty line."""
        assert process.stdout is not None
        with process, process.stdout as lines:
            rows: list[str] = []
            for line in lines:
                if line != "\n":
                    rows.append(line)
                elif not self._take(process, rows):
                    break
                else:
                    rows = []
            with self._changed:
                if process is self._process:
                    self._fail(" ".join("".join(rows).split()) or "`squeue` has ended")

    def _take(self, process: subprocess.Popen[str], rows: list[str]) -> bool:
        """Take an answer. Returns whether more of them are wanted of this process."""
        with self._changed:
            if process is not self._process:
                return False
            now = self._monotonic()
            rest_s = (now - self._asks_at) * (1 / _MOST - 1)
            if errors := [row for row in rows if not row[0].isdecimal()]:
                self._fail(" ".join("".join(errors).split()))
                return False
            self._pulse = slurm_text.pulse("".join(rows))
            self._asks_at = now + self._pause_s
            if now - self._started > _LONGEST_S:
                self._end()
            elif rest_s > self._pause_s:
                self._rests_until = now + rest_s
                self._end()
            self._changed.notify_all()
            return self._process is not None

    def _fail(self, why: str) -> None:
        """Remember why there is no answer, and start another squeue only after a pause."""
        self._pulse = UnavailableError(why)
        self._rests_until = self._monotonic() + self._pause_s
        self._end()
        self._changed.notify_all()

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
        self._process = None
