"""The site: its machines, and how something is done and waited for on them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from real_site.layout import CONTROLLER, HOSTS, VM_HOSTS, Host
from real_site.machine import Machine, StepError
from real_site.patience import patient


@dataclass
class Site:
    """The machines, by what they are, and what later steps have to know of earlier ones.

    Args:
        machines: by host.
        work: directory with the administrator's key, for what the campaign makes.
        debs: the packages of this checkout.
    """

    machines: dict[Host, Machine]
    work: Path
    debs: Path
    #: The vjob that lives through all steps.
    job: str = ""

    def __getitem__(self, host: Host) -> Machine:
        return self.machines[host]

    @property
    def controller(self) -> Machine:
        """Where the engine is."""
        return self.machines[CONTROLLER]

    def on_all(self, script: str, hosts: Sequence[Host] = HOSTS, timeout_s: float = 300) -> None:
        """Run a script on several."""
        at_once(lambda host: self.machines[host].run(script, timeout_s), hosts)


def at_once(act: Callable[[Host], object], hosts: Sequence[Host]) -> None:
    """Do something for several machines side by side.

    Raises:
        StepError: it fails for one.
    """
    with ThreadPoolExecutor(len(hosts)) as pool:
        for each in [pool.submit(act, host) for host in hosts]:
            each.result()


def wait_for(what: str, timeout_s: float, seen: Callable[[], str | None]) -> str:
    """Wait until something is seen.

    Args:
        what: is waited for.
        timeout_s: the bound.
        seen: returns what was seen, or None.

    Raises:
        StepError: it is not seen in time.
    """
    timeout_s = patient(timeout_s)
    until = time.monotonic() + timeout_s
    while (found := seen()) is None:
        if time.monotonic() > until:
            raise StepError(f"{what}: not after {timeout_s:.0f} s")
        time.sleep(2)
    return found


def wait_for_rooms(site: Site) -> None:
    """Wait until the engine has a room on each VM host.

    Raises:
        StepError: it has none in time.
    """
    wait_for("a room on each VM host", 900, lambda: _rooms(site.controller))


def _rooms(machine: Machine) -> str | None:
    said = machine.ask("rmsplugin nodes").stdout
    return said if said.count(" held") >= len(VM_HOSTS) else None
