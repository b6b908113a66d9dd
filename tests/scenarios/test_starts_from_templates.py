"""VMs that start from templates: when all goes well, when something does not, and when the engine is killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scenarios.neighbours import Silence, Way
from scenarios.test_engine_killed import check_running
from scenarios.world import KilledError, World, spread

from rmsplugin.adapters.platform.base import VMSpec
from rmsplugin.engine.execute.operations import guest_disks
from rmsplugin.engine.ledger.rows import OperationKind
from rmsplugin.errors import CorruptStateError, NoSpaceError, OperationFailedError, RmspluginError
from rmsplugin.model.vjob import VJobState

S, K = VJobState, OperationKind
#: Of the instants of two lives, and of the silences, CI tries so many.
SAMPLE = 18


@pytest.fixture
def world(directory: Path) -> Iterator[World]:
    world = World(directory, templates=True)
    yield world
    assert world.hypervisor.violations == []
    world.close()


BASE = "/images/debian.qcow2"


@pytest.fixture
def disk_world(directory: Path) -> Iterator[World]:
    """A world whose VMs have disks."""
    world = World(directory, templates=True, disks=True)
    yield world
    assert world.hypervisor.violations == []
    world.close()


def runs(world: World, vms: int = 1) -> int:
    """Have a vjob running."""
    job = world.submit(vms=vms)
    world.until(job, S.RUNNING)
    check_running(world, job)
    return job


def ends(world: World, job: int) -> None:
    world.rms.finish(job)
    world.until(job, S.TERMINATED)
    assert world.leftovers() == []


def calls(world: World, method: str) -> int:
    return sum(call[0] == method for call in world.hypervisor.calls)


def test_the_first_vm_boots_and_is_saved_and_the_later_ones_are_restored(world: World) -> None:
    ends(world, runs(world))
    assert (calls(world, "boot"), calls(world, "save"), calls(world, "restore")) == (1, 1, 1)
    ends(world, runs(world))
    ends(world, runs(world))
    assert (calls(world, "boot"), calls(world, "save"), calls(world, "restore")) == (1, 1, 3)
    assert len(world.events("template-made")) == 1


def test_vms_with_disks_start_from_templates_too(disk_world: World) -> None:
    told = Told(disk_world)
    for _ in range(3):
        job = runs(disk_world)
        told.check(job)
        ends(disk_world, job)
    assert (calls(disk_world, "boot"), calls(disk_world, "restore")) == (1, 3)
    assert told.copied_disks == 2


@pytest.mark.parametrize("threads", [0, 1])
def test_the_files_of_a_vm_are_there_before_it_is_restored_whether_or_not_a_thread_is_left_for_them(
    disk_world: World, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends(disk_world, runs(disk_world))
    monkeypatch.setattr(disk_world.executor.threads, "_free", threads)
    told = Told(disk_world)
    job = runs(disk_world)
    told.check(job)
    assert calls(disk_world, "restore") == 2


def test_a_release_whose_guests_wait_in_another_way_makes_templates_of_its_own(
    disk_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends(disk_world, runs(disk_world))
    monkeypatch.setattr(guest_disks, "waiting_program", lambda: "of another release")
    ends(disk_world, runs(disk_world))
    assert (calls(disk_world, "boot"), calls(disk_world, "restore")) == (2, 2)


def test_a_vm_whose_template_failed_boots_from_a_disk_of_its_own(disk_world: World) -> None:
    ends(disk_world, runs(disk_world))
    told = Told(disk_world)
    disk_world.hypervisor.fail_next("restore", CorruptStateError("QEMU will not load it"))
    ends(disk_world, runs(disk_world))
    assert (calls(disk_world, "boot"), told.copied_disks) == (2, 0)


def test_the_guest_of_a_template_is_told_nothing_of_the_vm_that_makes_it(world: World) -> None:
    seen: list[bytes] = []
    boot = world.hypervisor.boot

    def look(node: str, spec: object, *, timeout_s: float) -> None:
        seen.append(world.nodes.config(node, "vjob1-0") or b"")
        boot(node, spec, timeout_s=timeout_s)  # type: ignore[arg-type]

    world.hypervisor.boot = look  # type: ignore[method-assign, assignment]
    job = runs(world)
    identity = world.nodes.config(world.context.ledger.vms(job)[0].host, f"vjob{job}-0") or b""
    assert seen[0].startswith(b"wait\n") and b"hostname=vjob1-0\n" in identity
    assert len(seen[0]) == len(identity), "what a guest's kernel remembers of the file is its size"
    for line in identity.split(b"\nend=")[0].splitlines():
        assert line not in seen[0]


def test_seeds_differ(world: World) -> None:
    job = runs(world, vms=2)
    texts = [world.nodes.config(vm.host, vm.name) or b"" for vm in world.context.ledger.vms(job)]
    seeds = {line for text in texts for line in text.splitlines() if line.startswith(b"seed=")}
    assert len(seeds) == 2


def test_vms_of_another_size_have_a_template_of_their_own(world: World) -> None:
    for memory_mib in (256, 128, 256, 128):
        job = world.submit(vms=1, memory_mib=memory_mib)
        world.until(job, S.RUNNING)
        ends(world, job)
    assert (calls(world, "boot"), calls(world, "restore")) == (2, 4)


def test_while_one_vm_makes_the_template_the_others_of_its_kind_boot(world: World) -> None:
    job = runs(world, vms=3)
    nodes = {vm.host for vm in world.context.ledger.vms(job)}
    assert calls(world, "boot") == 3
    assert len(world.events("template-made")) == len(nodes)
    ends(world, job)


def test_switched_off_all_vms_boot(directory: Path) -> None:
    world = World(directory, templates=True)
    off = world.settings.start.model_copy(update={"template": False})
    world.settings = world.settings.model_copy(update={"start": off})
    world.start_engine()
    ends(world, runs(world))
    ends(world, runs(world))
    assert (calls(world, "boot"), calls(world, "restore")) == (2, 0)
    world.close()


@pytest.mark.parametrize(
    "neighbour, method, error",
    [
        ("hypervisor", "restore", CorruptStateError("QEMU will not load it")),
        ("hypervisor", "restore", OperationFailedError("no")),
        ("hypervisor", "unpause", OperationFailedError("no")),
        ("nodes", "use_template", CorruptStateError("of another format")),
        ("nodes", "use_template", NoSpaceError("full")),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_template_that_fails_is_dropped_and_the_vm_boots_in_the_same_start(
    world: World, neighbour: str, method: str, error: RmspluginError
) -> None:
    ends(world, runs(world))
    getattr(world, neighbour).fail_next(method, error)
    job = runs(world)
    assert world.rms.job(job).restarts == 0, "the job does not notice"
    assert calls(world, "boot") == 2
    assert str(error) in world.events("template-failed")[0]
    assert sum(world.nodes.templates.kept(node) for node in world.sizes) == 0
    ends(world, job)


@pytest.mark.parametrize("method", ["boot", "save"])
def test_a_template_that_cannot_be_made_costs_its_vm_a_boot(world: World, method: str) -> None:
    world.hypervisor.fail_next(method, OperationFailedError("no"))
    job = runs(world)
    assert world.rms.job(job).restarts == 0
    assert len(world.events("template-failed")) == 1
    ends(world, job)
    ends(world, runs(world))
    assert calls(world, "restore") == 0 and len(world.events("template-failed")) == 1, "not tried again at once"


def test_a_guest_that_does_not_wait_is_booted(world: World) -> None:
    world.nodes.templates.guests_wait = False
    ends(world, runs(world))
    assert (calls(world, "boot"), calls(world, "save"), calls(world, "restore")) == (2, 0, 0)


def test_a_job_that_is_cancelled_while_its_vm_makes_the_template_frees_its_node_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, looks = world.submit(vms=1), []

    def still_boots(*words: Any, **options: Any) -> bool:
        looks.append(options["timeout_s"])
        if len(looks) == 2:
            world.rms.cancel(job)
        world.pass_time(options["timeout_s"])
        return False

    monkeypatch.setattr(world.nodes, "await_guest", still_boots)
    world.until(job, S.TERMINATED)
    assert len(looks) < 5 and max(looks) < 5, "not for as long as a boot may take"
    assert world.leftovers() == []


def test_a_restored_guest_that_does_not_answer_is_booted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ends(world, runs(world))
    answer, asked = world.guests.wait_ready, []

    def silent_at_first(*words: object, **options: object) -> None:
        asked.append(options["timeout_s"])
        if len(asked) == 1:
            raise OperationFailedError("the guest is silent")
        answer(*words, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(world.guests, "wait_ready", silent_at_first)
    ends(world, runs(world))
    assert calls(world, "boot") == 2
    assert asked == [world.settings.start.template_answer_s, world.settings.hypervisor.boot_timeout_s]


def test_a_vm_from_a_template_is_suspended_resumed_and_migrated_as_a_booted_one(world: World) -> None:
    ends(world, runs(world))
    job = runs(world)
    assert calls(world, "boot") == 1
    world.context.ledger.update_vjob(job, script_started=True)
    for kind, reached in ((K.SUSPEND, S.SLEEPING), (K.RESUME, S.RUNNING), (K.MIGRATE, S.RUNNING)):
        world.ask(job, kind, "n3" if kind is K.RESUME else "")
        world.until(job, reached)
    check_running(world, job)
    ends(world, job)


class Told:
    """What each VM was told when it was created. A VM that knows who it is must never be saved as a template.

    Nor may a VM boot from a template's disk, or be restored onto another disk than its state was saved with.
    """

    def __init__(self, world: World) -> None:
        self.configs: dict[str, bytes] = {}
        self.world = world
        self.copied_disks = 0
        hypervisor = world.hypervisor
        self._boot, self._restore, self._save = hypervisor.boot, hypervisor.restore, hypervisor.save
        hypervisor.boot, hypervisor.restore = self.boot, self.restore  # type: ignore[method-assign]
        hypervisor.save = self.save  # type: ignore[method-assign, assignment]

    def boot(self, node: str, spec: VMSpec, *, timeout_s: float) -> None:
        self._creates(node, spec.name)
        assert self._disk(node, spec.name) in (None, BASE)
        self._boot(node, spec, timeout_s=timeout_s)

    def restore(self, node: str, spec: VMSpec, path: str, *, timeout_s: float) -> None:
        self._creates(node, spec.name)
        self._restore(node, spec, path, timeout_s=timeout_s)
        disk, state = self._disk(node, spec.name), self.world.files.get(node, path)
        if disk is not None and state is not None and path.endswith(".template"):
            assert (disk != BASE) == state.template, f"{spec.name} has the disk {disk}, and the state {state}"
            self.copied_disks += state.template

    def save(self, node: str, name: str, path: str, **options: Any) -> None:
        if path.endswith(".template"):
            assert self.configs[name].startswith(b"wait\n"), f"{name} knows who it is, and would become a template"
        self._save(node, name, path, **options)

    def _disk(self, node: str, vm: str) -> str | None:
        return self.world.nodes.templates.disks.get((node, vm))

    def check(self, job: int) -> None:
        """All VMs of a running vjob know who they are."""
        for vm in self.world.context.ledger.vms(job):
            assert self.configs[vm.name].startswith(f"hostname={vm.name}\n".encode())

    def _creates(self, node: str, vm: str) -> None:
        if not self.world.hypervisor.where(vm):
            self.configs[vm] = self.world.nodes.config(node, vm) or b""


def two_lives(world: World, kill_at: int | None = None) -> int:
    """A vjob that makes templates and one that uses them, killed once on the way. Returns the instants of the first."""
    told = Told(world)
    world.start_engine(kill_at)
    first = world.life
    for _ in range(2):
        job = world.submit(vms=2, memory_mib=600)  # one on a node, so that both make one
        world.until(job, S.RUNNING)
        check_running(world, job)
        told.check(job)
        assert world.rms.job(job).restarts == 0, "it was never requeued"
        world.rms.finish(job)
        world.until(job, S.TERMINATED)
        assert world.leftovers() == []
    assert world.hypervisor.violations == []
    assert world.context.ledger.vms() == []
    return first.instants


@pytest.mark.timeout(600)
@pytest.mark.parametrize("disks", [False, True], ids=["memory", "disks"])
def test_killed_at_any_instant_nothing_is_lost_and_nothing_left(directory: Path, whole: bool, disks: bool) -> None:
    (directory / "0").mkdir()
    world = World(directory / "0", templates=True, disks=disks)
    total = two_lives(world)
    assert calls(world, "boot") == 2 and calls(world, "restore") == 4
    for instant in spread(total, total if whole else SAMPLE):
        where = directory / str(instant)
        where.mkdir()
        world = World(where, templates=True, disks=disks)
        try:
            two_lives(world, instant)
        except AssertionError as error:
            raise AssertionError(f"killed at instant {instant} of {total}: {error}") from error
        world.close()


@pytest.mark.parametrize("method", ["use_template", "await_guest", "settle_template"])
def test_a_job_that_is_cancelled_while_the_engine_is_dead_leaves_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    if method != "await_guest":
        ends(world, runs(world))
    act = getattr(world.nodes, method)

    def killed(*words: Any, **options: Any) -> None:
        act(*words, **options)
        world.life.dead = True
        raise KilledError

    monkeypatch.setattr(world.nodes, method, killed)
    job = world.submit(vms=1)
    world.until_killed()
    monkeypatch.undo()
    world.rms.cancel(job)
    world.until(job, S.TERMINATED)
    assert world.leftovers() == []


@pytest.mark.timeout(600)
def test_a_node_that_is_silent_at_any_call_costs_time_and_nothing_else(directory: Path, whole: bool) -> None:
    (directory / "0").mkdir()
    world = World(directory / "0", templates=True)
    two_starts(world)
    silences = [
        Silence(name, number, calls, way)
        for name in sorted(world.neighbours.calls)
        if name.split()[0] in ("hypervisor", "agent", "guest")
        for number in range(1, world.neighbours.calls[name] + 1)
        for calls in (1, 6)
        for way in Way
        if way is not Way.BROKEN_OFF or name.startswith("hypervisor")
    ]
    tried = silences if whole else [silences[number - 1] for number in spread(len(silences), SAMPLE)]
    for number, silence in enumerate(tried, 1):
        where = directory / str(number)
        where.mkdir()
        world = World(where, templates=True)
        world.neighbours.silence = silence
        try:
            two_starts(world)
        except AssertionError as error:
            raise AssertionError(f"{silence}: {error}") from error
        world.close()


def two_starts(world: World) -> None:
    """A vjob that makes templates and one that uses them, however long it takes."""
    for _ in range(2):
        job = world.submit(vms=2, memory_mib=600)
        world.until(job, S.RUNNING, ticks=400)
        check_running(world, job)
        world.rms.finish(job)
        world.until(job, S.TERMINATED, ticks=400)
        for _ in range(100):
            if not world.leftovers():
                break
            world.tick(60)
        assert world.leftovers() == []
    assert world.hypervisor.violations == []
