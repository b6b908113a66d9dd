"""The contract of ``adapters.platform.base.Platform`` for jobs without VMs, on a simulated Slurm and a real one."""

from __future__ import annotations

import pytest
from contract.rms_worlds import World

from rmsplugin.adapters.platform.base import VMPower
from rmsplugin.adapters.platform.native.platform import NativePlatform
from rmsplugin.adapters.rms.base import JobState
from rmsplugin.errors import NotFoundError, OperationFailedError
from rmsplugin.model.capabilities import NATIVE
from rmsplugin.model.vm_names import vm_name

BOUND_S = 30.0


def platform(world: World, *partitions: str) -> NativePlatform:
    return NativePlatform(world.rms, partitions or ("plain",))


def power(world: World, job_id: int) -> VMPower | None:
    found = platform(world).list_vms("n1").get(vm_name(job_id, 0))
    return found.power if found else None


def test_a_job_is_there_from_its_start_until_its_end(world: World) -> None:
    waits = world.submit("--nodelist=n1")
    assert power(world, waits) is None and not platform(world).has_vm("n1", vm_name(waits, 0))
    world.rms.open_gate(waits)
    world.wait_for(waits, JobState.RUNNING)
    assert power(world, waits) is VMPower.RUNNING and platform(world).has_vm("n1", vm_name(waits, 0))
    assert not platform(world).has_vm("n2", vm_name(waits, 0))
    platform(world).stop("n1", vm_name(waits, 0), timeout_s=BOUND_S)
    platform(world).stop("n1", vm_name(waits, 0), timeout_s=BOUND_S)
    world.wait_for(waits, JobState.ENDED)
    assert not platform(world).has_vm("n1", vm_name(waits, 0))


def test_a_job_stands_still_where_it_is_and_goes_on_and_twice_is_as_once(world: World) -> None:
    job_id = world.started("--nodelist=n1")
    name = vm_name(job_id, 0)
    for _ in range(2):
        platform(world).pause("n1", name, timeout_s=BOUND_S)
        assert power(world, job_id) is VMPower.PAUSED
    world.stays(lambda: power(world, job_id) is VMPower.PAUSED, seconds=3)
    for _ in range(2):
        platform(world).unpause("n1", name, timeout_s=BOUND_S)
        assert power(world, job_id) is VMPower.RUNNING


def test_nobody_acts_on_a_job_that_is_not_there_or_not_a_vjob(world: World) -> None:
    job_id = world.started("--nodelist=n1")
    for of, node, name in (
        (platform(world), "n2", vm_name(job_id, 0)),
        (platform(world), "n1", vm_name(99999999, 0)),
        (platform(world), "n1", "somebody-elses"),
        (platform(world, "other"), "n1", vm_name(job_id, 0)),
    ):
        with pytest.raises(NotFoundError):
            of.pause(node, name, timeout_s=BOUND_S)
        of.stop(node, name, timeout_s=BOUND_S)
    assert world.rms.job(job_id).state is JobState.RUNNING


def test_what_is_denied_is_refused(world: World) -> None:
    native = platform(world)
    assert native.capabilities is NATIVE
    for ask in (
        lambda: native.save("n1", "vjob1-0", "/x", timeout_s=BOUND_S),
        lambda: native.checkpoint("n1", "vjob1-0", "/x", timeout_s=BOUND_S),
        lambda: native.migrate("vjob1-0", "n1", "n2", timeout_s=BOUND_S),
        lambda: native.set_memory("n1", "vjob1-0", 1, timeout_s=BOUND_S),
    ):
        with pytest.raises(OperationFailedError, match="native cannot"):
            ask()


def test_a_node_is_described_by_slurm(world: World) -> None:
    found = platform(world).host_info("n1")
    assert (found.cpus, found.memory_mib) == (2, world.rms.snapshot().nodes["n1"].memory_mib)
