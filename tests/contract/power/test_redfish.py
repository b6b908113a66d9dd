"""BMCs by Redfish: sessions, certificates, credentials, and firmwares that differ."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from contract.power.redfish import RedfishNode, RedfishWorld, write_certificate
from contract.power.worlds import NODE
from patience import PATIENCE_S

from rmsplugin.adapters.power.base import PowerState
from rmsplugin.errors import (
    ForbiddenError,
    OperationFailedError,
    RefusedError,
    RmspluginError,
    TimedOutError,
    UnavailableError,
)

Make = Callable[..., RedfishWorld]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Makes a world; the keywords are keys of the driver's settings."""
    worlds = []

    def made(**driver: Any) -> RedfishWorld:
        worlds.append(RedfishWorld(tmp_path, **driver))
        return worlds[-1]

    yield made
    for world in worlds:
        world.close()


def node(world: RedfishWorld) -> RedfishNode:
    return world.nodes[NODE]


def state(world: RedfishWorld) -> PowerState:
    return world.driver.reading(NODE).state


def test_one_session_is_for_many_calls_and_another_when_it_has_ended(make: Make) -> None:
    world = make()
    for _ in range(3):
        assert state(world) is PowerState.ON
    assert node(world).logins == 1
    node(world).sessions.clear()
    assert state(world) is PowerState.ON
    assert node(world).logins == 2


def test_credentials_that_are_not_taken(make: Make, tmp_path: Path) -> None:
    world = make()
    path = tmp_path / "credentials"
    path.write_text('user = "admin"\npassword = "other"\n')
    with pytest.raises(ForbiddenError, match="does not take the credentials") as caught:
        world.driver.off(NODE)
    assert "other" not in str(caught.value)
    path.write_text('user = "admin"\npassword = "geheim"\n')
    assert state(world) is PowerState.ON


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602, 0o604])
def test_credentials_that_others_may_read_or_write_are_refused(make: Make, tmp_path: Path, mode: int) -> None:
    world = make()
    (tmp_path / "credentials").chmod(mode)
    with pytest.raises(RefusedError, match="chmod 600"):
        world.driver.reading(NODE)
    assert node(world).logins == 0


@pytest.mark.parametrize(
    "text", ["", "password = 'geheim'", "user = 'a'\npassword = ''", "user = 'a'\npassword = geheim"]
)
def test_credentials_that_are_none(make: Make, tmp_path: Path, text: str) -> None:
    world = make()
    (tmp_path / "credentials").write_text(text)
    with pytest.raises(RefusedError, match="credentials") as caught:
        world.driver.reading(NODE)
    assert "geheim" not in str(caught.value)


def test_a_bmc_with_another_certificate_is_told_no_password_and_proves_nothing(make: Make, tmp_path: Path) -> None:
    other, _ = write_certificate(tmp_path, "other")
    world = make(ca=str(other))
    node(world).power = "Off"
    for ask in (world.driver.reading, world.driver.off, world.driver.on):
        with pytest.raises(RefusedError, match="certificate"):
            ask(NODE)
    assert (node(world).logins, node(world).orders) == (0, [])


def test_a_certificate_of_another_name_is_not_believed(make: Make) -> None:
    world = make()
    port = node(world).address.rpartition(":")[2]
    world = make(addresses={NODE: f"localhost:{port}"}, ca=world_ca(world))
    with pytest.raises(RefusedError, match="certificate"):
        world.driver.reading(NODE)


def world_ca(world: RedfishWorld) -> str:
    """The certificate of its BMCs, kept before another world is made beside it."""
    path = world.directory / "kept.pem"
    path.write_bytes((world.directory / "bmc.pem").read_bytes())
    return str(path)


@pytest.mark.parametrize(
    ("deaf", "resets", "orders"),
    [
        (False, ["On", "ForceOff", "GracefulShutdown"], ["GracefulShutdown"]),
        (True, ["On", "ForceOff", "GracefulShutdown"], ["GracefulShutdown", "ForceOff"]),
        (False, ["On", "ForceOff"], ["ForceOff"]),
    ],
)
def test_the_operating_system_shuts_down_first(make: Make, deaf: bool, resets: list[str], orders: list[str]) -> None:
    world = make(shutdown_s=3.0 if deaf else PATIENCE_S)
    node(world).deaf, node(world).resets = deaf, resets
    world.driver.off(NODE)
    deadline = time.monotonic() + PATIENCE_S
    while state(world) is not PowerState.OFF:
        assert time.monotonic() < deadline
        world.wait()
    assert node(world).orders == orders


def test_a_conflict_with_what_is_so_already_is_no_error(make: Make) -> None:
    world = make()
    node(world).conflicts = True
    world.driver.on(NODE)
    node(world).power = "Off"
    with pytest.raises(RmspluginError):
        node(world).refuses = True
        world.driver.on(NODE)
    assert node(world).orders == []


def test_a_bmc_that_takes_connections_and_answers_nothing_is_bounded(make: Make) -> None:
    world = make(timeout_s=0.5)
    assert state(world) is PowerState.ON
    node(world).silent.set()
    with pytest.raises(UnavailableError, match=NODE):
        world.driver.reading(NODE)
    assert not node(world).gave_up, "it waited for the BMC"


def test_a_bmc_that_drips_is_bounded(make: Make) -> None:
    world = make(timeout_s=0.5)
    node(world).drips = True
    with pytest.raises((TimedOutError, UnavailableError), match=NODE):
        world.driver.reading(NODE)
    with pytest.raises((TimedOutError, UnavailableError), match=NODE):
        world.driver.off(NODE)


def test_an_order_without_an_answer_may_be_carried_out(make: Make) -> None:
    world = make(timeout_s=0.5)
    assert state(world) is PowerState.ON
    reset = node(world).reset

    def slow(kind: str) -> int:
        status = reset(kind)
        node(world).closed.wait(3)
        return status

    node(world).reset = slow  # type: ignore[method-assign]
    with pytest.raises(TimedOutError, match="may carry it out"):
        world.driver.off(NODE)
    assert node(world).orders == ["ForceOff"]


def test_a_bmc_of_several_systems_has_to_be_told_which(make: Make) -> None:
    world = make()
    node(world).systems = 2
    with pytest.raises(RefusedError, match="has 2 systems: set `system`"):
        world.driver.reading(NODE)


def test_the_path_of_a_system(make: Make) -> None:
    assert state(make(system="/redfish/v1/Systems/1")) is PowerState.ON
    with pytest.raises(RefusedError, match="refuses"):
        make(system="/redfish/v1/Systems/{node}").driver.reading(NODE)


def sensor(name: str, value: object, state: str = "Enabled") -> dict[str, Any]:
    return {"Name": name, "ReadingCelsius": value, "Status": {"State": state}}


@pytest.mark.parametrize(
    ("temperatures", "shown"),
    [
        ([sensor("CPU1", 71.0), sensor("Inlet Temp", 24.0), sensor("Inlet 2", 26.0)], 26.0),
        ([sensor("CPU1", 71.0), sensor("CPU2", 65.0)], 71.0),
        ([sensor("Inlet", None), sensor("CPU1", 50)], 50.0),
        ([sensor("Inlet", 99.0, "Absent"), sensor("CPU1", 50)], 50.0),
        ([{"Name": "S1", "PhysicalContext": "Intake", "ReadingCelsius": 20}, sensor("CPU1", 50)], 20.0),
    ],
)
def test_the_temperature_is_that_of_the_inlet_or_else_the_highest(
    make: Make, temperatures: list[dict[str, Any]], shown: float
) -> None:
    world = make()
    node(world).temperatures = temperatures
    reading = world.driver.reading(NODE)
    assert reading.temperature_c is not None and reading.temperature_c.value == shown


def test_sensors_of_newer_firmware(make: Make) -> None:
    world = make()
    node(world).watts, node(world).temperatures = None, []
    node(world).metrics = {"PowerWatts": {"Reading": 212.5}, "TemperatureCelsius": {"Reading": 23}}
    reading = world.driver.reading(NODE)
    assert reading.watts is not None and reading.watts.value == 212.5
    assert reading.temperature_c is not None and reading.temperature_c.value == 23.0


@pytest.mark.parametrize(
    "said", [{"PowerControl": [{}]}, {"PowerControl": [{"PowerConsumedWatts": True}]}, {}, {"PowerControl": 7}]
)
def test_sensors_that_make_no_sense_leave_the_state_alone(make: Make, said: dict[str, Any]) -> None:
    world = make()
    node(world)._measured = lambda: {"Power": said}  # type: ignore[method-assign]
    reading = world.driver.reading(NODE)
    assert (reading.state, reading.watts) == (PowerState.ON, None)


def test_a_refusal_says_what_the_bmc_said(make: Make) -> None:
    world = make()
    node(world).refuses = True
    with pytest.raises((RefusedError, OperationFailedError), match=r"n1.*400"):
        world.driver.off(NODE)
