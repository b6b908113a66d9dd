"""The contract of ``adapters.rms.base.Rms``: what a suspended job leaves to others on its node; see rms_worlds."""

from __future__ import annotations

import pytest
from contract.rms_worlds import World

from rmsplugin.adapters.rms.base import JobState

#: Of n1, in each world.
CPUS = 2


def on_n1(world: World, cpus: int, share: float) -> int:
    """A job of so many CPUs and of this share of the memory of n1."""
    memory_mib = int(world.rms.snapshot().nodes["n1"].memory_mib * share)
    return world.submit("--nodelist=n1", f"--ntasks={cpus}", f"--mem={memory_mib}", gated=False)


def runs(world: World, *jobs: int) -> bool:
    return all(world.rms.job(job_id).state is JobState.RUNNING for job_id in jobs)


def suspended_beside(world: World, share: float) -> tuple[int, int]:
    """A suspended job of all CPUs of n1 and of this share of its memory; and one that runs on them instead."""
    first = on_n1(world, CPUS, share)
    world.wait_for(first, JobState.RUNNING)
    world.rms.suspend(first)
    second = on_n1(world, CPUS, 0.2)
    world.wait_for(second, JobState.RUNNING)
    return first, second


def test_a_suspended_job_leaves_its_cpus_and_keeps_its_memory(world: World) -> None:
    first, second = suspended_beside(world, 0.6)
    world.rms.suspend(second)
    third = on_n1(world, 1, 0.6)
    assert world.stays(lambda: world.rms.job(third).state is JobState.PENDING)
    world.rms.cancel(first)
    world.wait_for(third, JobState.RUNNING)
    assert world.rms.job(second).state is JobState.SUSPENDED


def test_a_resume_looks_for_no_free_cpus(world: World) -> None:
    first, second = suspended_beside(world, 0.2)
    world.rms.resume(first)
    assert world.stays(lambda: runs(world, first, second))


@pytest.mark.parametrize("leaves", ["suspend", "cancel"])
def test_cpus_are_given_away_under_a_job_that_was_resumed_beside_another_which_leaves(
    world: World, leaves: str
) -> None:
    """So a job may be resumed only once all that took its CPUs have left them."""
    first, second = suspended_beside(world, 0.2)
    world.rms.resume(first)
    third = on_n1(world, CPUS, 0.2)
    assert world.stays(lambda: world.rms.job(third).state is JobState.PENDING)
    getattr(world.rms, leaves)(second)
    world.wait_for(third, JobState.RUNNING)
    assert runs(world, first, third)
