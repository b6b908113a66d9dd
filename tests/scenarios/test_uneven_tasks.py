"""VMs of uneven tasks: each has the CPUs and the memory of its own tasks, from the boot on, and counts so."""

from __future__ import annotations

from typing import Any

from scenarios.world import CPUS, MEMORY_MIB, World

from rmsplugin.accounts import Account
from rmsplugin.engine.capacity.traffic import Traffic
from rmsplugin.engine.execute.identity import guest_config
from rmsplugin.engine.execute.usage import view
from rmsplugin.engine.ledger.rows import OperationKind as K
from rmsplugin.engine.serve.views import vjob_views, vm_views
from rmsplugin.model.vjob import VJobState as S

#: Three tasks of 300 MiB in two VMs.
UNEVEN: dict[str, Any] = {"vms": 2, "cpus": 2, "memory_mib": 600, "small": (1, 300)}


def sizes(world: World, job: int) -> list[tuple[int, int]]:
    """CPUs and memory of the VMs of a vjob that run, as they were booted or restored, by number."""
    specs = {name: vm.spec for vms in world.hypervisor.machines.vms.values() for name, vm in vms.items()}
    return [(specs[f"vjob{job}-{index}"].cpus, specs[f"vjob{job}-{index}"].memory_mib) for index in range(2)]


def used(world: World) -> tuple[float, int, int]:
    """CPUs, memory without the hypervisors' part, and VMs that are booked on all nodes."""
    world.tick()
    assert world.cycle.seen is not None
    hosts = world.capacities().hosts(world.cycle.seen).values()
    overhead_mib = world.settings.nodes.memory_overhead_mib
    vms = sum(len(host.parts) for host in hosts)
    memory_mib = sum(host.used.memory_mib for host in hosts) - vms * overhead_mib
    return sum(host.used.cpus for host in hosts), memory_mib, vms


def test_each_vm_has_the_size_of_its_tasks_when_it_starts_sleeps_and_moves(world: World) -> None:
    job = world.submit(**UNEVEN)
    world.until(job, S.RUNNING)
    assert sizes(world, job) == [(2, 600), (1, 300)]
    assert used(world) == (3, 900, 2)
    world.ask(job, K.SUSPEND)
    world.until(job, S.SLEEPING)
    world.ask(job, K.RESUME)
    world.until(job, S.RUNNING)
    assert sizes(world, job) == [(2, 600), (1, 300)]
    assert used(world) == (3, 900, 2)


def test_the_rest_of_a_node_is_free_for_others(world: World) -> None:
    """Six CPUs hold two such vjobs; with VMs of one size one would have to wait."""
    jobs = [world.submit(**UNEVEN), world.submit(**UNEVEN)]
    assert (CPUS, MEMORY_MIB) == (2, 1024)
    for job in jobs:
        world.until(job, S.RUNNING)
    assert used(world) == (6, 1800, 4)
    assert max(len(vms) for vms in world.hypervisor.machines.vms.values()) == 2


def test_its_guests_and_users_are_told_what_each_vm_has(world: World) -> None:
    job = world.submit(**UNEVEN)
    world.until(job, S.RUNNING)
    context = world.context
    vjob, vms = context.ledger.vjob(job), context.ledger.vms(job)
    account = Account("alice", 2001, 2001, "", "/home/alice", "/bin/sh")
    files = [
        guest_config(context.settings, context.ledger, context.slurm, vjob, vm, account, "front1").files()["vjob"]
        for vm in vms
    ]
    for text, cpus, memory_mib in zip(files, (2, 1), (600, 300), strict=True):
        assert {f"cpus={cpus}", f"memory_mib={memory_mib}", "all_cpus=2,1"} <= set(str(text).splitlines())
    assert [(vm["cpus"], vm["memory_mib"]) for vm in vm_views(context.ledger, Traffic())["vms"]] == [(2, 600), (1, 300)]
    (shown,) = vjob_views(context.ledger, context.clock, ended=False, limit=10)["vjobs"]
    assert (shown["vms"], shown["cpus"], shown["memory_mib"]) == (2, 2, 600)
    usage = view(context.ledger, context.clock, vjob)
    assert (usage["cpus_total"], usage["memory_total_mib"]) == (3, 900)
