"""VMs are larger than what was requested, stay as they were booted, and what was used in them is kept."""

from __future__ import annotations

from typing import Any

from scenarios.world import World

from rmsplugin.adapters.guests.used import Used
from rmsplugin.engine.ledger.rows import OperationKind as K
from rmsplugin.model.vjob import VJobState as S

REQUEST_MIB, OVERHEAD_MIB = 256, 100
SIZE_MIB = REQUEST_MIB + OVERHEAD_MIB + REQUEST_MIB // 64 + REQUEST_MIB // 8


def set_overhead(world: World, overhead_mib: int) -> None:
    """The engine is restarted with another setting."""
    image = world.settings.image["default"].model_copy(update={"overhead_mib": overhead_mib})
    world.settings = world.settings.model_copy(update={"image": {"default": image}})
    world.start_engine()


def specs(world: World) -> dict[str, Any]:
    """The VMs that run, as they were booted or restored."""
    return {name: vm.spec for vms in world.hypervisor.machines.vms.values() for name, vm in vms.items()}


def used_mib(world: World) -> int:
    """What is booked on all nodes, without the hypervisors' part."""
    world.tick()
    assert world.cycle.seen is not None
    hosts = world.capacities().hosts(world.cycle.seen).values()
    overhead_mib = world.settings.nodes.memory_overhead_mib
    return sum(host.used.memory_mib - len(host.parts) * overhead_mib for host in hosts)


def test_a_vm_keeps_the_size_with_which_it_was_booted_whatever_the_setting_says_later(world: World) -> None:
    set_overhead(world, OVERHEAD_MIB)
    job = world.submit(vms=1, memory_mib=REQUEST_MIB)
    world.until(job, S.RUNNING)
    name = f"vjob{job}-0"
    assert specs(world)[name].memory_mib == used_mib(world) == SIZE_MIB
    set_overhead(world, 0)
    assert used_mib(world) == SIZE_MIB
    other = world.submit(vms=1, memory_mib=REQUEST_MIB)
    world.until(other, S.RUNNING)
    assert specs(world)[f"vjob{other}-0"].memory_mib == REQUEST_MIB
    assert used_mib(world) == SIZE_MIB + REQUEST_MIB
    world.ask(job, K.SUSPEND)
    world.until(job, S.SLEEPING)
    world.ask(job, K.RESUME)
    world.until(job, S.RUNNING)
    assert specs(world)[name].memory_mib == SIZE_MIB


def test_what_was_used_is_asked_before_vms_end_and_before_they_sleep(world: World) -> None:
    job = world.submit(vms=1, memory_mib=REQUEST_MIB)
    world.until(job, S.RUNNING)
    ledger = world.context.ledger
    ledger.update_vjob(job, script_started=True)
    (vm,) = ledger.vms(job)
    for used in (Used(cpu_us=1), Used(cpu_us=2)):
        world.guests.guests[vm.address].used = used
        world.ask(job, K.SUSPEND)
        world.until(job, S.SLEEPING)
        assert [each.used for each in ledger.usage.of_vjob(job)] == [used]
        world.ask(job, K.RESUME)
        world.until(job, S.RUNNING)
    world.guests.guests[vm.address].used = Used(cpu_us=3)
    world.rms.cancel(job)
    world.until(job, S.TERMINATED)
    assert [each.used.cpu_us for each in ledger.usage.of_vjob(job)] == [3]
