"""The engine's ssh to guests, where what answers is no guest yet."""

from __future__ import annotations

import socket
import time

import pytest

from rmsplugin.adapters.guests.keys import generate_keypair
from rmsplugin.adapters.guests.ssh import SshGuests


class PointlessError(Exception):
    """What the check of a caller raises who does not want the guest any more."""


def test_a_wait_for_a_guest_that_accepts_and_says_nothing_ends_soon_after_it_has_become_pointless() -> None:
    checks = iter(range(3))

    def check() -> None:
        if next(checks, None) is None:
            raise PointlessError

    with socket.create_server(("127.0.0.1", 0)) as silent:
        guests = SshGuests(generate_keypair().private_openssh, port=silent.getsockname()[1], connect_timeout_s=30.0)
        began = time.monotonic()
        with pytest.raises(PointlessError):
            guests.wait_ready("127.0.0.1", generate_keypair().public, timeout_s=60.0, check=check)
    assert time.monotonic() - began < 15.0
