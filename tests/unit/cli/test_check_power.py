"""Checking power: what BMCs say, and what slurm.conf has to say."""

from __future__ import annotations

from typing import Any

import pytest
from unit import check_facts

from rmsplugin.adapters.power.base import PowerReading, PowerState
from rmsplugin.adapters.simulated.power import SimulatedPower
from rmsplugin.cli.check.facts import SlurmFacts
from rmsplugin.cli.check.power import check_power, judge_power, judge_sensors, judge_slurms_power, probe_power
from rmsplugin.finding import Finding, Level
from rmsplugin.settings import Settings

COMMANDS = {name: ["/bin/echo", f"{{node}}: {name}"] for name in ("off", "on", "status")}


def site(**driver: Any) -> Settings:
    values = {"kind": "command", **COMMANDS, "shutdown_s": 120, **driver}
    return check_facts.settings(power={"driver": {"bmc": values}})


def slurm(state: str = "IDLE", suspend_time: str = "30000000", **config: str) -> SlurmFacts:
    saving = {"SuspendProgram": "/s", "ResumeProgram": "/r", "SuspendTimeout": "180 sec", **config}
    partition = {"PartitionName": "vmhosts", "SuspendTime": suspend_time}
    return SlurmFacts(config=saving, partitions={"vmhosts": partition}, nodes={"n1": {"State": state}})


def levels(findings: list[Finding]) -> list[Level]:
    return [finding.level for finding in findings]


def test_without_a_driver_nothing_is_said() -> None:
    assert check_power(check_facts.settings(), slurm(), ["n1"]) == ([], frozenset())


def test_a_site_in_order() -> None:
    ((found,), off) = check_power(site(status=["/bin/echo", "{node}: on"]), slurm(), ["n1"])
    assert off == frozenset()
    assert (found.level, found.what) == (Level.OK, "BMCs of 1 of 1 VM hosts answer: n1")


@pytest.mark.parametrize(("state", "off"), [("IDLE+POWERED_DOWN", {"n1"}), ("IDLE", set())])
def test_a_node_that_is_off_is_not_looked_at(state: str, off: set[str]) -> None:
    found, found_off = check_power(site(status=["/bin/echo", "{node}: off"]), slurm(state), ["n1"])
    assert found_off == off
    said = "1 are switched off, and are not looked at: n1" in [each.what for each in found]
    assert said == bool(off)


def test_each_bmc_is_asked_once_and_only_where_there_is_one() -> None:
    power = SimulatedPower(["n1", "n2"], clock=lambda: 1000.0)
    power.bmcs["n2"].silent = True
    readings = probe_power(power, ["n1", "n2", "n3"])
    assert sorted(power.calls) == [("reading", "n1"), ("reading", "n2")]
    found = list(judge_power(slurm(), readings, 3))
    assert levels(found) == [Level.ERROR, Level.OK]
    assert (found[0].subject, found[0].what) == ("power of n2", "the BMC of n2 does not answer")
    assert found[1].what == "BMCs of 1 of 3 VM hosts answer: n1"


@pytest.mark.parametrize(
    ("power", "state", "level"),
    [
        (PowerState.ON, "IDLE", Level.OK),
        (PowerState.UNKNOWN, "IDLE", Level.WARNING),
        (PowerState.OFF, "IDLE", Level.ERROR),
        (PowerState.OFF, "ALLOCATED", Level.ERROR),
        (PowerState.OFF, "IDLE+POWERED_DOWN", Level.OK),
        (PowerState.OFF, "DOWN+NOT_RESPONDING", Level.OK),
        (PowerState.ON, "IDLE+POWERED_DOWN", Level.OK),
    ],
)
def test_a_bmc_that_says_off_of_a_node_that_is_up_is_anothers(power: PowerState, state: str, level: Level) -> None:
    (found,) = judge_power(slurm(state), {"n1": PowerReading(power, 1000.0)}, 1)
    assert found.level is level
    assert ("another node" in found.what) is (level is Level.ERROR)


def test_programs_are_needed() -> None:
    (found,) = judge_slurms_power(site(), slurm(SuspendProgram="(null)"))
    assert found.level is Level.WARNING and "SuspendProgram" in found.what


def test_a_node_has_its_time_to_shut_down() -> None:
    (found,) = judge_slurms_power(site(), slurm(SuspendTimeout="120 sec"))
    assert found.level is Level.WARNING and found.remedy.startswith("SuspendTimeout=180")
    assert list(judge_slurms_power(site(shutdown_s=0), slurm(SuspendTimeout="30 sec"))) == []


def test_the_hosts_partition_needs_a_suspend_time() -> None:
    (found,) = judge_slurms_power(site(), slurm(suspend_time="INFINITE"))
    assert found.level is Level.WARNING and "partition vmhosts has no SuspendTime" in found.what


def test_slurm_that_does_not_answer_is_told_elsewhere() -> None:
    assert list(judge_slurms_power(site(), SlurmFacts(unreachable="no"))) == []


def test_a_threshold_needs_a_sensor() -> None:
    power = SimulatedPower(["n1", "n2", "n3", "n4"], clock=lambda: 1000.0)
    power.bmcs["n2"].temperature_c = None
    power.bmcs["n3"].silent = True
    power.bmcs["n4"].on = False
    readings = probe_power(power, ["n1", "n2", "n3", "n4"])
    hot = check_facts.settings(power={"sense_s": 60, "hot_c": 45})
    (found,) = judge_sensors(hot, readings)
    assert (found.level, found.subject) == (Level.WARNING, "temperature")
    assert found.what == "power.hot_c is set, but the BMCs of 1 VM hosts tell no temperature: n2"
    assert list(judge_sensors(check_facts.settings(), readings)) == []
