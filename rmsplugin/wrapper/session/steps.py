"""Steps: each step in the VMs has a shadow, which is a step of Slurm's; by its shadow Slurm knows of the guest's step.

The guest's tasks never wait for Slurm. A shadow is a run of the site's ``srun`` whose tasks do nothing (``shadow`` of
rmsplugin/guest_tools/native): they report the signals that they get, and end as the guest's step has ended. A failure
of a shadow leaves the guest's step alone; only a shadow that Slurm killed while the job runs on ends it.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import select
import signal
import time
from collections.abc import Callable

from rmsplugin.wrapper.process import TOOLS_PROGRAM as _TOOLS
from rmsplugin.wrapper.process import is_stopped
from rmsplugin.wrapper.signals import Fate

_ALIVE = 32
# Further steps wait in their order, so that Slurm's numbers of steps are the guest's.
_KNOWN = 2000
_TASKS = 64
_NAME_BYTES = 64
_START_S = 10.0
_PAUSE_S = 30.0
_LOOK_S = 2.0
# Exit codes of srun. If no task has ended, srun gives up a step that slurmctld reports as cancelled, and has no task's
# code: this happens when the cancellation came before slurmd knew of the step.
_KILLED = 128 + signal.SIGKILL
_CANCELLED = 0
_ASK_TIMES = 5
_ASK_AGAIN_S = 1.0
_CHUNK_BYTES = 1 << 12


class _Shadow:
    """A step of the guest's, and the srun that stands for it after its start."""

    __slots__ = (
        "end",
        "is_stopped",
        "limit_min",
        "lines",
        "name",
        "ntasks",
        "number",
        "pid",
        "said",
        "speaks",
        "started_at",
        "suspended",
        "task",
        "told",
        "up",
        "watch",
    )

    def __init__(self, number: int, ntasks: int, name: str, limit_min: int) -> None:
        self.number, self.ntasks, self.name = number, ntasks, name
        #: The step's time limit; 0: none.
        self.limit_min = limit_min
        #: How the guest's step has ended, as the shadow is told.
        self.end = ""
        self.pid = 0
        self.told = self.up = False
        #: Process id of its first task, and Slurm's action on that task.
        self.task = 0
        self.suspended = self.is_stopped = False
        # Of srun: its process, its standard input and output.
        self.watch = self.speaks = self.said = -1
        self.lines = b""
        self.started_at = 0.0


class Steps:
    """The shadows of one job; one thread uses it."""

    def __init__(
        self, search_path: str, job_id: str, fate: Callable[[], Fate], send: Callable[[int, int], object]
    ) -> None:
        """Take the callbacks.

        Args:
            search_path: directories of Slurm's clients, with colons; without an srun there is no shadow.
            job_id: the job.
            fate: tells what Slurm is doing to the job.
            send: sends a signal (second) to the tasks of a step (first); any thread calls it.
        """
        self._program = _find(search_path)
        self._job_id, self._fate, self._send = job_id, fate, send
        self._ready = select.epoll()
        self._shadows: dict[int, _Shadow] = {}
        #: The number of the guest's events that were taken.
        self.offset = 0
        self._past = False
        self._limits: dict[int, int] = {}
        self._looked_at = 0.0
        self._paused_until = 0.0
        self._lock = _thread.allocate_lock()
        self._unjudged: list[tuple[int, int]] = []
        self._judging = False

    def fileno(self) -> int:
        """The descriptor that is readable when a shadow has something to tell, or has ended."""
        return self._ready.fileno()

    def take_over(self) -> None:
        """Take all events from the first one on: steps that ended before now had their shadows from another wrapper."""
        for shadow in list(self._shadows.values()):
            self._end(shadow, f"signal {int(signal.SIGKILL)}")
            shadow.number = -1  # Whatever it says or becomes, it is not about a step of the guest's.
        self._shadows = {-shadow.pid: shadow for shadow in self._shadows.values() if shadow.pid}
        self.offset, self._past = 0, True

    def take(self, line: bytes) -> bool:
        """Take a line of the guest's; returns whether it was about steps."""
        words = line[:256].decode("utf-8", "replace").split(" ", 3)
        match words:
            case ["now"]:
                self._past = False
                return True
            case ["hub"]:
                for shadow in list(self._shadows.values()):
                    self._end(shadow, shadow.end or f"signal {int(signal.SIGKILL)}")
            case ["limit", number, minutes] if _number(number) and _number(minutes):
                self._limits = {int(number): int(minutes)}  # `began` follows.
            case ["began", number, ntasks, name] if _number(number) and _number(ntasks):
                self._begin(int(number), int(ntasks), name)
            case ["ended", number, "exit" | "signal" as how, value] if _number(number) and _number(value):
                if ended := self._shadows.get(int(number)):
                    self._end(ended, f"{how} {int(value)}")
            case ["limit" | "began" | "ended", *_]:
                pass
            case _:
                return False
        self.offset += len(line) + 1
        return True

    def turn(self) -> None:
        """Do the work that needs no waiting."""
        self._start_judging()
        if not self._shadows:
            return
        for fd, _ in self._ready.poll(0):
            self._attend(fd)
        now = time.monotonic()
        for shadow in self._shadows.values():
            if shadow.pid and not shadow.up and now > shadow.started_at + _START_S:
                os.kill(shadow.pid, signal.SIGKILL)
        if now >= self._looked_at + _LOOK_S:
            self._looked_at = now
            for shadow in self._shadows.values():
                self._look_at(shadow)
        self._start_next(now)

    def due_s(self) -> float | None:
        """The seconds until ``turn`` has work though nothing happens; None: it never has."""
        starting = [shadow.started_at + _START_S for shadow in self._shadows.values() if shadow.pid and not shadow.up]
        if any(not shadow.pid for shadow in self._shadows.values()) and self._paused_until:
            starting.append(self._paused_until)
        if any(shadow.task and not shadow.end for shadow in self._shadows.values()):
            starting.append(self._looked_at + _LOOK_S)
        if self._unjudged and not self._judging:
            starting.append(time.monotonic() + _ASK_AGAIN_S)
        return max(min(starting) - time.monotonic(), 0.0) + 0.01 if starting else None

    def settle(self, patience_s: float) -> None:
        """Wait until Slurm knows of each end of a step, but not for long."""
        deadline = time.monotonic() + patience_s
        self.turn()
        while any(shadow.end for shadow in self._shadows.values()) and not self._paused_until:
            rest_s = deadline - time.monotonic()
            if rest_s <= 0:
                return
            self._ready.poll(rest_s)
            self.turn()

    def _begin(self, number: int, ntasks: int, name: str) -> None:
        if self._program and number not in self._shadows and len(self._shadows) < _KNOWN:
            shown = "".join(c if c.isprintable() else "?" for c in name)[:_NAME_BYTES]
            self._shadows[number] = _Shadow(number, min(max(ntasks, 1), _TASKS), shown, self._limits.pop(number, 0))

    def _end(self, shadow: _Shadow, end: str) -> None:
        shadow.end = shadow.end or end
        if self._past and not shadow.pid:
            self._shadows.pop(shadow.number, None)
        elif shadow.up:
            self._tell_end(shadow)

    def _tell_end(self, shadow: _Shadow) -> None:
        if not shadow.told and shadow.speaks >= 0:
            with contextlib.suppress(OSError):  # It is ending by itself.
                os.write(shadow.speaks, f"{shadow.end}\n".encode())
            shadow.told = True

    def _start_next(self, now: float) -> None:
        started = [shadow for shadow in self._shadows.values() if shadow.pid]
        if self._past or now < self._paused_until or len(started) >= _ALIVE or not all(each.up for each in started):
            return
        self._paused_until = 0.0
        if shadow := next((each for each in self._shadows.values() if not each.pid), None):
            self._start(shadow, now)

    def _start(self, shadow: _Shadow, now: float) -> None:
        try:
            self._spawn(shadow)
        except OSError:
            # This host has no process or no descriptor to spare, which must not harm the job: try again later.
            self._close(shadow)
            if shadow.pid:
                os.kill(shadow.pid, signal.SIGKILL)
                os.waitpid(shadow.pid, 0)
                shadow.pid = 0
            self._paused_until = now + _PAUSE_S
        else:
            shadow.started_at = now

    def _spawn(self, shadow: _Shadow) -> None:
        with contextlib.ExitStack() as theirs:
            their_input, shadow.speaks = os.pipe2(os.O_CLOEXEC)
            theirs.callback(os.close, their_input)
            shadow.said, their_output = os.pipe2(os.O_CLOEXEC)
            theirs.callback(os.close, their_output)
            os.set_blocking(shadow.said, False)
            self._ready.register(shadow.said, select.EPOLLIN)
            actions = [
                (os.POSIX_SPAWN_DUP2, their_input, 0),
                (os.POSIX_SPAWN_DUP2, their_output, 1),
                (os.POSIX_SPAWN_OPEN, 2, "/dev/null", os.O_WRONLY, 0),
            ]
            words = _command(self._program, self._job_id, shadow)
            shadow.pid = os.posix_spawn(words[0], words, _environment(), file_actions=actions, setsigmask=[])
        shadow.watch = os.pidfd_open(shadow.pid)
        self._ready.register(shadow.watch, select.EPOLLIN)

    def _close(self, shadow: _Shadow) -> None:
        for fd in (shadow.watch, shadow.said, shadow.speaks):
            if fd >= 0:
                with contextlib.suppress(OSError):  # Not all descriptors are watched.
                    self._ready.unregister(fd)
                os.close(fd)
        shadow.watch = shadow.said = shadow.speaks = -1

    def _attend(self, fd: int) -> None:
        for shadow in list(self._shadows.values()):
            if fd == shadow.said:
                self._hear(shadow)
            elif fd == shadow.watch:
                self._hear(shadow)
                self._bury(shadow)

    def _hear(self, shadow: _Shadow) -> None:
        while shadow.said >= 0:
            try:
                data = os.read(shadow.said, _CHUNK_BYTES)
            except BlockingIOError:
                return
            if not data:
                self._ready.unregister(shadow.said)
                os.close(shadow.said)
                shadow.said = -1
                return
            *lines, shadow.lines = (shadow.lines + data).split(b"\n")
            for line in lines:
                self._obey(shadow, line.decode("ascii", "replace").split())

    def _obey(self, shadow: _Shadow, words: list[str]) -> None:
        match words:
            case ["step", _, pid] if _number(pid):
                shadow.up, shadow.task = True, int(pid)
                if shadow.end:
                    self._tell_end(shadow)
            case ["suspended", word]:
                shadow.suspended = word == "1"
            case ["signal", number] if _number(number) and not shadow.end:
                self._pass_on(shadow.number, int(number))

    def _look_at(self, shadow: _Shadow) -> None:
        """Look at a step: Slurm stops tasks, too, and a stopped task cannot say so."""
        if not shadow.task or shadow.end or shadow.suspended:
            return
        before, shadow.is_stopped = shadow.is_stopped, is_stopped(shadow.task)
        if shadow.is_stopped and not before:
            self._send(shadow.number, signal.SIGSTOP)

    def _pass_on(self, step: int, number: int) -> None:
        if number == signal.SIGTERM:
            # Slurm sends it to the steps of a job that ends, or that it requeues: the wrapper itself handles that.
            self._judge(step, number)
        else:
            self._send(step, number)

    def _bury(self, shadow: _Shadow) -> None:
        self._close(shadow)
        _, status = os.waitpid(shadow.pid, 0)
        self._shadows = {key: each for key, each in self._shadows.items() if each is not shadow}
        if os.waitstatus_to_exitcode(status) in (_KILLED, _CANCELLED):
            # Perhaps Slurm cancelled the step before its task could report: Slurm shows a step, and takes its
            # cancellation, sooner.
            if not shadow.end and shadow.number >= 0:
                self._judge(shadow.number, signal.SIGKILL)
        elif not shadow.up:
            self._paused_until = time.monotonic() + _PAUSE_S

    def _judge(self, step: int, number: int) -> None:
        """Send a signal if the job runs and goes on running; another thread finds that out."""
        with self._lock:
            self._unjudged.append((step, number))
        self._start_judging()

    def _start_judging(self) -> None:
        with self._lock:
            if self._judging or not self._unjudged:
                return
            self._judging = True
        try:
            _thread.start_new_thread(self._judge_all, ())
        except RuntimeError:  # This host has no thread to spare; ``turn`` tries again.
            self._judging = False

    def _judge_all(self) -> None:
        while True:
            with self._lock:
                signals, self._unjudged = self._unjudged, []
                self._judging = bool(signals)
            if not signals:
                return
            if self._known_fate() is Fate.RUNNING:
                for step, number in signals:
                    self._send(step, number)

    def _known_fate(self) -> Fate:
        for _ in range(_ASK_TIMES):
            if (fate := self._fate()) is not Fate.UNKNOWN:
                return fate
            time.sleep(_ASK_AGAIN_S)
        return Fate.UNKNOWN


def _find(search_path: str) -> str:
    """The site's srun; empty if there is none, or no tool for it to run."""
    if os.access(_TOOLS, os.X_OK):
        for directory in search_path.split(":"):
            if directory.startswith("/") and os.access(path := os.path.join(directory, "srun"), os.X_OK):
                return path
    return ""


def _command(program: str, job_id: str, shadow: _Shadow) -> list[str]:
    """Words that make a step without any request: it waits for no CPU and no memory."""
    return [
        program,
        f"--jobid={job_id}",
        *("--overlap", "--overcommit", "--nodes=1", "--cpus-per-task=1", "--mem=0"),
        *("--quiet", "--mpi=none", "--prolog=none", "--epilog=none", "--chdir=/"),
        *("--kill-on-bad-exit=0", "--wait=0"),
        *([f"--time={shadow.limit_min}"] if shadow.limit_min else []),
        f"--ntasks={shadow.ntasks}",
        f"--job-name={shadow.name}",
        _TOOLS,
        "shadow",
    ]


def _environment() -> dict[str, str]:
    """Environment without the user's variables: variables change what srun does."""
    there = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}
    if "SLURM_CONF" in os.environ:
        there["SLURM_CONF"] = os.environ["SLURM_CONF"]
    return there


def _number(text: str) -> bool:
    return text.isdecimal() and text.isascii() and len(text) <= 9
