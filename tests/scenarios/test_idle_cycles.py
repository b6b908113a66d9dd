"""A cycle in which nothing has changed asks the ledger nothing: it has read all that there is."""

from __future__ import annotations

from scenarios.world import World


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
