"""Demanded: the CPUs that running VMs were observed to demand, as the last cycle found them."""

from __future__ import annotations

from collections.abc import Mapping


class Demanded:
    """By VM name. Written once a cycle, and read by several threads."""

    def __init__(self) -> None:
        """Nothing was observed yet."""
        self._cpus: Mapping[str, float] = {}

    def set(self, cpus: Mapping[str, float]) -> None:
        """Replace all demands."""
        self._cpus = cpus

    def cpus(self, vm_name: str) -> float | None:
        """The demand in CPUs; None if none was observed, so that the requested CPUs count."""
        return self._cpus.get(vm_name)
