"""The PowerDriver Protocol: switches nodes on and off by their BMCs, and reads power, watts and temperature.

Contract, for every implementation:

* Calls block and are bounded; each may last as long as the driver's settings say. Several threads may call.
* ``off`` and ``on`` are orders, and idempotent: a node that is so already is no error. They return when the BMC has
  taken the order; what came of it is seen by ``reading``. An order that raised may be carried out all the same.
* Only ``PowerReading.proves_off`` is a proof that a node is off. A call that raises, and ``PowerState.UNKNOWN``, prove
  nothing, in neither direction. A node that is on has not booted yet.
* ForbiddenError: the BMC does not take the credentials. RefusedError: it refuses for another reason, or no BMC of the
  node is known. UnreachableError: it was asked nothing. UnavailableError: it does not answer in order.
  TimedOutError: it did not end in time. OperationFailedError: it, or the site's command, says that it failed.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Protocol


class PowerState(enum.StrEnum):
    """The power of a node, as its BMC says."""

    ON = "on"
    OFF = "off"
    UNKNOWN = "unknown"  # it answers, and says neither


@dataclass(frozen=True, slots=True)
class Measured:
    """What a sensor showed.

    Attributes:
        value: in the unit of what has it.
        at: when it was read, in seconds since the epoch.
    """

    value: float
    at: float


@dataclass(frozen=True, slots=True)
class PowerReading:
    """What a node's BMC said.

    Attributes:
        state: the power of the node.
        at: when the BMC was asked for the state, in seconds since the epoch: it was so at this time or later.
        watts: that the node takes; None: the BMC does not tell.
        temperature_c: of the air at its inlet, in degrees Celsius, or else of its warmest sensor; None: it does not
            tell.
    """

    state: PowerState
    at: float
    watts: Measured | None = None
    temperature_c: Measured | None = None

    def proves_off(self, ordered_at: float) -> bool:
        """Whether it proves that the node has gone off after our own order.

        Args:
            ordered_at: when the order was given, in seconds since the epoch, by the clock of this reading.
        """
        return self.state is PowerState.OFF and self.at >= ordered_at


class PowerDriver(Protocol):
    """The BMCs of a site."""

    def drives(self, node: str) -> bool:
        """Whether it has a BMC for this node. Asks nobody."""
        ...

    def off(self, node: str) -> None:
        """Order the node off: its operating system first, where the BMC can, and then its power.

        Raises: see the contract.
        """
        ...

    def on(self, node: str) -> None:
        """Order the node on. Raises: see the contract."""
        ...

    def reading(self, node: str) -> PowerReading:
        """Ask the BMC. Raises: see the contract."""
        ...
