"""Shadows of steps, with an srun that runs its command at once, as Slurm's does with what it was given."""

from __future__ import annotations

import errno
import os
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from patience import PATIENCE_S
from unit import descriptors

from rmsplugin.wrapper.session.steps import Steps
from rmsplugin.wrapper.signals import Fate

# It keeps its words, runs their last two with a step's variables, and returns what Slurm's would.
SRUN = """#!/bin/sh
printf '%s\\n' "$*" >>{log}
while [ $# -gt 2 ]; do shift; done
SLURM_PROCID=0 SLURM_STEP_ID=0 sh -c 'echo $$ >>{log}.pids; exec "$@"' sh "$@"
code=$?
echo "$code" >>{log}.codes
exit "$code"
"""


class Front:
    """A front with an srun, and the shadows of one job there."""

    def __init__(self, directory: Path, srun: str = SRUN) -> None:
        self.log = directory / "log"
        program = directory / "srun"
        program.write_text(srun.format(log=self.log))
        program.chmod(0o755)
        self.fate, self.sent = Fate.RUNNING, list[tuple[int, int]]()
        self.steps = Steps(
            str(directory), "12", lambda: self.fate, lambda step, number: self.sent.append((step, number))
        )

    def lines(self, suffix: str = "") -> list[str]:
        """What srun kept."""
        path = Path(f"{self.log}{suffix}")
        return path.read_text().splitlines() if path.exists() else []

    def take(self, *lines: str) -> None:
        """The guest says so."""
        for line in lines:
            assert self.steps.take(line.encode())
        self.steps.turn()

    def until(self, so: Callable[[], object]) -> None:
        """Let shadows go on until it is so."""
        deadline = time.monotonic() + PATIENCE_S
        while not so():
            assert time.monotonic() < deadline, (self.lines(), self.sent)
            select.select([self.steps.fileno()], [], [], 0.05)
            self.steps.turn()

    def up(self, count: int = 1) -> None:
        """Wait until shadows have begun to take signals."""
        self.until(
            lambda: (
                len(self.lines(".pids")) >= count
                and all(shadow.up for shadow in self.steps._shadows.values() if shadow.pid)
            )
        )

    def signal(self, number: int, which: int = -1) -> None:
        """Signal a shadow's task, as Slurm does."""
        os.kill(int(self.lines(".pids")[which]), number)


@pytest.fixture
def front(tmp_path: Path) -> Front:
    """An empty one."""
    return Front(tmp_path)


def test_a_shadow_is_a_step_of_the_same_name_that_ends_as_the_guests_has(front: Front) -> None:
    front.take("now", "began 0 2 a name", "ended 0 exit 5", "began 1 1 --jobid=13", "ended 1 signal 15")
    front.steps.settle(10)
    assert sorted(front.lines(".codes")) == ["143", "5"]
    first, second = front.lines()
    assert "--jobid=12 " in first
    assert "--ntasks=2 --job-name=a name " in first
    assert "--ntasks=1 --job-name=--jobid=13 " in second


def test_a_signal_of_slurms_is_sent_on_to_the_step(front: Front) -> None:
    front.take("now", "began 7 1 sleep")
    front.up()
    shadow = front.steps._shadows[7]
    front.signal(signal.SIGUSR1)
    front.until(lambda: len(front.sent) == 1)
    front.signal(signal.SIGTSTP)
    front.until(lambda: shadow.suspended)
    front.signal(signal.SIGCONT)
    front.until(lambda: not shadow.suspended)
    front.signal(signal.SIGTERM)
    front.until(lambda: len(front.sent) == 2)
    front.signal(signal.SIGCONT)
    front.until(lambda: len(front.sent) == 3)
    # Not the SIGCONT that ends a suspension. Whether SIGTERM is the step's has to be asked.
    assert front.sent == [(7, signal.SIGUSR1), (7, signal.SIGTERM), (7, signal.SIGCONT)]
    front.take("ended 7 exit 0")
    front.steps.settle(10)
    assert front.lines(".codes") == ["0"]


def test_a_step_that_slurm_stops_is_stopped_and_goes_on_with_its_shadow(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmsplugin.wrapper.session.steps._LOOK_S", 0.05)
    front.take("now", "began 7 1 sleep")
    front.up()
    front.signal(signal.SIGSTOP)
    front.until(lambda: front.sent)
    front.until(lambda: front.steps.due_s() is not None)
    front.signal(signal.SIGCONT)
    front.until(lambda: len(front.sent) == 2)
    assert front.sent == [(7, signal.SIGSTOP), (7, signal.SIGCONT)]


def test_a_suspension_is_none_of_the_steps_business(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmsplugin.wrapper.session.steps._LOOK_S", 0.05)
    front.take("now", "began 7 1 sleep")
    front.up()
    front.signal(signal.SIGTSTP)
    front.until(lambda: front.steps._shadows[7].suspended)
    for number in (signal.SIGSTOP, signal.SIGCONT, signal.SIGUSR1):
        front.signal(number)
        time.sleep(0.2)
        front.steps.turn()
    front.until(lambda: front.sent)
    assert front.sent == [(7, signal.SIGUSR1)]


def test_slurm_is_told_the_limit_of_a_step(front: Front) -> None:
    front.take("now", "limit 0 3", "began 0 1 a", "ended 0 exit 0", "began 1 1 b", "ended 1 exit 0")
    front.steps.settle(10)
    first, second = front.lines()
    assert "--time=3 " in first
    assert "--time" not in second


@pytest.mark.parametrize(
    ("fate", "sent"),
    [(Fate.RUNNING, [(3, signal.SIGKILL)]), (Fate.REQUEUED, []), (Fate.ENDING, []), (Fate.UNKNOWN, [])],
)
def test_a_killed_shadow_ends_its_step_only_while_the_job_is_known_to_go_on(
    front: Front, monkeypatch: pytest.MonkeyPatch, fate: Fate, sent: list[tuple[int, int]]
) -> None:
    monkeypatch.setattr("rmsplugin.wrapper.session.steps._ASK_AGAIN_S", 0.01)
    front.fate = fate
    front.take("now", "began 3 1 sleep")
    front.up()
    front.signal(signal.SIGKILL)
    front.until(lambda: front.lines(".codes") == ["137"])
    front.until(lambda: 3 not in front.steps._shadows)
    front.until(lambda: not front.steps._judging and not front.steps._unjudged)
    assert front.sent == sent


@pytest.mark.parametrize("code", [137, 0])
def test_a_shadow_that_is_cancelled_before_it_can_say_anything_ends_its_step_too(tmp_path: Path, code: int) -> None:
    """`scancel JOB.STEP` may come as soon as Slurm shows the step, before slurmd knows of it: srun then ends with 0."""
    front = Front(tmp_path, SRUN.replace("SLURM_PROCID=0", f"exit {code}"))
    front.take("now", "began 3 1 sleep")
    front.until(lambda: front.sent)
    assert front.sent == [(3, signal.SIGKILL)]
    front.take("ended 3 signal 9", "began 4 1 sleep")
    front.until(lambda: len(front.sent) == 2)  # Slurm works: the next step has its shadow without a pause
    assert front.sent[1] == (4, signal.SIGKILL)


def test_an_srun_that_dies_otherwise_proves_nothing(tmp_path: Path) -> None:
    front = Front(tmp_path, SRUN.replace('exit "$code"', "kill -9 $$"))
    front.take("now", "began 3 1 sleep")
    front.up()
    front.signal(signal.SIGKILL)
    front.until(lambda: 3 not in front.steps._shadows)
    assert not front.steps._judging
    assert front.sent == []


def test_the_end_of_the_job_is_not_passed_on_for_the_wrapper_sees_to_it(front: Front) -> None:
    front.fate = Fate.ENDING
    front.take("now", "began 7 1 sleep")
    front.up()
    front.signal(signal.SIGTERM)
    time.sleep(0.1)
    front.signal(signal.SIGUSR2)
    front.until(lambda: front.sent)
    time.sleep(0.2)
    assert front.sent == [(7, signal.SIGUSR2)]


def test_who_takes_over_gives_shadows_to_the_steps_that_run(front: Front) -> None:
    front.steps.take_over()
    front.take("began 0 1 a", "ended 0 exit 0", "began 1 1 b", "hub", "began 2 1 c", "began 3 1 d", "ended 3 exit 1")
    assert front.lines() == []
    front.take("now", "ended 2 exit 4")
    front.steps.settle(10)
    assert front.lines(".codes") == ["4"]
    assert "--job-name=c " in front.lines()[0]


def test_a_return_to_a_checkpoint_ends_the_shadows_and_begins_anew(front: Front) -> None:
    front.take("now", "began 0 1 a")
    front.up()
    assert front.steps.offset == len("began 0 1 a\n")
    front.steps.take_over()
    assert front.steps.offset == 0
    front.until(lambda: front.lines(".codes") == ["137"])
    front.take("began 0 1 a", "now")
    front.up(2)
    front.take("ended 0 exit 6")
    front.steps.settle(10)
    assert front.lines(".codes") == ["137", "6"]
    assert front.sent == []


def test_a_slurm_that_fails_costs_the_shadow_and_no_time(tmp_path: Path) -> None:
    front = Front(tmp_path, "#!/bin/sh\necho x >>{log}\nexit 1\n")
    front.take("now", "began 0 1 a", "began 1 1 b", "ended 0 exit 0", "ended 1 exit 0")
    began = time.monotonic()
    front.steps.settle(PATIENCE_S)
    assert time.monotonic() - began < PATIENCE_S
    assert front.lines() == ["x"]
    assert 0 < (front.steps.due_s() or 0) < 31


def check_without_descriptors(directory: Path) -> None:
    front = Front(directory)
    before = descriptors.open_now()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rmsplugin.wrapper.session.steps._PAUSE_S", 0.1)
        for more in range(4):  # of two pipes
            with descriptors.at_most(more):
                front.take("now", f"began {more} 1 a")
            assert descriptors.open_now() == before
            assert front.steps.due_s() is not None
            front.up(more + 1)
            front.take(f"ended {more} exit {more + 5}")
            front.until(lambda: descriptors.open_now() == before)
    assert front.lines(".codes") == ["5", "6", "7", "8"]


def test_a_front_that_has_no_descriptors_left_costs_the_shadow_some_time(tmp_path: Path) -> None:
    descriptors.alone(check_without_descriptors, tmp_path)


@pytest.mark.parametrize("call", ["posix_spawn", "pidfd_open"])
def test_a_front_that_has_no_processes_or_memory_left_costs_the_shadow_some_time(
    front: Front, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setattr("rmsplugin.wrapper.session.steps._PAUSE_S", 0.1)
    before = descriptors.open_now()

    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    with monkeypatch.context() as short:
        short.setattr(os, call, refuse)
        front.take("now", "began 0 1 a")
    assert descriptors.open_now() <= before
    front.up()
    front.take("ended 0 exit 7")
    front.until(lambda: "7" in front.lines(".codes"))


def test_a_signal_for_which_there_is_no_thread_yet_is_sent_later(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    front.take("now", "began 7 1 sleep")
    front.up()

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as short:
        short.setattr("rmsplugin.wrapper.session.steps._thread.start_new_thread", refuse)
        front.signal(signal.SIGKILL)
        front.until(lambda: front.lines(".codes") == ["137"] and front.steps.due_s() is not None)
        assert front.sent == []
    front.until(lambda: front.sent)
    assert front.sent == [(7, signal.SIGKILL)]


def test_without_an_srun_there_are_no_shadows_and_lines_of_the_guest_may_be_anything(tmp_path: Path) -> None:
    steps = Steps(str(tmp_path), "12", lambda: Fate.RUNNING, lambda step, number: None)
    lines = [
        "began 0 1 a",
        "began x y z",
        "began 99999999999999 1 a",
        "ended",
        "ended 0 exit",
        "began 1 1 " + "n" * 9999,
    ]
    assert all(steps.take(line.encode()) for line in lines)
    assert not steps.take(b"exit 0")
    steps.turn()
    steps.settle(5)
    assert steps.due_s() is None
