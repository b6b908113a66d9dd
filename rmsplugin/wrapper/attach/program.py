"""Attachment: the process that stays on the front as long as the job does.

The script runs in the vjob's first VM, detached. This process is only attached to it: it delivers output, passes
signals on and ends as the script ends. It may die at any instant and be started again by a requeue; nothing is run
twice, and no output is lost or repeated. Nothing ever runs outside a VM (I6).
"""

from __future__ import annotations

import os
import signal
import stat
import time
from collections.abc import Callable
from functools import partial

from rmsplugin.client import WORDS, EngineClient
from rmsplugin.errors import OperationFailedError, RmspluginError, UnavailableError
from rmsplugin.wrapper import process, signals
from rmsplugin.wrapper.attach.preparation import Preparation
from rmsplugin.wrapper.attach.sentry import Sentry
from rmsplugin.wrapper.attach.telltale import Telltale
from rmsplugin.wrapper.engine import EngineLink
from rmsplugin.wrapper.session.access import Access
from rmsplugin.wrapper.session.commands import Commands
from rmsplugin.wrapper.session.mailbox import Mailbox
from rmsplugin.wrapper.session.session import Ending, NoRoomError, Session, SupersededError
from rmsplugin.wrapper.session.steps import Steps
from rmsplugin.wrapper.session.streams import OutputFile, same_file

TYPE_CHECKING = False  # see rmsplugin/client.py
if TYPE_CHECKING:
    from typing import NoReturn

# Pauses between two connections; longer and longer while the guest does not answer, as the engine is asked each time.
_RECONNECT_S = 0.5
_LONGEST_RECONNECT_S = 5.0
# The guest's tools fail for good only if something is badly wrong there; a VM that is just going down fails too. With
# these pauses a job whose script may be running is given up after five minutes, any other after sixteen seconds.
_FAILURES = 12
_FAILURES_BEFORE_START = 6
_LONGEST_PAUSE_S = 60.0
# A connection that held for so many seconds counts as one, however it ended.
_PROGRESS_S = 60.0
# Slurm's accounting takes news of steps before the job's end only. On a busy node a step that stands for one of the
# guest's needs seconds to begin; this bounds what a Slurm that does not answer costs the user.
_SETTLE_S = 10.0
# Slurm's KillWait is mostly 30 s.
_REQUEUED_PATIENCE_S = 20.0
# Signals that end a wrapper; its VM may sleep or move.
_SIGNALS_PATIENCE_S = 5.0
_LOOK_S = 0.05
_ASIDE_S = 3600.0


class Wrapper:
    """Runs one job: gets into its VM, and stays attached to the script over however many connections it takes."""

    def __init__(
        self,
        job_words: list[str],
        engine: EngineLink,
        commands: Commands,
        steps: Callable[[Mailbox], Steps],
        run: int = 0,
    ) -> None:
        """For one job, ``GEOMETRY SCRIPT ARGS...``, and the number of its requeues before this run."""
        self._job_words = job_words
        self._engine, self._run = engine, run
        self._merged = same_file(1, 2)
        self._files = [OutputFile("stdout", 1)] if self._merged else [OutputFile("stdout", 1), OutputFile("stderr", 2)]
        self._taken_over = False
        self._mailbox = Mailbox()
        self._commands = commands
        self._steps = steps(self._mailbox)
        self._returns = 0
        self._session: Session | None = None
        # Kept until a connection takes it: one preparation serves as many attempts to connect as it takes.
        self._preparation: Preparation | None = None

    def run(self) -> Ending:
        """Return the script's ending, with all its output delivered and the engine told.

        Raises:
            RmspluginError: the script cannot be run, or its outcome cannot be known.
        """
        failures = silences = 0
        while True:
            access = self._engine.access()
            began, delivered = time.monotonic(), self._delivered()
            try:
                ending = self._attempt(access)
                break
            except SupersededError:
                self._stand_aside()
            except RmspluginError as error:
                if self._delivered() > delivered or time.monotonic() - began > _PROGRESS_S:
                    failures = silences = 0
                if isinstance(error, UnavailableError):
                    silences += 1
                    time.sleep(_pause_s(silences, _LONGEST_RECONNECT_S))
                    continue
                failures += 1
                most = _FAILURES if self._taken_over else _FAILURES_BEFORE_START
                if failures >= most or isinstance(error, NoRoomError):
                    raise self._last(error) from None
                time.sleep(_pause_s(failures, _LONGEST_PAUSE_S))
        self._engine.finished(ending)
        self._steps.settle(_SETTLE_S)
        return ending

    def _stand_aside(self) -> NoReturn:
        """Do nothing any more, and wait for Slurm to end this process: a later run of the job has the VM.

        It lives on only because nobody could tell it: munge has died on its front, say. Whatever it wrote would be in
        the output of its successor.
        """
        self._taken_over = False  # a signal that ends the job ends this process
        self._engine.fall_silent()
        while True:
            time.sleep(_ASIDE_S)

    def went_back(self, returns: int) -> None:
        """Note that the vjob went back to a checkpoint so often; any thread may call.

        The VM knows the connection as of the checkpoint. Neither side would notice that it is useless: connect anew.
        """
        session = self._session
        if session is not None and returns > self._returns:
            session.abandon()

    def _tell_return(self, access: Access) -> None:
        if self._taken_over and access.returns > self._returns:
            self._files[-1].announce(access.returned)
            self._steps.take_over()
        self._returns = access.returns

    def end(self, number: int) -> None:
        """End the script and all of its session by a signal, for the job ends; without a script, end this process."""
        if not self._taken_over:
            signals.die_by(number)
        self._mailbox.put(number, everything=True)

    def send(self, number: int, everything: bool) -> None:
        """Pass a signal on to the script, or to all of its session, as soon as there is one."""
        self._mailbox.put(number, everything=everything)

    def settle_signals(self) -> None:
        """Wait, not for long, until earlier signals have reached the script, if there is one."""
        deadline = time.monotonic() + _SIGNALS_PATIENCE_S
        while self._taken_over and not self._mailbox.is_empty() and time.monotonic() < deadline:
            time.sleep(_LOOK_S)

    def _last(self, error: RmspluginError) -> RmspluginError:
        if not self._taken_over:
            return error
        return OperationFailedError(
            f"{error} (given up after {_FAILURES} failures in a row; the script may have been running)"
        )

    def _delivered(self) -> int:
        return sum(file.ack.offset for file in self._files)

    def _attempt(self, access: Access) -> Ending:
        """Attach over one connection, and stay attached until the script has ended."""
        self._tell_return(access)
        preparation = None if self._taken_over else self._prepare(access)
        session = self._session = Session.connect(access, self._run)
        try:
            if preparation:
                try:
                    self._take_over(session, preparation)
                finally:
                    self._drop_preparation()  # read in part, it is useless to another connection
            process.give_back_memory()
            session.deliver(self._files, self._mailbox, self._commands, self._steps)
            return session.ending(self._steps)
        finally:
            self._session = None
            session.close()

    def _prepare(self, access: Access) -> Preparation:
        words = ("1" if self._merged else "0", access.user, ",".join(access.vm_names), *self._job_words)
        if self._preparation is not None and self._preparation.words != words:
            self._drop_preparation()
        if self._preparation is None:
            self._preparation = Preparation(*words)
        return self._preparation

    def _drop_preparation(self) -> None:
        if self._preparation is not None:
            self._preparation.close()
            self._preparation = None

    def _take_over(self, session: Session, preparation: Preparation) -> None:
        """Start the script unless it was started, and find out how much of its output was delivered."""
        state = session.begin({file.name: file.size_before_start() for file in self._files})
        if state.started:
            self._steps.take_over()
        else:
            self._start(session, preparation)
        for file in self._files:
            if file.name in state.acks:
                file.take_over(state.acks[file.name], state.kept_from.get(file.name, 0))
        self._taken_over = True

    def _start(self, session: Session, preparation: Preparation) -> None:
        self._engine.starting()
        status = os.fstat(0)
        if stat.S_ISREG(status.st_mode) and status.st_size:
            session.room(status.st_size)
        session.start(preparation.fd, preparation.check)


def _pause_s(attempts: int, longest_s: float) -> float:
    """The pause after so many attempts in a row, from 1, that failed."""
    return float(min(_RECONNECT_S * 2 ** min(attempts - 1, 10), longest_s))


def detach(engine: EngineLink, restarts: int, end: Callable[[int], None], settle: Callable[[], None]) -> None:
    """End this process because the job is requeued; the next run takes the script over.

    But a script that has asked for the requeue itself is ended, as natively: it begins anew.

    Args:
        engine: the link on which the engine is told.
        restarts: the number of requeues of the job before this run.
        end: ends the script by a signal.
        settle: waits until earlier signals have reached the script: no other process knows of them.
    """
    settle()
    try:
        own = engine.requeued("others", restarts, patience_s=_REQUEUED_PATIENCE_S)
    except RmspluginError:
        own = False
    if own:
        end(signal.SIGTERM)
    else:
        os._exit(128 + signal.SIGTERM)


def run_job(argv: list[str]) -> Ending:
    """Run the job of this process: ``attach CLIENTS ENGINE... GEOMETRY SCRIPT ARGS...``; see ``Wrapper.run``."""
    clients, engine_words, job_words = argv[1], argv[2 : 2 + WORDS], argv[2 + WORDS :]
    job_id = os.environ["SLURM_JOB_ID"]
    restarts = process.run_of_job(os.environ)
    engine = EngineLink(EngineClient.from_words(engine_words), job_id, restarts)

    def fate() -> signals.Fate:
        return signals.ask_slurm(job_id, restarts)

    def steps(mailbox: Mailbox) -> Steps:
        return Steps(clients, job_id, fate, mailbox.put_step)

    wrapper = Wrapper(job_words, engine, Commands(clients, engine_words), steps, restarts)

    sentry = Sentry(engine_words)
    meant_all = Telltale(sentry.tell_child).meant_all
    leave = partial(detach, engine, restarts, wrapper.end, wrapper.settle_signals)

    def tell_stop(stop: signals.Stop) -> None:
        sentry.tell_stop(stop)
        if stop is not signals.Stop.SUSPENDED:
            engine.goes_on()

    signals.SignalThread(fate, meant_all, wrapper.send, wrapper.end, leave, time.sleep, tell_stop).start()
    engine.show_signs_of_life(wrapper.went_back)
    return wrapper.run()


def main(argv: list[str]) -> None:
    """End as the script ends: by the same exit code, or the same signal."""
    try:
        process.set_name("rmsplugin-job")
        process.share_one_heap()
        ending = run_job(argv)
    except Exception as error:  # Whatever the error: one line for the user, and nothing that runs on.
        process.complain(error)
        os._exit(process.CANNOT_RUN)
    if ending.signal:
        signals.die_by(ending.signal)
        os._exit(128 + ending.signal)
    # Not sys.exit: threads that wait for the engine have nothing left to do.
    os._exit(ending.exit_code)
