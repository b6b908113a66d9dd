"""A migration breaks off at its end: whatever it leaves at both ends, one copy of the VM runs."""

from __future__ import annotations

import pytest
from scenarios.test_node_gone import ticks
from scenarios.world import NODES, World

from rmsplugin.adapters.platform.base import VMPower
from rmsplugin.adapters.simulated.hypervisor.faults import Point
from rmsplugin.engine.ledger.rows import OperationKind
from rmsplugin.errors import UnavailableError
from rmsplugin.model.vjob import VJobState

S, K = VJobState, OperationKind
RUNNING, PAUSED = VMPower.RUNNING, VMPower.PAUSED


def broken_off(world: World, here: VMPower | None, there: VMPower | None, *, silent: str = "") -> tuple[int, str, str]:
    """A vjob whose migration ends so: how its VM is at its source, and at its destination, one of which is silent."""
    job = world.running()
    vm, source = f"vjob{job}-0", world.host(job)
    to = next(node for node in NODES if node != source)

    def leave() -> None:
        world.hypervisor.actions.pending.pop(("migrate", vm))
        for node, power in ((source, here), (to, there)):
            if power is None:
                world.hypervisor.machines.remove(node, vm)
            else:
                world.hypervisor.machines.become(node, vm, power)
        if silent:
            world.hypervisor.set_reachable({"source": source, "destination": to}[silent], False)
        raise UnavailableError("its libvirtd was killed")

    world.hypervisor.hook_next("migrate", Point.DURING, leave, vm=vm)
    world.ask(job, K.MIGRATE, to)
    ticks(world, 2)
    return job, source, to


def runs_on(world: World, job: int, node: str) -> None:
    """Its VM exists once, runs, has lost nothing, and the ledger knows where."""
    [vm] = world.context.ledger.vms(job)
    assert world.hypervisor.where(vm.name) == [node]
    assert world.hypervisor.list_vms(node)[vm.name].power is RUNNING
    assert (vm.host, vm.destination) == (node, "")
    assert (world.state(job), world.context.ledger.vjob(job).losses) == (S.RUNNING, 0)


@pytest.mark.parametrize(
    ("here", "there", "kept_at"),
    [
        (PAUSED, RUNNING, "destination"),
        (PAUSED, PAUSED, "source"),
        (PAUSED, None, "source"),
        (None, PAUSED, "destination"),
        (None, RUNNING, "destination"),
        (RUNNING, PAUSED, "source"),
        (RUNNING, RUNNING, "source"),  # only a post-copy that has not begun can leave this
    ],
)
def test_of_two_copies_the_newer_one_is_kept_and_runs(
    world: World, here: VMPower | None, there: VMPower | None, kept_at: str
) -> None:
    job, source, to = broken_off(world, here, there)
    runs_on(world, job, source if kept_at == "source" else to)
    assert bool(world.events("copy-ended")) is (here is not None and there is not None)
    assert bool(world.events("migrated")) is (kept_at == "destination")


def test_a_copy_that_is_just_ending_at_the_destination_is_not_taken_for_the_newer_one(world: World) -> None:
    job, source, to = broken_off(world, PAUSED, VMPower.ENDING)
    vm = f"vjob{job}-0"
    assert source in world.hypervisor.where(vm)
    world.hypervisor.machines.remove(to, vm)
    ticks(world, 80)
    runs_on(world, job, source)


@pytest.mark.parametrize("there", [RUNNING, PAUSED, None])
def test_while_the_destination_is_silent_a_paused_source_waits(world: World, there: VMPower | None) -> None:
    job, source, to = broken_off(world, PAUSED, there, silent="destination")
    ticks(world, 10)
    vm = f"vjob{job}-0"
    assert world.hypervisor.list_vms(source)[vm].power is PAUSED, "it may be running there"
    assert (world.state(job), world.context.ledger.vms(job)[0].destination) == (S.RUNNING, to)
    world.hypervisor.set_reachable(to, True)
    ticks(world, 80)
    runs_on(world, job, to if there is RUNNING else source)


def test_a_paused_source_runs_on_once_its_silent_destination_is_said_to_be_gone(world: World) -> None:
    job, source, to = broken_off(world, PAUSED, PAUSED, silent="destination")
    world.kill_node(to)
    ticks(world, 5)
    world.requests().orders.node_gone(0, to)
    ticks(world, 80)
    runs_on(world, job, source)


def test_what_is_paused_at_the_destination_runs_on_once_its_silent_source_is_said_to_be_gone(world: World) -> None:
    job, source, to = broken_off(world, PAUSED, PAUSED, silent="source")
    ticks(world, 10)
    assert world.hypervisor.list_vms(to)[f"vjob{job}-0"].power is PAUSED, "it may be running where it came from"
    world.kill_node(source)
    world.requests().orders.node_gone(0, source)
    ticks(world, 80)
    runs_on(world, job, to)


def test_a_copy_on_a_silent_destination_is_ended_when_that_answers_again(world: World) -> None:
    job, source, to = broken_off(world, RUNNING, PAUSED, silent="destination")
    vm = f"vjob{job}-0"
    assert (world.host(job), world.context.ledger.vms(job)[0].destination) == (source, "")
    assert sorted(world.hypervisor.where(vm)) == sorted([source, to])
    world.hypervisor.set_reachable(to, True)
    ticks(world, 80)
    runs_on(world, job, source)
    assert f"second copy of it on {to}" in world.events("copy-ended")[0]


def test_half_a_listing_lets_no_second_copy_run(world: World) -> None:
    job, source, to = broken_off(world, RUNNING, PAUSED, silent="source")
    list_vms = world.hypervisor.list_vms

    def without(node: str) -> dict[str, object]:
        return {} if node == source else dict(list_vms(node))

    world.hypervisor.list_vms = without  # type: ignore[method-assign, assignment]
    world.hypervisor.set_reachable(source, True)
    ticks(world, 5)
    assert list_vms(to)[f"vjob{job}-0"].power is PAUSED
    del world.hypervisor.list_vms  # type: ignore[method-assign]
    ticks(world, 80)
    runs_on(world, job, source)
