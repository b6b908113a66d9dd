"""One squeue stays and tells the queue again and again; here it is a script that writes down when it begins."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from patience import PATIENCE_S

from rmsplugin.adapters.rms import slurm_queue_feed
from rmsplugin.adapters.rms.slurm_commands import SlurmCommands
from rmsplugin.adapters.rms.slurm_queue_feed import QueueFeed
from rmsplugin.errors import UnavailableError

#: What squeue prints of a job, and the pulse of it.
ROW = f"{'7':64}{'R':8}{'N/A':24}{'None':40}"
RUNS = f"{'7':64}{'R':8}{'N/A':24}".strip() + " "
PENDS = RUNS.replace("R ", "PD")


class Squeue:
    """A squeue, and the engine's clock."""

    def __init__(self, directory: Path, timeout_s: float = PATIENCE_S) -> None:
        self.directory = directory
        self.ahead_s = 0.0
        self.queue = directory / "queue"
        self.feed = QueueFeed(
            SlurmCommands(str(directory), timeout_s, ()), 0.5, timeout_s, lambda: time.monotonic() + self.ahead_s
        )

    def is_(self, *lines: str) -> None:
        """Be this script from the next start on."""
        program = self.directory / "squeue"
        begins = f'#!/bin/sh\necho "$$ $*" >>{self.directory}/starts\n'
        program.with_suffix(".new").write_text(begins + "\n".join(lines) + "\n")
        program.with_suffix(".new").chmod(0o755)
        program.with_suffix(".new").rename(program)

    @property
    def starts(self) -> list[list[str]]:
        """The id and the words of each that was started."""
        return [line.split() for line in (self.directory / "starts").read_text().splitlines()]

    def pulse(self, *partitions: str) -> str:
        return self.feed.latest(partitions or ("vjob", "vmhosts"))


#: Tells the file ``queue`` every 50 ms.
TELLS = 'while cat "${0%/*}/queue" && echo; do sleep 0.05; done'


@pytest.fixture
def squeue(tmp_path: Path) -> Iterator[Squeue]:
    made = Squeue(tmp_path)
    made.queue.write_text(f"{ROW}\n")
    made.is_(TELLS)
    yield made
    made.queue.unlink()  # what runs ends


def eventually(condition: Callable[[], bool]) -> bool:
    until = time.monotonic() + PATIENCE_S
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)
    return condition()


def test_a_hundred_looks_are_one_process(squeue: Squeue) -> None:
    assert {squeue.pulse() for _ in range(100)} == {RUNS}
    squeue.queue.write_text(f"{ROW.replace('R ', 'PD')}\n")
    assert eventually(lambda: squeue.pulse() == PENDS)
    squeue.queue.write_text("")
    assert eventually(lambda: squeue.pulse() == "")
    [[_, *words]] = squeue.starts
    assert (words[0], words[2], words[-1]) == ("-h", "--partition=vjob,vmhosts", "--iterate=1")


def test_other_partitions_are_another_question(squeue: Squeue) -> None:
    squeue.pulse()
    assert squeue.pulse("urgent") == RUNS
    assert [words[3] for words in squeue.starts] == ["--partition=vjob,vmhosts", "--partition=urgent"]


def test_a_busy_slurm_is_asked_for_a_tenth_of_the_time(squeue: Squeue) -> None:
    squeue.is_("sleep 0.2", TELLS)
    assert squeue.pulse() == RUNS
    squeue.queue.write_text("")
    for squeue.ahead_s in (0.5, 1.5):
        assert squeue.pulse() == RUNS, "it rests for nine times as long as its answer took"
    assert len(squeue.starts) == 1
    squeue.ahead_s = 1000
    assert squeue.pulse() == ""
    assert len(squeue.starts) == 2


def test_a_rest_is_no_reason_to_tell_of_other_partitions(squeue: Squeue) -> None:
    squeue.is_("sleep 0.2", TELLS)
    assert squeue.pulse() == RUNS
    squeue.queue.write_text("")
    assert squeue.pulse("urgent") == ""
    assert len(squeue.starts) == 2


def test_a_squeue_that_has_stayed_for_long_is_replaced(squeue: Squeue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_queue_feed, "_LONGEST_S", 0.2)
    assert eventually(lambda: squeue.pulse() == RUNS and len(squeue.starts) > 1)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (("echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2", "echo", "sleep 60"), "to contact"),
        (("echo 'squeue: fatal: Could not establish a configuration source' >&2", "exit 1"), "fatal: Could not"),
        (("exit 1",), "`squeue` has ended"),
    ],
    ids=["an error", "a fatal error", "the end"],
)
def test_what_fails_is_tried_again_after_a_pause(script: tuple[str, ...], said: str, squeue: Squeue) -> None:
    squeue.is_(*script)
    for _ in range(5):
        with pytest.raises(UnavailableError, match=said):
            squeue.pulse()
    assert len(squeue.starts) == 1
    squeue.is_(TELLS)
    squeue.ahead_s += 2
    assert squeue.pulse() == RUNS


def test_a_silent_slurm_is_waited_for_no_longer_than_for_a_command(tmp_path: Path) -> None:
    squeue = Squeue(tmp_path, timeout_s=0.3)
    squeue.is_("exec sleep 60")
    with pytest.raises(UnavailableError, match=r"did not answer `squeue` within 0 s"):
        squeue.pulse()
    [[process, *_]] = squeue.starts
    assert eventually(lambda: not Path(f"/proc/{process}").exists())


def test_without_the_command_there_is_no_pulse(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="squeue"):
        Squeue(tmp_path).pulse()


def test_it_ends_with_the_engine(squeue: Squeue) -> None:
    """Killed, an engine ends nothing: it only does not read any more."""
    squeue.is_("while :; do echo; sleep 0.05; done")
    process = SlurmCommands(str(squeue.directory), 1, ()).follow("squeue")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(PATIENCE_S) != 0
