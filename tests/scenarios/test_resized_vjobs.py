"""VMs of a running vjob do with less than is booked for them, or have it back: carried out, kept, bounded, refused."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from scenarios.world import World, spread

from rmsplugin.adapters.simulated.hypervisor.faults import Point
from rmsplugin.assessment.back_off import pause_s
from rmsplugin.engine.ledger.rows import OperationKind
from rmsplugin.engine.serve.resizing import APART_S, Size
from rmsplugin.errors import ForbiddenError, NotFoundError, OperationFailedError, RefusedError
from rmsplugin.model.capabilities import EVERYTHING
from rmsplugin.model.vjob import VJobState

S = VJobState
ROOT, USER, OTHER = 0, 65534, 4711
GIB = 1024


class ResizedWorld(World):
    """A world whose requests live as long as its engine."""

    def start_engine(self, kill_at: int | None = None) -> None:
        super().start_engine(kill_at)
        self.asked = self.requests()

    def resize(self, job: object, cpus: int | None = None, memory_mib: int | None = None, uid: int = USER) -> Any:
        """Ask for it, long enough after the last time."""
        self.pass_time(APART_S)
        self._give_signs_of_life()
        return self.asked.resize(uid, str(job), Size(cpus, memory_mib))

    def some(self, ticks: int = 4, seconds: float = 1.0) -> None:
        """Cycles, each with what it does in the background."""
        deadline = time.monotonic() + PATIENCE_S
        for _ in range(ticks):
            self.tick(seconds)
            while not (self.life.dead or self.executor.chores_ended):
                assert time.monotonic() < deadline, "nothing ends in the background"
                time.sleep(0.0005)

    def vjob_of(self, cpus: int, vms: int = 1, **options: Any) -> int:
        """A vjob that runs, and whose guests have the CPUs that are booked for them."""
        job = self.running(vms=vms, cpus=cpus, **options)
        vjob = self.context.ledger.vjob(job)
        for vm in self.context.ledger.vms(job):
            self.guests.guests[vm.address].has_cpus = vjob.geometry.cpus_of(vm.idx)
        return job

    def cpus(self, job: int) -> list[int]:
        """The CPUs that the guests of a vjob use; 0: they were told of none."""
        return [self.guests.guests[vm.address].cpus for vm in self.context.ledger.vms(job)]

    def left_mib(self, job: int) -> int:
        """The memory that the balloon of a vjob's first VM leaves to its guest."""
        (vm, *_) = self.context.ledger.vms(job)
        return (self.hypervisor.statistics(vm.host)[vm.name].memory_current_kib or 0) // 1024


@pytest.fixture
def world(directory: Path) -> Iterator[ResizedWorld]:
    made = ResizedWorld(directory, nodes={"n1": (8, 4 * GIB), "n2": (8, 4 * GIB)})
    yield made
    assert made.hypervisor.violations == []
    made.close()


@pytest.fixture
def observed(world: ResizedWorld) -> ResizedWorld:
    """The same, where VMs take the memory that they are seen to need."""
    changed = world.settings.model_dump()
    changed["partition"]["vjob"]["memory"] = "observed"
    changed["image"]["default"]["overhead_mib"] = 100
    world.settings = type(world.settings).model_validate(changed)
    world.start_engine()
    return world


# -- CPUs --------------------------------------------------------------------------------------------------------------


def test_guests_do_with_fewer_cpus_and_have_them_back(world: ResizedWorld) -> None:
    job = world.vjob_of(4, vms=2)
    assert world.resize(job, cpus=1) == {"vjobs": [str(job)], "refused": {}}
    world.some()
    assert world.cpus(job) == [1, 1]
    shown = world.asked.vjob(USER, str(job))
    assert (shown["cpus"], shown["resized_cpus"], shown["resized_memory_mib"]) == (4, 1, None)
    world.resize(job, cpus=0)
    world.some()
    assert world.cpus(job) == [4, 4]
    assert world.events("resize") == ["nobody resizes each VM to 1 of 4 CPUs", "nobody resizes each VM to 4 of 4 CPUs"]
    done = sorted(world.events("resized"))
    assert done == sorted(
        f"vjob{job}-{index} uses {now} of its 4 CPUs, and used {before}"
        for index in range(2)
        for now, before in ((1, 4), (4, 1))
    )


def test_what_vms_that_have_one_task_less_have_is_never_more_than_theirs(world: ResizedWorld) -> None:
    job = world.vjob_of(4, vms=2, small=(2, 128))
    world.resize(job, cpus=3)
    world.some()
    assert world.cpus(job) == [3, 2]
    assert world.events("resized") == [f"vjob{job}-0 uses 3 of its 4 CPUs, and used 4"]


def test_the_next_engine_gives_guests_their_size_once_more(world: ResizedWorld) -> None:
    job = world.vjob_of(2)
    world.resize(job, cpus=1)
    world.some()
    forgets(world, job)
    world.some()
    assert world.cpus(job) == [0], "a guest that was given its size is not asked in each cycle"
    world.start_engine()
    world.some()
    assert world.cpus(job) == [1]


def test_a_guest_that_goes_on_has_the_size_however_it_came_back(world: ResizedWorld) -> None:
    """A resumed guest may have gone back to a checkpoint of the time before."""
    job = world.vjob_of(2)
    world.resize(job, cpus=1)
    world.some()
    world.ask(job, OperationKind.SUSPEND)
    world.until(job, S.SLEEPING)
    forgets(world, job)
    world.ask(job, OperationKind.RESUME)
    world.until(job, S.RUNNING)
    world.some()
    assert world.cpus(job) == [1]


def test_a_vjob_that_sleeps_is_resized_when_it_goes_on(world: ResizedWorld) -> None:
    job = world.vjob_of(2)
    world.asked.suspend(USER, str(job))
    world.until(job, S.SLEEPING)
    world.resize(job, cpus=1)
    world.some()
    assert world.cpus(job) == [0]
    world.asked.resume(USER, str(job), "")
    world.until(job, S.RUNNING)
    world.some()
    assert world.cpus(job) == [1]


def forgets(world: ResizedWorld, job: int) -> None:
    for vm in world.context.ledger.vms(job):
        world.guests.guests[vm.address].cpus = 0


def test_the_size_ends_with_the_vjob(world: ResizedWorld) -> None:
    job = world.vjob_of(2)
    world.resize(job, cpus=1)
    world.some()
    world.rms.finish(job)
    world.until(job, S.TERMINATED)
    row = world.context.ledger.vjob(job)
    assert (row.resized_cpus, row.resized_memory_mib) == (0, 0)


def test_a_guest_that_fails_is_asked_again_later_each_time_and_told_of_once(
    world: ResizedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = world.vjob_of(2)
    (vm,) = world.context.ledger.vms(job)
    set_cpus, asked = world.guests.set_cpus, list[float]()

    def told(*words: Any, **bound: Any) -> int:
        asked.append(world.time)
        return set_cpus(*words, **bound)

    monkeypatch.setattr(world.guests, "set_cpus", told)
    world.guests.fail("set_cpus", vm.address, OperationFailedError("no such file"), times=3)
    world.resize(job, cpus=1)
    world.some(2)
    assert world.cpus(job) == [0]
    assert [words.rpartition(": ")[2] for words in world.events("resize-failed")] == ["no such file"]
    world.some(12)
    assert world.cpus(job) == [1]
    assert len(world.events("resize-failed")) == 1
    assert [later - before >= pause_s(failures) for failures, (before, later) in enumerate(pairwise(asked), 1)] == [
        True
    ] * 3


def test_wherever_the_engine_is_killed_the_guest_has_the_size_in_the_end(directory: Path) -> None:
    def lived(kill_at: int | None, name: str) -> ResizedWorld:
        place = directory / name
        place.mkdir()
        world = ResizedWorld(place)
        job = world.vjob_of(2)
        world.start_engine(kill_at)
        world.alive(lambda: world.resize(job, cpus=1))
        if not world.context.ledger.vjob(job).resized_cpus:  # killed before it was kept: the user asks again
            world.start_engine()
            world.resize(job, cpus=1)
        world.some(6)
        assert world.cpus(job) == [1] and world.state(job) is S.RUNNING
        assert world.hypervisor.violations == []
        return world

    whole = lived(None, "whole")
    instants = whole.life.instants
    whole.close()
    assert instants > 10
    for instant in spread(instants, 40):
        lived(instant, str(instant)).close()


# -- memory ------------------------------------------------------------------------------------------------------------


def observed_vjob(world: ResizedWorld, memory_mib: int, needs_mib: int) -> int:
    job = world.vjob_of(1, memory_mib=memory_mib, computing=False)
    world.hypervisor.set_working_set(f"vjob{job}-0", needs_mib)
    world.some(4, 30.0)
    return job


def test_a_guest_does_with_less_memory_and_has_it_back(observed: ResizedWorld) -> None:
    job = observed_vjob(observed, 1500, 300)
    (vm,) = observed.context.ledger.vms(job)
    assert observed.left_mib(job) == vm.memory_mib
    observed.resize(job, memory_mib=500)
    observed.some(3, 30.0)
    assert observed.left_mib(job) == vm.memory_mib - 1000, "its image's own memory is not taken from it"
    observed.resize(job, memory_mib=0)
    observed.some(3, 30.0)
    assert observed.left_mib(job) == vm.memory_mib


def test_no_guest_is_asked_for_memory_that_it_needs(observed: ResizedWorld) -> None:
    job = observed_vjob(observed, 1500, 900)
    observed.resize(job, memory_mib=200)
    observed.some(4, 30.0)
    needed = observed.context.ledger.vms(job)[0].memory_demand_mib
    assert needed is not None and observed.left_mib(job) == needed


def test_memory_stays_given_up_after_a_restart_of_the_engine(observed: ResizedWorld) -> None:
    job = observed_vjob(observed, 1500, 300)
    observed.resize(job, memory_mib=500)
    observed.start_engine()
    observed.some(3, 30.0)
    (vm,) = observed.context.ledger.vms(job)
    assert observed.left_mib(job) == vm.memory_mib - 1000


# -- refusals ----------------------------------------------------------------------------------------------------------


def refused(world: ResizedWorld, job: object, match: str, **size: int) -> None:
    before = world.context.ledger.events(limit=100_000)
    with pytest.raises(RefusedError, match=match):
        world.resize(job, **size)
    assert world.context.ledger.events(limit=100_000) == before


def test_nobody_gets_more_than_slurm_has_allocated_to_his_job(world: ResizedWorld) -> None:
    job = world.vjob_of(2, memory_mib=512)
    refused(world, job, "has 2 CPUs for each VM by its job, and Slurm gives a job that runs no more", cpus=3)
    refused(world, job, "has 512 MiB for each VM by its job", memory_mib=513)
    refused(world, world.vjob_of(1), "has 1 CPU for each VM by its job", cpus=2)
    assert (world.context.ledger.vjob(job).resized_cpus, world.cpus(job)) == (0, [0])


def test_memory_that_is_booked_as_requested_stays_booked(world: ResizedWorld) -> None:
    job = world.vjob_of(1, memory_mib=512)
    refused(world, job, "nothing on its nodes would hold a guest to less", memory_mib=256)
    assert world.resize(job, memory_mib=0)["vjobs"] == [str(job)], "all of it, it has anyhow"


def test_a_vjob_without_vms_is_not_resized(world: ResizedWorld) -> None:
    busy = [world.vjob_of(8), world.vjob_of(8)]
    waiting = world.submit(vms=1, cpus=8, priority=0)
    world.some(2)
    refused(world, waiting, "is waiting, and has no VMs yet", cpus=1)
    world.rms.cancel(busy[0])
    world.until(busy[0], S.TERMINATED)
    refused(world, busy[0], "has ended", cpus=1)
    with pytest.raises(NotFoundError):
        world.resize(999, cpus=1)


def test_only_its_user_and_operators_resize_a_vjob(world: ResizedWorld) -> None:
    job = world.vjob_of(2)
    with pytest.raises(ForbiddenError, match="belongs to nobody"):
        world.resize(job, cpus=1, uid=OTHER)
    assert world.context.ledger.vjob(job).resized_cpus == 0
    assert world.resize(job, cpus=1, uid=ROOT)["vjobs"] == [str(job)]


def test_one_vjob_is_resized_once_in_a_while(world: ResizedWorld) -> None:
    """Each time is an event and work in guests: a user in a loop fills the ledger with neither."""
    job = world.vjob_of(2)
    world.resize(job, cpus=1)
    with pytest.raises(RefusedError, match="was resized less than 10 s ago"):
        world.asked.resize(USER, str(job), Size(2))
    assert world.asked.resize(USER, str(job), Size(1))["vjobs"], "what it is already changes nothing"
    assert len(world.events("resize")) == 1


def test_a_platform_that_resizes_nothing_is_not_asked_to(directory: Path) -> None:
    world = ResizedWorld(directory, capabilities=replace(EVERYTHING, resize=False))
    job = world.vjob_of(2)
    refused(world, job, "on a platform that resizes nothing", cpus=1)
    world.some()
    assert world.cpus(job) == [0]
    world.close()


def test_elements_of_an_array_are_resized_together_and_each_that_is_refused_is_named(world: ResizedWorld) -> None:
    array = world.submit(vms=1, cpus=2, array=[1, 2, 3], array_limit=2)
    rows: set[str] = set()
    for _ in range(60):
        world.tick()
        rows = {row.display_id for row in world.context.ledger.vjobs() if row.state is S.RUNNING}
        if len(rows) == 2:
            break
    (left,) = {f"{array}_{index}" for index in (1, 2, 3)} - rows
    answer = world.resize(array, cpus=1)
    assert set(answer["vjobs"]) == rows
    assert list(answer["refused"]) == [left] and "not split off" in answer["refused"][left]
    refused(world, left, "is waiting, and has no VMs yet", cpus=1)


# -- a platform that bounds VMs ----------------------------------------------------------------------------------------


@pytest.fixture
def bounding(directory: Path) -> Iterator[ResizedWorld]:
    capabilities = replace(EVERYTHING, own_kernel=False)
    made = ResizedWorld(directory, nodes={"n1": (8, 4 * GIB), "n2": (8, 4 * GIB)}, capabilities=capabilities)
    yield made
    assert made.hypervisor.violations == []
    made.close()


def bound(world: ResizedWorld, job: int) -> tuple[int | None, int]:
    """The CPUs and the MiB that a vjob's first VM may use."""
    (vm, *_) = world.context.ledger.vms(job)
    return world.hypervisor.statistics(vm.host)[vm.name].cpus, world.left_mib(job)


def sized_vjob(world: ResizedWorld, needs_mib: int = 300) -> int:
    job = world.vjob_of(4, memory_mib=1500)
    world.hypervisor.set_working_set(f"vjob{job}-0", needs_mib)
    world.some(4, 30.0)
    return job


def test_the_platform_bounds_cpus_and_memory_and_gives_them_back(bounding: ResizedWorld) -> None:
    job = sized_vjob(bounding)
    assert bound(bounding, job) == (4, 1500)
    bounding.resize(job, cpus=1, memory_mib=500)
    bounding.some()
    assert bound(bounding, job) == (1, 500)
    assert bounding.cpus(job) == [0], "no guest is asked"
    bounding.resize(job, cpus=0, memory_mib=0)
    bounding.some()
    assert bound(bounding, job) == (4, 1500)
    assert sorted(bounding.events("resized")) == sorted(
        f"vjob{job}-0 {words}"
        for words in (
            "uses 1 of its 4 CPUs, and used 4",
            "uses 4 of its 4 CPUs, and used 1",
            "may use 500 of its 1500 MiB, and had 1500",
            "may use 1500 of its 1500 MiB, and had 500",
        )
    )


def test_a_bounded_vm_has_its_size_where_it_is_resumed(bounding: ResizedWorld) -> None:
    job = sized_vjob(bounding)
    bounding.resize(job, cpus=1, memory_mib=500)
    bounding.some()
    (vm,) = bounding.context.ledger.vms(job)
    other = "n2" if vm.host == "n1" else "n1"
    bounding.asked.suspend(USER, str(job))
    bounding.until(job, S.SLEEPING)
    bounding.asked.resume(USER, str(job), other)
    done: list[tuple[int | None, int]] = []
    bounding.hypervisor.hook_next("unpause", Point.BEFORE, lambda: done.append(bound(bounding, job)))
    bounding.until(job, S.RUNNING)
    assert done == [(1, 500)], "it has its size before it goes on"
    assert bounding.context.ledger.vms(job)[0].host == other
    bounding.some()
    assert bound(bounding, job) == (1, 500)


def test_less_memory_than_a_vm_is_seen_to_need_is_refused(bounding: ResizedWorld) -> None:
    job = sized_vjob(bounding)
    refused(
        bounding, job, f"last seen to need 336 MiB in vjob{job}-0, .* with 200 MiB one of its processes", memory_mib=200
    )
    assert bound(bounding, job) == (4, 1500)


def test_a_vm_that_began_to_use_more_meanwhile_goes_on_and_is_told_of_once(bounding: ResizedWorld) -> None:
    job = sized_vjob(bounding)
    bounding.resize(job, memory_mib=500)
    bounding.hypervisor.set_working_set(f"vjob{job}-0", 900)
    bounding.some(12)
    assert bounding.state(job) is S.RUNNING and bound(bounding, job) == (4, 1500)
    assert bounding.events("resize-failed") == [
        f"vjob{job}-0 is not resized to 500 MiB yet, and is asked again: vjob{job}-0 uses more memory than 500 MiB"
    ]
    bounding.hypervisor.set_working_set(f"vjob{job}-0", 200)
    bounding.some(12, 30.0)
    assert bound(bounding, job) == (4, 500)


def test_the_memory_of_a_bounded_vm_stays_booked(bounding: ResizedWorld) -> None:
    """It may have it back at any time."""
    job = sized_vjob(bounding)
    bounding.resize(job, memory_mib=500)
    bounding.some()
    others = [bounding.submit(vms=1, cpus=1, memory_mib=2600) for _ in range(3)]
    bounding.some(6)
    assert [bounding.state(other) for other in others].count(S.RUNNING) == 1, "one node has 2,600 MiB left"
    bounding.resize(job, memory_mib=0)
    bounding.some()
    assert bound(bounding, job) == (4, 1500)
