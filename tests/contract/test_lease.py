"""The contract of ``adapters.lease.base.Lease``: each kind is a way to make engines that want the same lease."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest
from patience import PATIENCE_S

from rmsplugin.adapters.coordination.local import Local
from rmsplugin.adapters.lease.base import Lease
from rmsplugin.adapters.lease.clocked import ClockedLease
from rmsplugin.errors import UnavailableError
from rmsplugin.model.epochs import FIRST_EPOCH


class Engines(Protocol):
    """Engines that want one lease, of one kind.

    Attributes:
        freed_s: within so many seconds the lease of a holder that was killed is free.
        one_host: whether the kind has one host only: then each epoch is the first.
    """

    freed_s: float
    one_host: bool

    def lease(self) -> Lease: ...

    def program(self) -> str:
        """Python that makes ``lease`` in a process of its own."""
        ...


class OnOneHost:
    freed_s, one_host = 0.0, True

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def lease(self) -> Lease:
        return ClockedLease(Local(self._directory))

    def program(self) -> str:
        return (
            "from pathlib import Path; from rmsplugin.adapters.coordination.local import Local; "
            "from rmsplugin.adapters.lease.clocked import ClockedLease; "
            f"lease = ClockedLease(Local(Path({str(self._directory)!r})))"
        )


KINDS: dict[str, Callable[[Path], Engines]] = {"local": OnOneHost}


@pytest.fixture(params=sorted(KINDS))
def engines(request: pytest.FixtureRequest, tmp_path: Path) -> Engines:
    return KINDS[request.param](tmp_path)


@pytest.fixture
def other(engines: Engines) -> Iterator[subprocess.Popen[str]]:
    """Another process, which holds the lease."""
    code = f"{engines.program()}; lease.acquire(); print(lease.epoch, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert int(process.stdout.readline()) >= FIRST_EPOCH
        yield process
        process.kill()


def acquired_in_time(engines: Engines, lease: Lease) -> None:
    deadline = time.monotonic() + engines.freed_s + PATIENCE_S
    while True:
        try:
            return lease.acquire()
        except UnavailableError:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_one_who_has_it_holds_it_until_it_is_released(engines: Engines) -> None:
    lease = engines.lease()
    assert not lease.held()
    lease.acquire()
    lease.acquire()
    lease.renew()
    assert lease.held() and lease.epoch >= FIRST_EPOCH
    lease.release()
    lease.release()
    assert not lease.held()


def test_one_who_has_it_not_has_no_epoch_and_nothing_to_renew(engines: Engines) -> None:
    lease = engines.lease()
    for lost in (False, True):
        with pytest.raises(UnavailableError):
            lease.renew()
        with pytest.raises(UnavailableError):
            lease.epoch  # noqa: B018
        if not lost:
            lease.acquire()
            lease.release()


def test_a_second_one_is_refused_with_what_to_do_and_has_it_after_the_first(engines: Engines) -> None:
    first, second = engines.lease(), engines.lease()
    first.acquire()
    with pytest.raises(UnavailableError, match=r"another engine runs on .+; stop it first"):
        second.acquire()
    assert (first.held(), second.held()) == (True, False)
    epoch = first.epoch
    first.release()
    second.acquire()
    assert (first.held(), second.held()) == (False, True)
    assert second.epoch == FIRST_EPOCH if engines.one_host else second.epoch > epoch


def test_another_process_keeps_it_and_to_be_killed_frees_it(engines: Engines, other: subprocess.Popen[str]) -> None:
    lease = engines.lease()
    with pytest.raises(UnavailableError):
        lease.acquire()
    assert not lease.held()
    other.send_signal(signal.SIGKILL)
    acquired_in_time(engines, lease)
    assert lease.held()


def test_a_process_that_the_holder_starts_does_not_inherit_it(engines: Engines) -> None:
    lease = engines.lease()
    lease.acquire()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False) as child:
        lease.release()
        try:
            acquired_in_time(engines, engines.lease())
        finally:
            child.kill()
