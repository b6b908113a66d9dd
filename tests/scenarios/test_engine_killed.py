"""Invariants I1-I6 hold when the engine is killed at any instant and started again."""

from __future__ import annotations

from pathlib import Path

import pytest
from scenarios.world import KilledError, World, spread

from rmsplugin.adapters.simulated.hypervisor.faults import Point
from rmsplugin.engine.ledger.rows import OperationKind
from rmsplugin.errors import OperationFailedError
from rmsplugin.model.vjob import VJobState

S, K = VJobState, OperationKind
#: Of the instants of a life CI tries so many.
SAMPLE = 26


def live_a_whole_life(world: World, kill_at: int | None, *, failing: bool = False) -> int:
    """Run, suspend, resume elsewhere, migrate, end, killed once on the way. Returns the instants of the first life.

    With ``failing``, each of these fails once for one of the VMs.
    """
    world.start_engine(kill_at)
    first = world.life
    job = world.submit(vms=2)
    for method in ("boot", "save", "restore", "migrate") if failing else ():
        world.hypervisor.fail_next(method, OperationFailedError(f"{method} fails"), vm=f"vjob{job}-1")
    world.until(job, S.RUNNING)
    while not world.context.ledger.vjob(job).script_started:
        world.alive(lambda: world.context.ledger.update_vjob(job, script_started=True))
        world.tick()
    for kind, reached in ((K.SUSPEND, S.SLEEPING), (K.RESUME, S.RUNNING)):
        while world.state(job) is not reached or job in world.executor.busy():
            world.ask(job, kind, "n3" if kind is K.RESUME else "")
            world.tick()
    world.ask(job, K.MIGRATE)
    world.until(job, S.RUNNING)
    check_running(world, job)
    assert first.dead or not world.hypervisor.faults.failures, "all that was to fail did"
    world.rms.finish(job)
    world.until(job, S.TERMINATED)
    assert world.leftovers() == []
    assert world.hypervisor.violations == []
    vjob = world.context.ledger.vjob(job)
    assert vjob.losses == 0, "a killed engine loses nothing"
    assert vjob.private_key == ""
    assert world.context.ledger.vms() == []
    return first.instants


@pytest.mark.timeout(600)
def test_killed_at_any_instant_of_a_life_in_which_everything_fails_once(directory: Path, whole: bool) -> None:
    (directory / "0").mkdir()
    total = live_a_whole_life(World(directory / "0"), None, failing=True)
    assert total > 150
    for instant in spread(total, total if whole else SAMPLE):
        where = directory / str(instant)
        where.mkdir()
        try:
            live_a_whole_life(World(where), instant, failing=True)
        except AssertionError as error:
            raise AssertionError(f"killed at instant {instant} of {total}: {error}") from error


def check_running(world: World, job: int) -> None:
    for vm in world.context.ledger.vms(job):
        assert world.hypervisor.where(vm.name) == [vm.host], "one VM, where the ledger says (I1)"
        assert vm.destination == ""


def count_instants(directory: Path) -> int:
    world = World(directory)
    instants = live_a_whole_life(world, None)
    assert {each[0] for each in world.hypervisor.calls} >= {"boot", "save", "restore", "migrate", "stop"}
    return instants


@pytest.mark.timeout(300)
def test_killed_at_any_instant_of_a_whole_life(directory: Path, whole: bool) -> None:
    (directory / "0").mkdir()
    total = count_instants(directory / "0")
    assert total > 100
    for instant in spread(total, total if whole else SAMPLE):
        where = directory / str(instant)
        where.mkdir()
        try:
            live_a_whole_life(World(where), instant)
        except AssertionError as error:
            raise AssertionError(f"killed at instant {instant} of {total}: {error}") from error


@pytest.mark.parametrize("succeeds", [True, False], ids=["which then succeeds", "which then fails"])
@pytest.mark.parametrize("method", ["boot", "save", "restore", "migrate"])
def test_killed_in_the_middle_of_what_the_hypervisor_does(directory: Path, method: str, succeeds: bool) -> None:
    world = World(directory)
    job = world.submit(vms=2)

    def killed() -> None:
        world.life.dead = True
        raise KilledError

    if method != "boot":
        world.until(job, S.RUNNING)
    if method == "restore":
        world.ask(job, K.SUSPEND)
        world.until(job, S.SLEEPING)
    world.hypervisor.hook_next(method, Point.DURING, killed, vm=f"vjob{job}-0")
    if method != "boot":
        world.ask(job, {"save": K.SUSPEND, "restore": K.RESUME, "migrate": K.MIGRATE}[method])
    world.until_killed()
    world.hypervisor.settle(f"vjob{job}-0", succeed=succeeds)
    if method == "save":
        # A save that failed leaves it running; either way it can be suspended and resumed.
        world.until(job, S.SLEEPING, S.RUNNING)
        while world.state(job) is not S.SLEEPING:
            world.ask(job, K.SUSPEND)
            world.tick()
        world.ask(job, K.RESUME)
    world.until(job, S.RUNNING)
    check_running(world, job)
    assert world.context.ledger.vjob(job).losses == 0
    world.rms.finish(job)
    world.until(job, S.TERMINATED)
    assert world.leftovers() == []
    assert world.hypervisor.violations == []
