"""Power hook: ResumeProgram and SuspendProgram of slurm.conf, with a host list; Slurm runs them as SlurmUser.

ResumeProgram switches nodes on by itself: a native job that needs a node has it whether the engine runs or not, and to
switch on destroys nothing. SuspendProgram does nothing: only the engine cuts power, after it has seen that no VM is
there, and it reads in Slurm that a node is to go off.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rmsplugin.adapters.power.base import PowerDriver, PowerState
from rmsplugin.adapters.power.factory import open_power
from rmsplugin.adapters.rms import slurm_records
from rmsplugin.adapters.rms.base import NodePower
from rmsplugin.adapters.rms.slurm_commands import SlurmCommands
from rmsplugin.errors import RmspluginError
from rmsplugin.model.hostlist import expand
from rmsplugin.settings import Settings, load

_AT_ONCE = 32
#: Pause before a BMC is asked again.
_AGAIN_S = 5.0
#: A node that is on may still be shutting down; this is more than the time that it has for that.
_BEYOND_SHUTDOWN_S = 30.0


def resume(config: str, hosts: str) -> list[str]:
    """Switch nodes on; those that no driver has are left alone. Returns what went wrong, a sentence a node.

    Raises:
        SettingsError: the settings cannot be read.
        ValueError: ``hosts`` is no host list.
    """
    settings = load(Path(config))
    power, driver = settings.power, open_power(settings.power)
    nodes = [node for node in expand(hosts) if driver.drives(node)]
    if not nodes:
        return []
    watch_s = _BEYOND_SHUTDOWN_S + max(each.shutdown_s for each in power.driver.values())
    with ThreadPoolExecutor(min(_AT_ONCE, len(nodes))) as pool:
        still = _still_wanted(settings)
        ordered = pool.map(lambda node: switch_on(driver, node, watch_s, still_wanted=still), nodes)
        return [said for said in ordered if said]


def switch_on(
    driver: PowerDriver,
    node: str,
    watch_s: float,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
    still_wanted: Callable[[str], bool] = lambda node: True,
) -> str:
    """Order a node on. Returns why it did not succeed; empty: it did, or the node stayed on.

    A node that is on is watched: its shutdown may have begun before Slurm wanted it back, and an order to come on does
    not call that off. If it goes off, Slurm is asked whether the node is still wanted: it may have come on, and been
    switched off again.
    """
    until, watched = clock() + watch_s, False
    while True:
        problem = ""
        try:
            state = driver.reading(node).state
            if watched and state is not PowerState.ON and not still_wanted(node):
                return ""
            watched = True
            if state is not PowerState.ON:
                driver.on(node)
            if state is PowerState.OFF:
                return ""
            problem = "" if state is PowerState.ON else f"the BMC of {node} says neither on nor off"
        except RmspluginError as error:
            problem = str(error)
        if clock() >= until:
            return problem
        sleep(_AGAIN_S)


def _still_wanted(settings: Settings) -> Callable[[str], bool]:
    """Whether Slurm waits for a node to come on; also if it does not say so, for to switch on destroys nothing."""
    slurm = SlurmCommands(settings.slurm.bin_dir, settings.slurm.command_timeout_s, ())

    def still_wanted(node: str) -> bool:
        try:
            found = slurm_records.nodes(slurm.run("scontrol", "show", "node", "-o", node)).get(node)
        except RmspluginError:
            return True
        return found is None or found.power is NodePower.COMING_ON

    return still_wanted
