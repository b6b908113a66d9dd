"""Own power: stands between a group's engine and the BMCs, so that it drives the group's hosts only."""

from __future__ import annotations

from rmsplugin.adapters.power.base import PowerDriver, PowerReading
from rmsplugin.engine.territory.territory import Territory


def own_power(driver: PowerDriver, territory: Territory) -> PowerDriver:
    """The BMCs as the engine of the territory has them."""
    return driver if isinstance(driver, _OwnPower) else _OwnPower(driver, territory)


class _OwnPower:
    """Implements ``PowerDriver``; of nodes of other groups it raises UnavailableError."""

    def __init__(self, driver: PowerDriver, territory: Territory) -> None:
        self._driver = driver
        self._territory = territory

    def drives(self, node: str) -> bool:
        """See ``PowerDriver.drives``."""
        return node in self._territory.hosts and self._driver.drives(node)

    def off(self, node: str) -> None:
        """See ``PowerDriver.off``."""
        self._territory.require_host(node)
        self._driver.off(node)

    def on(self, node: str) -> None:
        """See ``PowerDriver.on``."""
        self._territory.require_host(node)
        self._driver.on(node)

    def reading(self, node: str) -> PowerReading:
        """See ``PowerDriver.reading``."""
        self._territory.require_host(node)
        return self._driver.reading(node)
