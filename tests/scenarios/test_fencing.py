"""Fencing, with real programs: only a node that is seen to be off is gone, and silence of libvirt is not enough."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from scenarios.world import NODES, World

from rmsplugin.errors import ForbiddenError, OperationFailedError, RefusedError, TimedOutError
from rmsplugin.model.vjob import VJobState

S = VJobState
AFTER_S = 120.0


def program(directory: Path, name: str, body: str) -> str:
    """A program that notes its arguments, one call a line, and then does ``body``."""
    path = directory / name
    path.write_text(f'#!/bin/sh\necho "$@" >>{directory}/{name}.calls\n{body}\n')
    path.chmod(0o755)
    return str(path)


def calls(directory: Path, name: str = "fence") -> list[str]:
    path = directory / f"{name}.calls"
    return path.read_text().splitlines() if path.exists() else []


def with_fence(world: World, directory: Path, body: str = "exit 0", **more: Any) -> None:
    settings = {"fence": (program(directory, "fence", body), "--plug={node}; touch x", "--action=off"), **more}
    nodes = world.settings.nodes.model_copy(update=settings)
    world.settings = world.settings.model_copy(update={"nodes": nodes})
    world.start_engine()


def running(world: World) -> tuple[int, str]:
    job = world.submit(vms=1, memory_mib=128)
    world.until(job, S.RUNNING)
    world.context.ledger.update_vjob(job, script_started=True)
    return job, world.context.ledger.vms(job)[0].host


def ticks_until(world: World, enough: Callable[[], bool], ticks: int = 30) -> bool:
    """Tick, the orders that the engine gave carried out each time, until ``enough``; whether it came to that."""
    for _ in range(ticks):
        world.tick(20.0)
        deadline = time.monotonic() + PATIENCE_S
        while world.cycle.fencing.under_way:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        if enough():
            return True
    return False


def test_an_operator_has_a_node_fenced_and_its_vjobs_begin_again(world: World, directory: Path) -> None:
    with_fence(world, directory, fence_status=(program(directory, "status", "exit 2"), "{node}"))
    job, node = running(world)
    world.kill_node(node)
    world.tick()
    assert world.requests().orders.node_fence(0, node) == {"begin_again": [str(job)], "wait": []}
    assert calls(directory) == [f"--plug={node}; touch x --action=off"]
    assert calls(directory, "status") == [node]
    world.until(job, S.RUNNING)
    assert world.context.ledger.vjob(job).losses == 1
    assert "confirmed power off" in world.context.ledger.nodes.gone()[node].by


def test_a_node_that_nobody_was_asked_about_is_not_called_confirmed(world: World, directory: Path) -> None:
    with_fence(world, directory)
    _, node = running(world)
    world.kill_node(node)
    world.tick()
    world.requests().orders.node_fence(0, node)
    said = world.context.ledger.nodes.gone()[node].by
    assert said.endswith("by nodes.fence alone, which no nodes.fence_status has confirmed")
    assert any(said in str(event) for event in world.context.ledger.events())


@pytest.mark.parametrize(
    ("fence", "status", "error", "why"),
    [
        ("echo no such plug; exit 1", "exit 2", OperationFailedError, "ended with 1: no such plug"),
        ("exit 0", "echo Status: ON; exit 0", OperationFailedError, "does not say that .* is off.*Status: ON"),
        ("exit 0", "exit 1", OperationFailedError, "does not say that"),
        ("sleep 30", "exit 2", TimedOutError, "did not end within"),
    ],
)
def test_a_node_that_is_not_seen_to_be_off_is_not_gone(
    world: World, directory: Path, fence: str, status: str, error: type[Exception], why: str
) -> None:
    more = {"fence_status": (program(directory, "status", status), "{node}"), "fence_timeout_s": 0.5}
    with_fence(world, directory, f"exec {fence}" if "sleep" in fence else fence, **more)
    job, node = running(world)
    world.kill_node(node)
    world.tick()
    with pytest.raises(error, match=why):
        world.requests().orders.node_fence(0, node)
    assert world.context.ledger.nodes.gone() == {}
    assert world.context.ledger.nodes.fence_failures()[node].failures == 1
    for _ in range(5):
        world.tick()
    assert (world.state(job), world.context.ledger.vjob(job).losses) == (S.RUNNING, 0)


def test_fencing_is_for_operators_and_needs_a_program(world: World) -> None:
    world.tick()
    with pytest.raises(ForbiddenError):
        world.requests().orders.node_fence(65534, "n1")
    with pytest.raises(RefusedError, match="fence is not set"):
        world.requests().orders.node_fence(0, "n1")
    with pytest.raises(RefusedError, match="fence is not set"):
        world.requests().orders.node_fence(0, "n1", preview=True)


def test_a_preview_of_fencing_cuts_no_power(world: World, directory: Path) -> None:
    with_fence(world, directory)
    job, node = running(world)
    assert world.requests().orders.node_fence(0, node, preview=True) == {"begin_again": [str(job)], "wait": []}
    assert calls(directory) == [] and world.context.ledger.nodes.gone() == {}


def test_a_node_that_is_silent_in_all_ways_is_fenced_once_by_the_engine(world: World, directory: Path) -> None:
    with_fence(world, directory, fence_after_s=AFTER_S)
    job, node = running(world)
    died = world.time
    world.kill_node(node)
    assert ticks_until(world, lambda: node in world.context.ledger.nodes.gone())
    assert world.time - died >= AFTER_S
    assert ticks_until(world, lambda: world.state(job) is S.RUNNING)
    assert world.context.ledger.vjob(job).losses == 1
    assert not ticks_until(world, lambda: len(calls(directory)) > 1, 10)


@pytest.mark.parametrize("answers", ["agent", "slurm", "libvirt"])
def test_a_node_that_answers_in_any_way_is_never_fenced_by_the_engine(
    world: World, directory: Path, answers: str
) -> None:
    with_fence(world, directory, fence_after_s=AFTER_S)
    job, node = running(world)
    if answers != "libvirt":
        world.hypervisor.set_reachable(node, False)
    if answers != "agent":
        world.nodes.set_reachable(node, False)
    if answers != "slurm":
        world.rms.set_node(node, up=False, state="DOWN")
    assert not ticks_until(world, lambda: bool(calls(directory)))
    assert world.context.ledger.vjob(job).losses == 0


def test_when_many_nodes_are_silent_at_once_none_is_fenced(world: World, directory: Path) -> None:
    with_fence(world, directory, fence_after_s=AFTER_S)
    for _ in range(4):
        running(world)
    assert {vm.host for vm in world.context.ledger.vms()} >= {"n1", "n2"}
    for node in NODES:
        world.kill_node(node)
    assert not ticks_until(world, lambda: bool(calls(directory)))
    assert any("none is fenced" in problem for problem in world.cycle.report.problems)


def cut_off(world: World, *nodes: str, state: str = "DOWN*") -> None:
    """Nothing reaches these nodes, on which VMs run on."""
    for node in nodes:
        world.hypervisor.set_reachable(node, False)
        world.nodes.set_reachable(node, False)
        world.rms.set_node(node, up=False, state=state)


def test_an_engine_that_is_cut_off_from_all_nodes_fences_none_though_one_only_has_vms(
    world: World, directory: Path
) -> None:
    with_fence(world, directory, fence_after_s=AFTER_S)
    job, node = running(world)
    cut_off(world, *(other for other in NODES if other != node))
    world.tick(AFTER_S / 2)
    cut_off(world, node)
    assert not ticks_until(world, lambda: bool(calls(directory)))
    assert any("n1, n2, n3 are silent at once" in problem for problem in world.cycle.report.problems)
    assert world.context.ledger.vjob(job).losses == 0


@pytest.mark.parametrize(("state", "before_s"), [("DOWN*", AFTER_S + 60), ("IDLE+POWERED_DOWN", 0.0)])
def test_nodes_that_are_out_of_order_for_long_or_powered_off_by_slurm_keep_no_other_from_being_fenced(
    world: World, directory: Path, state: str, before_s: float
) -> None:
    with_fence(world, directory, fence_after_s=AFTER_S)
    _, node = running(world)
    cut_off(world, *(other for other in NODES if other != node), state=state)
    world.tick(before_s)
    world.kill_node(node)
    assert ticks_until(world, lambda: node in world.context.ledger.nodes.gone())
    assert len(calls(directory)) == 1


def test_a_fencing_that_fails_is_tried_again_later_and_later(world: World, directory: Path) -> None:
    with_fence(world, directory, "exit 1", fence_after_s=AFTER_S)
    job, node = running(world)
    world.kill_node(node)
    ticks_until(world, lambda: False, 60)  # 1,200 s: after 120, 180, 300, 540 and 1,020 s
    assert 4 <= len(calls(directory)) <= 5
    assert world.state(job) is S.RUNNING
    assert len([event for event in world.context.ledger.events() if event.kind == "node-fence-failed"]) >= 4


def test_a_node_without_vms_of_ours_is_left_alone(world: World, directory: Path) -> None:
    with_fence(world, directory, fence_after_s=AFTER_S)
    world.tick()
    world.kill_node("n3")
    assert not ticks_until(world, lambda: bool(calls(directory)), 15)
