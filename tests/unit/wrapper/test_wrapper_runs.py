"""Two runs of one job: the wrapper before lives on, as nobody could tell it to end, and the VM is the later run's."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator

import pytest
from patience import PATIENCE_S
from unit import guestbox
from unit.wrapper.test_wrapper import Bench, FakeEngine, _bench, children

from rmsplugin.wrapper.process import run_of_job

pytestmark = pytest.mark.skipif(bool(guestbox.missing()), reason=guestbox.missing() or "-")

COUNT = """#!/bin/sh
i=0
while [ ! -e /tmp/enough ]; do i=$((i + 1)); echo $i; echo $i >/tmp/.count; mv /tmp/.count /tmp/count; sleep 0.05; done
echo end
"""


@pytest.fixture(scope="module")
def small() -> Iterator[Bench]:
    yield from _bench("busybox")


class Former:
    """The wrapper of a run; from ``is_cut_off`` on it cannot ask the engine any more: munge has died on its front."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._engine = FakeEngine(bench.directory / "other.sock", bench.box)
        settings = bench.directory / "other.toml"
        settings.write_text(f'[engine]\nsocket = "{bench.directory}/other.sock"\n')
        self.process = bench.start(environ={"RMSPLUGIN_CONFIG": str(settings)})

    def is_cut_off(self) -> None:
        self._engine.down()

    def asked(self) -> list[str]:
        """What it has asked of its engine, without the sign of life that it gives in the beginning."""
        names = self._engine.names()
        names.remove("attached")
        return names

    def is_ended(self, fate: str) -> int:
        """Have Slurm end it as it ends a job of that fate, now that the engine answers it again."""
        self._engine.up()
        self._bench.set_fate(f"JobId=12 JobName=x UserId=u(1001) {fate}")
        try:
            self.process.send_signal(signal.SIGTERM)
            return self.process.wait(PATIENCE_S)
        finally:
            self._bench.set_fate("JobId=12 JobName=x UserId=u(1001) JobState=RUNNING Restarts=0")

    def close(self) -> None:
        guestbox.signalled(self.process, signal.SIGKILL)
        self.process.wait()
        self._engine.down()


@pytest.fixture
def former(small: Bench) -> Iterator[Former]:
    small.fresh()
    small.script(COUNT)
    small.guest.run("rm -f /tmp/count /tmp/enough")
    with contextlib.closing(Former(small)) as former:
        wait_count(small, 20)
        yield former


def counted(bench: Bench) -> int:
    return int(bench.guest.run("cat /tmp/count 2>/dev/null || echo 0"))


def wait_count(bench: Bench, more: int) -> None:
    wanted = counted(bench) + more
    guestbox.wait_until(lambda: counted(bench) >= wanted, f"{more} more numbers")


def wait_written(bench: Bench) -> None:
    """Wait until the output file has all numbers up to one of this moment."""
    line = f"\n{counted(bench)}\n".encode()
    guestbox.wait_until(lambda: line in b"\n" + bench.out.read_bytes(), "the numbers in the output file")


def start(bench: Bench, run: int) -> subprocess.Popen[bytes]:
    """The wrapper of a later run, once it has the VM."""
    later = bench.start(environ={"SLURM_RESTART_COUNT": str(run)})
    there = "cat /run/rmsplugin/state/run"
    guestbox.wait_until(lambda: bench.guest.run(there) == f"{run}\n", "the later run has the VM")
    return later


def finish(bench: Bench, later: subprocess.Popen[bytes]) -> None:
    bench.guest.run("touch /tmp/enough")
    assert later.wait(PATIENCE_S) == 0, bench.err.read_text()
    numbers = "".join(f"{number}\n" for number in range(1, counted(bench) + 1))
    assert bench.out.read_bytes() == f"{numbers}end\n".encode()
    assert bench.err.read_bytes() == b"", "who is refused says nothing"


@pytest.mark.parametrize("manner", ["appended", "truncated"])
def test_the_output_is_the_later_runs_alone(small: Bench, former: Former, manner: str) -> None:
    former.is_cut_off()
    if manner == "truncated":
        os.truncate(small.out, 0)
    later = start(small, 1)
    wait_written(small)
    wait_count(small, 20)
    finish(small, later)
    assert former.process.poll() is None
    assert former.is_ended("JobState=COMPLETING Restarts=1") == 128 + signal.SIGTERM


def test_into_a_file_that_was_emptied_for_a_later_run_nothing_is_written_before_that_begins(
    small: Bench, former: Former
) -> None:
    wait_written(small)
    former.is_cut_off()
    os.truncate(small.out, 0)
    wait_count(small, 20)
    assert small.out.read_bytes() == b""
    finish(small, start(small, 1))


def test_a_file_that_its_user_truncates_gets_what_comes_after_that(small: Bench, former: Former) -> None:
    wait_written(small)
    os.truncate(small.out, 0)
    wait_count(small, 20)  # the number of this moment may have been written just before
    wait_written(small)
    small.guest.run("touch /tmp/enough")
    assert former.process.wait(PATIENCE_S) == 0
    *numbers, end = small.out.read_text().split()
    assert end == "end" and numbers == [str(number) for number in range(int(numbers[0]), counted(small) + 1)]
    assert int(numbers[0]) > 1


def test_a_refused_wrapper_gives_no_sign_of_life_and_ends_when_its_job_does(small: Bench, former: Former) -> None:
    wait_written(small)
    later = start(small, 1)
    wait_count(small, 20)
    wait_written(small)
    finish(small, later)
    assert former.process.poll() is None
    assert former.asked() == ["access", "started"], "it asks for no other way, and gives no sign"
    assert former.is_ended("JobState=CANCELLED Restarts=0") == -signal.SIGTERM


def test_what_a_refused_wrapper_has_read_stands_once(small: Bench, former: Former) -> None:
    """It writes that before it lets go of its connection, for which the later run waits."""
    wait_written(small)
    former.is_cut_off()  # else it would have the script stopped with it
    former.process.send_signal(signal.SIGSTOP)
    wait_count(small, 20)  # they are on their way to it
    later = start(small, 1)
    former.process.send_signal(signal.SIGCONT)
    wait_written(small)
    wait_count(small, 20)
    finish(small, later)


def test_a_later_run_does_not_wait_for_ever_for_a_wrapper_that_does_not_let_go(small: Bench, former: Former) -> None:
    former.is_cut_off()
    former.process.send_signal(signal.SIGSTOP)
    later = start(small, 1)
    wait_written(small)
    wait_count(small, 20)
    finish(small, later)


def test_a_wrapper_that_comes_after_that_of_a_later_run_is_refused(small: Bench, former: Former) -> None:
    wait_written(small)
    late = start(small, 2)
    wait_count(small, 20)
    refused = small.start(environ={"SLURM_RESTART_COUNT": "1"})
    guestbox.wait_until(lambda: children(refused), "its child")
    wait_count(small, 40)
    finish(small, late)
    assert refused.poll() is None
    refused.kill()
    refused.wait()


LOOK = "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline; echo; done 2>/dev/null | sed -n 's|^/run/rmsplugin/bin/||p'"


def test_each_command_in_the_guest_tells_the_run(small: Bench) -> None:
    """The first connection has `begin`, which goes on as `wait`; a later one has `wait`."""
    small.fresh()
    small.script(COUNT)
    small.guest.run("rm -f /tmp/count /tmp/enough")
    process = small.start(environ={"SLURM_RESTART_COUNT": "7"})
    words = ["commands serve run:7", "rmsplugin-guest follow stderr 0 7", "rmsplugin-guest control 7"]

    def tells(*more: str) -> bool:
        there = [line.strip() for line in small.guest.run(LOOK).splitlines()]
        return {*words, *more} <= {*there}

    guestbox.wait_until(lambda: tells("rmsplugin-guest begin run 7 stdout 0 stderr 0"), "the first connection")
    small.guest.signal_servers(signal.SIGKILL)
    guestbox.wait_until(lambda: tells("rmsplugin-guest wait 0 7"), "another connection")
    finish(small, process)


@pytest.mark.parametrize(("count", "run"), [("", 0), ("0", 0), ("3", 3), ("x", 0)])
def test_the_run_is_known_by_slurms_variable(count: str, run: int) -> None:
    assert run_of_job({"SLURM_RESTART_COUNT": count}) == run
    assert run_of_job({}) == 0
