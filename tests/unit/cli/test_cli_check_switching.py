"""The rules of ``rmsplugin check`` for nodes that are switched: each fault is found, with a remedy."""

from __future__ import annotations

from typing import Any

import pytest
from unit.check_facts import fault, faults, settings, with_config

from rmsplugin.cli.check.slurm import judge_slurm
from rmsplugin.cli.check.switching import judge_switching
from rmsplugin.finding import Level
from rmsplugin.settings import Settings

WATTS = {"idle_w": 100, "busy_w": 200, "off_w": 5, "transition_w": 85, "off_s": 30, "on_s": 120}
IPMI = ["/usr/bin/ipmitool", "-H", "{address}"]
DRIVER = {"kind": "command", "off": IPMI, "on": IPMI, "status": IPMI}
PROGRAMS = {"SuspendProgram": "/etc/suspend", "ResumeProgram": "/etc/resume"}


def switching(rooms: str = "elastic", **power: Any) -> Settings:
    known = {"switch": True, "classes": [WATTS], "driver": {"ipmi": DRIVER}, **power}
    return settings(power=known, hosts={"vmhosts": {"rooms": rooms}})


def test_nothing_is_said_where_the_engine_switches_nothing() -> None:
    assert list(judge_switching(switching(switch=False), with_config())) == []


def test_a_site_that_has_all_is_in_order() -> None:
    found = list(judge_switching(switching(), with_config(**PROGRAMS, ResumeTimeout="300 sec")))
    assert faults(found) == []
    assert "are switched off when nobody uses them" in found[-1].what


@pytest.mark.parametrize(
    ("known", "config", "level", "words"),
    [
        ({}, {}, Level.ERROR, "no SuspendProgram and no ResumeProgram"),
        ({}, {**PROGRAMS, "ResumeProgram": "(null)"}, Level.ERROR, "no ResumeProgram"),
        ({}, {**PROGRAMS, "ResumeTimeout": "60 sec"}, Level.ERROR, "would be down by then"),
        (
            {"classes": []},
            {**PROGRAMS, "ResumeTimeout": "300 sec"},
            Level.WARNING,
            "never switched: they have no class",
        ),
        ({"driver": {}}, {**PROGRAMS, "ResumeTimeout": "300 sec"}, Level.WARNING, "or no BMC"),
        ({"rooms": "hold"}, {**PROGRAMS, "ResumeTimeout": "300 sec"}, Level.WARNING, "holds its rooms there"),
    ],
)
def test_each_fault_is_found(known: dict[str, Any], config: dict[str, str], level: Level, words: str) -> None:
    fault(judge_switching(switching(**known), with_config(**config)), level, words)


def test_it_is_a_part_of_the_check() -> None:
    assert any("SuspendProgram" in each.what for each in judge_slurm(switching(), with_config()))
