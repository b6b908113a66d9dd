"""The leader reads Slurm anew where something may have changed, and not in each of its turns."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rmsplugin.errors import UnavailableError
from rmsplugin.manager.looking import LeadersLook
from rmsplugin.manager.readings import Reading


class World:
    """Slurm, an engine that has readings made, and a clock."""

    def __init__(self, state_dir: str = "") -> None:
        self.now, self.pulse, self.state_dir = 1000.0, "a", state_dir
        self.epoch = 5
        self.read, self.fails = 0, False
        self.last: Reading | None = None
        self.look = LeadersLook(cast(Any, self), self.fresh, self.tell, lambda: self.epoch, 30.0, lambda: self.now)

    def tell(self) -> str:
        if self.fails:
            raise UnavailableError("squeue has ended")
        return self.pulse

    def fresh(self) -> Reading:
        self.read += 1
        snapshot = SimpleNamespace(number=self.read, state_dir=self.state_dir)
        self.last = Reading(self.now, cast(Any, snapshot), cast(Any, None))
        return self.last

    def sees(self) -> int:
        """The number of the reading that it sees in its next turn."""
        self.now += 1
        return cast(int, cast(Any, self.look.snapshot()).number)


def test_it_reads_again_when_a_job_has_moved_on_and_after_a_while() -> None:
    world = World()
    assert {world.sees() for _ in range(20)} == {1}
    world.pulse = "b"
    assert {world.sees() for _ in range(20)} == {2}
    assert [world.sees() for _ in range(11)][-1] == 3


def test_it_sees_what_was_read_for_an_engine() -> None:
    world = World()
    assert world.sees() == 1
    world.now += 20
    world.fresh()
    assert {world.sees() for _ in range(20)} == {2}


def test_it_reads_each_time_where_nobody_tells_of_changes() -> None:
    world = World()
    world.fails = True
    assert [world.sees() for _ in range(3)] == [1, 2, 3]


def test_it_reads_when_a_job_was_submitted(tmp_path: Path) -> None:
    for digit in range(10):
        (tmp_path / f"hash.{digit}").mkdir()
    world = World(str(tmp_path))
    world.sees()
    world.sees()  # the first reading told where scripts are
    known = world.sees()
    assert world.sees() == known
    (tmp_path / "hash.7" / "job.17").mkdir()
    assert world.sees() == known + 1
    assert world.sees() == known + 1


def test_an_error_of_slurm_is_the_leaders() -> None:
    world = World()

    def fails() -> Reading:
        raise UnavailableError("Slurm does not answer")

    world.look = LeadersLook(cast(Any, world), fails, world.tell, lambda: 5, 30.0, lambda: world.now)
    with pytest.raises(UnavailableError):
        world.sees()


def test_a_new_lead_begins_with_a_reading_of_its_own() -> None:
    world = World()
    assert {world.sees() for _ in range(3)} == {1}
    world.epoch = 6
    assert {world.sees() for _ in range(3)} == {2}
