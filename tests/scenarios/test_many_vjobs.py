"""What thousands of waiting vjobs would multiply: questions to Slurm, transactions, and collections of garbage."""

from __future__ import annotations

import gc
import re
from itertools import pairwise
from pathlib import Path

import pytest
from scenarios.world import World

from rmsplugin.engine.decide import telling
from rmsplugin.model.vjob import VJobState as S

WAITING = 12


def crowded(directory: Path, policy: str = "") -> World:
    """One vjob runs on the only node, and many wait for it to end."""
    world = World(directory, nodes={"n1": (1, 1024)}, policy=policy)
    first = world.submit(vms=1, priority=9)
    world.until(first, S.RUNNING)
    for _ in range(WAITING):
        world.submit(vms=1)
    world.tick()
    world.tick()  # what is new is decided about in the next cycle
    return world


def test_an_engine_that_was_restarted_asks_for_no_script_that_it_has_read(directory: Path) -> None:
    world = crowded(directory)
    assert sum(name == "batch_script" for name, _ in world.rms.calls) == WAITING + 1
    world.start_engine()
    del world.rms.calls[:]
    world.tick()
    assert world.cycle.report.waiting == WAITING
    assert [name for name, _ in world.rms.calls if name == "batch_script"] == []
    world.close()


def test_jobs_that_come_together_and_their_reasons_are_recorded_together(directory: Path) -> None:
    world = crowded(directory)
    told: list[int] = []  # once for each transaction that changed vjobs
    world.context.ledger.subscribe(lambda changed: told.append(len(changed)))
    for _ in range(WAITING):
        world.submit(vms=1)
    world.tick()
    assert told == [WAITING, WAITING], "all become vjobs, and all are told why they wait"
    world.tick()
    assert world.cycle.report.waiting == 2 * WAITING
    assert told == [WAITING, WAITING]
    world.close()


def test_no_garbage_is_collected_in_a_cycle_or_a_preview_while_requests_wait(directory: Path) -> None:
    world = crowded(directory)
    collections: list[str] = []

    def note(phase: str, _: object) -> None:
        collections.append(phase)

    most = gc.get_threshold()
    gc.callbacks.append(note)
    try:
        for look in (world.cycle.run, world.cycle.preview):
            gc.set_threshold(50)
            look()
            gc.disable()  # what comes after it is not asked about
            gc.set_threshold(*most)
            assert collections.count("start") <= 2, "one before it and one after it, at most"
            collections.clear()
            gc.enable()
    finally:
        gc.set_threshold(*most)
        gc.enable()
        gc.callbacks.remove(note)
    world.close()


def test_how_long_somebody_has_waited_is_told_when_that_has_grown_by_a_tenth(directory: Path) -> None:
    world = crowded(directory, "slowdown")
    world.rms.preempt_exempt_s = 1e6  # nobody makes way meanwhile
    job = max(vjob.job_id for vjob in world.context.ledger.vjobs())
    since, told = world.context.ledger.vjob(job).submitted, []
    for _ in range(200):
        world.tick(10)
        said = re.search(r"has waited (\d+) s", world.context.ledger.vjob(job).reason)
        assert said is not None, world.context.ledger.vjob(job).reason
        waited_s = world.time - since
        assert 0.85 * waited_s - 20 <= int(said[1]) <= waited_s + 1
        told.append(said[1])
    assert len(set(told)) < 50, "it is not written anew in each cycle"
    world.close()


def test_of_longer_waits_some_are_recorded_in_a_cycle_and_each_has_its_turn(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telling, "_AGAIN_MOST", 5)
    world = crowded(directory, "slowdown")
    world.rms.preempt_exempt_s = 1e6  # nobody makes way meanwhile
    ledger, reasons, changed = world.context.ledger, [], []
    for _ in range(2 * (WAITING // 5 + 1)):
        world.tick(30)
        reasons.append({vjob.job_id: vjob.reason for vjob in ledger.vjobs() if vjob.state is S.WAITING})
    for before, now in pairwise(reasons):
        changed.append({job for job in now if now[job] != before[job]})
    assert {len(each) for each in changed} == {5}
    assert set().union(*changed) == reasons[-1].keys()
    world.close()


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("0 CPUs and 0 MiB are free", "1 CPU and 512 MiB are free", True),
        ("1.5 CPUs are free, has waited 7 s: expansion 1.0", "12 CPUs are free, has waited 70 s: expansion 2.5", True),
        ("vjob 12 makes way", "vjob 13 makes way", False),
        ("in group g1: 0 CPUs are free", "in group g2: 0 CPUs are free", False),
        ("0 CPUs are free", "0 CPUs are free", False),
    ],
)
def test_reasons_differ_in_amounts_where_they_tell_the_same_otherwise(one: str, other: str, alike: bool) -> None:
    assert telling.differ_in_amounts(one, other) is alike


def test_equal_demands_are_one_object_though_each_vjob_has_its_own_rows(directory: Path) -> None:
    world = crowded(directory)
    found = world.cycle.preview().source
    demands = [vm.demand for vjob in found.vjobs for vm in vjob.vms]
    assert len(demands) == WAITING + 1
    assert len({id(demand) for demand in demands}) == len(set(demands)) == 1
    world.close()
