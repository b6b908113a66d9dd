"""What Slurm's own settings keep on, and the power of nodes as scontrol of 22.05.8 prints it."""

from __future__ import annotations

import pytest

from rmsplugin.adapters.rms import slurm_records
from rmsplugin.adapters.rms.base import NodePower, RmsNode, RmsPartition, RmsSnapshot
from rmsplugin.adapters.rms.power_saving import KeptOn, PowerSaving
from rmsplugin.errors import RefusedError

ON, OFF, GOING_OFF, COMING_ON = NodePower.ON, NodePower.OFF, NodePower.GOING_OFF, NodePower.COMING_ON

CONFIGURATION = """\
ResumeProgram           = /etc/rmsplugin/hooks/resume_program
ResumeTimeout           = 600 sec
SuspendExcNodes         = n[1-4]:2,n9
SuspendExcParts         = gpu,debug
SuspendExcStates        = MAINTENANCE,RESERVED
SuspendProgram          = /etc/rmsplugin/hooks/suspend_program
SuspendTime             = INFINITE
SuspendTimeout          = 45 sec
"""


@pytest.mark.parametrize(
    ("state", "power", "up"),
    [
        ("IDLE", ON, True),
        ("ALLOCATED+DRAIN+POWER_DOWN", GOING_OFF, False),
        ("IDLE+COMPLETING+DRAIN+POWER_DOWN", GOING_OFF, False),
        ("IDLE+POWERING_DOWN", GOING_OFF, False),
        ("IDLE+POWERED_DOWN", OFF, False),
        ("DOWN+POWERED_DOWN+NOT_RESPONDING", OFF, False),
        ("ALLOCATED+POWERED_DOWN", COMING_ON, False),
        ("MIXED+POWERED_DOWN", COMING_ON, False),
        ("IDLE+POWER_UP+POWERED_DOWN", COMING_ON, False),
        ("ALLOCATED+NOT_RESPONDING+POWERING_UP", COMING_ON, False),
        ("MIXED+POWERING_UP", COMING_ON, False),
        ("IDLE+DRAIN+POWER_DOWN+NOT_RESPONDING+POWERING_UP", GOING_OFF, False),
    ],
)
def test_the_power_of_a_node_by_its_state(state: str, power: NodePower, up: bool) -> None:
    node = slurm_records.node("n1", 2, 2048, state)
    assert (node.power, node.up) == (power, up)


def test_the_boot_time_is_read_and_its_jitter_makes_no_other_node() -> None:
    text = "NodeName=n1 CPUTot=2 RealMemory=2048 State=IDLE BootTime={} SlurmdStartTime=1795867978\n"
    nodes = [slurm_records.nodes(text.format(said))["n1"] for said in ("1795867978", "1795867979", "None")]
    assert [node.boot_time for node in nodes] == [1795867978, 1795867979, 0]
    assert nodes[0] == nodes[1]


def test_the_settings_as_they_are_printed() -> None:
    assert slurm_records.power_saving(slurm_records.configuration(CONFIGURATION)) == PowerSaving(
        "/etc/rmsplugin/hooks/suspend_program",
        "/etc/rmsplugin/hooks/resume_program",
        45,
        600,
        (KeptOn(frozenset({"n1", "n2", "n3", "n4"}), 2), KeptOn(frozenset({"n9"}))),
        ("gpu", "debug"),
        ("MAINTENANCE", "RESERVED"),
    )


def test_settings_that_say_nothing() -> None:
    text = "\n".join(f"{line.partition('=')[0]}= (null)" for line in CONFIGURATION.splitlines())
    saving = slurm_records.power_saving(slurm_records.configuration(text))
    assert saving == PowerSaving()
    assert not saving.enabled


def snapshot(saving: PowerSaving, **states: str) -> RmsSnapshot:
    nodes = {name: slurm_records.node(name, 2, 2048, states.get(name, "IDLE")) for name in ("n1", "n2", "n3")}
    partitions = {
        "vmhosts": RmsPartition("vmhosts", True, ("n1", "n2", "n3"), "CANCEL", 1, 60),
        "gpu": RmsPartition("gpu", True, ("n3",), "OFF", 1, 0),
    }
    return RmsSnapshot(jobs=(), nodes=nodes, partitions=partitions, power_saving=saving)


def saving(nodes: str = "", partitions: tuple[str, ...] = (), states: tuple[str, ...] = ()) -> PowerSaving:
    return PowerSaving("/suspend", "/resume", 30, 60, slurm_records.kept_on(nodes), partitions, states)


def test_without_programs_nothing_may_go_off() -> None:
    assert "SuspendProgram" in snapshot(PowerSaving()).kept_on("n1")
    assert "SuspendProgram" in snapshot(PowerSaving(suspend_program="/suspend")).kept_on("n1")


def test_nodes_that_are_named_stay_on() -> None:
    seen = snapshot(saving("n[2-3]"))
    assert [bool(seen.kept_on(name)) for name in ("n1", "n2", "n3")] == [False, True, True]
    assert seen.kept_on("n2") == "SuspendExcNodes of slurm.conf has n2"


@pytest.mark.parametrize(
    ("states", "kept"),
    [
        ({}, False),
        ({"n2": "ALLOCATED"}, True),
        ({"n2": "IDLE+DRAIN"}, True),
        ({"n2": "IDLE+POWERED_DOWN"}, True),
        ({"n2": "IDLE+NOT_RESPONDING"}, True),
        ({"n1": "ALLOCATED"}, False),
        ({"n3": "ALLOCATED"}, False),
    ],
)
def test_a_number_of_nodes_stays_on_and_idle(states: dict[str, str], kept: bool) -> None:
    said = snapshot(saving("n[1-2]:1"), **states).kept_on("n1")
    assert bool(said) is kept
    assert not kept or said == "SuspendExcNodes of slurm.conf has n1: 1 of its nodes have to be on and idle"


def test_nodes_of_partitions_stay_on() -> None:
    seen = snapshot(saving(partitions=("debug", "gpu")))
    assert [seen.kept_on(name) for name in ("n1", "n3")] == [
        "",
        "SuspendExcParts of slurm.conf has gpu, a partition of n3",
    ]


def test_nodes_in_a_state_stay_on() -> None:
    seen = snapshot(saving(states=("MAINTENANCE", "PLANNED")), n1="IDLE+MAINT", n2="IDLE+PLANNED")
    assert [bool(seen.kept_on(name)) for name in ("n1", "n2", "n3")] == [True, True, False]


def down(state: str, reason: str) -> RmsNode:
    return slurm_records.node("n1", 2, 2048, state, reason=reason)


def test_what_is_repaired_and_what_is_for_an_admin() -> None:
    assert slurm_records.needs_repair(down("DOWN+POWERED_DOWN", "ResumeTimeout reached"))
    assert not slurm_records.needs_repair(down("IDLE+POWERED_DOWN", "nobody needs it"))
    assert not slurm_records.needs_repair(down("IDLE+DRAIN", "disk"))
    for state, reason in (("DOWN+DRAIN+POWERED_DOWN", "ResumeTimeout reached"), ("DOWN", "Not responding")):
        with pytest.raises(RefusedError, match="an admin has to say"):
            slurm_records.needs_repair(down(state, reason))
