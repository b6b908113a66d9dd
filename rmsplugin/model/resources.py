"""Resources: an amount of the two dimensions of every packing here, CPUs and memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from rmsplugin.model.by_fields import ByFields
from rmsplugin.model.made_at_once import made_at_once
from rmsplugin.model.wording import counted


@made_at_once
@dataclass(frozen=True, slots=True)
class Resources(ByFields):
    """An amount of the two dimensions: CPUs, and memory in MiB."""

    cpus: float
    memory_mib: int

    def __add__(self, other: Resources) -> Resources:
        return Resources(self.cpus + other.cpus, self.memory_mib + other.memory_mib)

    def __sub__(self, other: Resources) -> Resources:
        return Resources(self.cpus - other.cpus, self.memory_mib - other.memory_mib)

    def holds(self, demand: Resources) -> bool:
        """Whether ``demand`` fits; CPUs to a thousandth, so that rounding in sums of fractions refuses nothing.

        Amounts have at most two decimals (configurations refuse others), so this is exactly a comparison of
        ``centi_cpus``.
        """
        return demand.memory_mib <= self.memory_mib and demand.cpus <= self.cpus + 1e-3

    @property
    def centi_cpus(self) -> int:
        """CPUs in hundredths, the unit in which solvers count: exact for amounts of two decimals."""
        return round(self.cpus * 100)

    def __str__(self) -> str:
        return f"{counted(round(self.cpus, 2), 'CPU')} and {self.memory_mib} MiB"


NOTHING = Resources(0, 0)

#: So many amounts are shared.
_AMOUNTS = 1 << 16


@lru_cache(maxsize=_AMOUNTS, typed=True)
def amount(cpus: float, memory_mib: int) -> Resources:
    """An amount; equal ones are one object, which is checked, compared and pickled once for thousands of VMs."""
    return Resources(cpus, memory_mib)
