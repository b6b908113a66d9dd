"""Site power: the PowerDriver over the BMCs of a site, of whatever kinds they are."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from rmsplugin.adapters.bounded import Permit
from rmsplugin.adapters.power.base import Measured, PowerReading, PowerState
from rmsplugin.adapters.power.bmc import Bmc
from rmsplugin.errors import ForbiddenError, OperationFailedError, RefusedError, TimedOutError

log = logging.getLogger(__name__)

#: Pause between two questions whether a node that shuts down is off.
_POLL_S = 2.0


@dataclass(frozen=True, slots=True)
class Reached:
    """A node's BMC, and the time that the node's operating system has to shut down."""

    bmc: Bmc
    shutdown_s: float


class SitePower:
    """Implements ``PowerDriver``."""

    def __init__(
        self,
        reach: Callable[[str], Reached | None],
        *,
        permit: Permit = nullcontext,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Ask nobody yet.

        Args:
            reach: the BMC of a node; None: there is none.
            permit: each order is given inside of one.
            clock: seconds since the epoch.
            sleep: lets seconds pass.
        """
        self._reach = reach
        self._permit = permit
        self._clock = clock
        self._sleep = sleep
        self._ordered: set[str] = set()
        self._lock = threading.Lock()

    def drives(self, node: str) -> bool:
        """See ``PowerDriver.drives``."""
        return self._reach(node) is not None

    def off(self, node: str) -> None:
        """See ``PowerDriver.off``. A second order to the node meanwhile is refused."""
        reached = self._reached(node)
        with self._one_order(node):
            if reached.bmc.state() is PowerState.OFF or self._shuts_down(node, reached):
                return
            with self._permit():
                reached.bmc.cut()

    def on(self, node: str) -> None:
        """See ``PowerDriver.on``. A second order to the node meanwhile is refused."""
        bmc = self._reached(node).bmc
        with self._one_order(node), self._permit():
            bmc.switch_on()

    def reading(self, node: str) -> PowerReading:
        """See ``PowerDriver.reading``."""
        bmc, at = self._reached(node).bmc, self._clock()
        state = bmc.state()
        sensors_at = self._clock()
        sensors = bmc.sensors()
        return PowerReading(
            state, at, _measured(sensors.watts, sensors_at), _measured(sensors.temperature_c, sensors_at)
        )

    # -- inside --------------------------------------------------------------------------------------------------

    def _reached(self, node: str) -> Reached:
        reached = self._reach(node)
        if reached is None:
            raise RefusedError(f"no BMC of {node} is known: no [power.driver.NAME] names this node")
        return reached

    @contextmanager
    def _one_order(self, node: str) -> Iterator[None]:
        """One order at a time: an order to come on would be lost in a shutdown."""
        with self._lock:
            if node in self._ordered:
                raise RefusedError(f"{node} is being switched already")
            self._ordered.add(node)
        try:
            yield
        finally:
            with self._lock:
                self._ordered.discard(node)

    def _shuts_down(self, node: str, reached: Reached) -> bool:
        """Have the operating system shut down; whether the node is off before its time for that is over."""
        if not reached.shutdown_s:
            return False
        try:
            with self._permit():
                if not reached.bmc.shut_down():
                    return False
        except ForbiddenError:
            raise
        except TimedOutError:
            pass  # it may shut down all the same
        except (RefusedError, OperationFailedError) as error:
            log.warning("%s cannot be shut down, so its power is cut: %s", node, error)
            return False
        until = self._clock() + reached.shutdown_s
        while self._clock() < until:
            self._sleep(min(_POLL_S, until - self._clock()))
            if reached.bmc.state() is PowerState.OFF:
                return True
        return False


def _measured(value: float | None, at: float) -> Measured | None:
    return None if value is None else Measured(value, at)
