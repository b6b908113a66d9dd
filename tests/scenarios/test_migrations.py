"""A VM writes its memory faster than a migration can send it: it is slowed down, sent away as it is, or left alone."""

from __future__ import annotations

import pytest
from scenarios import test_node_gone
from scenarios.test_node_gone import ticks
from scenarios.world import NODES, KilledError, World

from rmsplugin.adapters.platform.base import Converge, VMPower
from rmsplugin.adapters.simulated.hypervisor.faults import Point
from rmsplugin.engine.ledger.rows import OperationKind
from rmsplugin.errors import RefusedError
from rmsplugin.model.vjob import VJobState

S, K = VJobState, OperationKind


def writing(world: World, converge: Converge) -> tuple[int, str, str]:
    """A running vjob of one VM that writes its memory fast, its node, and another one."""
    job = world.running()
    world.hypervisor.converge = converge
    world.hypervisor.set_writing(f"vjob{job}-0", True)
    return job, world.host(job), next(node for node in reversed(NODES) if node != world.host(job))


def begun_again(world: World, job: int, dead: str) -> None:
    """It has been lost once, and runs, once, from the start."""
    for _ in range(20):
        if world.context.ledger.vjob(job).losses:
            break
        ticks(world, 1)
    test_node_gone.begun_again(world, job, dead)


def broken_off(world: World, job: int, to: str, how: object) -> None:
    """Ask for its migration, and let ``how`` happen once that has gone over to post-copy."""
    world.hypervisor.hook_next("migrate", Point.HANDED_OVER, how, vm=f"vjob{job}-0")  # type: ignore[arg-type]
    world.ask(job, K.MIGRATE, to)
    ticks(world, 1)


@pytest.mark.parametrize("converge", ["auto-converge", "post-copy"])
def test_it_arrives_where_something_is_done_for_it(world: World, converge: Converge) -> None:
    job, _, to = writing(world, converge)
    world.ask(job, K.MIGRATE, to)
    ticks(world, 2)
    assert (world.host(job), world.hypervisor.where(f"vjob{job}-0")) == (to, [to])
    assert world.context.ledger.vjob(job).losses == 0


def test_it_is_aborted_when_its_time_is_over_and_runs_on_where_it_was(world: World) -> None:
    job, here, to = writing(world, "abort")
    began = world.time
    world.ask(job, K.MIGRATE, to)
    ticks(world, 2)
    bound_s = world.settings.hypervisor.migrate_timeout_s
    assert bound_s <= world.time - began < bound_s + 60
    assert world.hypervisor.list_vms(here)[f"vjob{job}-0"].power is VMPower.RUNNING
    assert (world.state(job), world.host(job)) == (S.RUNNING, here)
    assert not world.context.ledger.vms(job)[0].destination
    assert "did not end within" in world.events("migrate-failed")[0]


def test_a_drained_node_is_left_asleep_by_what_does_not_migrate_in_time(world: World) -> None:
    job, here, _ = writing(world, "abort")
    world.rms.set_node(here, draining=True)
    for _ in range(20):
        ticks(world, 1)
        if world.hypervisor.where(f"vjob{job}-0") != [here]:
            break
    assert world.events("migrate-failed")
    assert world.hypervisor.where(f"vjob{job}-0") == []
    world.until(job, S.RUNNING)  # where there is room
    assert world.host(job) != here
    assert world.context.ledger.vjob(job).losses == 0


def test_a_destination_that_dies_in_a_post_copy_costs_a_new_start_once_it_is_proved(world: World) -> None:
    job, here, to = writing(world, "post-copy")
    broken_off(world, job, to, lambda: world.kill_node(to))
    ticks(world, 30)
    assert world.context.ledger.vjob(job).losses == 0
    assert world.state(job) is S.RUNNING
    # Half of it is here, and must not be let run: the other half may be running there.
    assert world.hypervisor.list_vms(here)[f"vjob{job}-0"].power is VMPower.HALF
    world.requests().orders.node_gone(0, to)
    begun_again(world, job, to)


def test_a_post_copy_that_its_destination_does_not_survive_costs_a_new_start(world: World) -> None:
    job, _, to = writing(world, "post-copy")
    broken_off(world, job, to, lambda: world.hypervisor.settle(f"vjob{job}-0", succeed=False))
    world.hypervisor.converge = "abort"
    begun_again(world, job, "")
    assert "lost it in a post-copy" in world.events("state-lost")[0]


def test_a_source_that_dies_in_a_post_copy_costs_a_new_start_once_it_is_proved(world: World) -> None:
    job, here, to = writing(world, "post-copy")
    broken_off(world, job, to, lambda: world.kill_node(here))
    ticks(world, 10)
    assert world.context.ledger.vjob(job).losses == 0
    world.requests().orders.node_gone(0, here)
    begun_again(world, job, here)


@pytest.mark.parametrize("whole", [True, False])
def test_an_engine_that_is_killed_in_a_post_copy_finds_what_has_become_of_it(world: World, whole: bool) -> None:
    job, _, to = writing(world, "post-copy")

    def die() -> None:
        world.life.dead = True
        raise KilledError

    world.settled = 1 if whole else 0  # what the hypervisor goes on with ends well, or not
    broken_off(world, job, to, die)
    ticks(world, 5)
    if not whole:
        begun_again(world, job, "")
        return
    assert (world.host(job), world.hypervisor.where(f"vjob{job}-0")) == (to, [to])
    assert world.context.ledger.vjob(job).losses == 0
    assert not world.context.ledger.vms(job)[0].destination


def test_half_a_vm_is_not_saved_and_its_vjob_begins_again_when_its_other_half_is_seen_to_be_lost(world: World) -> None:
    job, here, to = writing(world, "post-copy")
    broken_off(world, job, to, lambda: world.kill_node(to))
    with pytest.raises(RefusedError, match="a migration of it has not ended"):
        world.executor.begin(job, K.SUSPEND, "asked")
    world.rms.set_node(here, draining=True)  # it would be saved, if it could not migrate
    ticks(world, 5)
    assert world.state(job) is S.RUNNING
    world.revive_node(to)
    ticks(world, 5)
    begun_again(world, job, here)
