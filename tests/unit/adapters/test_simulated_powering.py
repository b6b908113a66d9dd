"""The simulated Slurm's power saving, where the contract with the real one cannot look."""

from __future__ import annotations

import pytest

from rmsplugin.adapters.rms.base import NodePower, RmsNode, RmsPartition
from rmsplugin.adapters.rms.power_saving import PowerSaving
from rmsplugin.adapters.simulated.rms.slurm import SimulatedRms
from rmsplugin.errors import RefusedError

NODE = "n1"


class Site:
    """One node, and the programs that Slurm ran for it."""

    def __init__(self) -> None:
        self.time = 1_000_000.0
        self.programs: list[str] = []
        partition = RmsPartition("vmhosts", True, (NODE,), "CANCEL", 1, 30, exclusive=True)
        self.rms = SimulatedRms(lambda: self.time, [RmsNode(NODE, 2, 2048, True, False, "IDLE")], [partition])
        self.rms.powering.when_suspended = lambda node: self.programs.append(f"suspend {node}")
        self.rms.powering.when_resumed = lambda node: self.programs.append(f"resume {node}")

    def node(self, after_s: float = 0.0) -> RmsNode:
        self.time += after_s
        return self.rms.snapshot().nodes[NODE]

    def off(self) -> None:
        self.rms.power_down(NODE, "x")
        assert self.node(100).power is NodePower.OFF


def test_programs_are_run_once() -> None:
    site = Site()
    site.off()
    site.rms.power_down(NODE, "x")
    site.rms.power_up(NODE)
    site.rms.power_up(NODE)
    assert site.programs == ["suspend n1", "resume n1"]


@pytest.mark.parametrize(("lag_s", "power"), [(0.0, NodePower.ON), (5.0, NodePower.COMING_ON)])
def test_an_older_boot_does_not_count(lag_s: float, power: NodePower) -> None:
    site = Site()
    site.off()
    site.rms.power_up(NODE)
    site.rms.register(NODE, site.time - lag_s)
    assert site.node().power is power
    assert site.node().boot_time == int(site.time - lag_s)


@pytest.mark.parametrize(("lag_s", "power"), [(0.0, NodePower.ON), (1000.0, NodePower.OFF)])
def test_a_node_that_is_off_is_on_if_somebody_has_it_boot(lag_s: float, power: NodePower) -> None:
    site = Site()
    site.off()
    site.rms.register(NODE, site.time - lag_s)
    assert site.node(10).power is power


def test_without_programs_nothing_is_powered_down() -> None:
    site = Site()
    site.rms.powering.saving = PowerSaving()
    with pytest.raises(RefusedError):
        site.rms.power_down(NODE, "x")
