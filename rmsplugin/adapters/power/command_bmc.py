"""BMC by commands: programs of the site, such as ipmitool, whose output is read by the settings' rules."""

from __future__ import annotations

import contextlib
import logging
import math
import re
from collections.abc import Sequence
from contextlib import nullcontext

from rmsplugin.adapters.bounded import Permit
from rmsplugin.adapters.command import Ended, run_command
from rmsplugin.adapters.power.base import PowerState
from rmsplugin.adapters.power.bmc import Sensors
from rmsplugin.errors import DeposedError, OperationFailedError, RmspluginError, TimedOutError, UnavailableError
from rmsplugin.settings.power import CommandDriver

log = logging.getLogger(__name__)


class CommandBmc:
    """Implements ``Bmc`` by the commands of a ``[power.driver.NAME]``.

    A program that fails may not have reached the BMC at all. So a question that fails is UnavailableError, and an order
    that fails is OperationFailedError.
    """

    def __init__(self, node: str, driver: CommandDriver, permit: Permit = nullcontext) -> None:
        """Ask nobody yet; ``permit``: each order is given inside of one."""
        self._node = node
        self._driver = driver
        self._address = driver.address_of(node)
        self._permit = permit

    def state(self) -> PowerState:
        """See ``Bmc.state``."""
        driver = self._driver
        answer = self._ended_command("status", driver.status)
        if answer.status not in driver.status_exits:
            raise UnavailableError(f"the power of {self._node} cannot be read: {_ended('status', answer)}")
        return state_of(answer.output, driver.says_on, driver.says_off)

    def sensors(self) -> Sensors:
        """See ``Bmc.sensors``."""
        driver = self._driver
        watts = self._values("watts", driver.watts, driver.watts_value)
        temperatures_c = self._values("temperature", driver.temperature, driver.temperature_value)
        return Sensors(watts[0] if watts else None, max(temperatures_c, default=None))

    def shut_down(self) -> bool:
        """See ``Bmc.shut_down``."""
        if not self._driver.shutdown:
            return False
        self._order("shutdown", self._driver.shutdown)
        return True

    def cut(self) -> None:
        """See ``Bmc.cut``."""
        self._order("off", self._driver.off)

    def switch_on(self) -> None:
        """See ``Bmc.switch_on``."""
        self._order("on", self._driver.on)

    # -- inside --------------------------------------------------------------------------------------------------

    def _order(self, name: str, words: Sequence[str]) -> None:
        answer = self._ended_command(name, words, self._permit)
        if answer.status != 0:
            raise OperationFailedError(f"{self._node} was not switched: {_ended(name, answer)}")

    def _ended_command(self, name: str, words: Sequence[str], permit: Permit = nullcontext) -> Ended:
        put = [word.replace("{node}", self._node).replace("{address}", self._address) for word in words]
        try:
            return run_command([words[0], *put[1:]], timeout_s=self._driver.timeout_s, permit=permit)
        except DeposedError:
            raise
        except TimedOutError as error:
            raise TimedOutError(f"`{name}` of {self._node}: {error}") from None
        except OperationFailedError as error:
            raise OperationFailedError(f"`{name}` of {self._node}: {error}") from None

    def _values(self, name: str, words: Sequence[str], pattern: str) -> list[float]:
        if not words:
            return []
        try:
            answer = self._ended_command(name, words)
        except RmspluginError as error:
            log.debug("%s", error)
            return []
        return [] if answer.status else numbers_in(answer.output, pattern)


def state_of(output: str, says_on: str, says_off: str) -> PowerState:
    """The power that an output tells: neither on nor off counts if both, or none, of the expressions match."""
    on, off = (re.search(pattern, output) is not None for pattern in (says_on, says_off))
    if on == off:
        return PowerState.UNKNOWN
    return PowerState.ON if on else PowerState.OFF


def numbers_in(output: str, pattern: str) -> list[float]:
    """The numbers that the group of the pattern finds; what is no number is left out."""
    numbers = []
    for found in re.findall(pattern, output):
        with contextlib.suppress(ValueError):
            numbers.append(float(found))
    return [each for each in numbers if math.isfinite(each)]


def _ended(name: str, answer: Ended) -> str:
    return f"`{name}` ended with {answer.status}: {answer.said or 'it said nothing'}"
