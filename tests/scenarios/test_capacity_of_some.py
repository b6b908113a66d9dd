"""The capacity of some hosts is that which they have among all: a start asks about its own hosts alone."""

from __future__ import annotations

from itertools import chain, combinations

from scenarios.test_absence import ticks
from scenarios.test_old_ledger import running_since
from scenarios.world import World

from rmsplugin.engine.observe.strays import stray_nodes
from rmsplugin.model.vm_phase import VMPhase


def same_among_all(world: World) -> None:
    """Compare the hosts of each set with the same ones among all."""
    seen, capacities = world.cycle.seen, world.capacities()
    assert seen is not None
    whole = capacities.hosts(seen)
    subsets = chain.from_iterable(combinations(whole, count) for count in range(len(whole) + 1))
    for some in subsets:
        assert capacities.hosts(seen, some) == {name: host for name, host in whole.items() if name in some}


def test_hosts_with_vms_that_run_and_one_that_arrives_and_leaves(world: World) -> None:
    for _ in range(2):
        world.running()
    same_among_all(world)
    job = world.running()
    vm = world.context.ledger.vms(job)[0]
    other = next(node for node in world.sizes if node != vm.host)
    world.context.ledger.enter_phase(vm.name, VMPhase.MIGRATING, destination=other)
    same_among_all(world)


def test_hosts_with_vms_that_the_ledger_does_not_know(world: World) -> None:
    running_since(world, 2)
    ticks(world, 1)
    assert world.cycle.seen is not None
    assert stray_nodes(world.context.ledger, world.cycle.seen)
    same_among_all(world)
