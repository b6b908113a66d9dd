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
from rmsplugin.errors import RmspluginError
from rmsplugin.model.hostlist import expand
from rmsplugin.settings import load

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
    power = load(Path(config)).power
    driver = open_power(power)
    nodes = [node for node in expand(hosts) if driver.drives(node)]
    if not nodes:
        return []
    watch_s = _BEYOND_SHUTDOWN_S + max(each.shutdown_s for each in power.driver.values())
    with ThreadPoolExecutor(min(_AT_ONCE, len(nodes))) as pool:
        return [said for said in pool.map(lambda node: switch_on(driver, node, watch_s), nodes) if said]


def switch_on(
    driver: PowerDriver,
    node: str,
    watch_s: float,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> str:
    """Order a node on. Returns why it did not succeed; empty: it did, or the node stayed on.

    A node that is on is watched: its shutdown may have begun before Slurm wanted it back, and an order to come on does
    not call that off.
    """
    until = clock() + watch_s
    while True:
        problem = ""
        try:
            state = driver.reading(node).state
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
