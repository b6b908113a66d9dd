"""Platforms that cannot do everything: nothing is planned, begun or asked of them that they cannot do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from scenarios.world import World
from unit.queues import Queue, nodes

from rmsplugin.adapters.platform.base import ContainerImage as ContainerOnPlatform
from rmsplugin.engine.context.machines import has_disk, spec_of
from rmsplugin.engine.execute.identity import account_of, site_directories
from rmsplugin.engine.ledger.rows import OperationKind
from rmsplugin.errors import RefusedError
from rmsplugin.model.action import ActionKind
from rmsplugin.model.capabilities import EVERYTHING, Capabilities
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.search import Search
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.prepared import prepare
from rmsplugin.proposing.propose import propose
from rmsplugin.settings.guests import ContainerImage, Mount

S, K = VJobState, OperationKind
WITHOUT_MIGRATIONS = replace(EVERYTHING, migrate=False)


@contextmanager
def lesser(directory: Path, capabilities: Capabilities, **options: object) -> Iterator[World]:
    world = World(directory, capabilities=capabilities, **options)  # type: ignore[arg-type]
    yield world
    # A plan that is rejected harms nobody, but nobody starts by it either: none is to be proposed in the first place.
    assert "no-context-switch" not in {event.kind for event in world.context.ledger.events(limit=100_000)}
    assert world.hypervisor.violations == []
    world.close()


def asked(world: World) -> set[str]:
    """What the engine has asked of the platform."""
    return {call[0] for call in world.hypervisor.calls}


def planned(world: World) -> set[str]:
    plans = world.context.ledger.plans
    return {step.kind for plan in plans.plans(1000) for step in plans.steps(plan.id)}


def running(world: World, count: int, **options: object) -> list[int]:
    jobs = [world.submit(**{"vms": 1, "cpus": 1, "memory_mib": 256, **options}) for _ in range(count)]  # type: ignore[arg-type]
    for job in jobs:
        world.until(job, S.RUNNING)
        world.context.ledger.update_vjob(job, script_started=True)
    return jobs


@pytest.mark.parametrize("capabilities", [EVERYTHING, WITHOUT_MIGRATIONS], ids=["all", "no migrations"])
def test_a_node_is_left_by_a_migration_or_where_there_is_none_asleep(
    directory: Path, capabilities: Capabilities
) -> None:
    with lesser(directory, capabilities) as world:
        [job] = running(world, 1)
        [vm] = world.context.ledger.vms(job)
        world.rms.set_node(vm.host, draining=True, reason="new disk")
        for _ in range(30):
            world.tick(5.0)
        [moved] = world.context.ledger.vms(job)
        assert moved.host not in ("", vm.host) and world.state(job) is S.RUNNING
        assert world.context.ledger.vjob(job).losses == 0
        assert asked(world) & {"migrate", "save"} == ({"migrate"} if capabilities.migrate else {"save"})


@pytest.mark.parametrize("capabilities", [EVERYTHING, WITHOUT_MIGRATIONS], ids=["all", "no migrations"])
def test_room_is_made_by_migrations_only_where_there_are_any(directory: Path, capabilities: Capabilities) -> None:
    with lesser(directory, capabilities, policy="mixed", nodes={"n1": (2, 1024), "n2": (2, 1024)}) as world:
        four = running(world, 4)
        at = {world.context.ledger.vms(job)[0].host: job for job in four}
        for job in at.values():  # each node is half free, and a vjob that wants a whole one waits for a migration
            world.rms.cancel(job)
            world.until(job, S.TERMINATED)
        world.pass_time(400)
        wide = world.submit(vms=1, cpus=2, memory_mib=256)
        for _ in range(10):
            world.tick(5.0)
        assert (world.state(wide) is S.RUNNING) == capabilities.migrate
        assert ("migrate" in planned(world)) == ("migrate" in asked(world)) == capabilities.migrate


def test_what_the_platform_cannot_do_is_refused_by_name_to_those_who_ask_for_it(directory: Path) -> None:
    nothing = Capabilities(*[False] * 8)
    with lesser(directory, nothing) as world:
        [job] = running(world, 1)
        vjob = world.context.ledger.vjob(job)
        requests = world.requests()
        with pytest.raises(RefusedError, match="libvirt cannot save a VM"):
            requests.suspend(0, vjob.display_id)
        with pytest.raises(RefusedError, match="libvirt cannot move a VM that runs"):
            requests.migrate(0, vjob.display_id, "", "")
        assert world.state(job) is S.RUNNING


def test_nobody_makes_way_or_starts_from_a_template_where_nothing_can_be_saved(directory: Path) -> None:
    nothing = Capabilities(*[False] * 8)
    with lesser(directory, nothing, urgent=True, policy="mixed", templates=True) as world:
        low = running(world, 3, cpus=2)
        world.pass_time(4000)
        world.submit(vms=1, cpus=2, partition="urgent")
        for _ in range(10):
            world.tick(30.0)
        assert [world.state(job) for job in low] == [S.RUNNING] * 3
        assert not asked(world) & {"save", "migrate", "pause", "checkpoint", "restore", "set_memory", "template_key"}


@pytest.mark.parametrize("policy", ["rjsp", "mixed", "slowdown"])
def test_a_plan_that_needs_what_the_platform_lacks_is_rejected(policy: str) -> None:
    halves = Queue(*nodes(2, cpus=2)).add("a", "n1").add("b", "n2").add("wide", cpus=2).configuration
    search = Search(time_limit_s=3600, deterministic_limit=0.02)
    able = prepare(halves, ProposalParameters("rjsp", search=search), propose)
    assert able.proposal is not None
    assert ActionKind.MIGRATE in {action.kind for action in able.proposal.plan.actions()}
    unable = prepare(halves, ProposalParameters(policy, search=search, capabilities=WITHOUT_MIGRATIONS), propose)
    acts = [] if unable.proposal is None else [action.kind for action in unable.proposal.plan.actions()]
    assert ActionKind.MIGRATE not in acts
    assert unable.proposal is not None or "the platform has no migrate" in unable.fault


def test_a_vjob_goes_on_only_where_it_was_saved_where_the_platform_restores_nowhere_else(directory: Path) -> None:
    with lesser(directory, replace(EVERYTHING, elsewhere=False)) as world:
        [job] = running(world, 1)
        vjob = world.context.ledger.vjob(job)
        world.requests().suspend(0, vjob.display_id)
        world.until(job, S.SLEEPING)
        [vm] = world.context.ledger.vms(job)
        other = next(name for name in ("n1", "n2") if name != vm.image_node)
        with pytest.raises(RefusedError, match="libvirt cannot restore a VM on another node than the one where it was"):
            world.requests().resume(0, vjob.display_id, other)
        assert world.state(job) is S.SLEEPING
        world.requests().resume(0, vjob.display_id, "")
        world.until(job, S.RUNNING)
        assert world.context.ledger.vms(job)[0].host == vm.image_node


@pytest.mark.parametrize("own_kernel", [True, False])
def test_a_clock_is_set_only_where_it_is_the_guests_own(directory: Path, own_kernel: bool) -> None:
    with lesser(directory, replace(EVERYTHING, own_kernel=own_kernel)) as world:
        [job] = running(world, 1)
        display_id = world.context.ledger.vjob(job).display_id
        world.requests().suspend(0, display_id)
        world.until(job, S.SLEEPING)
        world.requests().resume(0, display_id, "")
        world.until(job, S.RUNNING)
        [vm] = world.context.ledger.vms(job)
        assert (world.guests.guests[vm.address].clock_set > 0) == own_kernel
        assert "clock-not-set" not in {event.kind for event in world.context.ledger.events(limit=1000)}


def test_where_vms_have_the_nodes_kernel_the_platform_says_what_they_have_used(directory: Path) -> None:
    with lesser(directory, replace(EVERYTHING, own_kernel=False)) as world:
        [job] = running(world, 1)
        [vm] = world.context.ledger.vms(job)
        world.hypervisor.set_demand(vm.name, 1.0)
        world.hypervisor.set_working_set(vm.name, 100)
        for _ in range(10):
            world.tick(10.0)
        display_id = world.context.ledger.vjob(job).display_id
        [usage] = world.requests().usage(0, display_id)
        assert usage["cpu_s"] >= 90 and usage["memory_used_mib"] == 100
        world.requests().suspend(0, display_id)
        world.until(job, S.SLEEPING)
        [asleep] = world.requests().usage(0, display_id)
        assert asleep["cpu_s"] >= usage["cpu_s"], "what it had used when it was saved is known"


CONTAINERS = ContainerImage(kind="container", reference="localhost/guest:1")


@pytest.mark.parametrize(
    ("mounts", "directories"),
    [
        ((), ()),
        (
            (Mount(source="s:/home", target="/home"), Mount(source="s:/x", target="/x", options="ro")),
            (("/home", True), ("/x", False)),
        ),
        ((Mount(source="s:{home}", target="{home}"),), (("HOME", True),)),
    ],
)
def test_a_container_has_the_directories_of_its_node_that_vms_would_mount(
    directory: Path, mounts: tuple[Mount, ...], directories: tuple[tuple[str, bool], ...]
) -> None:
    with lesser(directory, EVERYTHING) as world:
        [job] = running(world, 1)
        vjob, [vm] = world.context.ledger.vjob(job), world.context.ledger.vms(job)
        guest = world.context.settings.guest.model_copy(update={"mounts": mounts})
        settings = world.context.settings.model_copy(update={"guest": guest, "image": {"default": CONTAINERS}})
        home = account_of(vjob, None).home
        wanted = tuple((home if path == "HOME" else path, writable) for path, writable in directories)
        image = spec_of(settings, 1, vjob, vm, site_directories(settings, vjob)).image
        assert image == ContainerOnPlatform("localhost/guest:1", wanted)
        assert not has_disk(settings, vjob)
        of_vms = world.context.settings.model_copy(update={"guest": guest})
        assert site_directories(of_vms, vjob) == (), "VMs mount by themselves"


def test_a_container_does_not_start_without_the_home_of_a_user_whom_nobody_knows(directory: Path) -> None:
    with lesser(directory, EVERYTHING) as world:
        [job] = running(world, 1)
        stranger = replace(world.context.ledger.vjob(job), uid=4_000_000_000, account="")
        mounts = (Mount(source="s:{home}", target="{home}"),)
        guest = world.context.settings.guest.model_copy(update={"mounts": mounts})
        settings = world.context.settings.model_copy(update={"guest": guest, "image": {"default": CONTAINERS}})
        with pytest.raises(RefusedError, match="users must be known there"):
            site_directories(settings, stranger)
