"""Simulated actions: the duration, success, failure and interruption of a hypervisor's actions on a VM."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rmsplugin.adapters.platform.base import Progress
from rmsplugin.adapters.simulated.hypervisor.faults import Point, SimulatedFaults
from rmsplugin.errors import OperationFailedError, TimedOutError


@dataclass(frozen=True, slots=True)
class Pending:
    """An action that is under way, or whose caller was killed half-way."""

    succeed: Callable[[], None]
    fail: Callable[[], None]


class SimulatedActions:
    """Actions on VMs, one at a time each; no lock is held during one."""

    def __init__(
        self,
        lock: threading.RLock,
        faults: SimulatedFaults,
        sleep: Callable[[float], None],
        durations_s: Mapping[str, float],
    ) -> None:
        """Take the machines' lock, the faults that tests order, and the duration of each method's action (else 0)."""
        self.durations_s = durations_s
        self.pending: dict[tuple[str, str], Pending] = {}  # by method and VM
        self._faults = faults
        self._sleep = sleep
        self._aborted: set[str] = set()
        self._lock = lock

    def act(
        self,
        method: str,
        vm: str,
        timeout_s: float,
        progress: Progress | None,
        succeed: Callable[[], None],
        fail: Callable[[], None],
        *,
        total: int = 0,
        lasts: float = 1.0,
        half_way: Callable[[], None] | None = None,
        alone: Callable[[], None] | None = None,
    ) -> None:
        """Do the second half of an action, after its duration; the first half is done.

        It ``lasts`` so many times as long as another action. ``half_way`` is called when half of it is over. ``alone``
        is its success if its caller was killed, where that makes a difference.

        Raises:
            OperationFailedError: it was aborted, or ended with its VM.
            TimedOutError: it would take longer than ``timeout_s``.
            Exception: the failure that a test has ordered.
        """
        usual_s = self.durations_s.get(method, 0.0)
        duration_s = usual_s * lasts if math.isfinite(lasts) else math.inf
        with self._lock:
            # If the caller is killed from here on, the hypervisor concludes by itself.
            self.pending[method, vm] = Pending(alone or succeed, fail)
        self._faults.call_hook(method, Point.DURING, vm)
        self._sleep(min(duration_s, timeout_s) / 2)
        if progress:
            progress(total // 2, total)
        if half_way:
            half_way()
        self._sleep(min(duration_s, timeout_s) / 2)
        with self._lock:
            if half_way and duration_s > timeout_s:
                raise TimedOutError(f"{method} of {vm} did not end within {timeout_s:g} s, and goes on")
            if self.pending.pop((method, vm), None) is None:
                raise OperationFailedError(f"{method} of {vm} ended with the VM")
            try:
                self._faults.raise_failure(method, vm)
                if vm in self._aborted:
                    self._aborted.discard(vm)
                    raise OperationFailedError(f"{method} of {vm} was aborted")
                if duration_s > timeout_s:
                    raise TimedOutError(f"{method} of {vm} did not end within {timeout_s:g} s")
                succeed()
            except Exception:
                fail()
                raise
        if progress:
            progress(total, total)
        self._faults.call_hook(method, Point.AFTER, vm)

    def abort(self, vm: str) -> None:
        """Let the action on the VM fail at its end."""
        self._aborted.add(vm)

    def fail(self, vm: str) -> None:
        """Let every action under way on the VM fail."""
        for key in [key for key in self.pending if key[1] == vm]:
            self.pending.pop(key).fail()

    def settle(self, vm: str, *, succeed: bool) -> None:
        """Conclude the action on the VM whose caller was killed half-way."""
        pending = self.pending.pop(next(key for key in self.pending if key[1] == vm))
        (pending.succeed if succeed else pending.fail)()
