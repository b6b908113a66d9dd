"""Nodes with BMCs of each kind, and the acts of tests on them: what the contract of PowerDriver is held against."""

from __future__ import annotations

from typing import Protocol

from rmsplugin.adapters.power.base import PowerDriver
from rmsplugin.adapters.simulated.power import SimulatedPower
from rmsplugin.errors import RefusedError

NODE, OTHER, STRANGER = "n1", "n2", "n9"


class PowerWorld(Protocol):
    """Two nodes that are on, each with a BMC."""

    @property
    def driver(self) -> PowerDriver:
        """Of the BMCs."""
        ...

    def now(self) -> float:
        """The clock of the driver."""
        ...

    def wait(self) -> None:
        """Let pass what a node needs to obey; a little of it where time is real."""
        ...

    def silence(self, node: str) -> None:
        """Let the BMC answer nothing from now on."""
        ...

    def make_unknown(self, node: str) -> None:
        """Let the BMC answer something that is neither on nor off."""
        ...

    def set_sensors(self, node: str, watts: float | None, temperature_c: float | None) -> None:
        """What the sensors of the node show while it is on; None: it has no such sensor."""
        ...

    def refuse(self, node: str) -> None:
        """Let the BMC refuse all orders."""
        ...

    def close(self) -> None:
        """End what the world has started."""
        ...


class SimulatedPowerWorld:
    """Nodes in memory, in virtual time."""

    def __init__(self) -> None:
        self.time = 1_000_000.0
        self.driver = SimulatedPower([NODE, OTHER], clock=self.now)

    def now(self) -> float:
        """See PowerWorld."""
        return self.time

    def wait(self) -> None:
        """See PowerWorld."""
        self.time += 10.0

    def silence(self, node: str) -> None:
        """See PowerWorld."""
        self.driver.bmcs[node].silent = True

    def make_unknown(self, node: str) -> None:
        """See PowerWorld."""
        self.driver.bmcs[node].unknown = True

    def set_sensors(self, node: str, watts: float | None, temperature_c: float | None) -> None:
        """See PowerWorld."""
        self.driver.bmcs[node].watts, self.driver.bmcs[node].temperature_c = watts, temperature_c

    def refuse(self, node: str) -> None:
        """See PowerWorld."""
        for method in ("off", "on"):
            self.driver.fail_next(method, RefusedError("no"), node=node)

    def close(self) -> None:
        """See PowerWorld."""
