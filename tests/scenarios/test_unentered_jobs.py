"""A job that slurmctld takes for being entered into the accounting for ever: an operator is told, once, what to do."""

from __future__ import annotations

import pytest
from scenarios.test_operations import events
from scenarios.world import World

from rmsplugin.adapters.rms.base import JobState
from rmsplugin.adapters.rms.slurm_commands import meaning
from rmsplugin.model.vjob import VJobState

S = VJobState
REFUSED = "Job update not available right now, the DB index is being set, try again in a bit for job 1"


def test_a_job_that_nobody_may_change_is_told_of_once_and_starts_when_it_may(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, other = world.submit(vms=1), world.submit(vms=1)
    open_gate = world.rms.open_gate

    def refuse(job_id: int) -> None:
        if job_id == job:
            raise meaning(REFUSED)
        open_gate(job_id)

    monkeypatch.setattr(world.rms, "open_gate", refuse)
    for _ in range(3):
        world.tick()
    assert "not-entered" not in events(world), "it may be being entered"
    for _ in range(200):
        world.tick()
    assert world.state(other) is S.RUNNING
    assert world.state(job) is S.WAITING, "it keeps no room"
    assert world.rms.job(job).state is JobState.PENDING
    [problem] = [each for each in world.cycle.report.problems if "entered into the accounting" in each]
    assert problem.startswith(f"vjob {job}: ")
    assert "stop slurmdbd" in problem
    assert events(world).count("not-entered: ") == 1
    monkeypatch.setattr(world.rms, "open_gate", open_gate)
    world.until(job, S.RUNNING, ticks=400)
    world.tick()
    assert not [each for each in world.cycle.report.problems if "entered into the accounting" in each]
    assert events(world).count("not-entered: ") == 1
