"""What the manager that leads writes for groups, with a lease and engines that do as a test says."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import pytest
from unit.groups.summed import heard, live

from rmsplugin.adapters.coordination.epoch_files import EpochFiles
from rmsplugin.errors import UnavailableError
from rmsplugin.groups.forming import Formed, Group
from rmsplugin.groups.given import Given, Place, read, text_of
from rmsplugin.groups.giving import Heard
from rmsplugin.manager.leader import Leader


class Lease:
    epoch, leads = 5, True

    def held(self) -> bool:
        return self.leads


class World:
    """A leader's neighbours."""

    def __init__(self, directory: Path) -> None:
        self.lease, self.files = Lease(), EpochFiles(directory, "given")
        self.groups = {"a": ("a1",), "b": ("b1",)}
        self.jobs = [live(1)]
        self.says: dict[str, tuple[int, Heard]] = {}
        self.told: Mapping[str, tuple[str, ...]] = {}
        self.down = False
        self.leader = self.make()

    def make(self) -> Leader:
        return Leader(self.lease, self, self, self, self.files, self.hear, self.tell, 30.0)  # type: ignore[arg-type]

    def snapshot(self) -> None:
        if self.down:
            raise UnavailableError("Slurm does not answer")

    def of(self, seen: None) -> Formed:
        return Formed(tuple(Group(name, hosts) for name, hosts in self.groups.items()))

    def read(self, seen: None) -> tuple[list[object], frozenset[int]]:
        return list(self.jobs), frozenset()

    def hear(self, groups: Collection[str]) -> Mapping[str, tuple[int, Heard]]:
        return {name: said for name, said in self.says.items() if name in groups}

    def tell(self, groups: Mapping[str, tuple[str, ...]]) -> None:
        self.told = groups

    def answer(
        self, name: str, free: list[int], *, epoch: int = 1, released: Collection[int] = (), **jobs: str
    ) -> None:
        """The engine of a group has read the newest text, and says this."""
        self.says[name] = (epoch, heard(name, free, seen=self.written().version, released=released, **jobs))

    def written(self) -> Given:
        newest = self.files.newest()
        assert newest is not None
        return read(newest.text, epoch=newest.epoch, name=newest.name)


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path / "site")
    made.leader.turn()
    return made


def test_the_first_lead_writes_the_groups_and_then_gives_vjobs_to_those_that_answer(world: World) -> None:
    assert world.written() == Given(5, 1, world.groups)
    assert world.told == world.groups
    world.leader.turn()
    assert world.leader.problems == ("the engine of group a, b does not answer: nothing is given to it",)
    world.answer("a", [0])
    world.answer("b", [4])
    world.leader.turn()
    assert world.written().vjobs == {1: Place("b")}
    assert world.leader.problems == ()
    version = world.written().version
    world.leader.turn()
    assert world.written().version == version, "nothing is written anew"


def test_a_vjob_goes_to_another_group_in_two_texts(world: World) -> None:
    world.answer("a", [0])
    world.answer("b", [0])
    world.leader.turn()
    (owner,) = {place.group for place in world.written().vjobs.values()}
    other = "b" if owner == "a" else "a"
    world.answer(owner, [0], j1="waiting")
    world.answer(other, [4])
    world.leader.turn()
    assert world.written().vjobs == {1: Place(owner, other)}
    world.answer(owner, [0], released=(1,))
    world.leader.turn()
    assert world.written().vjobs == {1: Place(other)}


def test_an_engine_that_was_followed_by_another_one_is_not_believed(world: World) -> None:
    world.answer("a", [4], epoch=9)
    world.answer("b", [0])
    world.leader.turn()
    assert world.written().vjobs == {1: Place("a")}
    world.answer("a", [0], epoch=8)
    world.leader.turn()
    assert world.leader.problems == ("the engine of group a does not answer: nothing is given to it",)


def test_the_next_lead_goes_on_from_the_text_of_the_one_before(world: World) -> None:
    world.answer("a", [4])
    world.answer("b", [0])
    world.leader.turn()
    world.lease.epoch = 9
    other = world.make()
    other.turn()
    assert world.written() == Given(9, 0, world.groups, {1: Place("a")})


def test_one_that_does_not_lead_writes_nothing(world: World) -> None:
    world.lease.leads = False
    world.groups["c"] = ("c1",)
    before = world.written()
    world.leader.turn()
    assert world.written() == before
    world.lease.leads, world.lease.epoch = True, 6
    world.leader.turn()
    assert world.written().version == (6, 1) and "c" in world.written().groups


def test_a_write_whose_end_is_not_known_is_done_again_before_anything_else(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.answer("a", [4])
    world.answer("b", [0])
    write = world.files.write

    def late(epoch: int, text: str) -> None:
        write(epoch, text)
        raise UnavailableError("it cannot be written now")

    with monkeypatch.context() as broken:
        broken.setattr(world.files, "write", late)
        world.leader.turn()
    assert "nothing is given to groups now" in world.leader.problems[0]
    world.jobs = []
    world.leader.turn()
    assert world.written().vjobs == {}
    assert world.written().version == (5, 3)


def test_without_slurm_all_stays_as_it_is_and_is_said(world: World) -> None:
    before = world.written()
    world.down = True
    world.leader.turn()
    assert world.leader.problems == ("nothing is given to groups now: Slurm does not answer",)
    assert world.written() == before


def test_an_ensemble_that_counts_from_low_again_is_refused(world: World) -> None:
    world.files.write(2**40, text_of(Given(2**40, 0, world.groups)))
    world.lease.epoch = 6
    world.make().turn()
    other = world.make()
    other.turn()
    assert "the ensemble was set up anew" in other.problems[0]
