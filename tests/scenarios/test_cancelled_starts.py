"""A job that ends while its VMs boot: its start ends by itself, before the engine's next cycle."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from scenarios.world import World

from rmsplugin.errors import UnavailableError
from rmsplugin.model.vjob import VJobState


def boots_for_ever(world: World, monkeypatch: pytest.MonkeyPatch, begun: Callable[[], None]) -> list[float]:
    """Have guests never answer; ``begun`` is called as soon as one is waited for. Returns when checks were made."""
    checks: list[float] = []

    def wait_ready(*_: object, check: Callable[[], None], **__: object) -> None:
        for turn in range(20):
            check()
            checks.append(world.time)
            if turn == 0:
                begun()
            world.pass_time(0.5)
        raise UnavailableError("it never answers")

    monkeypatch.setattr(type(world.guests), "wait_ready", wait_ready)
    return checks


def begin_to_boot(world: World, checks: list[float]) -> None:
    for _ in range(10):
        world.tick()
        if checks:
            return
    raise AssertionError(str(world.cycle.report))


def test_a_cancelled_job_ends_the_boot_of_its_vms_within_two_seconds(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = world.submit(vms=1)
    checks = boots_for_ever(world, monkeypatch, lambda: world.rms.cancel(job))
    begin_to_boot(world, checks)
    assert checks[-1] - checks[0] <= 2.0
    assert any("its job has ended" in event.message for event in world.context.ledger.events(vjob=str(job)))
    world.until(job, VJobState.TERMINATED)
    assert world.leftovers() == []


def test_a_boot_goes_on_while_slurm_does_not_answer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.submit(vms=1)

    def silent() -> None:
        for _ in range(50):
            world.rms.fail_next("jobs", UnavailableError("slurmctld does not answer"))

    checks = boots_for_ever(world, monkeypatch, silent)
    begin_to_boot(world, checks)
    assert len(checks) == 20
