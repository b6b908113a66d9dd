"""Wrapper: `rmsplugin-job GEOMETRY SCRIPT ARGS...`, the interpreter of a vjob's batch script on the batch host.

Slurm starts it as the user in place of the script. The script runs in the vjob's first VM, detached; this process is
only attached to it: it delivers output, passes signals on and ends as the script ends. It may die at any instant and be
started again by a requeue; nothing is run twice, nothing lost or repeated. Nothing ever runs outside a VM (I6).
"""

from __future__ import annotations

import ctypes
import os
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from rmsplugin.errors import OperationFailedError, RmspluginError, UnavailableError
from rmsplugin.model.vjob import Geometry
from rmsplugin.wrapper import environment, signals
from rmsplugin.wrapper.engine import EngineLink, client_from_settings
from rmsplugin.wrapper.session import Access, Ending, Session
from rmsplugin.wrapper.streams import Ack, OutputFile, ReplayNeeded, same_file

_PR_SET_PDEATHSIG = 1
_ACKNOWLEDGE_S = 5.0
_RECONNECT_S = 0.5
# The guest's tools fail for good only if something is badly wrong there; a VM that is just going down fails too.
_GUEST_FAILURES = 10
_CANNOT_RUN = 1


@dataclass(frozen=True, slots=True)
class Job:
    """What slurmstepd says of the job that this process is to run."""

    job_id: str
    restarts: int
    geometry: Geometry
    script: str
    arguments: tuple[str, ...]

    @classmethod
    def parse(cls, argv: list[str], environ: dict[str, str]) -> Job:
        """Read the command line and Slurm's variables.

        Raises:
            ValueError: they are not a batch job's.
        """
        if len(argv) < 3:
            raise ValueError(
                "usage: rmsplugin-job GEOMETRY SCRIPT ARGS... (Slurm runs it, as a batch script's interpreter)"
            )
        job_id = environ.get("SLURM_JOB_ID", "")
        if not job_id.isdecimal():
            raise ValueError("SLURM_JOB_ID is not set: this is not a batch job")
        restarts = environ.get("SLURM_RESTART_COUNT", "")
        count = int(restarts) if restarts.isdecimal() else 0
        return cls(job_id, count, Geometry.parse(argv[1]), argv[2], tuple(argv[3:]))


class Wrapper:
    """Runs one job: gets into its VM, and stays attached to the script over however many connections it takes."""

    def __init__(self, job: Job, engine: EngineLink) -> None:
        """For one job."""
        self._job = job
        self._engine = engine
        self._merged = same_file(1, 2)
        self._files = [OutputFile("stdout", 1)] if self._merged else [OutputFile("stdout", 1), OutputFile("stderr", 2)]
        self._taken_over = False
        # The session with a started script, for the signal thread; None while there is none.
        self._attached: Session | None = None
        self._attachment = threading.Condition()

    def run(self) -> Ending:
        """Return how the script ended, with all its output delivered and the engine told.

        Raises:
            RmspluginError: it cannot be run, or what became of it cannot be known.
        """
        failures = 0
        while True:
            access = self._engine.access()
            session = None
            try:
                session = Session.connect(access)
                if not self._taken_over:
                    self._take_over(session, access)
                self._attach(session)
                ending = self._deliver(session)
                break
            except UnavailableError:
                pass
            except RmspluginError:
                failures += 1
                if failures >= _GUEST_FAILURES:
                    raise
            finally:
                self._attach(None)
                if session is not None:
                    session.close()
            time.sleep(_RECONNECT_S)
        self._engine.finished(ending)
        return ending

    def end(self, number: int) -> None:
        """End the script and all of its session by a signal, for the job is ending; without a script, this process."""
        if not self._taken_over:
            signals.die_by(number)
        self.send(number, everything=True)

    def send(self, number: int, *, everything: bool = False) -> None:
        """Pass a signal on to the script (or to all of its session) as soon as there is one to get it."""
        while True:
            with self._attachment:
                while self._attached is None:
                    self._attachment.wait()
                session = self._attached
            try:
                session.kill(number, everything=everything)
                return
            except RmspluginError:
                time.sleep(_RECONNECT_S)

    def _attach(self, session: Session | None) -> None:
        with self._attachment:
            self._attached = session
            self._attachment.notify_all()

    def _take_over(self, session: Session, access: Access) -> None:
        """Start the script unless it was started, and find out how far its output was delivered."""
        started, acks = session.acks()
        if unknown := {file.name: file.ack for file in self._files if file.name not in acks}:
            session.acknowledge(unknown)
        if not started:
            self._engine.starting()
            session.put(self._start_files(access), 0 if stat.S_ISREG(os.fstat(0).st_mode) else None)
            session.start()
        for file in self._files:
            if file.name in acks:
                file.take_over(acks[file.name])
        self._taken_over = True

    def _start_files(self, access: Access) -> dict[str, bytes]:
        """What the start of the script reads in the guest, by name."""
        words = environment.script_environment(
            dict(os.environ),
            self._job.geometry,
            access.vm_names,
            user=access.user,
            home=os.path.expanduser("~"),
        )
        umask = os.umask(0o077)
        os.umask(umask)
        return {
            "script": without_first_line(self._job.script),
            "env": environment.environment_file(words),
            "args": environment.arguments_file(self._job.arguments),
            "limits": environment.limits_file(),
            "cwd": os.fsencode(os.getcwd()),
            "umask": f"{umask:04o}\n".encode(),
            "merged": b"1\n" if self._merged else b"0\n",
        }

    def _deliver(self, session: Session) -> Ending:
        """Deliver the streams until the script has ended; keep what is delivered acknowledged."""
        followers = [_Follower(session, file) for file in self._files]
        for follower in followers:
            follower.start()
        acknowledged: dict[str, Ack] = {}
        while any(follower.is_alive() for follower in followers):
            followers[0].join(_ACKNOWLEDGE_S)
            followers[-1].join(0.0 if followers[0].is_alive() else _ACKNOWLEDGE_S)
            delivered = {file.name: file.ack for file in self._files}
            if delivered != acknowledged:
                session.acknowledge(delivered)
                acknowledged = delivered
        for follower in followers:
            follower.check()
        return session.ending()


class _Follower(threading.Thread):
    """Feeds one stream to its file until the script has ended, or the connection."""

    def __init__(self, session: Session, file: OutputFile) -> None:
        super().__init__(name=file.name, daemon=True)
        self._session, self._file = session, file
        self._error: Exception | None = None

    def run(self) -> None:
        try:
            self._follow()
        except Exception as error:  # It is the main thread that knows what to do.
            self._error = error
            # The other stream's follower, too, has to notice.
            self._session.close()

    def _follow(self) -> None:
        def feed(data: bytes) -> None:
            self._file.feed(data, self._session.acknowledge)

        try:
            self._session.follow(self._file.name, self._file.ack.offset, feed)
        except ReplayNeeded:
            self._file.restart()
            self._session.follow(self._file.name, 0, feed)

    def check(self) -> None:
        """Raise what went wrong, if something did."""
        if self._error is not None:
            raise self._error


def without_first_line(path: str) -> bytes:
    """Return the user's script: job_submit.lua put one line, this program's, before it."""
    with open(path, "rb") as script:
        script.readline()
        return script.read()


def die_with_parent() -> None:
    """Die when slurmstepd dies: a wrapper without it would write into the output beside its successor."""
    parent = os.getppid()
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OperationFailedError("prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:
        os._exit(_CANNOT_RUN)


def run_job(argv: list[str]) -> Ending:
    """Run the job of this process; see ``Wrapper.run``. Raises ValueError for a command line that is not Slurm's."""
    job = Job.parse(argv, dict(os.environ))
    engine = EngineLink(client_from_settings(os.environ), job.job_id)
    wrapper = Wrapper(job, engine)
    fate: Callable[[], signals.Fate] = lambda: signals.ask_slurm(job.job_id, job.restarts)  # noqa: E731
    signals.SignalThread(fate, wrapper.send, wrapper.end, detach, time.sleep).start()
    engine.show_signs_of_life()
    return wrapper.run()


def detach() -> None:
    """End this process at once: the job is requeued, its next run takes the script over."""
    os._exit(128 + signal.SIGTERM)


def main() -> None:
    """End as the script ends: by the same exit code, or the same signal."""
    try:
        signals.block()
        die_with_parent()
        ending = run_job(sys.argv)
    except Exception as error:  # Whatever it is: one line for the user, and nothing that runs on.
        os.write(2, f"rmsplugin-job: {error or type(error).__name__}\n".encode("utf-8", "backslashreplace"))
        os._exit(_CANNOT_RUN)
    if ending.signal:
        signals.die_by(ending.signal)
        os._exit(128 + ending.signal)
    # Not sys.exit: threads that wait for the engine or the guest have nothing left to do.
    os._exit(ending.exit_code)


if __name__ == "__main__":
    main()
