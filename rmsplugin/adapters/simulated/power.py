"""Simulated power: BMCs of nodes in memory, which take their time and fail on command.

It keeps the contract of ``power.base.PowerDriver`` on an injected clock. A node that is ordered off stays on until its
operating system has ended; one that is ordered on is on at once, and boots. Tests learn both by callbacks: on a node
that goes off nothing runs any more, and one that has booted registers with Slurm.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rmsplugin.adapters.power.base import Measured, PowerReading, PowerState
from rmsplugin.errors import RefusedError, SilentError


@dataclass
class SimulatedBmc:
    """One node: what it is, and what is wrong with it. Tests may change what is wrong, and the sensors.

    Attributes:
        on: whether it has power.
        booted: whether its operating system runs.
        boot_time: when it booted last, as it tells Slurm; seconds since the epoch.
        watts: that its sensor shows while it is on; None: it has no such sensor.
        off_watts: that its sensor shows while it is off.
        temperature_c: of its sensor; None: it has none, which is also so while it is off.
        silent: the BMC answers nothing; nothing that it is ordered happens.
        unknown: the BMC does not know the node's power.
        deaf: the BMC takes orders, and nothing happens.
        boots: whether the node boots when it is on.
        boot_lag_s: by how much the boot time that it tells is too early; its clock is wrong, or its slurmd ran on.
    """

    on: bool = True
    booted: bool = True
    boot_time: float = 0.0
    watts: float | None = 100.0
    off_watts: float = 5.0
    temperature_c: float | None = 25.0
    silent: bool = False
    unknown: bool = False
    deaf: bool = False
    boots: bool = True
    boot_lag_s: float = 0.0
    goes_off_at: float = math.inf
    boots_at: float = math.inf


class SimulatedPower:
    """Implements ``PowerDriver`` in memory."""

    def __init__(
        self,
        nodes: Iterable[str],
        *,
        clock: Callable[[], float],
        off_s: float = 30.0,
        on_s: float = 120.0,
        when_off: Callable[[str], None] = lambda node: None,
        when_booted: Callable[[str, float], None] = lambda node, boot_time: None,
    ) -> None:
        """Have nodes that are on.

        Args:
            nodes: their names.
            clock: seconds since the epoch.
            off_s: from the order until the power is off.
            on_s: from the order until the node has booted.
            when_off: called with a node that has lost its power.
            when_booted: called with a node that has booted, and with the boot time that it tells.
        """
        self.bmcs = {node: SimulatedBmc() for node in nodes}
        self.off_s, self.on_s = off_s, on_s
        self.calls: list[tuple[str, str]] = []
        self._clock = clock
        self._when_off, self._when_booted = when_off, when_booted
        self._failures: list[tuple[str, str | None, Exception, bool]] = []
        self._lock = threading.RLock()

    # -- PowerDriver ---------------------------------------------------------------------------------------------

    def drives(self, node: str) -> bool:
        """See ``PowerDriver.drives``."""
        return node in self.bmcs

    def off(self, node: str) -> None:
        """See ``PowerDriver.off``."""
        self._order("off", node, self._go_off)

    def on(self, node: str) -> None:
        """See ``PowerDriver.on``."""
        self._order("on", node, self._come_on)

    def reading(self, node: str) -> PowerReading:
        """See ``PowerDriver.reading``."""
        with self._lock:
            bmc, now = self._asked("reading", node), self._clock()
            self._fail("reading", node, after=False)
            state = PowerState.UNKNOWN if bmc.unknown else PowerState.ON if bmc.on else PowerState.OFF
            watts = bmc.watts if bmc.on or bmc.watts is None else bmc.off_watts
            temperature_c = bmc.temperature_c if bmc.on else None
            return PowerReading(state, now, _measured(watts, now), _measured(temperature_c, now))

    # -- tests ---------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Let happen what is due by the clock; a call of the driver does so too."""
        with self._lock:
            now = self._clock()
            for node, bmc in self.bmcs.items():
                if bmc.goes_off_at <= now:
                    self._lose_power(node, bmc)
                if bmc.boots_at <= now:
                    self._boot(node, bmc)

    def switch_by_hand(self, node: str, *, on: bool) -> None:
        """As somebody at the node's button; it goes off at once."""
        with self._lock:
            self.settle()
            bmc = self.bmcs[node]
            if on:
                self._come_on(bmc)
            elif bmc.on:
                self._lose_power(node, bmc)

    def fail_next(self, method: str, error: Exception, *, node: str | None = None, after: bool = False) -> None:
        """Let the next call of ``method`` (of ``node``, if given) raise ``error``, before or after it takes effect."""
        with self._lock:
            self._failures.append((method, node, error, after))

    # -- inside --------------------------------------------------------------------------------------------------

    def _order(self, method: str, node: str, carry_out: Callable[[SimulatedBmc], None]) -> None:
        with self._lock:
            bmc = self._asked(method, node)
            self._fail(method, node, after=False)
            if not bmc.deaf:
                carry_out(bmc)
            self._fail(method, node, after=True)

    def _asked(self, method: str, node: str) -> SimulatedBmc:
        self.calls.append((method, node))
        self.settle()
        if node not in self.bmcs:
            raise RefusedError(f"no BMC of {node} is known")
        if self.bmcs[node].silent:
            raise SilentError(f"the BMC of {node} does not answer")
        return self.bmcs[node]

    def _fail(self, method: str, node: str, *, after: bool) -> None:
        for failure in self._failures:
            if failure[0] == method and failure[1] in (None, node) and failure[3] is after:
                self._failures.remove(failure)
                raise failure[2]

    def _go_off(self, bmc: SimulatedBmc) -> None:
        if bmc.on and math.isinf(bmc.goes_off_at):
            bmc.goes_off_at = self._clock() + self.off_s

    def _come_on(self, bmc: SimulatedBmc) -> None:
        """As a BMC: an order to be on does not call off a shutdown that is under way."""
        if not bmc.on:
            bmc.on = True
            bmc.boots_at = self._clock() + self.on_s

    def _lose_power(self, node: str, bmc: SimulatedBmc) -> None:
        bmc.on = bmc.booted = False
        bmc.goes_off_at = bmc.boots_at = math.inf
        self._when_off(node)

    def _boot(self, node: str, bmc: SimulatedBmc) -> None:
        began, bmc.boots_at = bmc.boots_at, math.inf
        if bmc.boots:
            bmc.booted, bmc.boot_time = True, began - bmc.boot_lag_s
            self._when_booted(node, bmc.boot_time)


def _measured(value: float | None, now: float) -> Measured | None:
    return None if value is None else Measured(value, now)
