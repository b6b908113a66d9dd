"""The contract of ``Guests.set_cpus``: simulated guests, and the script that guests run, on files as a kernel has them.

A real kernel runs it in ``tests/e2e/test_resized_jobs.py``.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from patience import PATIENCE_S

from rmsplugin.adapters.guests import ssh
from rmsplugin.adapters.guests.base import Guests
from rmsplugin.adapters.guests.keys import generate_keypair
from rmsplugin.adapters.simulated.guests import SimulatedGuests
from rmsplugin.errors import OperationFailedError

ADDRESS = "10.0.0.1"
KEY = generate_keypair().public
CPUS = 4


class ShellGuests(ssh.SshGuests):
    """A guest whose commands this machine runs: only the way there is not ssh's."""

    def _run_in_guest(self, address: str, host_key: str, command: str, data: bytes, *, timeout_s: float) -> str:
        done = subprocess.run(["sh", "-c", command], input=data, capture_output=True, timeout=timeout_s)
        if done.returncode:
            raise OperationFailedError(f"guest {address}: {done.stderr.decode()}")
        return done.stdout.decode()


@pytest.fixture(params=["simulated", "script"])
def guests(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Guests:
    """A guest of four CPUs."""
    if request.param == "simulated":
        simulated = SimulatedGuests(sleep=lambda _: None)
        simulated.add(ADDRESS, KEY)
        simulated.guests[ADDRESS].has_cpus = CPUS
        return simulated
    monkeypatch.setattr(ssh, "_CPU_FILES", str(tmp_path))
    for number in range(CPUS):
        (tmp_path / f"cpu{number}").mkdir()
        if number:  # the first one cannot be taken off line
            (tmp_path / f"cpu{number}/online").write_text("1\n")
    return ShellGuests(generate_keypair().private_openssh)


def set_cpus(guests: Guests, cpus: int) -> int:
    return guests.set_cpus(ADDRESS, KEY, cpus, timeout_s=PATIENCE_S)


def test_a_guest_tells_how_many_cpus_it_used_before(guests: Guests) -> None:
    assert [set_cpus(guests, cpus) for cpus in (4, 1, 3, 3, 4)] == [4, 4, 1, 3, 3]


def test_more_than_a_guest_has_means_all_of_them(guests: Guests) -> None:
    assert [set_cpus(guests, cpus) for cpus in (2, 99, 1)] == [4, 2, 4]


def test_no_guest_can_do_without_a_cpu(guests: Guests) -> None:
    for cpus in (0, -1):
        with pytest.raises(ValueError, match=f"{cpus} CPUs"):
            set_cpus(guests, cpus)
    assert set_cpus(guests, CPUS) == CPUS, "nothing was changed"
