"""Mail program: has the site's program send a mail, called as Slurm calls its MailProg: ``PROGRAM -s SUBJECT ADDRESS``.

No shell is between. A user chooses the address (`--mail-user`), and mail programs take some words there for options,
files or commands: only what is plainly an address is passed on.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass

from rmsplugin.errors import OperationFailedError, RefusedError

#: Longer than any that a mail needs; Slurm waits twice as long.
_MAIL_S = 60.0
_ADDRESS = r"[A-Za-z0-9_][A-Za-z0-9._+=-]{0,63}(?:@[A-Za-z0-9][A-Za-z0-9.-]{0,253})?"
_ADDRESSES = re.compile(rf"{_ADDRESS}(?:,{_ADDRESS}){{0,9}}")
#: All that a program may be told beside a mail. It is nobody's shell.
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_COMPLAINT = 300


@dataclass(frozen=True, slots=True)
class Mail:
    """One mail."""

    to: str  # an address, or some with commas
    subject: str  # one line
    text: str


def send_mail(program: str, mail: Mail, *, within_s: float = _MAIL_S) -> None:
    """Have a program send a mail.

    Args:
        program: its path.
        mail: the mail.
        within_s: it is ended if it takes longer.

    Raises:
        RefusedError: what is called an address is none, or the subject has more than one line.
        OperationFailedError: the program cannot be run, takes too long, or ends with another status than 0.
    """
    if not _ADDRESSES.fullmatch(mail.to):
        raise RefusedError(f"{mail.to!r} is no address")
    if not mail.subject.isprintable():
        raise RefusedError(f"{mail.subject!r} is no subject")
    if not os.path.isabs(program):
        raise OperationFailedError(f"MailProg is {program!r}, which is no path")
    # Files, not pipes: children of the program may hold these for long.
    with tempfile.TemporaryFile() as text, tempfile.TemporaryFile() as printed:
        text.write(mail.text.encode())
        text.seek(0)
        try:
            process = subprocess.Popen(
                [program, "-s", mail.subject, mail.to],
                stdin=text,
                stdout=printed,
                stderr=printed,
                env={"PATH": _PATH, "LC_ALL": "C.UTF-8"},
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            raise OperationFailedError(f"{program} cannot be run: {error.strerror}") from None
        status = _wait(process, within_s)
        if status is None:
            raise OperationFailedError(f"{program} took longer than {within_s:g} s")
        if status:
            printed.seek(0)
            complaint = " ".join(printed.read(_COMPLAINT).decode("utf-8", "replace").split())
            raise OperationFailedError(f"{program} ended with status {status}: {complaint}")


def _wait(process: subprocess.Popen[bytes], within_s: float) -> int | None:
    """The program's status; None: it took too long, and is ended with all that it started in its session."""
    try:
        return process.wait(within_s)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return None
