"""The engine notices what changes in Slurm's queue: by asking now and then, and at once when a job was submitted."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rmsplugin.engine.queue_watch import QueueWatch
from rmsplugin.errors import UnavailableError


class Slurm:
    """A queue, and how long it takes to ask for it."""

    def __init__(self, directory: Path) -> None:
        self.queue = "empty"
        self.asked = 0
        self.takes_s = 0.0
        self.now = 100.0
        self.silent = False
        self.state_dir = str(directory)

    def pulse(self, partitions: tuple[str, ...]) -> str:
        assert partitions == ("vjob",)
        self.asked += 1
        self.now += self.takes_s
        if self.silent:
            raise UnavailableError("slurmctld does not answer")
        return self.queue

    def submit(self, job: int) -> None:
        """As slurmctld keeps a script."""
        self.queue = f"job {job}"
        (Path(self.state_dir) / f"hash.{job % 10}" / f"job.{job}").mkdir()


@pytest.fixture
def slurm(tmp_path: Path) -> Slurm:
    for number in range(10):
        (tmp_path / f"hash.{number}").mkdir()
    return Slurm(tmp_path)


@pytest.fixture
def wakes() -> list[str]:
    return []


@pytest.fixture
def watch(slurm: Slurm, wakes: list[str]) -> QueueWatch:
    context: Any = SimpleNamespace(rms=slurm, slurm=slurm)
    made = QueueWatch(context, ["vjob"], lambda: wakes.append(slurm.queue), lambda: slurm.now)
    made.look()
    made.look_if_submitted()
    wakes.clear()
    slurm.asked = 0
    return made


def test_a_queue_that_has_changed_wakes_the_engine_once(slurm: Slurm, watch: QueueWatch, wakes: list[str]) -> None:
    watch.look()
    assert wakes == []
    slurm.queue = "held"
    watch.look()
    watch.look()
    assert wakes == ["held"]


def test_slurm_is_asked_at_once_when_a_job_was_submitted(slurm: Slurm, watch: QueueWatch, wakes: list[str]) -> None:
    watch.look_if_submitted()
    assert slurm.asked == 0
    slurm.submit(13)
    watch.look_if_submitted()
    watch.look_if_submitted()
    assert (slurm.asked, wakes) == (1, ["job 13"])


def test_a_slurm_that_takes_long_is_left_alone_for_nine_times_as_long(
    slurm: Slurm, watch: QueueWatch, wakes: list[str]
) -> None:
    slurm.takes_s = 1.0
    slurm.submit(1)
    watch.look_if_submitted()
    slurm.submit(2)
    slurm.now += 8.9
    watch.look_if_submitted()
    assert wakes == ["job 1"]
    slurm.now += 0.2
    watch.look_if_submitted()
    assert wakes == ["job 1", "job 2"], "what was submitted meanwhile is not forgotten"


@pytest.mark.parametrize("state_dir", ["", "/nonexistent"])
def test_where_slurms_state_cannot_be_seen_it_is_asked_now_and_then_only(
    slurm: Slurm, watch: QueueWatch, state_dir: str
) -> None:
    slurm.state_dir = state_dir
    watch.look_if_submitted()
    slurm.asked = 0
    for _ in range(3):
        watch.look_if_submitted()
    assert slurm.asked == 0


def test_a_slurm_that_does_not_answer_wakes_nobody(slurm: Slurm, watch: QueueWatch, wakes: list[str]) -> None:
    slurm.silent = True
    slurm.submit(1)
    watch.look_if_submitted()
    assert (slurm.asked, wakes) == (1, [])
    slurm.silent = False
    watch.look()
    assert wakes == ["job 1"]
