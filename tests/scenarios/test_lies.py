"""A neighbour lies once, in the middle of a context switch: nothing is ended for it, and it costs time at most."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scenarios.neighbours import Lie
from scenarios.test_context_switches import life_with_a_switch
from scenarios.world import World

from rmsplugin.adapters.platform.base import VMPower
from rmsplugin.adapters.rms.base import JobState, RmsJob, RmsSnapshot
from rmsplugin.engine.ledger.rows import OperationKind
from rmsplugin.model.vjob import VJobState

Tell = Callable[[Any], Any]

#: Of the calls to each method CI lies at every so manieth.
SAMPLE = 16


def vms_are(power: VMPower) -> Tell:
    return lambda vms: {name: replace(vm, power=power) for name, vm in vms.items()}


def busy(vms: Mapping[str, Any]) -> dict[str, Any]:
    return {name: replace(vm, job_running=not vm.job_running) for name, vm in vms.items()}


def job_is(state: JobState) -> Callable[[RmsJob], RmsJob]:
    return lambda job: replace(job, state=state, detail=state.upper()) if job.state is JobState.RUNNING else job


ended = job_is(JobState.ENDED)


def jobs_are(state: JobState) -> Tell:
    return lambda found: replace(found, jobs=tuple(map(job_is(state), found.jobs)))


def nodes_are_down(found: RmsSnapshot) -> RmsSnapshot:
    return replace(found, nodes={name: replace(node, up=False, state="DOWN*") for name, node in found.nodes.items()})


LIES: dict[str, tuple[str, str, Tell]] = {
    "no VMs": ("hypervisor", "list_vms", lambda _: {}),
    "VMs stand still": ("hypervisor", "list_vms", vms_are(VMPower.PAUSED)),
    "VMs have crashed": ("hypervisor", "list_vms", vms_are(VMPower.CRASHED)),
    "VMs are half there": ("hypervisor", "list_vms", vms_are(VMPower.HALF)),
    "something is under way in VMs": ("hypervisor", "list_vms", busy),
    "no such VM": ("hypervisor", "has_vm", lambda has: not has),
    "no counters": ("hypervisor", "statistics", lambda _: {}),
    "no jobs": ("rms", "snapshot", lambda found: replace(found, jobs=())),
    "jobs are pending": ("rms", "snapshot", jobs_are(JobState.PENDING)),
    "jobs are suspended": ("rms", "snapshot", jobs_are(JobState.SUSPENDED)),
    "jobs have ended": ("rms", "snapshot", jobs_are(JobState.ENDED)),
    "no partitions": ("rms", "snapshot", lambda found: replace(found, partitions={})),
    "no nodes": ("rms", "snapshot", lambda found: replace(found, nodes={})),
    "nodes are down": ("rms", "snapshot", nodes_are_down),
    "no such jobs": ("rms", "jobs", lambda _: {}),
    "these jobs have ended": (
        "rms",
        "jobs",
        lambda found: {n: ended(job) for n, job in found.items()},
    ),
    "these jobs run": (
        "rms",
        "jobs",
        lambda found: {number: replace(job, state=JobState.RUNNING) for number, job in found.items()},
    ),
    "no file": ("agent", "stat", lambda found: replace(found, partial=None, final_bytes=None)),
}


def live(directory: Path, lie: Lie | None) -> World:
    """The life of test_context_switches; the answers are counted from the moment that somebody has to make way."""
    directory.mkdir()
    world = World(directory, urgent=True)
    submit = world.submit

    def submits(**options: Any) -> int:
        if options.get("partition") == "urgent":
            world.neighbours.answers.clear()
            world.neighbours.lie = lie
        return submit(**options)

    world.submit = submits  # type: ignore[method-assign]
    try:
        life_with_a_switch(world, None, made_way=(1, 2, 3))
    finally:
        world.close()
    return world


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("what", LIES)
def test_a_lie_that_is_told_once_costs_time_at_most(directory: Path, what: str, whole: bool) -> None:
    kind, method, tell = LIES[what]
    answers = live(directory / "honest", None).neighbours.answers[kind, method]
    assert answers or method in ("has_vm", "jobs")
    wrong = []
    for number in range(1, answers + 1, 1 if whole else SAMPLE):
        try:
            live(directory / str(number), Lie(kind, method, number, tell))
        except AssertionError as error:
            wrong.append(f"answer {number} of {answers}: {error}")
    assert not wrong, "\n".join(wrong)


def test_a_suspended_job_that_is_said_to_run_is_resumed_with_its_vjob(world: World) -> None:
    job = world.submit()
    world.until(job, VJobState.RUNNING)
    answers = 1
    number = 0
    while number < answers:
        number += 1
        world.ask(job, OperationKind.SUSPEND)
        world.until(job, VJobState.SLEEPING)
        world.neighbours.answers.clear()
        world.neighbours.lie = Lie(*LIES["these jobs run"][:2], number, LIES["these jobs run"][2])
        world.ask(job, OperationKind.RESUME)
        world.until(job, VJobState.RUNNING)
        answers = world.neighbours.answers["rms", "jobs"]
        for _ in range(3):
            world.pass_time(30)
            world.tick()
        assert world.state(job) is VJobState.RUNNING, f"after a lie in answer {number}"
    assert number > 1
