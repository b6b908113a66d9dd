"""The engine's ssh to guests, where what answers is no guest yet."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


class SlowlyTold(SshGuests):
    """Guests on busy nodes: commands take their time, one after the other; a second passes where one is slept."""

    def __init__(self, *took_s: float, fractions: bool = True) -> None:
        super().__init__(generate_keypair().private_openssh, clock=lambda: self.now)
        self.now, self.late_s = 1000.25, 0.0
        self.took_s, self._fractions = list(took_s), fractions

    @contextlib.contextmanager
    def _connection(self, *_: object, **__: object) -> Iterator[Any]:
        yield None

    def _exec(self, _: object, command: str, *__: object) -> tuple[int, str]:
        self.now += self.took_s.pop(0)
        told = command.split("@")[1].split()[0]
        if "." in told and not self._fractions:
            return 1, "date: invalid date"
        self.late_s = self.now - float(told)
        return 0, ""


@pytest.mark.parametrize(
    ("took_s", "fractions", "tries"),
    [((0.1,), True, 1), ((2.5, 0.1), True, 2), ((0.1, 0.1), False, 2), ((0.1, 3.0, 0.2), False, 3)],
)
def test_a_clock_that_was_told_late_is_set_again(
    took_s: tuple[float, ...], fractions: bool, tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    guests = SlowlyTold(*took_s, 99.0, fractions=fractions)

    def sleep(seconds: float) -> None:
        guests.now += seconds

    monkeypatch.setattr(time, "sleep", sleep)
    guests.set_clock("10.0.0.1", "", timeout_s=9)
    assert guests.late_s <= 0.5
    assert len(guests.took_s) == len(took_s) + 1 - tries


def test_a_clock_that_can_only_be_told_late_is_left_late() -> None:
    guests = SlowlyTold(*[2.0] * 9)
    guests.set_clock("10.0.0.1", "", timeout_s=9)
    assert guests.late_s == 2.0
    assert len(guests.took_s) == 4


# -- the CPUs that a guest's kernel uses -------------------------------------------------------------------------------


def cpus_in(place: Path, *online: str) -> None:
    """Files of CPUs as a kernel has them: the first one cannot be taken off line, and has none."""
    for number, state in enumerate(["", *online]):
        (place / f"cpu{number}").mkdir()
        if state:
            (place / f"cpu{number}/online").write_text(f"{state}\n")
    (place / "cpufreq").mkdir()


def set_cpus(place: Path, cpus: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", ssh._CPUS.format(place, cpus)], capture_output=True, text=True, timeout=PATIENCE_S
    )


def online_in(place: Path) -> list[str]:
    return [
        file.read_text().strip()
        for file in sorted(place.glob("cpu*/online"), key=lambda file: int(file.parent.name[3:]))
    ]


@pytest.mark.parametrize(
    ("before", "cpus", "after"),
    [
        (["1"] * 3, 2, ["1", "0", "0"]),
        (["1", "0", "0"], 4, ["1"] * 3),
        (["0", "1", "1"], 2, ["1", "0", "0"]),
        (["1"] * 11, 11, ["1"] * 10 + ["0"]),
        (["1"] * 3, 9, ["1"] * 3),
        ([], 1, []),
    ],
)
def test_a_guest_uses_its_first_cpus_and_tells_how_many_it_used(
    tmp_path: Path, before: list[str], cpus: int, after: list[str]
) -> None:
    cpus_in(tmp_path, *before)
    done = set_cpus(tmp_path, cpus)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{1 + before.count('1')}\n", "")
    assert online_in(tmp_path) == after
    assert set_cpus(tmp_path, cpus).stdout == f"{1 + after.count('1')}\n", "once more, nothing changes"
    assert online_in(tmp_path) == after


def test_a_kernel_that_takes_no_cpu_off_line_is_an_error_in_its_words(tmp_path: Path) -> None:
    cpus_in(tmp_path, "1")
    (tmp_path / "cpu1/online").unlink()
    (tmp_path / "cpu1/online").symlink_to("/sys/devices/system/cpu/kernel_max")  # a number that nobody changes
    done = set_cpus(tmp_path, 1)
    assert done.returncode == 1 and "cpu1/online" in done.stderr
    assert set_cpus(tmp_path / "none", 1).returncode == 1
