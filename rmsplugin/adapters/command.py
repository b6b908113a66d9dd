"""Command: a program that the settings name, run without a shell, bounded in time."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

from rmsplugin.adapters.bounded import ENDED, Permit, run_permitted
from rmsplugin.errors import OperationFailedError, TimedOutError

_SAID_BYTES = 300
_OUTPUT_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Ended:
    """The exit of a command.

    Attributes:
        status: its exit code.
        said: the end of its output, on one line.
        output: its output and its errors, as they came; of a long one the end.
    """

    status: int
    said: str
    output: str = ""


def run_command(words: Sequence[str], *, timeout_s: float, permit: Permit = nullcontext) -> Ended:
    """Run a program with its arguments and wait for its end.

    Args:
        words: its name and its arguments.
        timeout_s: the seconds after which it is killed.
        permit: it is run inside of one.

    Raises:
        OperationFailedError: the program cannot be run.
        TimedOutError: it had not ended after ``timeout_s``, and was killed: its effects are unknown.
    """
    try:
        done = run_permitted(permit, words, timeout_s, partial(_run_program, timeout_s=timeout_s))
    except subprocess.TimeoutExpired:
        raise TimedOutError(f"{words[0]} did not end within {timeout_s:.0f} s") from None
    except (OSError, ValueError) as error:
        raise OperationFailedError(f"{words[0]} cannot be run: {error}") from error
    if done.returncode == -ENDED:
        raise TimedOutError(f"{words[0]} did not end in time")
    said = " ".join(done.stdout[-_SAID_BYTES:].decode("utf-8", "replace").split())
    output = done.stdout[-_OUTPUT_BYTES:].decode("utf-8", "replace")
    return Ended(done.returncode, "".join(each for each in said if each.isprintable()), output)


def _run_program(words: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        list(words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout_s
    )
