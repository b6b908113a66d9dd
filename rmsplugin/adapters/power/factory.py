"""Factory: the PowerDriver of the settings."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from contextlib import nullcontext

from rmsplugin.adapters.bounded import Permit
from rmsplugin.adapters.power.command_bmc import CommandBmc
from rmsplugin.adapters.power.site_power import Reached, SitePower
from rmsplugin.errors import SettingsError
from rmsplugin.settings.power import CommandDriver, Power


def open_power(
    settings: Power,
    *,
    permit: Permit = nullcontext,
    clock: Callable[[], float] = time.time,
) -> SitePower:
    """Return the PowerDriver of a site; without any ``[power.driver.NAME]`` it drives no node. Asks nobody.

    Args:
        settings: with the drivers.
        permit: see ``SitePower``.
        clock: seconds since the epoch.

    Raises:
        SettingsError: a driver cannot be used here: its extra is not installed.
    """
    _require_redfish(settings)
    bmcs: dict[str, Reached | None] = {}

    def reach(node: str) -> Reached | None:
        if node not in bmcs:
            bmcs[node] = _reached(settings, node, permit)
        return bmcs[node]

    return SitePower(reach, permit=permit, clock=clock)


def _reached(settings: Power, node: str, permit: Permit) -> Reached | None:
    name = settings.driver_of(node)
    if name is None:
        return None
    driver = settings.driver[name]
    if isinstance(driver, CommandDriver):
        return Reached(CommandBmc(node, driver, permit), driver.shutdown_s)
    from rmsplugin.adapters.power.redfish_bmc import RedfishBmc

    return Reached(RedfishBmc(node, driver), driver.shutdown_s)


def _require_redfish(settings: Power) -> None:
    for name, driver in settings.driver.items():
        if driver.kind == "redfish" and importlib.util.find_spec("sushy") is None:
            raise SettingsError(f'[power.driver.{name}]: kind = "redfish" needs sushy: install rmsplugin[redfish]')
