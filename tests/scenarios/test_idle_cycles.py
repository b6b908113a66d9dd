"""A cycle in which nothing has changed asks the ledger nothing, and Slurm one question."""

from __future__ import annotations

import pytest
from scenarios.world import CPUS, World

from rmsplugin.latency import goes_first
from rmsplugin.model.vjob import VJobState


def statements(world: World, ticks: int) -> list[str]:
    """What the ledger's database is asked in so many cycles."""
    found: list[str] = []
    connection = world.context.ledger._db.conn
    connection.set_trace_callback(found.append)
    for _ in range(ticks):
        world.tick(10)
    connection.set_trace_callback(None)
    return found


def test_with_nothing_changed_the_ledger_is_neither_read_nor_written(world: World) -> None:
    jobs = [world.running(), world.running(vms=2)]
    for _ in range(12):  # the sentences and samples of the first ones are news
        world.tick(10)
    assert statements(world, 5) == []
    world.rms.finish(jobs[0])
    assert statements(world, 10), "what has changed is read and written"


@pytest.mark.parametrize(("running", "waiting"), [(0, 0), (1, 0), (3, 1)], ids=["idle", "running", "waiting"])
def test_with_nothing_changed_slurm_is_looked_at_once(running: int, waiting: int, world: World) -> None:
    """tests/unit/adapters/test_slurm_questions.py counts the processes of such a look."""
    assert len(world.sizes) == 3
    whole = {"cpus": CPUS, "time_limit_s": 86400.0}
    jobs = [world.running(**whole) for _ in range(running)]
    jobs += [world.submit(vms=1, **whole) for _ in range(waiting)]
    for _ in range(12):
        world.tick(3)
    world.rms.calls.clear()
    for _ in range(5):
        world.tick(3)
    assert world.states(*jobs) == [*running * [VJobState.RUNNING], *waiting * [VJobState.WAITING]]
    assert world.rms.calls == 5 * [("snapshot", "")]


def test_a_cycle_goes_first_where_threads_wait_for_the_ledger(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """tests/unit/engine/test_fair_lock.py shows what comes of it."""
    found: list[bool] = []
    snapshot = world.context.rms.snapshot
    monkeypatch.setattr(world.context.rms, "snapshot", lambda: found.append(goes_first()) or snapshot())
    world.tick()
    assert found == [True]
    assert not goes_first()
