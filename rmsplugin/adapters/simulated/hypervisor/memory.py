"""Simulated memory: the needs, caches and balloons of simulated VMs' guests."""

from __future__ import annotations

from rmsplugin.adapters.platform.base import VMSpec


class SimulatedMemory:
    """The memory of all VMs, by name: it is the guest's, and moves with the VM. All sizes are in MiB."""

    def __init__(self) -> None:
        self._working_sets: dict[str, int] = {}
        self._caches: dict[str, int] = {}
        self._left: dict[str, int] = {}  # memory left by the balloon
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
        """Set the memory that the balloon leaves to the guest."""
        self._left[vm] = left_mib

    def boot(self, vm: str) -> None:
        """Begin with an empty balloon."""
        self._left.pop(vm, None)

    def used_mib(self, spec: VMSpec) -> int:
        """The guest's need of its memory: all of it, unless a test has set it."""
        return min(spec.memory_mib, self._working_sets.get(spec.name, spec.memory_mib))

    def current_mib(self, spec: VMSpec) -> int:
        """The memory that the balloon leaves to the guest: never less than its need."""
        return min(spec.memory_mib, max(self._left.get(spec.name, spec.memory_mib), self.used_mib(spec)))

    def held_mib(self, spec: VMSpec) -> int:
        """The memory that the VM takes of its node: its guest's need and caches, within the balloon's limit."""
        cached_mib = self._caches.get(spec.name, spec.memory_mib)
        return min(self.current_mib(spec), self.used_mib(spec) + cached_mib)

    def statistics(self, spec: VMSpec) -> tuple[int, int, int, int, int]:
        """The memory figures of ``VMStatistics``: held, current and usable in KiB, major faults, swapped in KiB."""
        current_mib = self.current_mib(spec)
        faults, swap_in_kib = self._faults.get(spec.name, (0, 0))
        usable_mib = current_mib - self.used_mib(spec)
        return self.held_mib(spec) * 1024, current_mib * 1024, usable_mib * 1024, faults, swap_in_kib
