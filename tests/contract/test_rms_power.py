"""The contract of ``adapters.rms.base.Rms``: nodes that are powered down and up; see rms_worlds.

With real Slurm, a node keeps its power when it is powered down, and loses it for a moment when it is to boot.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from contract.rms_worlds import World
from patience import PATIENCE_S

from rmsplugin.adapters.rms.base import JobState, NodePower, RmsNode
from rmsplugin.errors import NotFoundError, RefusedError

NODE, OTHER = "n1", "n2"


def seen(world: World, node: str = NODE) -> RmsNode:
    return world.rms.snapshot().nodes[node]


def until(world: World, power: NodePower, seconds: float = PATIENCE_S) -> RmsNode:
    world.wait(f"{NODE} to be {power}", lambda: seen(world).power is power, seconds)
    return seen(world)


def resumed(world: World) -> None:
    """Slurm has run ResumeProgram: what boots before that does not count."""
    world.wait("the node to be resumed", lambda: "POWERING_UP" in seen(world).flags or seen(world).up)


@pytest.fixture
def on_again(world: World) -> Iterator[None]:
    """Have the node on again after the test."""
    yield
    world.wait("the node to be on or off", lambda: seen(world).power is not NodePower.GOING_OFF)
    world.rms.repair_node(NODE)
    world.rms.power_up(NODE)
    resumed(world)
    world.boot(NODE)
    until(world, NodePower.ON)


def powered_down(world: World) -> RmsNode:
    world.rms.power_down(NODE, "nobody needs it")
    return until(world, NodePower.OFF)


def test_a_node_is_on_and_tells_when_it_booted(world: World) -> None:
    world.boot(NODE)
    world.wait("its boot time", lambda: abs(seen(world).boot_time - world.now()) < 60)
    node = seen(world)
    assert (node.power, node.up, node.idle) == (NodePower.ON, True, True)


def test_the_settings_of_power_saving_are_read(world: World) -> None:
    saving = world.rms.snapshot().power_saving
    assert saving.enabled
    assert saving.suspend_program.endswith("suspend_program")
    assert saving.resume_program.endswith("resume_program")
    assert saving.suspend_timeout_s > 0 and saving.resume_timeout_s > 0
    assert world.rms.snapshot().kept_on(NODE) == ""


@pytest.mark.usefixtures("on_again")
def test_a_node_that_its_room_holds_goes_off_when_the_room_ends_and_is_never_plain_idle(world: World) -> None:
    room = world.room(NODE)
    world.wait_for(room, JobState.RUNNING)
    for _ in range(2):
        world.rms.power_down(NODE, "nobody needs it")
        node = seen(world)
        assert (node.power, node.draining) == (NodePower.GOING_OFF, True)
    assert world.stays(lambda: world.rms.job(room).state is JobState.RUNNING, 2)
    world.rms.cancel(room)
    states = []

    def off() -> bool:
        node = seen(world)
        states.append(node.state)
        assert node.power is not NodePower.ON, states
        return node.power is NodePower.OFF

    world.wait("the node to be off", off)
    assert not seen(world).up
    assert seen(world, OTHER).power is NodePower.ON


@pytest.mark.usefixtures("on_again")
def test_a_node_that_is_off_is_not_powered_down_once_more(world: World) -> None:
    powered_down(world)
    world.rms.power_down(NODE, "once more")
    assert world.stays(lambda: seen(world).power is NodePower.OFF, 3)


@pytest.mark.usefixtures("on_again")
def test_a_room_brings_a_node_on_which_is_up_once_it_has_booted(world: World) -> None:
    powered_down(world)
    room = world.room(NODE)
    world.wait("the node to be wanted", lambda: seen(world).power is NodePower.COMING_ON)
    resumed(world)
    assert world.rms.job(room).state is JobState.CONFIGURING
    assert not seen(world).up
    world.boot(NODE)
    world.wait_for(room, JobState.RUNNING)
    node = seen(world)
    assert (node.power, node.up) == (NodePower.ON, True)


@pytest.mark.usefixtures("on_again")
def test_a_native_job_brings_a_node_on(world: World) -> None:
    powered_down(world)
    job = world.submit(f"--nodelist={NODE}", gated=False)
    resumed(world)
    world.boot(NODE)
    assert world.wait_for(job, JobState.RUNNING).nodes == (NODE,)


@pytest.mark.usefixtures("on_again")
def test_a_node_is_powered_up_without_a_job(world: World) -> None:
    powered_down(world)
    for _ in range(2):
        world.rms.power_up(NODE)
        assert seen(world).power is NodePower.COMING_ON
    resumed(world)
    world.boot(NODE)
    until(world, NodePower.ON)
    world.rms.power_up(NODE)
    assert seen(world).power is NodePower.ON


@pytest.mark.usefixtures("on_again")
def test_a_node_that_goes_off_cannot_be_powered_up_yet(world: World) -> None:
    world.rms.power_down(NODE, "nobody needs it")
    with pytest.raises(RefusedError, match=NODE):
        world.rms.power_up(NODE)
    until(world, NodePower.OFF)


@pytest.mark.usefixtures("on_again")
def test_a_node_that_somebody_has_boot_is_on_without_a_request(world: World) -> None:
    powered_down(world)
    world.boot(NODE)
    node = until(world, NodePower.ON)
    assert node.up


@pytest.mark.usefixtures("on_again")
def test_a_node_that_does_not_boot_is_down_until_it_is_repaired(world: World) -> None:
    powered_down(world)
    world.rms.power_up(NODE)
    limit_s = world.rms.snapshot().power_saving.resume_timeout_s
    world.wait("the node to be down", lambda: "DOWN" in seen(world).flags, limit_s + 60)
    node = seen(world)
    assert node.reason.startswith("ResumeTimeout reached")
    assert (node.up, node.power) == (False, NodePower.OFF)
    for _ in range(2):
        world.rms.repair_node(NODE)
        node = seen(world)
        assert "DOWN" not in node.flags
        assert node.power is NodePower.OFF


@pytest.mark.usefixtures("on_again")
def test_a_room_on_a_node_that_does_not_boot_ends(world: World) -> None:
    powered_down(world)
    room = world.room(NODE)
    resumed(world)
    limit_s = world.rms.snapshot().power_saving.resume_timeout_s
    assert world.wait_for(room, JobState.ENDED, seconds=limit_s + 60).detail == "NODE_FAIL"
    # Slurm does not always show it as down: its slurmd, which ran on here, was heard when the job was ended.
    assert until(world, NodePower.OFF).up is False
    world.rms.repair_node(NODE)
    assert "DOWN" not in seen(world).flags


def test_a_repair_undoes_nothing_of_an_admin(world: World) -> None:
    world.wait("the node to answer", lambda: seen(world).state == "IDLE")  # it was away in the test before
    world.rms.repair_node(NODE)
    assert seen(world).state == "IDLE"
    world.drain(NODE, "disk")
    world.rms.repair_node(NODE)
    assert seen(world).draining


def test_a_node_that_does_not_exist(world: World) -> None:
    for ask in (lambda: world.rms.power_down("nowhere", "x"), lambda: world.rms.power_up("nowhere")):
        with pytest.raises(NotFoundError, match="nowhere"):
            ask()
    with pytest.raises(NotFoundError, match="nowhere"):
        world.rms.repair_node("nowhere")
