"""Process: one proposing process, from its start to its end; every wait is bounded, and a failing process is killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

import rmsplugin
from rmsplugin.child_process import environment
from rmsplugin.known_objects import ForeignObjectError
from rmsplugin.proposer import wire
from rmsplugin.proposing.proposal import Proposal

#: The last bytes of standard error that are kept.
_TAIL_BYTES = 4096
_SHOWN_CHARACTERS = 200
#: What a user's pipe may hold unless the system says otherwise; a request about a thousand nodes has as much.
_PIPE_BYTES = 1 << 20

#: The time that a killed process may take to be gone; the kernel holds one only while a disk does not answer.
_REAP_S = 5.0


class ProcessFailedError(Exception):
    """The process is of no more use, and has been killed; the message tells what it did, after "the proposer".

    Attributes:
        best: the best proposal that it had sent before; None if there was none.
    """

    best: Proposal | None = None


@dataclass(frozen=True, slots=True)
class ProposerLimits:
    """Bounds of a proposing process.

    Raises:
        ValueError: a bound that cannot be kept.
    """

    deadline_s: float = 30.0  # of one proposal; longer than all searches in it together
    fallback_s: float = 30.0  # of the proposal by First Fit Decreasing, if the first one failed
    start_s: float = 60.0  # until it has loaded the solvers
    memory_mib: int = 2048  # the most memory; the libraries take about 150
    nice: int = 5  # niceness above the engine's: slurmctld and the service go first

    def __post_init__(self) -> None:
        """Refuse bounds without meaning."""
        for name in ("deadline_s", "fallback_s", "start_s", "memory_mib"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}")
        if not 0 <= self.nice <= 19:
            raise ValueError(f"nice must be from 0 to 19, not {self.nice}")


class Process:
    """One process. It is started at once, and loads the solvers while nobody waits."""

    def __init__(self, limits: ProposerLimits, entry: str) -> None:
        """Start it.

        Args:
            limits: its memory and niceness.
            entry: the function that it calls, as ``module:function``.

        Raises:
            ProcessFailedError: the system does not allow it.
        """
        self._limits = limits
        self._decoder = wire.Decoder()
        self._said = b""
        self._ready = self._reaped = False
        self._best: Proposal | None = None  # of the request that is being answered
        command = [sys.executable, "-P", "-m", "rmsplugin.proposer.child"]
        try:
            theirs, self._lifeline = os.pipe()
        except OSError as error:
            raise ProcessFailedError(f"could not be started: {error.strerror}") from None
        try:
            # No code of ours runs between fork and exec: other threads may hold any lock.
            self._process = subprocess.Popen(
                [*command, str(theirs), str(limits.memory_mib), str(limits.nice), entry],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                pass_fds=(theirs,),
                env=environment(),
                cwd="/",
                # Ctrl-C on the engine's terminal is for the engine; and it leads a group, which is killed with it.
                start_new_session=True,
            )
        except OSError as error:
            os.close(self._lifeline)
            raise ProcessFailedError(f"could not be started: {error.strerror}") from None
        finally:
            os.close(theirs)
        assert self._process.stdin and self._process.stdout and self._process.stderr
        self._requests, self._answers, self._errors = self._process.stdin, self._process.stdout, self._process.stderr
        for stream in (self._requests, self._answers, self._errors):
            os.set_blocking(stream.fileno(), False)
        for stream in (self._requests, self._answers):
            _widen(stream.fileno())

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def is_usable(self) -> bool:
        """Whether it can be asked: it has not ended, and was not ended."""
        return self._lifeline >= 0 and self._process.poll() is None

    def ask(self, request: bytes, deadline_s: float) -> wire.Answer:
        """Send a request (a frame), and wait for the answer.

        Args:
            request: the output of ``wire.encode``.
            deadline_s: the time for the answer, from the moment that the process has loaded its modules (at most
                ``start_s``).

        Raises:
            ProcessFailedError: there is no answer.
        """
        if self._lifeline < 0:
            raise ProcessFailedError("has been ended")
        if not self._ready:
            self._expect_ready()
        self._hear()
        self._said = b""  # its earlier words have nothing to do with this request
        self._best = None
        try:
            message = self._exchange(request, deadline_s, f"had no answer within {deadline_s:g} s")
            return self._answer_in(message)
        except ProcessFailedError as error:
            error.best = self._best
            raise

    def _answer_in(self, message: wire.Message) -> wire.Answer:
        match message:
            case wire.Answer():
                return message
            case wire.Failure():
                if message.over:
                    self.end()
                raise ProcessFailedError(f"failed: {message.explanation}")
        raise self._failed("answered something else than was asked for")

    def end(self) -> None:
        """Kill it if it is still there. Returns when it is gone, which takes a moment only; may be called twice."""
        self._reap()
        for stream in (self._requests, self._answers, self._errors):
            with contextlib.suppress(OSError):
                stream.close()
        lifeline, self._lifeline = self._lifeline, -1
        if lifeline >= 0:
            os.close(lifeline)

    def kill(self) -> None:
        """Kill it; a caller that waits for an answer sees it end. May be called from any thread."""
        self._process.kill()

    def _expect_ready(self) -> None:
        start_s = self._limits.start_s
        message = self._exchange(b"", start_s, f"was not ready within {start_s:g} s of its start")
        if not isinstance(message, wire.Ready):
            raise self._failed("began with something else than was expected")
        if message.release != rmsplugin.__version__:
            raise self._failed(
                f"is of release {message.release} and the engine of {rmsplugin.__version__}: restart the engine"
            )
        self._ready = True

    def _exchange(self, request: bytes, bound_s: float, late: str) -> wire.Message:
        """Write all of the request, and read one message."""
        end = time.monotonic() + bound_s
        left = memoryview(request)
        poll = select.poll()
        poll.register(self._answers, select.POLLIN)
        poll.register(self._errors, select.POLLIN)
        if left:
            poll.register(self._requests, select.POLLOUT)
        while True:
            remaining_s = end - time.monotonic()
            if remaining_s <= 0:
                raise self._failed(f"{late}, and was killed")
            for descriptor, _ in poll.poll(max(1, remaining_s * 1000)):
                if descriptor == self._errors.fileno():
                    if not self._hear():  # closed
                        poll.unregister(self._errors)
                elif descriptor == self._requests.fileno():
                    left = self._write(left)
                    if not left:
                        poll.unregister(self._requests)
                elif (message := self._read()) is not None:
                    return message

    def _write(self, left: memoryview) -> memoryview:
        try:
            return left[os.write(self._requests.fileno(), left) :]
        except BlockingIOError:
            return left
        except OSError:
            raise self._failed("") from None

    def _read(self) -> wire.Message | None:
        try:
            data = os.read(self._answers.fileno(), 1 << 20)
        except BlockingIOError:
            return None
        if not data:
            raise self._failed("")
        self._decoder.feed(data)
        try:
            while isinstance(message := self._decoder.message(), wire.Better):
                self._best = message.found
        except ForeignObjectError as error:
            raise self._failed(f"answered with {error}") from None
        except wire.GarbageError as error:
            raise self._failed(f"answered with garbage ({error})") from None
        return message

    def _hear(self) -> bool:
        """Keep the end of its words on standard error; False when there are none (any more)."""
        try:
            data = os.read(self._errors.fileno(), 1 << 16)
        except BlockingIOError:
            return False
        self._said = (self._said + data)[-_TAIL_BYTES:]
        return bool(data)

    def _failed(self, what: str) -> ProcessFailedError:
        """End it, and tell what it did: ``what``, or how it ended by itself, and its last words."""
        if not what:
            with contextlib.suppress(subprocess.TimeoutExpired):  # its pipe is closed: it is about to end
                self._process.wait(1.0)
            what = _ending(self._process.poll())
        self._reap()
        while self._hear():
            pass
        self.end()
        lines = self._said.decode(errors="replace").strip().splitlines()
        words = "".join(c if c.isprintable() else " " for c in lines[-1]).strip() if lines else ""
        return ProcessFailedError(f"{what} ({words[:_SHOWN_CHARACTERS]})" if words else what)

    def _reap(self) -> None:
        """Kill it, and what it started: they are one group, which may outlive it."""
        if not self._reaped:  # once: later the number may be another group's
            self._reaped = True
            with contextlib.suppress(ProcessLookupError, PermissionError):  # nothing is left, or nothing of ours
                os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_REAP_S)


def _widen(pipe: int) -> None:
    """Let a pipe hold as much as a user's may: with 64 KiB, each end would wait some twenty times for the other."""
    with contextlib.suppress(OSError):  # the user has many pipes already: this one stays as it is
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


def _ending(status: int | None) -> str:
    if status is None:
        return "closed its pipe, and was killed"
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"
