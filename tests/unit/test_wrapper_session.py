"""Whatever breaks a connection to a guest is a broken connection, and what breaks the output is not."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import paramiko
import pytest

from rmsplugin.errors import UnavailableError
from rmsplugin.wrapper.session import Session


class Transport:
    """A transport, and its only channel, that fails at one of its methods."""

    def __init__(self, method: str = "", error: Exception | None = None) -> None:
        self._method, self._error = method, error
        self.closed = False

    def _call(self, method: str) -> None:
        if method == self._method and self._error is not None:
            raise self._error

    def open_session(self, timeout: float) -> Transport:
        self._call("open_session")
        return self

    def exec_command(self, words: str) -> None:
        self._call("exec_command")

    def settimeout(self, seconds: float) -> None:
        return

    def sendall(self, data: bytes) -> None:
        self._call("sendall")

    def recv(self, size: int) -> bytes:
        self._call("recv")
        return b"data"

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("method", ["open_session", "exec_command", "sendall"])
@pytest.mark.parametrize(
    "error",
    [
        ConnectionResetError(104, "Connection reset by peer"),
        OSError("Socket is closed"),
        OSError(113, "No route to host"),
        EOFError(),
        paramiko.SSHException("Channel closed."),
        TimeoutError(),
    ],
    ids=repr,
)
def test_a_broken_connection_is_one_that_may_be_made_again(method: str, error: Exception) -> None:
    transport: Any = Transport(method, error)
    with pytest.raises(UnavailableError):
        Session(transport).acknowledge({})
    assert transport.closed or method == "open_session"


def test_output_that_cannot_be_written_is_no_broken_connection() -> None:
    transport: Any = Transport()

    def full(_: bytes) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        Session(transport).follow("stdout", 0, full)
    assert transport.closed


def test_what_paramiko_says_of_a_connection_is_no_output_of_a_job() -> None:
    said = "import rmsplugin.wrapper.session, logging; logging.getLogger('paramiko.transport').error('reset by peer')"
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
