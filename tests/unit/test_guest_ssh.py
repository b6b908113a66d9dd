"""The engine's ssh to guests, where what answers is no guest yet."""

from __future__ import annotations

import socket
import time

import pytest
from patience import PATIENCE_S

from rmsplugin.adapters.guests import ssh
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
        guests = SshGuests(
            generate_keypair().private_openssh, port=silent.getsockname()[1], connect_timeout_s=PATIENCE_S
        )
        began = time.monotonic()
        with pytest.raises(PointlessError):
            guests.wait_ready("127.0.0.1", generate_keypair().public, timeout_s=PATIENCE_S, check=check)
    assert time.monotonic() - began < PATIENCE_S / 2


def test_a_guest_whose_first_packets_are_lost_is_reached_before_the_kernel_would_repeat_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    patience: list[float] = []
    up_after_s = 0.5
    here, there = socket.socketpair()

    def create_connection(_: tuple[str, int], timeout: float) -> socket.socket:
        if sum(patience) >= up_after_s:
            return here
        patience.append(timeout)
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", create_connection)
    with here, there:
        assert ssh._connect("192.0.2.1", 22, 10.0, lambda: None) is here
    assert sum(patience) < 0.8


def test_a_guest_that_is_slow_to_answer_gets_a_second_for_it_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def create_connection(_: tuple[str, int], timeout: float) -> socket.socket:
        if timeout >= 1.0:
            return here
        raise TimeoutError

    here, there = socket.socketpair()
    monkeypatch.setattr(socket, "create_connection", create_connection)
    with here, there:
        assert ssh._connect("192.0.2.1", 22, 10.0, lambda: None) is here


def test_a_guest_is_asked_again_at_once_at_first_and_less_often_later(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    def create_connection(_: tuple[str, int], timeout: float) -> socket.socket:
        raise ConnectionRefusedError

    def check() -> None:
        if len(pauses) == 12:
            raise PointlessError

    monkeypatch.setattr(socket, "create_connection", create_connection)
    monkeypatch.setattr(time, "sleep", pauses.append)
    with pytest.raises(PointlessError):
        SshGuests(generate_keypair().private_openssh).wait_ready(
            "192.0.2.1", generate_keypair().public, timeout_s=60.0, check=check
        )
    assert pauses == sorted(pauses)
    assert pauses[0] <= 0.1 and pauses[-1] == 0.3
