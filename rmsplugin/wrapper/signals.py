"""Signals: which signals to the wrapper are meant for the script, and how they get there.

All are blocked and taken one by one by a thread of their own, so that none is lost while there is no connection.
Slurm sends SIGTERM for a cancellation, the time limit, a requeue, and at a user's request; Slurm is asked which.
"""

from __future__ import annotations

import _thread
import contextlib
import enum
import os
import re
import signal
from collections.abc import Callable

# Useless to a process in another machine.
_NOT_PASSED_ON = frozenset({signal.SIGTTIN, signal.SIGTTOU, signal.SIGCHLD})
# Faults of this process itself (blocking them would hang it), and the kernel's reports on this process's own files.
_OWN = frozenset(
    {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSYS, signal.SIGTRAP}
    | {signal.SIGPIPE, signal.SIGWINCH, signal.SIGURG, signal.SIGIO}
)
# Signals that Slurm sends when a run ends, or is suspended: they do not come from a user then.
_OF_AN_END = frozenset({signal.SIGTERM, signal.SIGCONT, signal.SIGTSTP})

# The first facts of `scontrol show job -o` are about the job itself; for the last task of an array it shows all others,
# too. The job's name stands before the facts and its comment behind them; users may write anything into both.
_FACTS = re.compile(r"\sUserId=.*?\sJobState=(\S+).*?\sRestarts=(\d+)")

_ASK_TIMEOUT_S = 5.0
_ASK_AGAIN_S = 1.0
_ASK_TIMES = 20


class Fate(enum.Enum):
    """Slurm's present action on the job."""

    RUNNING = enum.auto()
    ENDING = enum.auto()
    REQUEUED = enum.auto()
    UNKNOWN = enum.auto()


class Stop(enum.Enum):
    """The part of a signal in a stop of this process; the words are those of native/sentry.c."""

    #: The job is being suspended: the stop that follows is not meant for the script.
    SUSPENDED = "suspended"
    #: A suspension has ended: the script is told nothing.
    CONTINUED = "continued"
    #: Any other stop has ended, if there was one: the script gets the SIGCONT.
    PASSED = "passed"


def taken() -> set[int]:
    """The signals that the wrapper takes."""
    return {int(number) for number in signal.valid_signals() - _OWN - {signal.SIGKILL, signal.SIGSTOP}}


def block() -> None:
    """Keep all signals pending until ``SignalThread`` takes them; call it before any thread exists."""
    signal.pthread_sigmask(signal.SIG_BLOCK, taken())


def parse_fate(line: str, restarts: int) -> Fate:
    """Read ``scontrol show job -o``.

    Args:
        line: its output.
        restarts: the number of requeues of the job at the beginning of this run.
    """
    facts = _FACTS.search(line)
    if facts is None:
        return Fate.UNKNOWN
    if int(facts[2]) > restarts:
        return Fate.REQUEUED
    match facts[1]:
        case "PENDING" | "REQUEUED" | "REQUEUE_HOLD" | "REQUEUE_FED" | "SPECIAL_EXIT" | "PREEMPTED":
            return Fate.REQUEUED
        case "RUNNING" | "STOPPED" | "SUSPENDED" | "CONFIGURING" | "SIGNALING" | "RESIZING":
            return Fate.RUNNING
    return Fate.ENDING


def ask_slurm(job_id: str, restarts: int) -> Fate:
    """Ask Slurm for its present action on the job; UNKNOWN if it does not say in time."""
    import subprocess  # only a job that is ending, or seems to be, pays for it

    try:
        answer = subprocess.run(
            ["scontrol", "show", "job", "-o", job_id],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_ASK_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return Fate.UNKNOWN
    return parse_fate(answer.stdout, restarts) if answer.returncode == 0 else Fate.UNKNOWN


class SignalThread:
    """Takes signals as they come, and acts on each, one after the other."""

    def __init__(
        self,
        fate: Callable[[], Fate],
        meant_all: Callable[[int], bool],
        send: Callable[[int, bool], None],
        end: Callable[[int], None],
        detach: Callable[[], None],
        pause: Callable[[float], object],
        tell_stop: Callable[[Stop], object],
    ) -> None:
        """Take the callbacks.

        Args:
            fate: tells what Slurm is doing to the job.
            meant_all: tells whether a signal was sent to all processes of the job, not to the script alone.
            send: passes a signal on to the script, or to all of its session; waits until that is possible.
            end: has the script and all of its session end by the signal; ends the wrapper if it has no script yet.
            detach: ends the wrapper and nothing else, unless the script itself has asked for the requeue.
            pause: waits between two questions.
            tell_stop: called with the part of each SIGTSTP and SIGCONT in a stop.
        """
        self._fate, self._meant_all, self._send = fate, meant_all, send
        self._end, self._detach, self._pause = end, detach, pause
        self._tell_stop, self._suspended = tell_stop, False

    def start(self) -> None:
        """Begin to take signals, for ever. Not by ``threading``, for its memory."""
        _thread.start_new_thread(self._pass_on, ())

    def _pass_on(self) -> None:
        waited_for = taken()
        while True:
            self.handle(signal.sigwait(waited_for))

    def _is_suspension(self, number: int) -> bool:
        """Whether the signal begins or ends a suspension, which the script must not notice.

        The signals are SIGTSTP, then SIGSTOP, and in the end SIGCONT. Any other SIGCONT is the script's: it comes of
        ``scancel -s CONT``, and before every SIGTERM.
        """
        if number not in (signal.SIGTSTP, signal.SIGCONT) or self._suspended == (number == signal.SIGTSTP):
            return number == signal.SIGTSTP
        self._suspended = not self._suspended
        self._tell_stop(Stop.SUSPENDED if self._suspended else Stop.CONTINUED)
        return True

    def _pass_on_waiting(self) -> None:
        """Pass on signals that came together with the SIGTERM: of waiting signals the least number is taken first."""
        for number in sorted(signal.sigpending() & taken() - _OF_AN_END):
            signal.sigwait({number})
            self.handle(number)

    def handle(self, number: int) -> None:
        """Act on one signal."""
        if number in _NOT_PASSED_ON or self._is_suspension(number):
            return
        if number == signal.SIGCONT:
            self._tell_stop(Stop.PASSED)
            self._send(number, False)  # It ends no process, so the child cannot tell whether others were meant.
            return
        if number != signal.SIGTERM:
            self._send(number, self._meant_all(number))
            return
        for _ in range(_ASK_TIMES):
            match self._fate():
                case Fate.ENDING:
                    self._end(number)
                    return
                case Fate.RUNNING:
                    self._send(number, self._meant_all(number))
                    return
                case Fate.REQUEUED:
                    self._pass_on_waiting()
                    self._detach()
                    return
            # Without an answer neither choice is right: passed on, the signal might kill the work of a job that is only
            # requeued. If the job is really ending, Slurm's SIGKILL to us and the end of the VMs follow anyway.
            self._pause(_ASK_AGAIN_S)


def die_by(number: int) -> None:
    """End this process by the signal, as the script ended by it; returns if the signal does not end a process."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        # Only the main thread may; for the other threads it is enough that no handler of SIGTERM is set.
        with contextlib.suppress(ValueError):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
