"""Simulated memory: what the guests of simulated VMs need, cache and have given to their balloons."""

from __future__ import annotations

from rmsplugin.adapters.platform.base import VMSpec


class SimulatedMemory:
    """The memory of all VMs, by name: it is the guest's, and goes where the VM goes. All sizes are in MiB."""

    def __init__(self) -> None:
        self._working_sets: dict[str, int] = {}
        self._caches: dict[str, int] = {}
        self._left: dict[str, int] = {}  # by the balloon
        self._faults: dict[str, tuple[int, int]] = {}  # major faults, KiB read from swap

    def set_working_set(self, vm: str, mib: int) -> None:
        """See ``SimulatedHypervisor.set_working_set``."""
        self._working_sets[vm] = mib

    def set_cache(self, vm: str, mib: int) -> None:
        """See ``SimulatedHypervisor.set_cache``."""
        self._caches[vm] = mib

    def set_faults(self, vm: str, major_faults: int, swap_in_kib: int) -> None:
        """See ``SimulatedHypervisor.set_faults``."""
        self._faults[vm] = (major_faults, swap_in_kib)

    def set_balloon(self, vm: str, left_mib: int) -> None:
        """The balloon is to leave the guest so much."""
        self._left[vm] = left_mib

    def boot(self, vm: str) -> None:
        """The VM begins with an empty balloon."""
        self._left.pop(vm, None)

    def used_mib(self, spec: VMSpec) -> int:
        """What the guest needs of its memory: all, unless it was told."""
        return min(spec.memory_mib, self._working_sets.get(spec.name, spec.memory_mib))

    def current_mib(self, spec: VMSpec) -> int:
        """What the balloon leaves to the guest: never less than it needs."""
        return min(spec.memory_mib, max(self._left.get(spec.name, spec.memory_mib), self.used_mib(spec)))

    def held_mib(self, spec: VMSpec) -> int:
        """What the VM takes of its node: what its guest needs and what it caches, of what its balloon leaves."""
        cached_mib = self._caches.get(spec.name, spec.memory_mib)
        return min(self.current_mib(spec), self.used_mib(spec) + cached_mib)

    def statistics(self, spec: VMSpec) -> tuple[int, int, int, int, int]:
        """What ``VMStatistics`` has of its memory: held, current and usable in KiB, major faults, swapped in KiB."""
        current_mib = self.current_mib(spec)
        faults, swap_in_kib = self._faults.get(spec.name, (0, 0))
        usable_mib = current_mib - self.used_mib(spec)
        return self.held_mib(spec) * 1024, current_mib * 1024, usable_mib * 1024, faults, swap_in_kib
