"""The course of a run that a campaign draws, from the ledger of an engine on the simulated world."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from e2e.course import Slice, course, drawn
from scenarios.world import World

from rmsplugin.engine.ledger.rows import OperationKind
from rmsplugin.model.vjob import VJobState

S = VJobState
MINUTE_S = 60.0


def test_the_ledger_tells_what_vms_demanded_while_they_ran_and_who_slept(world: World, directory: Path) -> None:
    world.pass_time(-world.time % MINUTE_S)
    began = world.time
    job = world.submit(vms=2, cpus=1)
    world.until(job, S.RUNNING)
    to_minute(world, began, 4)
    compute(world, job, 0.0)
    to_minute(world, began, 7)
    compute(world, job, 1.0)
    to_minute(world, began, 9)
    world.ask(job, OperationKind.SUSPEND)
    world.until(job, S.SLEEPING)
    to_minute(world, began, 11)
    world.ask(job, OperationKind.RESUME)
    world.until(job, S.RUNNING)
    to_minute(world, began, 12)
    world.rms.finish(job)
    world.until(job, S.TERMINATED)

    slices = course(asking(directory / "ledger.sqlite"), [job], began, MINUTE_S)

    assert slices[0].cpus > 0 and slices[2] == Slice(cpus=2.0, vms=2.0, asleep=0.0, waiting=0.0)
    assert slices[6] == Slice(cpus=0.0, vms=2.0, asleep=0.0, waiting=0.0), "they idle, and run"
    assert slices[8] == Slice(cpus=2.0, vms=2.0, asleep=0.0, waiting=0.0)
    assert slices[10] == Slice(cpus=0.0, vms=0.0, asleep=1.0, waiting=0.0), "who sleeps demands nothing"
    assert slices[11].cpus > 0 and slices[11].asleep < 1, "it is resumed"


def compute(world: World, job: int, cpus: float) -> None:
    for vm in world.context.ledger.vms(job):
        world.hypervisor.set_demand(vm.name, cpus)


def to_minute(world: World, began: float, number: int) -> None:
    """Let cycles pass until so many minutes are over."""
    while world.time < began + number * MINUTE_S:
        world.tick(5)


def asking(path: Path) -> Any:
    def ask(sql: str, *values: Any) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(path)) as connection:
            return connection.execute(sql, values).fetchall()

    return ask


def test_runs_are_drawn_side_by_side_and_the_shorter_one_ends_first() -> None:
    short = [Slice(cpus=2.0, vms=3.0, asleep=0.0, waiting=1.0)]
    long = [*short, Slice(cpus=40.0, vms=40.0, asleep=0.5, waiting=0.0)]
    lines = drawn({"with": short, "without": long}, 30)
    assert lines[2:] == [
        "   0 | ##                 2.0   3.0    0.0   1.0 | ##                 2.0   3.0    0.0   1.0",
        "  30 |                                           | ################  40.0  40.0    0.5   0.0",
    ]
