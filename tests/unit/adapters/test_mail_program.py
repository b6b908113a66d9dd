"""Mail by a program of the site: a real process that takes it, refuses it, hangs, or is not there."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from patience import PATIENCE_S

from rmsplugin.adapters.mail_program import Mail, send_mail
from rmsplugin.errors import OperationFailedError, RefusedError
from rmsplugin.presence import is_there

MAIL = Mail("alice@example.org", "Slurm Job_id=12 Name=a $(touch /x) `id` suspended", "Job 12:\n\nsuspended\n")


def program(directory: Path, body: str) -> str:
    """A program that notes each argument and its standard input, and then does this."""
    path = directory / "mail"
    noted = f"printf '%s\\n' \"$@\" > {directory}/words\ncat > {directory}/text\nenv > {directory}/env\n"
    path.write_text(f"#!/bin/sh\n{noted}{body}\n")
    path.chmod(0o755)
    return str(path)


def test_it_is_called_as_slurm_calls_it_and_no_shell_is_between(tmp_path: Path) -> None:
    send_mail(program(tmp_path, "exit 0"), MAIL)
    assert (tmp_path / "words").read_text().splitlines() == ["-s", MAIL.subject, MAIL.to]
    assert (tmp_path / "text").read_text() == MAIL.text
    names = {line.partition("=")[0] for line in (tmp_path / "env").read_text().splitlines()}
    assert names <= {"PATH", "LC_ALL", "PWD", "_", "OLDPWD", "SHLVL"}, "nothing of the engine's environment"


@pytest.mark.parametrize(
    "address",
    [
        *("", "-alice", "-X/tmp/x", "--", "|sh", "/etc/passwd", "+folder", "a b", "a\nBcc: eve", "a@b -s x", "$(id)"),
        *("alice,", "alice,-bob", "~alice", "a@-b", "a@b;c", "alice\x00", "ä", "a" * 65, '"a"', "a,|sh"),
    ],
)
def test_what_a_mail_program_may_take_for_anything_but_an_address_never_reaches_it(
    tmp_path: Path, address: str
) -> None:
    with pytest.raises(RefusedError, match="no address"):
        send_mail(program(tmp_path, "exit 0"), Mail(address, "subject", "text"))
    assert not is_there(tmp_path / "words")


@pytest.mark.parametrize("address", ["alice", "alice@n1", "a.b+c@example.org,bob", "x_1@a-b.example"])
def test_addresses_reach_it(tmp_path: Path, address: str) -> None:
    send_mail(program(tmp_path, "exit 0"), Mail(address, "subject", "text"))
    assert (tmp_path / "words").read_text().splitlines()[-1] == address


@pytest.mark.parametrize("subject", ["a\nBcc: eve@example.org", "a\rb", "a\x00b"])
def test_a_subject_of_two_lines_never_reaches_it(tmp_path: Path, subject: str) -> None:
    with pytest.raises(RefusedError, match="no subject"):
        send_mail(program(tmp_path, "exit 0"), Mail("alice", subject, "text"))
    assert not is_there(tmp_path / "words")


def test_its_complaint_is_told(tmp_path: Path) -> None:
    with pytest.raises(OperationFailedError, match=r"ended with status 3: no relay for alice$"):
        send_mail(program(tmp_path, "echo no relay; echo for alice >&2; exit 3"), MAIL)


@pytest.mark.parametrize("path", ["/no/such/mail", "/etc/passwd"])
def test_one_that_cannot_be_run_is_told(path: str) -> None:
    with pytest.raises(OperationFailedError, match=f"{path} cannot be run"):
        send_mail(path, MAIL)


@pytest.mark.parametrize("path", ["", "mail", "(null)"])
def test_what_is_no_path_is_not_sought(path: str) -> None:
    with pytest.raises(OperationFailedError, match="no path"):
        send_mail(path, MAIL)


def test_one_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(OperationFailedError, match=r"took longer than 0\.5 s"):
        send_mail(program(tmp_path, f"sleep 600 & echo $! > {tmp_path}/child; wait"), MAIL, within_s=0.5)
    assert time.monotonic() - began < PATIENCE_S
    child = int((tmp_path / "child").read_text())
    deadline = time.monotonic() + PATIENCE_S
    while is_there(Path(f"/proc/{child}")) and _runs(child):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _runs(process: int) -> bool:
    """Whether it is no zombie, which some init may not have taken yet."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_one_that_leaves_a_child_with_its_output_keeps_nobody_waiting(tmp_path: Path) -> None:
    began = time.monotonic()
    send_mail(program(tmp_path, f"sleep 600 & echo $! > {tmp_path}/child; exit 0"), MAIL)
    assert time.monotonic() - began < PATIENCE_S

    os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)
