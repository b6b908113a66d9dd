"""The summary of yesterday by mail: to a server that takes it, refuses it, or is not there."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from email import message_from_bytes
from email.policy import default
from pathlib import Path

import pytest
from patience import PATIENCE_S
from unit.reported import Told

from rmsplugin.engine.schedule.programs import Programs
from rmsplugin.engine.schedule.report_mail import mail_report, server_address
from rmsplugin.errors import OperationFailedError


class MailServer:
    """A server that takes one mail after the other."""

    def __init__(self) -> None:
        self.mails: list[tuple[list[str], bytes]] = []
        self.refuses = ""
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection, connection.makefile("rwb") as stream:
                self._talk(stream)

    def _talk(self, stream) -> None:  # type: ignore[no-untyped-def]
        def say(words: str) -> None:
            stream.write(words.encode() + b"\r\n")
            stream.flush()

        say("220 here")
        recipients: list[str] = []
        for line in stream:
            verb = line.split(b" ")[0].strip().upper()
            if verb == b"RCPT":
                recipient = line.decode().partition("<")[2].partition(">")[0]
                if recipient == self.refuses:
                    say("550 nobody here")
                    continue
                recipients.append(recipient)
            if verb == b"DATA":
                say("354 go on")
                lines = []
                while (each := stream.readline()) != b".\r\n":
                    lines.append(each)
                self.mails.append((recipients, b"".join(lines)))
            if verb == b"QUIT":
                say("221 bye")
                return
            say("250 well")

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def server() -> Iterator[MailServer]:
    server = MailServer()
    yield server
    server.close()


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    told = Told(tmp_path)
    told.ledger.close()
    for name in ("sacct", "scontrol"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    return Programs(told.settings)


def test_the_summary_is_mailed(programs: Programs, server: MailServer) -> None:
    said = mail_report(programs, server.address, "", ["ops@example.org", "boss@example.org"], "UTC")
    assert said == "mailed to ops@example.org, boss@example.org"
    [(recipients, data)] = server.mails
    message = message_from_bytes(data, policy=default)
    assert recipients == ["ops@example.org", "boss@example.org"]
    assert message["Subject"] == "rmsplugin: summary of yesterday" and message["From"].startswith("rmsplugin@")
    assert message["Auto-Submitted"] == "auto-generated"
    text = message.get_content()
    assert text.startswith("rmsplugin, ") and "No vjob was there in this time." in text


def test_one_who_is_refused_and_a_server_that_is_not_there_are_told(programs: Programs, server: MailServer) -> None:
    server.refuses = "gone@example.org"
    with pytest.raises(OperationFailedError, match=r"did not take the report for gone@example\.org"):
        mail_report(programs, server.address, "me@example.org", ["ops@example.org", "gone@example.org"], "")
    assert len(server.mails) == 1
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(OperationFailedError, match=f"the mail server 127.0.0.1:{port} did not take the report"):
        mail_report(programs, f"127.0.0.1:{port}", "", ["ops@example.org"], "")


def test_a_report_that_cannot_be_made_is_not_mailed(tmp_path: Path, server: MailServer) -> None:
    with pytest.raises(OperationFailedError, match=r"no\.toml"):
        mail_report(Programs(tmp_path / "no.toml"), server.address, "", ["ops@example.org"], "")
    assert server.mails == []


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost", ("localhost", 25)),
        ("mail.example.org:587", ("mail.example.org", 587)),
        ("[::1]:2525", ("::1", 2525)),
        ("[::1]", ("::1", 25)),
    ],
)
def test_a_server_has_a_host_and_a_port(text: str, address: tuple[str, int]) -> None:
    assert server_address(text) == address


class Slow(Programs):
    """Runs a program that would run for an hour, with a child of its own."""

    def _start(self, argv, variables):  # type: ignore[no-untyped-def]
        return super()._start(["sh", "-c", "sleep 3600 & sleep 3600"], variables)


def groups(pid: int) -> bool:
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_command_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    programs = Slow(tmp_path / "no.toml")
    with pytest.raises(OperationFailedError, match=r"took longer than 0\.2 s"):
        programs.run("report", timeout_s=0.2)


def test_a_command_ends_with_the_engine_and_none_begins_afterwards(tmp_path: Path) -> None:
    programs = Slow(tmp_path / "no.toml")
    faults: list[Exception] = []

    def run() -> None:
        try:
            programs.run("report", timeout_s=3600)
        except OperationFailedError as error:
            faults.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    deadline = time.monotonic() + PATIENCE_S
    while programs._process is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    pid = programs._process.pid
    programs.close()
    thread.join(PATIENCE_S)
    assert not thread.is_alive() and len(faults) == 1
    while groups(pid):  # its child is init's, which takes it in a moment
        assert time.monotonic() < deadline, signal.SIGKILL
        time.sleep(0.001)
    with pytest.raises(OperationFailedError, match="the engine ends"):
        programs.run("report", timeout_s=1)
