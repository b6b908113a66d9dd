"""The engine notices what changes in Slurm's queue: by asking now and then, and at once when a vjob was submitted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmsplugin.engine.observe.queue_watch import CYCLES_MOST_S, CYCLES_SHARE, QueueWatch
from rmsplugin.errors import UnavailableError

VJOB = "#!/usr/bin/rmsplugin-job 1,1,96,1,1,default\n#!/bin/sh\necho up\n"
NATIVE = "#!/bin/sh\n# not #!/usr/bin/rmsplugin-job 1\n"


class Slurm:
    """A queue, and how long a cycle takes that looks at it."""

    def __init__(self, directory: Path) -> None:
        self.queue = "empty"
        self.asked = 0
        self.cycle_s = 0.0
        self.now = 100.0
        self.silent = False
        self.state_dir = str(directory)

    def pulse(self, partitions: tuple[str, ...]) -> str:
        assert partitions == ("vjob",)
        self.asked += 1
        if self.silent:
            raise UnavailableError("slurmctld does not answer")
        return self.queue

    def submit(self, job: int, script: str | None = VJOB) -> None:
        """As slurmctld keeps a script; None: it is about to write it."""
        self.queue = f"job {job}"
        place = Path(self.state_dir) / f"hash.{job % 10}" / f"job.{job}"
        place.mkdir(exist_ok=True)
        if script is not None:
            (place / "script").write_bytes(script.encode() + b"\0")


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
    asked: Any = slurm  # it is Slurm, and what is known of it
    slurm.submit(12)
    made = QueueWatch(
        asked, asked, ["vjob"], lambda: wakes.append(slurm.queue), lambda: slurm.cycle_s, lambda: slurm.now
    )
    made.ask_slurm()
    made.ask_slurm_if_submitted()
    wakes.clear()
    slurm.asked = 0
    return made


def test_a_queue_that_has_changed_wakes_the_engine_once(slurm: Slurm, watch: QueueWatch, wakes: list[str]) -> None:
    watch.ask_slurm()
    assert wakes == []
    slurm.queue = "held"
    watch.ask_slurm()
    watch.ask_slurm()
    assert wakes == ["held"]


def test_a_vjob_that_was_submitted_wakes_the_engine_once_and_slurm_is_not_asked(
    slurm: Slurm, watch: QueueWatch, wakes: list[str]
) -> None:
    watch.ask_slurm_if_submitted()
    assert wakes == []
    slurm.submit(13)
    for _ in range(3):
        watch.ask_slurm_if_submitted()
    assert (slurm.asked, wakes) == (0, ["job 13"])


def test_a_vjob_wakes_the_engine_once_its_script_is_written(slurm: Slurm, watch: QueueWatch, wakes: list[str]) -> None:
    slurm.submit(13, None)
    watch.ask_slurm_if_submitted()
    slurm.submit(13, VJOB[:9])
    watch.ask_slurm_if_submitted()
    assert wakes == []
    slurm.submit(13)
    watch.ask_slurm_if_submitted()
    assert wakes == ["job 13"]


@pytest.mark.parametrize("script", [NATIVE, "#!", "", None])
def test_other_jobs_wake_nobody_however_many_are_submitted(
    slurm: Slurm, watch: QueueWatch, wakes: list[str], script: str | None
) -> None:
    for job in range(100, 130):
        slurm.submit(job, script)
        watch.ask_slurm_if_submitted()
        slurm.now += 0.5
    assert (slurm.asked, wakes) == (0, [])


def test_two_that_are_submitted_at_the_same_instant_are_both_seen(
    slurm: Slurm, watch: QueueWatch, wakes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel may tell the same time of both changes of a directory."""
    monkeypatch.setattr("rmsplugin.adapters.rms.slurm_scripts.changes", lambda _: tuple(range(10)))
    watch.ask_slurm_if_submitted()
    monkeypatch.setattr("rmsplugin.adapters.rms.slurm_scripts.changes", lambda _: (99,) * 10)
    slurm.submit(21)
    watch.ask_slurm_if_submitted()
    slurm.submit(31)
    watch.ask_slurm_if_submitted()
    assert wakes == ["job 21", "job 31"]


def test_the_first_arrivals_are_seen_to_at_once_and_a_thousand_in_a_minute_cause_no_storm_of_cycles(
    slurm: Slurm, watch: QueueWatch, wakes: list[str]
) -> None:
    slurm.cycle_s = 0.3
    for number in range(1, 1001):
        slurm.submit(1000 + number)
        watch.ask_slurm_if_submitted()
        if number % 8 == 0:
            watch.ask_slurm()
        if number <= 5:
            assert wakes[-1] == f"job {1000 + number}"
        slurm.now += 0.06
    most = (CYCLES_MOST_S + 60 * CYCLES_SHARE) / slurm.cycle_s
    assert most / 2 < len(wakes) <= most + 1
    slurm.now += 10
    watch.ask_slurm_if_submitted()
    assert wakes[-1] == "job 2000", "what was submitted meanwhile is not forgotten"


def test_a_change_that_may_cause_no_cycle_yet_causes_one_later(
    slurm: Slurm, watch: QueueWatch, wakes: list[str]
) -> None:
    slurm.cycle_s = 5.0
    for queue in ("a", "b"):
        slurm.queue = queue
        watch.ask_slurm()
    assert wakes == ["a"]
    slurm.now += 2.0 / CYCLES_SHARE + 1
    watch.ask_slurm()
    watch.ask_slurm()
    assert wakes == ["a", "b"]


@pytest.mark.parametrize("state_dir", ["", "/nonexistent"])
def test_where_slurms_state_cannot_be_seen_it_is_asked_now_and_then_only(
    slurm: Slurm, watch: QueueWatch, wakes: list[str], state_dir: str
) -> None:
    slurm.state_dir = state_dir
    for _ in range(3):
        watch.ask_slurm_if_submitted()
    assert (slurm.asked, wakes) == (0, [])


def test_where_slurms_state_is_seen_for_the_first_time_all_are_known(
    slurm: Slurm, watch: QueueWatch, wakes: list[str]
) -> None:
    there = slurm.state_dir
    slurm.state_dir = ""
    watch.ask_slurm_if_submitted()
    slurm.state_dir = there
    slurm.submit(14)
    watch.ask_slurm_if_submitted()
    slurm.submit(15)
    watch.ask_slurm_if_submitted()
    assert wakes == ["job 15"]


def test_a_slurm_that_does_not_answer_is_asked_again(slurm: Slurm, watch: QueueWatch, wakes: list[str]) -> None:
    slurm.silent = True
    slurm.queue = "held"
    watch.ask_slurm()
    assert (slurm.asked, wakes) == (1, [])
    slurm.silent = False
    watch.ask_slurm()
    assert wakes == ["held"]
