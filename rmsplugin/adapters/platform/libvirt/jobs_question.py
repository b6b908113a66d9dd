"""Jobs question: what is under way in the VMs of a node, one VM after the other; who asks may give up waiting for it.

It is asked in a thread that cannot be ended. That may begin late, or not at all, where a machine is loaded.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

import libvirt

from rmsplugin.adapters.platform.libvirt.errors import NOT_THERE
from rmsplugin.adapters.platform.libvirt.values import operation


class JobsQuestion:
    """One question, asked once.

    Attributes:
        vm: the VM that has been asked, and has not answered yet; empty: none is.
    """

    def __init__(self, last: Sequence[str], first: Sequence[str]) -> None:
        """Ask nothing yet; ``last``: VMs that are asked after ``first``."""
        self._left = [*last, *first]  # asked from its end
        self._answers: dict[str, int | None] = {}
        self._given_up = False
        self._lock = threading.Lock()
        self.vm = ""

    def ask(self, conn: libvirt.virConnect) -> None:
        """Ask one VM after the other, until all have answered, or whoever waits has given up."""
        while self._begin():
            try:
                self._answers[self.vm] = operation(conn.lookupByName(self.vm))
            except libvirt.libvirtError as error:
                if error.get_error_code() in NOT_THERE:
                    self._answers[self.vm] = None
            finally:
                self._end()

    def _begin(self) -> bool:
        with self._lock:
            if self._given_up or not self._left:
                return False
            self.vm = self._left[-1]
            return True

    def _end(self) -> None:
        with self._lock:
            self._left.pop()
            self.vm = ""

    def give_up(self) -> list[str]:
        """Wait no more: no other VM is asked. Returns those that have not answered; the last of them may be ``vm``."""
        with self._lock:
            self._given_up = True
            return [*self._left]

    def answers(self, names: Iterable[str]) -> dict[str, int | None]:
        """The operation (VIR_DOMAIN_JOB_OPERATION_*) under way in each; None: none; UNKNOWN: it has not answered."""
        known = dict(self._answers)
        return {name: known.get(name, libvirt.VIR_DOMAIN_JOB_OPERATION_UNKNOWN) for name in names}
