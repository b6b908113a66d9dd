"""Events of VMs: platforms tell at once that a VM has ended or stands still, and the engine looks.

What is told proves nothing, and is kept nowhere: the cycle that it starts observes, as each one does.
"""

from __future__ import annotations

from collections.abc import Callable

from rmsplugin.model.vm_names import parse_vm_name


class VMEvents:
    """What platforms tell of VMs. Their threads call."""

    def __init__(self, is_busy: Callable[[int], bool], wake: Callable[[], None]) -> None:
        """Have been told nothing.

        Args:
            is_busy: whether the vjob with this job id has an operation under way.
            wake: has a cycle run soon.
        """
        self._is_busy, self._wake = is_busy, wake

    def heard(self, node: str, vm: str) -> None:
        """Have a cycle run, unless an operation on the VM's vjob is under way: that ends, stops and pauses VMs itself.

        Its end starts a cycle anyway.
        """
        del node  # a cycle looks at all
        known = parse_vm_name(vm)
        if known is not None and not self._is_busy(known[0]):
            self._wake()
