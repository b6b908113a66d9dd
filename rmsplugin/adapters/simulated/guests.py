"""Simulated guests: they keep state, take the time that tests set, and fail on command."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from rmsplugin.adapters.guests.config import GuestConfig
from rmsplugin.adapters.guests.used import Used
from rmsplugin.errors import ForbiddenError, TimedOutError, UnavailableError


@dataclass
class SimulatedGuest:
    """One guest that a test, or the simulator, has put at an address."""

    host_key: str
    config: GuestConfig | None = None
    clock_set: int = 0
    used: Used | None = None
    script_ended: bool = False
    has_cpus: int = 1
    cpus: int = 0  # on line; 0: all


class SimulatedGuests:
    """Guests that keep state, take the time that tests set, and fail on command."""

    def __init__(self, sleep: Callable[[float], None] = lambda _seconds: None) -> None:
        """Take the function that lets (virtual) time pass."""
        self._sleep = sleep
        self._lock = threading.Lock()
        self._failures: dict[tuple[str, str], list[Exception]] = {}
        self.guests: dict[str, SimulatedGuest] = {}
        self.ready_s = 0.0
        self.configure_s = 0.0

    def add(self, address: str, host_key: str) -> None:
        """Let a guest answer at the address from now on."""
        with self._lock:
            self.guests[address] = SimulatedGuest(host_key)

    def remove(self, address: str) -> None:
        """Let no guest answer there any more."""
        with self._lock:
            self.guests.pop(address, None)

    def fail(self, verb: str, address: str, error: Exception, *, times: int = 1) -> None:
        """Have the next calls of ``verb`` (a method's name) for the address raise."""
        with self._lock:
            self._failures.setdefault((verb, address), []).extend([error] * times)

    def wait_ready(
        self, address: str, host_key: str, *, timeout_s: float, check: Callable[[], None] = lambda: None
    ) -> None:
        """See Guests."""
        check()
        self._sleep(min(self.ready_s, timeout_s))
        self._guest("wait_ready", address, host_key)
        if self.ready_s > timeout_s:
            raise UnavailableError(f"guest {address} is not up after {timeout_s:.0f} s")

    def configure(
        self,
        address: str,
        host_key: str,
        config: GuestConfig,
        *,
        timeout_s: float,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """See Guests."""
        check()
        self._sleep(min(self.configure_s, timeout_s))
        guest = self._guest("configure", address, host_key)
        if self.configure_s > timeout_s:
            raise TimedOutError(f"the guest did not finish within {timeout_s:.0f} s")
        guest.config = config

    def used(self, address: str, host_key: str, *, timeout_s: float) -> Used | None:
        """See Guests."""
        del timeout_s
        return self._guest("used", address, host_key).used

    def script_ended(self, address: str, host_key: str, *, timeout_s: float) -> bool:
        """See Guests."""
        del timeout_s
        return self._guest("script_ended", address, host_key).script_ended

    def set_cpus(self, address: str, host_key: str, cpus: int, *, timeout_s: float) -> int:
        """See Guests."""
        del timeout_s
        if cpus < 1:
            raise ValueError(f"a guest cannot do with {cpus} CPUs")
        guest = self._guest("set_cpus", address, host_key)
        before, guest.cpus = guest.cpus or guest.has_cpus, min(cpus, guest.has_cpus)
        return before

    def set_clock(self, address: str, host_key: str, *, timeout_s: float) -> None:
        """See Guests."""
        del timeout_s
        self._guest("set_clock", address, host_key).clock_set += 1

    def _guest(self, verb: str, address: str, host_key: str) -> SimulatedGuest:
        with self._lock:
            failures = self._failures.get((verb, address))
            if failures:
                raise failures.pop(0)
            guest = self.guests.get(address)
        if guest is None:
            raise UnavailableError(f"guest {address} cannot be reached")
        if guest.host_key != host_key:
            raise ForbiddenError(f"guest {address} shows another host key than its own; nothing was sent to it")
        return guest
