"""BMCs by commands: how the output of tools is read, and what a failure means."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rmsplugin.adapters.lease.clocked import steady_s
from rmsplugin.adapters.power.base import PowerState
from rmsplugin.adapters.power.bmc import Sensors
from rmsplugin.adapters.power.command_bmc import CommandBmc
from rmsplugin.adapters.power.factory import open_power
from rmsplugin.errors import DeposedError, OperationFailedError, TimedOutError, UnavailableError
from rmsplugin.settings.power import CommandDriver, Power

ON, OFF, UNKNOWN = PowerState.ON, PowerState.OFF, PowerState.UNKNOWN


def program(directory: Path, text: str) -> str:
    path = directory / "program"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def bmc(directory: Path, text: str, **more: Any) -> CommandBmc:
    """A BMC whose every command is this script, with the name of the command and the node."""
    path = program(directory, text)
    names = ("off", "on", "status", "shutdown", "watts", "temperature")
    words = {name: [path, name, "{node}", "{address}"] for name in names}
    return CommandBmc("n1", CommandDriver.model_validate({"kind": "command", **words, **more}))


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ("Chassis Power is on", ON),  # ipmitool
        ("Chassis Power is off", OFF),
        ("n1: on", ON),  # xCAT, Warewulf
        ("n1: off", OFF),
        ("Status: ON", ON),  # fence agents
        ("Status: OFF", OFF),
        ("on", ON),
        ("off\r", OFF),
        ("a line before\nn1: off\na line after", OFF),
        ("", UNKNOWN),
        ("n1: unknown", UNKNOWN),
        ("n1: on\nn2: off", UNKNOWN),
        ("n1: error: cannot switch it off", UNKNOWN),
        ("connection to switched-off", UNKNOWN),
        ("Chassis Power Control: Down/Off", UNKNOWN),
    ],
)
def test_what_tools_say_of_the_power(tmp_path: Path, said: str, state: PowerState) -> None:
    (tmp_path / "said").write_text(said)
    assert bmc(tmp_path, f"cat {tmp_path}/said").state() is state


def test_a_status_that_fails_proves_nothing_whatever_it_says(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"n1.*ended with 1: n1: off"):
        bmc(tmp_path, "echo n1: off; exit 1").state()


def test_exits_of_fence_agents(tmp_path: Path) -> None:
    assert bmc(tmp_path, "echo Status: OFF; exit 2", status_exits=[0, 2]).state() is OFF


def test_own_words_of_a_site(tmp_path: Path) -> None:
    own = {"says_on": "up", "says_off": "down"}
    assert bmc(tmp_path, "echo n1 is down", **own).state() is OFF


def test_an_order_that_fails_says_what_the_program_said(tmp_path: Path) -> None:
    with pytest.raises(OperationFailedError, match="n1 was not switched: `off` ended with 7: no"):
        bmc(tmp_path, "echo no; exit 7").cut()
    with pytest.raises(OperationFailedError, match="`on` ended with 7: it said nothing"):
        bmc(tmp_path, "exit 7").switch_on()


def test_the_program_gets_node_and_address_and_no_shell_reads_them(tmp_path: Path) -> None:
    addresses = {"n1": "10.0.0.9"}
    bmc(tmp_path, f'echo "$#/$1/$2/$3" >{tmp_path}/words', addresses=addresses).cut()
    assert (tmp_path / "words").read_text() == "3/off/n1/10.0.0.9\n"
    bmc(tmp_path, f'echo "$3" >{tmp_path}/words', address="{node}-bmc").switch_on()
    assert (tmp_path / "words").read_text() == "n1-bmc\n"


def test_a_program_that_hangs_is_ended(tmp_path: Path) -> None:
    slow = bmc(tmp_path, "exec sleep 600", timeout_s=0.2)
    with pytest.raises(TimedOutError, match="n1"):
        slow.state()
    with pytest.raises(TimedOutError, match="n1"):
        slow.cut()


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    made = bmc(tmp_path, "")
    os.unlink(tmp_path / "program")
    with pytest.raises(OperationFailedError, match=r"n1.*cannot be run"):
        made.state()
    assert made.sensors() == Sensors()


@pytest.mark.parametrize(
    ("said", "sensors"),
    [
        ("Instantaneous power reading:                   180 Watts", Sensors(180.0, None)),
        ("Power | 31h | ok  |  7.1 | 212.5 Watts\nPSU2 | 32h | ok | 7.1 | 3 Watts", Sensors(212.5, None)),
        ("Inlet Temp | 30h | ok | 7.1 | 31 degrees C\nExhaust | 31h | ok | 7.1 | 44.5 degrees C", Sensors(None, 44.5)),
        ("n1: Ambient Temp: 24 C (75 F)", Sensors(None, 24.0)),
        ("Inlet: -3 °C", Sensors(None, -3.0)),
        ("Inlet Temp | 30h | ns | 7.1 | Disabled", Sensors()),
        ("", Sensors()),
    ],
)
def test_what_tools_say_of_sensors(tmp_path: Path, said: str, sensors: Sensors) -> None:
    (tmp_path / "said").write_text(said)
    assert bmc(tmp_path, f"cat {tmp_path}/said").sensors() == sensors


def test_sensors_that_fail_show_nothing(tmp_path: Path) -> None:
    assert bmc(tmp_path, "echo 180 Watts 30 degrees C; exit 1").sensors() == Sensors()


def test_a_number_that_is_none_is_left_out(tmp_path: Path) -> None:
    own = {"watts_value": "(.*) Watts", "temperature_value": "(.*) C"}
    assert bmc(tmp_path, "echo many Watts; echo nan C", **own).sensors() == Sensors()


def test_without_a_command_nothing_is_shut_down(tmp_path: Path) -> None:
    assert not bmc(tmp_path, "exit 1", shutdown=[]).shut_down()


def test_an_order_of_an_engine_that_was_stopped_after_its_look_is_not_begun(tmp_path: Path) -> None:
    path = program(tmp_path, f"touch {tmp_path}/begun")
    words = {name: [path, "{node}"] for name in ("off", "on", "status")}
    driver = {"kind": "command", "nodes": ["n1"], **words}
    looks = iter([600.0, -0.001])  # at the lease: before the order, and before its command

    @contextmanager
    def permit() -> Iterator[float | None]:
        left_s = next(looks, None)
        if left_s is None:
            raise DeposedError("over")
        yield steady_s() + left_s

    power = open_power(Power.model_validate({"driver": {"one": driver}}), permit=permit)
    with pytest.raises(DeposedError):
        power.on("n1")
    assert not (tmp_path / "begun").exists()
