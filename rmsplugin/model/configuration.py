"""Configuration: a mapping of VMs to nodes; viable if every running VM has the memory and CPU it demands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Resources:
    """An amount of the two dimensions: CPUs, and memory in MiB."""

    cpus: float
    memory_mib: int

    def __add__(self, other: Resources) -> Resources:
        return Resources(self.cpus + other.cpus, self.memory_mib + other.memory_mib)

    def __sub__(self, other: Resources) -> Resources:
        return Resources(self.cpus - other.cpus, self.memory_mib - other.memory_mib)

    def holds(self, demand: Resources) -> bool:
        """Whether ``demand`` fits; CPUs to a thousandth, so that rounding in sums of fractions refuses nothing."""
        return demand.memory_mib <= self.memory_mib and demand.cpus <= self.cpus + 1e-3

    def __str__(self) -> str:
        return f"{self.cpus:g} CPUs and {self.memory_mib} MiB"


NOTHING = Resources(0, 0)


@dataclass(frozen=True, slots=True)
class Node:
    """A physical host that can host VMs: what of it VMs may take, and whether they may come."""

    name: str
    capacity: Resources
    schedulable: bool = True  # up, reachable, not draining


@dataclass(frozen=True, slots=True)
class VM:
    """One virtual machine and what it demands."""

    name: str
    demand: Resources


@dataclass(frozen=True, slots=True)
class Configuration:
    """Nodes in file order, and on which of them each VM that takes room is."""

    nodes: tuple[Node, ...]
    hosted: Mapping[str, tuple[VM, ...]]  # by node name

    def used(self, node: str) -> Resources:
        """Sum of the demands of the VMs on ``node``."""
        return sum((vm.demand for vm in self.hosted.get(node, ())), NOTHING)

    def free(self) -> dict[str, Resources]:
        """What is left of each schedulable node, by name, in the order of the nodes."""
        return {node.name: node.capacity - self.used(node.name) for node in self.nodes if node.schedulable}

    def with_vms(self, placed: Iterable[tuple[VM, str]]) -> Configuration:
        """The same configuration with more VMs on it."""
        hosted = dict(self.hosted)
        for vm, node in placed:
            hosted[node] = (*hosted.get(node, ()), vm)
        return Configuration(self.nodes, hosted)

    def overloaded(self) -> list[str]:
        """Nodes whose VMs demand more than there is: empty if the configuration is viable."""
        return [node.name for node in self.nodes if not node.capacity.holds(self.used(node.name))]
