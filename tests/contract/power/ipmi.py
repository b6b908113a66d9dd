"""Nodes whose BMCs are processes of Debian's ipmi_sim, asked and ordered by ipmitool over RMCP+."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

from contract.power.worlds import NODE, OTHER
from patience import PATIENCE_S

from rmsplugin.adapters.power.factory import open_power
from rmsplugin.settings.power import Power

MISSING = [name for name in ("ipmi_sim", "ipmitool") if shutil.which(name) is None]
_PORT, _USER, _PASSWORD = 9623, "admin", "geheim"

#: The node behind a BMC: ipmi_sim asks it for its power, and sets it.
_NODE_PROGRAM = """\
#!/bin/sh
cd {directory}
operation=$2
shift 2
while [ $# -gt 0 ]; do
    case $operation-$1 in
    get-power) echo "power:$(cat power)" ;;
    get-*) echo "$1:0" ;;
    set-*)
        [ -e refuses ] && exit 1
        if [ "$1" = shutdown ]; then [ -e deaf ] || echo 0 >power; fi
        if [ "$1" = power ]; then echo "$2" >power; fi
        echo "$1 $2" >>orders
        shift
        ;;
    esac
    shift
done
"""

_LAN = """\
name "{node}"
set_working_mc 0x20
  startlan 1
    addr {address} {port}
    priv_limit admin
    allowed_auths_admin md5
    guid a123456789abcdefa123456789abcdef
  endlan
  chassis_control "{directory}/node 0x20"
  user 2 true "{user}" "{password}" admin 10 md5
"""

#: A site's script around ipmitool; its answer may be one that nobody expects.
_STATUS = """\
#!/bin/sh
if [ -e {directory}/$1.unknown ]; then echo "Chassis Power is undecided"; exit 0; fi
shift
exec ipmitool "$@"
"""


class IpmiWorld:
    """See PowerWorld."""

    def __init__(self, directory: Path, shutdown_s: float = 0.0) -> None:
        self._directory = directory
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        number = os.getpid() % 60000  # addresses of our own: several suites may run at the same time
        self.addresses = {
            node: f"127.{100 + index}.{number // 250}.{1 + number % 250}" for index, node in enumerate((NODE, OTHER))
        }
        (directory / "password").write_text(_PASSWORD)
        self._program("status", _STATUS.format(directory=directory))
        for node in self.addresses:
            (directory / node).mkdir()
            (directory / node / "power").write_text("1\n")
            self._program(f"{node}/node", _NODE_PROGRAM.format(directory=directory / node))
            self.set_sensors(node, 100.0, 25.0)
        self.driver = open_power(self.settings(shutdown_s))

    def settings(self, shutdown_s: float) -> Power:
        """Settings as an operator would have them."""
        tool = [str(shutil.which("ipmitool")), "-I", "lanplus", "-C", "3", "-N", "1", "-R", "1"]
        tool += ["-H", "{address}", "-p", str(_PORT), "-U", _USER, "-f", str(self._directory / "password")]
        driver = {
            "kind": "command",
            "nodes": ["n[1-2]"],
            "addresses": self.addresses,
            "timeout_s": PATIENCE_S,
            "shutdown_s": shutdown_s,
            "off": [*tool, "chassis", "power", "off"],
            "on": [*tool, "chassis", "power", "on"],
            "shutdown": [*tool, "chassis", "power", "soft"],
            "status": [str(self._directory / "status"), "{node}", *tool[1:], "chassis", "power", "status"],
            "watts": [*tool, "sdr", "type", "0x0b"],
            "temperature": [*tool, "sdr", "type", "temperature"],
        }
        return Power.model_validate({"driver": {"bmc": driver}})

    def orders(self, node: str) -> list[str]:
        """What the node was ordered, oldest first."""
        path = self._directory / node / "orders"
        return path.read_text().splitlines() if path.exists() else []

    def set_deaf(self, node: str) -> None:
        """Let the node's operating system ignore orders to shut down."""
        (self._directory / node / "deaf").touch()

    def now(self) -> float:
        """See PowerWorld."""
        return time.time()

    def wait(self) -> None:
        """See PowerWorld."""
        time.sleep(0.2)

    def silence(self, node: str) -> None:
        """See PowerWorld."""
        self._end(node)

    def make_unknown(self, node: str) -> None:
        """See PowerWorld."""
        (self._directory / f"{node}.unknown").touch()

    def set_sensors(self, node: str, watts: float | None, temperature_c: float | None) -> None:
        """See PowerWorld. The BMC is started anew."""
        self._end(node)
        directory = self._directory / node
        shutil.rmtree(directory / "state", ignore_errors=True)
        (directory / "state").mkdir()
        (directory / "lan.conf").write_text(
            _LAN.format(
                node=node,
                address=self.addresses[node],
                port=_PORT,
                directory=directory,
                user=_USER,
                password=_PASSWORD,
            )
        )
        (directory / "commands").write_text(_commands(directory, watts, temperature_c))
        words = ["ipmi_sim", "-c", "lan.conf", "-f", "commands", "-s", "state", "-n"]
        with open(directory / "log", "ab") as log:
            self._processes[node] = subprocess.Popen(
                words, cwd=directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self._wait_until_it_answers(node)

    def refuse(self, node: str) -> None:
        """See PowerWorld."""
        (self._directory / node / "refuses").touch()

    def close(self) -> None:
        """See PowerWorld."""
        for node in list(self._processes):
            self._end(node)

    def _wait_until_it_answers(self, node: str) -> None:
        words = [str(shutil.which("ipmitool")), "-I", "lanplus", "-C", "3", "-N", "1", "-R", "1"]
        words += ["-H", self.addresses[node], "-p", str(_PORT), "-U", _USER, "-P", _PASSWORD, "sdr", "list"]
        deadline = time.monotonic() + PATIENCE_S
        while True:
            said = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S)
            if said.returncode == 0 and "disabled" not in said.stdout:  # its sensors were read once
                return
            assert time.monotonic() < deadline, (self._directory / node / "log").read_text()
            time.sleep(0.1)

    def _end(self, node: str) -> None:
        process = self._processes.pop(node, None)
        if process is not None:
            process.kill()
            process.wait()

    def _program(self, name: str, text: str) -> None:
        path = self._directory / name
        path.write_text(text)
        path.chmod(0o755)


def _commands(directory: Path, watts: float | None, temperature_c: float | None) -> str:
    """What ipmi_sim does when it starts. Its sensors show whole numbers up to 255."""
    lines = ["mc_setbmc 0x20", "mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02"]
    sensors = [(0x30, 0x01, 1, "Inlet Temp", temperature_c), (0x31, 0x0B, 6, "Power", watts)]
    for number, kind, unit, name, value in sensors:
        if value is not None:
            (directory / f"sensor{number}").write_text(f"{round(value)}\n")
            path = directory / f"sensor{number}"
            lines.append(f'sensor_add 0x20 0 {number:#04x} {kind:#04x} 0x01 poll 100 file "{path}"')
            lines.append(f"main_sdr_add 0x20 {_sensor_record(number, kind, unit, name)}")
            no_events = " ".join(["0" * 15] * 4)
            lines.append(f"sensor_set_event_support 0x20 0 {number:#04x} enable scanning per-state {no_events}")
    return "\n".join([*lines, "mc_enable 0x20", ""])


def _sensor_record(number: int, kind: int, unit: int, name: str) -> str:
    """A full sensor record of IPMI 2.0 (table 43-1): the value is the raw byte, in degrees Celsius (1) or watts (6)."""
    owner, entity, flags = [0x20, 0, number], [7, 1], [0x67, 0]
    no_events, units, factors = [0] * 6, [0, unit, 0, 0], [1, 0, 0, 0, 0, 0]
    limits = [0, 0, 0, 0, 255, 0, *([0] * 11)]
    record = [*owner, *entity, *flags, kind, 0x01, *no_events, *units, *factors, *limits, 0xC0 | len(name)]
    assert len(record) == 43, len(record)
    record += name.encode()
    return " ".join(f"0x{byte:02x}" for byte in [0, 0, 0x51, 0x01, len(record), *record])
