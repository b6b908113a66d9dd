"""BMC: the controller of one node's power, whatever it is reached by. ``SitePower`` makes a PowerDriver of many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from rmsplugin.adapters.power.base import PowerState


@dataclass(frozen=True, slots=True)
class Sensors:
    """What the sensors of a node show: watts, and degrees Celsius; None: it has no such sensor, or it fails."""

    watts: float | None = None
    temperature_c: float | None = None


class Bmc(Protocol):
    """One BMC. Calls block, each for a bounded time, and raise as the contract of ``PowerDriver`` says."""

    def state(self) -> PowerState:
        """What it says of the node's power."""
        ...

    def sensors(self) -> Sensors:
        """What the node's sensors show. Raises nothing of the contract: a sensor that fails shows nothing."""
        ...

    def shut_down(self) -> bool:
        """Have the node's operating system shut down. False: it has no way to do so, and was asked nothing."""
        ...

    def cut(self) -> None:
        """Cut the power."""
        ...

    def switch_on(self) -> None:
        """Switch the power on."""
        ...
