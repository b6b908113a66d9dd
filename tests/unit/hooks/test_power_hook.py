"""ResumeProgram switches nodes on without the engine; SuspendProgram does nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_S

from rmsplugin import power_hook
from rmsplugin.adapters.simulated.power import SimulatedPower
from rmsplugin.errors import UnavailableError
from rmsplugin.settings import load

ROOT = Path(__file__).resolve().parents[3]
NODE = "n1"

SETTINGS = """\
[slurm]
partitions = ["vjob"]
[partition.vjob]
hosts = "vmhosts"
[network]
pool = "10.0.0.10-10.0.0.20"
prefix_length = 24
[image.default]
kind = "kernel"
kernel = "/k"
initrd = "/i"
"""


class Site:
    """A node, and a hook that looks after it."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.wanted = True
        self.power = SimulatedPower([NODE], clock=lambda: self.time, off_s=20.0, on_s=60.0)

    def sleep(self, seconds: float) -> None:
        self.time += seconds

    def switched_on(self, watch_s: float = 100.0) -> str:
        return power_hook.switch_on(
            self.power, NODE, watch_s, self.sleep, lambda: self.time, still_wanted=lambda node: self.wanted
        )

    @property
    def orders(self) -> list[str]:
        return [method for method, _ in self.power.calls if method != "reading"]


def test_a_node_that_is_off_is_ordered_on_once() -> None:
    site = Site()
    site.power.switch_by_hand(NODE, on=False)
    assert site.switched_on() == ""
    assert (site.orders, site.time) == (["on"], 1000.0)


def test_a_node_whose_shutdown_goes_on_is_ordered_on_when_it_is_off() -> None:
    site = Site()
    site.power.off(NODE)
    assert site.switched_on() == ""
    assert (site.orders, site.time) == (["off", "on"], 1020.0)
    assert site.power.bmcs[NODE].on


def test_a_node_that_has_come_on_and_was_switched_off_again_stays_off() -> None:
    site = Site()
    site.power.off(NODE)
    site.wanted = False
    assert site.switched_on() == ""
    assert (site.orders, site.time) == (["off"], 1020.0)


def test_a_node_that_is_off_from_the_beginning_is_ordered_on_whatever_slurm_says_by_then() -> None:
    site = Site()
    site.power.switch_by_hand(NODE, on=False)
    site.wanted = False
    assert site.switched_on() == ""
    assert site.orders == ["on"]


@pytest.mark.parametrize(
    ("state", "wanted"),
    [("ALLOCATED+NOT_RESPONDING+POWERING_UP", True), ("IDLE+POWERING_DOWN", False), ("IDLE", False), ("", True)],
)
def test_slurm_says_whether_it_waits_for_a_node(tmp_path: Path, state: str, wanted: bool) -> None:
    """A Slurm that does not say so wants it."""
    scontrol = tmp_path / "scontrol"
    said = f"echo NodeName=n1 CPUTot=2 RealMemory=2048 State={state}" if state else "exit 1"
    scontrol.write_text(f"#!/bin/sh\n{said}\n")
    scontrol.chmod(0o755)
    path = tmp_path / "config.toml"
    path.write_text(SETTINGS.replace("[slurm]", f'[slurm]\nbin_dir = "{tmp_path}"'))
    assert power_hook._still_wanted(load(path))(NODE) is wanted


def test_a_node_that_stays_on_is_ordered_nothing() -> None:
    site = Site()
    assert site.switched_on() == ""
    assert (site.orders, site.time) == ([], 1100.0)


def test_a_bmc_that_is_silent_for_a_while_is_asked_again() -> None:
    site = Site()
    site.power.switch_by_hand(NODE, on=False)
    for method in ("reading", "on"):
        site.power.fail_next(method, UnavailableError("busy"))
    assert site.switched_on() == ""
    assert site.orders == ["on", "on"]
    assert site.power.bmcs[NODE].on


def test_a_bmc_that_is_silent_for_good_is_told() -> None:
    site = Site()
    site.power.bmcs[NODE].silent = True
    assert site.switched_on() == "the BMC of n1 does not answer"
    assert site.time == 1100.0


def test_a_bmc_that_does_not_know_is_ordered_and_told() -> None:
    site = Site()
    site.power.bmcs[NODE].unknown = True
    assert "neither on nor off" in site.switched_on(10.0)
    assert set(site.orders) == {"on"}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Settings whose BMCs of n1 and n2 are files: off at first."""
    script = tmp_path / "bmc"
    script.write_text(f'#!/bin/sh\ncd {tmp_path}\n[ "$1" = status ] && exec cat "$2"\necho "n: $1" >"$2"\n')
    script.chmod(0o755)
    for name in ("n1", "n2", "n3"):
        (tmp_path / name).write_text("n: off\n")
    words = "".join(f'{name} = ["{script}", "{name}", "{{node}}"]\n' for name in ("off", "on", "status"))
    path = tmp_path / "config.toml"
    path.write_text(f'{SETTINGS}[power.driver.bmc]\nkind = "command"\nnodes = ["n[1-2]"]\n{words}')
    return path


def hook(config: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "rmsplugin.hook", *arguments],
        env={"PYTHONPATH": str(ROOT), "RMSPLUGIN_CONFIG": str(config)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


def powers(config: Path) -> list[str]:
    return [(config.parent / name).read_text().strip() for name in ("n1", "n2", "n3")]


def test_resume_program_switches_on_what_has_a_driver(config: Path) -> None:
    done = hook(config, "resume_program", "n[1-3]")
    assert (done.returncode, done.stderr) == (0, "")
    assert powers(config) == ["n: on", "n: on", "n: off"]


def test_suspend_program_switches_nothing_off(config: Path) -> None:
    (config.parent / "n1").write_text("n: on\n")
    done = hook(config, "suspend_program", "n1")
    assert (done.returncode, done.stderr) == (0, "")
    assert powers(config)[0] == "n: on"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["resume_program"], "usage"),
        (["resume_program", "n1", "n2"], "usage"),
        (["prolog", "n1"], "usage"),
        (["resume_program", "n[3-1]"], "ends before it begins"),
    ],
)
def test_whatever_is_wrong_the_exit_status_is_0(config: Path, arguments: list[str], said: str) -> None:
    done = hook(config, *arguments)
    assert done.returncode == 0
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_driver_nothing_is_done(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(SETTINGS)
    done = hook(path, "resume_program", "n1")
    assert (done.returncode, done.stderr) == (0, "")
