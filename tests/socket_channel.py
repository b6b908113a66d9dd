"""A channel to an agent that serves, on a socket, where tests have no sshd."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any


class SocketChannel:
    """A ``Channel`` of ``adapters.nodes.served``. Its close wakes a thread that reads, as that of a channel of ssh."""

    def __init__(self, ours: socket.socket, patience_s: float) -> None:
        ours.settimeout(patience_s)
        self._socket = ours
        self.settimeout = ours.settimeout
        self.sendall = ours.sendall
        self.recv = ours.recv

    def close(self) -> None:
        """End it. A socket that is only closed would leave its reader waiting."""
        with contextlib.suppress(OSError):  # the other side has ended, or this was closed before
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def served_by(
    command: Sequence[str], patience_s: float, *, environment: Mapping[str, str] | None = None, **options: Any
) -> tuple[subprocess.Popen[bytes], SocketChannel]:
    """Start an agent, and return its process and the channel to it."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(command, env=environment, stdin=theirs, stdout=theirs, **options)
    return process, SocketChannel(ours, patience_s)
