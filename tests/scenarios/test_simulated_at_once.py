"""What is simulated bears several threads: engines look, and operations act, while a test changes the cluster."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from at_once import at_once
from patience import PATIENCE_S
from scenarios.world import World

from rmsplugin.adapters.nodes.base import Template, TemplateUse
from rmsplugin.adapters.platform.base import VMPower
from rmsplugin.adapters.simulated.hypervisor.faults import Point
from rmsplugin.adapters.simulated.hypervisor.files import SimulatedState
from rmsplugin.adapters.simulated.rms.powering import Stage


@pytest.fixture
def world(directory: Path) -> Iterator[World]:
    world = World(directory)
    yield world
    world.close()


def test_vms_come_and_go_while_all_are_looked_at(world: World) -> None:
    job = world.running()
    host = world.host(job)
    other = next(node for node in world.sizes if node != host)
    spec = world.hypervisor.machines.seen()[host][f"vjob{job}-0"].spec

    def come_and_go(number: int) -> None:
        world.hypervisor.boot(other, replace(spec, name=f"vjob{number + 100}-0"), timeout_s=60)
        world.hypervisor.stop(other, f"vjob{number + 100}-0", timeout_s=60)

    def look(_number: int) -> None:
        there = world.hypervisor.machines.seen()
        assert sum(len(vms) for vms in there.values()) in (1, 2)
        assert [vm.power for vm in there[host].values()] == [VMPower.RUNNING]

    at_once(come_and_go, look, lambda _: world.nodes.end_room(other, 0), times=500)


def test_files_of_vms_come_and_go_while_they_are_listed(world: World) -> None:
    world.files.mark("n1", "/store", "m")
    for number in range(300):
        world.nodes.put_config("n1", f"vjob{number}-1", b"")

    def come_and_go(number: int) -> None:
        world.nodes.put_config("n1", f"vjob{number}-0", b"")
        world.nodes.drop_config("n1", f"vjob{number - 1}-0")

    at_once(come_and_go, lambda _: world.nodes.list_files("n1"), lambda _: world.nodes.configs("n1"))
    assert len(world.nodes.configs("n1")) == 301


def test_templates_are_made_while_they_are_counted(world: World) -> None:
    def make(number: int) -> None:
        vm, template = f"vjob{number}-0", Template(f"{number:032x}", "default")
        assert world.nodes.use_template("n1", vm, template, "", "", b"") is TemplateUse.MAKE
        world.files.put("n1", world.nodes.templates._copy(vm), SimulatedState(vm, 1, 1))
        assert world.nodes.settle_template("n1", vm, template)

    at_once(make, lambda _: world.nodes.check("n1"))
    assert world.nodes.check("n1").templates == (1000, 0)


def test_jobs_come_while_one_is_looked_for(world: World) -> None:
    last = [submitted(world) for _ in range(300)][-1]
    at_once(lambda _: submitted(world), lambda _: world.rms._find(last), times=500)
    assert len(world.rms.snapshot().jobs) == 800


def submitted(world: World) -> int:
    """A job for which there is no room."""
    return world.rms.submit(user="u", uid=1, partition="plain", cpus=1 << 20, memory_mib=1)


def test_a_hook_before_a_call_and_the_end_of_a_job_are_told_without_a_lock(world: World) -> None:
    """A hook asks Slurm, and an epilog asks for VMs: with locks held, two threads could wait for each other."""
    others: list[bool] = []

    def others_go_on() -> None:
        def look() -> None:
            world.hypervisor.list_vms("n1")
            world.rms.snapshot()

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        thread.join(PATIENCE_S)
        others.append(not thread.is_alive())

    job = world.running()
    host = world.host(job)
    world.hypervisor.hook_next("stop", Point.BEFORE, others_go_on)
    world.hypervisor.stop(host, f"vjob{job}-0", timeout_s=60)
    world.rms._on_end = lambda _: others_go_on()
    world.rms.requeue(job)
    world.rms.cancel(job)
    world.rms.powering.when_resumed = lambda _: others_go_on()
    world.rms.powering.of(host).stage = Stage.OFF
    world.rms.power_up(host)
    assert others == [True] * 4
