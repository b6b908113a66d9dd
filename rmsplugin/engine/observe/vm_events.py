"""Events of VMs: platforms tell at once that a VM has ended or stands still, and the engine looks, twice.

What is told proves nothing, and is kept nowhere: the cycles that it starts observe, as each one does. A VM is absent
when two looks some time apart have missed it (``absence.py``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from rmsplugin.engine.observe.absence import APART_S
from rmsplugin.model.vm_names import parse_vm_name

#: Seconds after which it looks again; the first look may be late by as much as the two need not be apart.
AGAIN_S = 2 * APART_S


def later(seconds: float, act: Callable[[], None]) -> Callable[[], None]:
    """Do an act so many seconds later, in a thread of its own. Returns a function that calls it off."""
    timer = threading.Timer(seconds, act)
    timer.daemon = True
    timer.start()
    return timer.cancel


class VMEvents:
    """What platforms tell of VMs. Their threads call."""

    def __init__(
        self,
        is_busy: Callable[[int], bool],
        wake: Callable[[], None],
        later: Callable[[float, Callable[[], None]], Callable[[], None]] = later,
    ) -> None:
        """Have been told nothing.

        Args:
            is_busy: whether the vjob with this job id has an operation under way.
            wake: has a cycle run soon.
            later: see the function.
        """
        self._is_busy, self._wake, self._later = is_busy, wake, later
        self._lock = threading.Lock()
        self._call_off: Callable[[], None] = lambda: None

    def heard(self, node: str, vm: str) -> None:
        """Have a cycle run, and another one, unless an operation on the VM's vjob is under way.

        Operations end, stop and pause VMs themselves, and their end starts a cycle anyway. Of several events within
        ``AGAIN_S`` the last one has the second look.
        """
        del node  # a cycle looks at all
        known = parse_vm_name(vm)
        if known is None or self._is_busy(known[0]):
            return
        self._wake()
        with self._lock:
            self._call_off()
            self._call_off = self._later(AGAIN_S, self._wake)
