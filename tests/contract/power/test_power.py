"""The contract of ``adapters.power.base.PowerDriver``, on BMCs of each kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from contract.power import ipmi
from contract.power.redfish import RedfishWorld
from contract.power.worlds import NODE, OTHER, STRANGER, PowerWorld, SimulatedPowerWorld
from patience import PATIENCE_S

from rmsplugin.adapters.power.base import PowerReading, PowerState
from rmsplugin.errors import OperationFailedError, RefusedError, UnavailableError


@pytest.fixture(params=["simulated", "command", "redfish"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PowerWorld]:
    opened = open_power_world(request.param, tmp_path)
    yield opened
    opened.close()


def open_power_world(kind: str, directory: Path) -> PowerWorld:
    if kind == "simulated":
        return SimulatedPowerWorld()
    if kind == "redfish":
        return RedfishWorld(directory)
    if ipmi.MISSING:
        pytest.skip(f"not installed: {', '.join(ipmi.MISSING)}")
    return ipmi.IpmiWorld(directory)


def until(world: PowerWorld, node: str, state: PowerState) -> PowerReading:
    """The first reading that says so."""
    for _ in range(100):
        reading = world.driver.reading(node)
        if reading.state is state:
            return reading
        world.wait()
    raise AssertionError(f"{node} is {reading.state}, not {state}")


def test_a_node_that_is_on_reads_on(world: PowerWorld) -> None:
    before = world.now()
    reading = world.driver.reading(NODE)
    assert reading.state is PowerState.ON
    assert before <= reading.at <= world.now()


def test_a_node_goes_off_and_comes_on_and_no_other_does(world: PowerWorld) -> None:
    ordered = world.now()
    world.driver.off(NODE)
    assert until(world, NODE, PowerState.OFF).proves_off(ordered)
    assert world.driver.reading(OTHER).state is PowerState.ON
    world.driver.on(NODE)
    assert not until(world, NODE, PowerState.ON).proves_off(ordered)


def test_an_order_that_is_given_again_changes_nothing(world: PowerWorld) -> None:
    world.driver.on(NODE)
    assert world.driver.reading(NODE).state is PowerState.ON
    world.driver.off(NODE)
    world.driver.off(NODE)
    until(world, NODE, PowerState.OFF)
    world.driver.off(NODE)
    world.wait()
    assert world.driver.reading(NODE).state is PowerState.OFF
    world.driver.on(NODE)
    world.driver.on(NODE)
    until(world, NODE, PowerState.ON)


def test_a_silent_bmc_proves_nothing(world: PowerWorld) -> None:
    world.silence(NODE)
    for ask in (world.driver.reading, world.driver.off, world.driver.on):
        with pytest.raises((UnavailableError, OperationFailedError)) as caught:
            ask(NODE)
        assert NODE in str(caught.value)
    assert world.driver.reading(OTHER).state is PowerState.ON


def test_a_bmc_that_does_not_know_proves_nothing(world: PowerWorld) -> None:
    world.driver.off(NODE)
    until(world, NODE, PowerState.OFF)
    world.make_unknown(NODE)
    reading = world.driver.reading(NODE)
    assert reading.state is PowerState.UNKNOWN
    assert not reading.proves_off(0.0)


def test_watts_and_temperature_are_told_with_their_time(world: PowerWorld) -> None:
    world.set_sensors(NODE, 180.0, 31.5)
    before = world.now()
    reading = world.driver.reading(NODE)
    assert reading.watts is not None and reading.temperature_c is not None
    assert reading.watts.value == pytest.approx(180.0, abs=1.0)
    assert reading.temperature_c.value == pytest.approx(31.5, abs=0.6)
    assert before <= reading.watts.at <= world.now()
    assert before <= reading.temperature_c.at <= world.now()


def test_the_power_is_told_where_there_are_no_sensors(world: PowerWorld) -> None:
    world.set_sensors(NODE, None, None)
    reading = world.driver.reading(NODE)
    assert (reading.state, reading.watts, reading.temperature_c) == (PowerState.ON, None, None)


def test_a_refused_order_says_so_and_the_node_stays_as_it_was(world: PowerWorld) -> None:
    world.refuse(NODE)
    with pytest.raises((RefusedError, OperationFailedError)):
        world.driver.off(NODE)
    assert world.driver.reading(NODE).state is PowerState.ON


def test_a_node_without_a_bmc_is_refused(world: PowerWorld) -> None:
    assert world.driver.drives(NODE)
    assert not world.driver.drives(STRANGER)
    for ask in (world.driver.reading, world.driver.off, world.driver.on):
        with pytest.raises(RefusedError):
            ask(STRANGER)


@pytest.mark.skipif(bool(ipmi.MISSING), reason=f"not installed: {', '.join(ipmi.MISSING)}")
@pytest.mark.parametrize(("deaf", "orders"), [(False, ["shutdown 1"]), (True, ["shutdown 1", "power 0"])])
def test_ipmitool_has_the_node_shut_down_before_its_power_is_cut(tmp_path: Path, deaf: bool, orders: list[str]) -> None:
    world = ipmi.IpmiWorld(tmp_path, shutdown_s=3.0 if deaf else PATIENCE_S)
    try:
        if deaf:
            world.set_deaf(NODE)
        world.driver.off(NODE)
        assert world.driver.reading(NODE).state is PowerState.OFF
        assert world.orders(NODE) == orders
    finally:
        world.close()
