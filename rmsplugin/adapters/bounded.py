"""Bounded: a command of an engine that may lose its lease. The kernel ends it at a moment, whoever stands still.

An engine that is stopped after it has looked at its lease begins the command when it goes on; and one that is stopped,
or killed, ends no command that takes too long. So the command's own process looks at the clock once more, sets itself
an alarm, and then becomes the command (``bounded_child``). An alarm outlives that. It goes off while a process is
stopped, too, and ends it before it does anything else when it goes on.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from subprocess import CompletedProcess

#: Makes the right to run one command. It raises if the caller may act no more, and gives the moment, in seconds of
#: ``lease.clocked.steady_s``, until which a command may be begun; None: for ever.
Permit = Callable[[], AbstractContextManager[float | None]]

#: Signals by which a process here ends: the command was never begun; or it was ended at its last moment.
NOT_BEGUN, ENDED = signal.SIGVTALRM, signal.SIGALRM
_PROGRAM = str(Path(__file__).with_name("bounded_child.py"))


def run_permitted(
    permit: Permit,
    command: Sequence[str],
    timeout_s: float,
    run: Callable[[Sequence[str]], CompletedProcess[bytes]],
) -> CompletedProcess[bytes]:
    """Run a command inside of a permit, and once more, with another permit, if that ended before it had begun.

    Args:
        permit: see ``Permit``.
        command: its words.
        timeout_s: the seconds within which ``run`` ends it.
        run: starts it, and waits for its end.

    Returns:
        How it ended. By the signal ``ENDED``: it had not ended ``timeout_s`` after the permit's moment, and its effects
        are unknown.
    """
    while True:
        with permit() as until:
            if until is None:
                return run(command)
            own = (sys.executable, "-I", "-S", _PROGRAM, str(until), str(until + timeout_s))
            done = run((*own, *command))
        if done.returncode == -ENDED:
            with permit():  # for a caller that may act no more it is no failure of the command's
                return done
        if done.returncode != -NOT_BEGUN:
            return done
