"""Ears: the engine does at its own doors what a wrapper does there, so that it knows when it cannot be reached."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence

from rmsplugin.adapters import munge
from rmsplugin.client import LOOK
from rmsplugin.engine.context.hearing import CANNOT_HEAR, TEST_LATE_S, Hearing
from rmsplugin.errors import RmspluginError
from rmsplugin.settings import Settings

#: Of a unix socket its path, else host and port.
Way = str | tuple[str, int]

#: Addresses that stand for all of a host, with one at which the host reaches itself.
_OF_ALL = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


class Ears:
    """Tests the engine's hearing; one thread calls."""

    def __init__(
        self,
        hearing: Hearing,
        clock: Callable[[], float],
        ways: Sequence[Way],
        *,
        by_munge: bool,
        munge_socket: str = "",
    ) -> None:
        """Test nothing yet.

        Args:
            hearing: told what was found.
            clock: the engine's, in seconds since the epoch.
            ways: where requests for this engine arrive.
            by_munge: whether munge proves the senders.
            munge_socket: empty: that of the system.
        """
        self._hearing, self._clock, self._ways = hearing, clock, tuple(ways)
        self._by_munge, self._munge_socket = by_munge, munge_socket

    def test_hearing(self) -> None:
        """Test it once. Never raises. Takes longer than ``TEST_LATE_S`` at each way only where it is deaf."""
        self._hearing.test_begins(self._clock())
        why = self._why_deaf()
        self._hearing.test_ends(self._clock(), why)

    def _why_deaf(self) -> str:
        for way in self._ways:
            try:
                _await_answer(way)
            except OSError as error:
                return _nobody_served(way, error)
        try:
            if self._by_munge:
                munge.decode(munge.encode(os.urandom(16), socket=self._munge_socket), socket=self._munge_socket)
        except RmspluginError as error:
            return str(error)
        return ""


def ways_in(settings: Settings) -> list[Way]:
    """Where requests for the engine with these settings arrive: at its own doors, or at those of its manager."""
    found: list[Way] = [str(settings.engine.socket)]
    if settings.listens_at:
        host, _, port = settings.listens_at.rpartition(":")
        host = host.strip("[]")
        found.append((_OF_ALL.get(host, host), int(port)))
    return found


def silent_doors(settings: Settings) -> list[str]:
    """The doors of this host at which somebody listens and nobody is served, in words; one takes some seconds."""
    silent = []
    for way in ways_in(settings):
        try:
            _await_answer(way)
        except (FileNotFoundError, ConnectionRefusedError, PermissionError):
            continue  # nobody listens: no engine is there, or it stands by
        except OSError as error:
            silent.append(f"the engine at {_words(way)} {CANNOT_HEAR}: nobody is served there ({error})")
    return silent


def _nobody_served(way: Way, error: OSError) -> str:
    return f"nobody is served at {_words(way)}: {error.strerror or error}"


def _words(way: Way) -> str:
    return way if isinstance(way, str) else "{}:{}".format(*way)


def _await_answer(way: Way) -> None:
    """Raises OSError where a look is not answered in time."""
    if isinstance(way, str):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    else:
        connection = socket.create_connection(way, timeout=TEST_LATE_S)
    with connection:
        connection.settimeout(TEST_LATE_S)
        if isinstance(way, str):
            connection.connect(way)
        connection.sendall(LOOK)
        if not connection.recv(1):
            raise ConnectionError("the connection was closed")
