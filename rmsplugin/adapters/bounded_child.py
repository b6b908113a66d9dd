"""Bounded child: the program of ``bounded``. It becomes a command, unless it is too late, and has the kernel end it.

usage: bounded_child.py BEGIN_BY END_BY COMMAND...

BEGIN_BY, END_BY: moments, in seconds of CLOCK_BOOTTIME. The process ends by SIGVTALRM if the command was not begun, and
by SIGALRM if it had not ended. It is started for each act at Slurm, so it loads nothing that it can do without.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found] # the module without names for numbers: half the time
import os
import sys
import time

#: The most seconds between the look at the clock and the alarm, by which that may come late.
_LATE_S = 0.01
#: To the alarm, where the command should have ended before it was begun.
_AT_ONCE_S = 1e-6


def _become(command: list[str], begin_by: float, end_by: float) -> None:
    """Become the command, unless it is too late for that. Never returns."""
    for each in (signal.SIGALRM, signal.SIGVTALRM, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(each, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGALRM, signal.SIGVTALRM))
    while True:
        looked = _now()
        if looked >= begin_by:
            os.kill(os.getpid(), signal.SIGVTALRM)
        signal.setitimer(signal.ITIMER_REAL, max(end_by - looked, _AT_ONCE_S))  # none, or less, would set no alarm
        if _now() - looked < _LATE_S:
            break
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"{error.strerror}\n")
        os._exit(127)


def _now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


if __name__ == "__main__":
    _become(sys.argv[3:], float(sys.argv[1]), float(sys.argv[2]))
