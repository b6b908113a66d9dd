"""Powering: the nodes that the simulated Slurm powers down and up, as Slurm 22.05 was measured to do it.

A node that is to be powered down takes no job, and is powering down as soon as it has none. That lasts for
SuspendTimeout, whatever the node does: then it counts as off. It comes on for a job, or when it was asked to, and is
back when it registers with a boot time after that request. One that does not within ResumeTimeout is down. A node that
is off, and boots because somebody else has switched it on, is back as well.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from rmsplugin.adapters.rms.base import NodePower
from rmsplugin.adapters.rms.power_saving import PowerSaving
from rmsplugin.errors import RefusedError


class Stage(enum.StrEnum):
    """How far a node is; the value has the words that Slurm shows besides the state of its jobs."""

    ON = ""
    TO_GO_OFF = "DRAIN+POWER_DOWN"
    GOES_OFF = "POWERING_DOWN"
    OFF = "POWERED_DOWN"
    COMES_ON = "NOT_RESPONDING+POWERING_UP"


_POWERS = {
    Stage.ON: NodePower.ON,
    Stage.TO_GO_OFF: NodePower.GOING_OFF,
    Stage.GOES_OFF: NodePower.GOING_OFF,
    Stage.OFF: NodePower.OFF,
    Stage.COMES_ON: NodePower.COMING_ON,
}


@dataclass
class Powered:
    """One node."""

    stage: Stage = Stage.ON
    since: float = 0.0
    boot_time: float = 0.0

    @property
    def power(self) -> NodePower:
        """As an Rms shows it."""
        return _POWERS[self.stage]

    @property
    def takes_jobs(self) -> bool:
        """Whether a job may have it: one that is off comes on for it."""
        return self.power is not NodePower.GOING_OFF


class SimulatedPowering:
    """What Slurm's power saving knows of its nodes. Tests may change its attributes.

    Attributes:
        saving: its settings.
        when_suspended: SuspendProgram, called with a node.
        when_resumed: ResumeProgram, likewise.
    """

    def __init__(
        self, clock: Callable[[], float], put_off: Callable[[Callable[[], None]], None] = lambda act: act()
    ) -> None:
        """All nodes are on; ``put_off``: has a program called once the cluster's lock is given back."""
        self.saving = PowerSaving("/usr/sbin/suspend_program", "/usr/sbin/resume_program")
        self.when_suspended: Callable[[str], None] = lambda node: None
        self.when_resumed: Callable[[str], None] = lambda node: None
        self._clock = clock
        self._put_off = put_off
        self._nodes: dict[str, Powered] = {}

    def of(self, node: str) -> Powered:
        """What it knows of a node."""
        known = self._nodes.get(node)
        if known is None:
            known = self._nodes[node] = Powered()
        return known

    def power_down(self, node: str) -> None:
        """As ``State=POWER_DOWN_ASAP``, but for a node that is off."""
        if not self.saving.enabled:
            raise RefusedError("Invalid node state specified")
        if self.of(node).power in (NodePower.ON, NodePower.COMING_ON):
            self._enter(node, Stage.TO_GO_OFF)

    def power_up(self, node: str) -> None:
        """As ``State=POWER_UP``, or a job that has the node."""
        power = self.of(node).power
        if power is NodePower.GOING_OFF:
            raise RefusedError(f"Slurm is powering {node} down: it can come on after that")
        if power is NodePower.OFF:
            self._enter(node, Stage.COMES_ON)
            self._put_off(partial(self.when_resumed, node))

    def register(self, node: str, boot_time: float) -> None:
        """As slurmd, which says when the node booted."""
        known = self.of(node)
        known.boot_time = boot_time
        if known.stage in (Stage.COMES_ON, Stage.OFF) and int(boot_time) >= int(known.since):
            self._enter(node, Stage.ON)

    def repair(self, node: str) -> None:
        """As ``State=RESUME`` for a node that is down."""
        self.of(node).boot_time = 0.0

    def move_on(self, empty: Callable[[str], bool]) -> list[str]:
        """Let happen what is due. Returns nodes that did not come on in time: they are down, and off to Slurm."""
        now, failed = self._clock(), []
        for name, node in [*self._nodes.items()]:
            if node.stage is Stage.TO_GO_OFF and empty(name):
                self._enter(name, Stage.GOES_OFF)
                self._put_off(partial(self.when_suspended, name))
            elif node.stage is Stage.GOES_OFF and now >= node.since + self.saving.suspend_timeout_s:
                self._enter(name, Stage.OFF)
            elif node.stage is Stage.COMES_ON and now >= node.since + self.saving.resume_timeout_s:
                self._enter(name, Stage.OFF)
                failed.append(name)
        return failed

    def _enter(self, node: str, stage: Stage) -> None:
        known = self.of(node)
        known.stage, known.since = stage, self._clock()
