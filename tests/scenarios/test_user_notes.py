"""What users are told beside their jobs: suspended, resumed, moved, lost; never who or what made it so."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import PATIENCE_S
from scenarios.world import World

from rmsplugin.engine.ledger.rows import OperationKind
from rmsplugin.errors import UnavailableError
from rmsplugin.model.vjob import VJobState

S, K = VJobState, OperationKind


@pytest.fixture
def world(directory: Path) -> Iterator[World]:
    world = World(directory, urgent=True, policy="mixed")
    slurm = world.settings.slurm.model_copy(update={"admin_comment": True})
    world.settings = world.settings.model_copy(update={"slurm": slurm})
    world.start_engine()
    yield world
    assert world.hypervisor.violations == []


def told(world: World, job: int, begin: str) -> str:
    """The note of a job once it begins so: notes are sent beside cycles."""
    deadline = time.monotonic() + PATIENCE_S
    while not (note := world.rms.comments.get(job, "")).startswith(f"rmsplugin: {begin}"):
        assert time.monotonic() < deadline, f"{note!r}; {world.events()[-3:]}"
        time.sleep(0.01)
        world.tick()
    return note


def test_each_step_of_its_life_is_told_and_a_start_is_not(world: World) -> None:
    job = world.running()
    world.tick()
    assert world.rms.comments == {}
    world.ask(job, K.SUSPEND)
    assert told(world, job, "suspended; its time limit stands still (").endswith(")")
    world.ask(job, K.RESUME)
    told(world, job, "resumed (")
    to = next(node for node in ("n1", "n2") if node != world.host(job))
    world.ask(job, K.MIGRATE, to)
    told(world, job, f"moved to {to} (")


def test_a_note_says_nothing_of_others(world: World) -> None:
    low = [world.running(cpus=2) for _ in range(3)]
    world.pass_time(400)
    high = world.submit(vms=1, cpus=2, partition="urgent")
    world.until(high, S.RUNNING)
    [victim] = [job for job in low if world.state(job) is S.SLEEPING]
    assert str(high) in world.context.ledger.vjob(victim).reason
    note = told(world, victim, "suspended")
    assert note.partition(" (")[0] == "rmsplugin: suspended; its time limit stands still"


def test_a_loss_is_told(world: World) -> None:
    job = world.running()
    world.context.ledger.update_vjob(job, script_started=True)
    node = world.host(job)
    world.kill_node(node)
    world.tick()
    world.requests().orders.node_gone(0, node)
    told(world, job, "lost its VMs, and begins again from its start (")


def test_while_slurm_does_not_answer_notes_wait_and_nothing_waits_for_them(world: World) -> None:
    job = world.running()
    for _ in range(3):
        world.rms.fail_next("comment", UnavailableError("slurmctld: connection refused"))
    world.ask(job, K.SUSPEND)
    world.until(job, S.SLEEPING)
    began = world.time
    told(world, job, "suspended")
    tried = [call for call in world.rms.calls if call[0] == "comment"]
    assert len(tried) == 4 and world.time - began >= 2 + 4 + 8, "less and less often"


def test_nobody_is_told_where_the_site_does_not_want_it(directory: Path) -> None:
    world = World(directory)
    job = world.sleeping()
    for _ in range(3):
        world.tick()
    assert world.state(job) is S.SLEEPING and world.rms.comments == {}
