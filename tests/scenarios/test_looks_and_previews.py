"""A look at the cluster stays as it was taken, whoever reads it; and a preview changes nothing, whatever it calls."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from scenarios.two_groups import Site
from scenarios.world import World

from rmsplugin.adapters.platform.base import VMInfo
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.errors import DeposedError, UnavailableError
from rmsplugin.model.vjob import VJobState

S = VJobState


def each_look(world: World, see: Callable[[Observation], None]) -> None:
    """Have ``see`` called with each look of this life of the engine."""
    look = world.cycle._observer.observe

    def looked() -> Observation:
        seen = look()
        see(seen)
        return seen

    world.cycle._observer.observe = looked  # type: ignore[method-assign]


def _copied(seen: Observation) -> Observation:
    """A copy of all that was seen; the topology is asked for later, and compared with none."""
    return copy.deepcopy(seen, {id(seen.topology): seen.topology})


def test_a_look_is_as_it_was_taken_when_a_context_switch_has_read_it(directory: Path) -> None:
    world = World(directory, urgent=True, rooms="elastic")
    looks: list[tuple[Observation, Observation]] = []
    each_look(world, lambda seen: looks.append((seen, _copied(seen))))
    jobs = [world.running(cpus=2) for _ in range(3)]
    urgent = world.submit(vms=1, cpus=2, partition="urgent")
    world.pass_time(400)
    world.until(urgent, S.RUNNING)
    assert S.SLEEPING in world.states(*jobs)
    world.cycle.preview()
    world.rms.finish(urgent)
    world.until(urgent, S.TERMINATED)
    assert len(looks) > 10
    for seen, as_taken in looks:
        assert seen == as_taken
    world.close()


@pytest.mark.parametrize("stage", ["_waiting.find_queue", "deciding.find", "_borrowing.lendable"])
def test_a_stage_that_writes_to_the_ledger_is_stopped_in_a_preview(world: World, stage: str) -> None:
    job = world.running()
    owner, _, method = stage.rpartition(".")
    part = getattr(world.cycle, owner)
    find = getattr(part, method)

    def writes(*words: object, **options: object) -> object:
        world.context.ledger.update_vjob(job, reason="by a preview")
        return find(*words, **options)

    setattr(part, method, writes)
    before = world.context.ledger.vjob(job)
    with pytest.raises(AssertionError, match="changes nothing"):
        world.cycle.preview()
    assert world.context.ledger.vjob(job) == before
    world.cycle.run()
    assert world.context.ledger.vjob(job).reason == "by a preview", "a cycle may write"


def test_a_preview_reads_no_script_and_holds_no_job_even_if_it_came_to_a_job_that_no_cycle_has_met(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.tick()
    stranger = world.rms.submit(script="#!/bin/sh\n", user="nobody", uid=65534)
    monkeypatch.setattr(world.cycle._first_sight, "met", list)
    read: list[int] = []
    batch_script = world.rms.batch_script
    monkeypatch.setattr(world.rms, "batch_script", lambda job: read.append(job) or batch_script(job))
    world.cycle.preview()
    assert (read, world.rms.job(stranger).held) == ([], False)
    world.tick()
    assert (read, world.rms.job(stranger).held) == ([stranger], True), "a cycle meets it"


def test_a_look_tells_nodes_that_obey_a_higher_epoch_from_silent_ones(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = world.cycle._observer._hypervisor.list_vms
    errors = {"n1": UnavailableError("no route"), "n2": DeposedError("an engine of epoch 9 has acted here")}

    def looked(node: str) -> dict[str, VMInfo]:
        if node in errors:
            raise errors[node]
        return look(node)

    monkeypatch.setattr(world.cycle._observer._hypervisor, "list_vms", looked, raising=False)
    seen = world.cycle._observer.observe()
    assert (seen.unreachable.keys(), seen.refusing) == ({"n1", "n2"}, {"n2"})


def test_each_host_of_a_group_is_asked_to_obey_once_and_one_that_refuses_is_seen_as_refusing(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look alone does not ask a node of every platform whom it obeys."""
    site = Site(directory)
    observer = site.engines["left"].cycle._observer
    assert observer._nodes is not None
    asked: list[str] = []

    def obey(node: str) -> None:
        asked.append(node)
        if node == "n2":
            raise DeposedError("n2: an engine of epoch 9 has acted here")
        if asked.count(node) == 1:
            raise UnavailableError("no answer")

    monkeypatch.setattr(observer, "_nodes", SimpleNamespace(obey=obey))
    for _ in range(3):
        seen = observer.observe()
        assert (seen.unreachable.keys(), seen.refusing) == ({"n2"}, {"n2"})
    assert sorted(asked) == ["n1", "n1", "n2", "n2", "n2"]
    site.close()
