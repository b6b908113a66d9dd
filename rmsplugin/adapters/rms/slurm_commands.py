"""Slurm commands: runs them, one process each, bounded, in an environment that changes nothing."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial

from rmsplugin.adapters.bounded import ENDED, Permit, run_permitted
from rmsplugin.errors import ForbiddenError, NotFoundError, RefusedError, RmspluginError, UnavailableError

# Times are seconds since the epoch, and begin times are understood as UTC, whatever this host's time zone; lists of
# array elements have their full length; and no variable may change the effects or the output of the commands.
_VARIABLES = {"TZ": "UTC", "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C", "SLURM_BITSTR_LEN": "0"}
_UNWANTED_VARIABLES = ("SBATCH_", "SQUEUE_", "SACCT_", "SCONTROL_", "SCANCEL_", "SLURM_BITSTR_LEN", "SLURM_CLUSTERS")

# Slurm's words, in any case, and the errors that they stand for; the first that fits counts.
_MEANINGS: tuple[tuple[str, type[RmspluginError]], ...] = (
    ("invalid job id", NotFoundError),
    ("access/permission denied", ForbiddenError),
    ("unable to contact slurm controller", UnavailableError),
    ("unable to establish control", UnavailableError),
    ("connection refused", UnavailableError),
    ("connection failure", UnavailableError),
    ("socket timed out", UnavailableError),
    ("zero bytes were transmitted", UnavailableError),
    ("in standby mode", UnavailableError),
    ("authentication error", UnavailableError),
    ("munge", UnavailableError),
    ("try again", UnavailableError),
)

_LARGEST_SIGNAL = 64
# The standard library of C keeps back what goes to a pipe until there is much of it.
_BY_LINES = ("stdbuf", "-oL")
# How often it is looked whether a command has printed enough.
_LOOK_S = 0.5


class SlurmCommands:
    """Slurm's commands on this host."""

    def __init__(self, bin_dir: str, timeout_s: float, prefix: Sequence[str], permit: Permit = nullcontext) -> None:
        """See ``SlurmCli``.

        ``permit``: each command is run inside of one: a requeue is several commands, and the caller may have been
        stopped between two of them.
        """
        self._permit = permit
        self._bin_dir = bin_dir
        self._timeout_s = timeout_s
        self._prefix = tuple(prefix)

    def run(self, program: str, *arguments: str, text: str = "", questions: int = 1, enough: str = "") -> str:
        """Run one command that only asks, and return its output.

        Args:
            program: its name.
            arguments: its arguments.
            text: its standard input.
            questions: how many questions it asks Slurm. Each has the time of a command: where no answer comes within
                it, the command is ended, whatever time others have left.
            enough: once it has printed this, it is not waited for much longer, and what it printed is its output; not
                if it tells of an error: only its exit code says whether a question before has failed.

        Raises:
            UnavailableError: it cannot be run, or Slurm does not answer.
            NotFoundError: the job does not exist.
            ForbiddenError: the caller may not do that.
            RefusedError: Slurm refuses for any other reason.
        """

        def run(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[bytes]:
            with self._permit():
                return _run_command(command, environment, text, self._timeout_s, questions, enough.encode())

        return self._output(program, arguments, run, _BY_LINES if enough else ())

    def act(self, program: str, *arguments: str, text: str = "") -> str:
        """Run one command that changes something, and return its output.

        A caller that may lose the right to act may be stopped between its look at that and the start of the command:
        then that does not begin (``adapters.bounded``).

        Args and errors are those of ``run``.
        """

        def run(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[bytes]:
            begin = partial(_run_command, environment=environment, text=text, answer_s=self._timeout_s, questions=1)
            return run_permitted(self._permit, command, self._timeout_s, begin)

        return self._output(program, arguments, run)

    def _output(
        self,
        program: str,
        arguments: Sequence[str],
        run: Callable[[Sequence[str], Mapping[str, str]], subprocess.CompletedProcess[bytes]],
        before: Sequence[str] = (),
    ) -> str:
        """The output of a command that ``run`` runs in its environment; ``before``: words before its own."""
        path = os.path.join(self._bin_dir, program)
        try:
            done = run(*self._command([*before, path, *arguments]))
        except subprocess.TimeoutExpired:
            raise UnavailableError(f"Slurm did not answer `{program}` within {self._timeout_s:.0f} s") from None
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not self._prefix:
                raise _missing(path, str(error.strerror)) from None
            raise UnavailableError(f"{error.filename or path} cannot be run: {error.strerror}") from None
        if done.returncode == -ENDED:
            raise UnavailableError(f"`{program}` was ended: Slurm did not answer it in time")
        message = " ".join(done.stderr.decode("utf-8", "replace").split())
        if number := _signal(done.returncode):  # mostly SIGPIPE: slurmctld has dropped the connection
            raise UnavailableError(f"`{program}` was ended by signal {number}")
        if done.returncode == 127:
            raise _missing(path, message)
        # `scontrol write batch_script` of an unknown job ends with status 0.
        if done.returncode != 0 or (message and not done.stdout):
            raise meaning(message or f"{program} ended with status {done.returncode}")
        return done.stdout.decode("utf-8", "replace")

    def follow(self, program: str, *arguments: str) -> subprocess.Popen[str]:
        """Start a command that tells something again and again: its output and its errors, each line at once.

        It only asks, so it needs no permit. It ends by itself, at its next line, when its output is not read any more.

        Raises:
            UnavailableError: it cannot be started.
        """
        command, environment = self._command([*_BY_LINES, os.path.join(self._bin_dir, program), *arguments])
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment,
                encoding="utf-8",
                errors="replace",
            )
        except OSError as error:
            raise UnavailableError(f"{error.filename or program} cannot be run: {error.strerror}") from None

    def _command(self, words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
        """The words of a process for this command, and its environment."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(_UNWANTED_VARIABLES)}
        if self._prefix:  # the prefix may have an environment of its own
            variables = (f"{name}={value}" for name, value in _VARIABLES.items())
            return [*self._prefix, "env", *variables, *words], environment
        return list(words), environment | _VARIABLES


def _run_command(
    command: Sequence[str],
    environment: Mapping[str, str],
    text: str,
    answer_s: float,
    questions: int,
    enough: bytes = b"",
) -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end, as long as it prints something in each of ``questions`` periods of ``answer_s``.

    Once it has printed ``enough``, if that is not empty, and no error, it is ended.

    Raises:
        subprocess.TimeoutExpired: it was silent for a period, or took longer than all; it is ended.
        OSError: it cannot be started.
    """
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe) as child:
        printed, left, asked, began = 0, questions, text.encode(), time.monotonic()
        while True:
            try:
                out, err = child.communicate(asked, timeout=min(answer_s, _LOOK_S) if enough else answer_s)
                return subprocess.CompletedProcess(command, child.returncode, out, err)
            except subprocess.TimeoutExpired as silent:
                out, asked = silent.output or b"", b""
                if enough and enough in out and not silent.stderr:
                    child.kill()
                    return subprocess.CompletedProcess(command, 0, out, b"")
                if time.monotonic() - began < answer_s:
                    continue
                before, printed, left, began = printed, len(out), left - 1, time.monotonic()
                if printed == before or not left:
                    child.kill()
                    raise
            except BaseException:
                child.kill()
                raise


def _signal(status: int) -> int:
    """The signal by which a command ended, as the system or a shell tells it; 0 if it ended by itself."""
    return -status if status < 0 else max(0, status - 128) if status <= 128 + _LARGEST_SIGNAL else 0


def _missing(path: str, why: str) -> UnavailableError:
    return UnavailableError(f"{path} is not there: install Slurm's commands, or set slurm.bin_dir ({why})")


def meaning(message: str) -> RmspluginError:
    """Return the error that Slurm's words stand for."""
    lowered = message.lower()
    for words, error in _MEANINGS:
        if words in lowered:
            return error(message)
    return RefusedError(message)
