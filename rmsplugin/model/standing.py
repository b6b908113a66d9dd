"""Standing: the nodes where each VM has memory. Rules about VMs beside each other (``model.joint``) ask it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass

from rmsplugin.model.rules import Held

_NOBODY: frozenset[str] = frozenset()
#: So many numbers are kept: where VMs are followed for days, rules are about other VMs as vjobs come and go.
_COUNTS = 64


@dataclass(slots=True)
class _Count:
    """The number of some VMs that have memory on one of these nodes."""

    nodes: frozenset[str]
    number: int


class _Sets(dict[str, frozenset[str]]):
    """Sets by name; of others, nobody. None of them changes, so that copies share them."""

    def __missing__(self, name: str) -> frozenset[str]:
        return _NOBODY


class Standing:
    """VMs and their nodes, while VMs come and go. A VM that migrates has memory on two nodes.

    Attributes:
        homes: the node of each VM that had memory at first, whatever has come and gone since.
        vms_on: the VMs that have memory on a node. It is a dictionary's own method: rules ask for each VM and node.
        nodes_of: the nodes where a VM has memory.
    """

    def __init__(self, homes: Mapping[str, str], held: Iterable[Held] = ()) -> None:
        self.homes = homes
        self._know(_Sets(), _Sets())
        self._counts: dict[tuple[frozenset[str], frozenset[str]], _Count] = {}
        self._counts_of: dict[str, list[_Count]] = {}  # by VM
        self._hosting: dict[frozenset[str], int] = {}  # by nodes, the number of those that host any VM
        for vm, node in held:
            self.put(vm, node)

    def _know(self, on: _Sets, of: _Sets) -> None:
        """``on``: by node, its VMs; ``of``: by VM, its nodes."""
        self._on, self._of = on, of
        self.vms_on: Callable[[str], frozenset[str]] = on.__getitem__
        self.nodes_of: Callable[[str], frozenset[str]] = of.__getitem__

    def copy(self) -> Standing:
        """An independent copy, with the same VMs on the same nodes."""
        other = Standing(self.homes)
        other._know(_Sets(self._on), _Sets(self._of))
        return other

    def put(self, vm: str, node: str) -> None:
        """A VM has memory on a node from now on."""
        for count in self._counts_of.get(vm, ()):
            if node in count.nodes and count.nodes.isdisjoint(self.nodes_of(vm)):
                count.number += 1
        there = self._on.get(node)
        if there is None:
            self._hosts(node, 1)
        self._on[node] = frozenset((vm,)) if there is None else there | {vm}
        its = self._of.get(vm)
        self._of[vm] = frozenset((node,)) if its is None else its | {node}

    def put_all(self, nodes: Mapping[str, str]) -> None:
        """VMs have memory on nodes from now on: node by VM name."""
        if self._counts or self._hosting:
            for vm, node in nodes.items():
                self.put(vm, node)
            return
        of, come = self._of, dict[str, list[str]]()
        alone: dict[str, frozenset[str]] = {}
        for vm, node in nodes.items():
            vms = come.get(node)
            if vms is None:
                come[node], alone[node] = [vm], frozenset((node,))
            else:
                vms.append(vm)
            of[vm] = of[vm] | {node} if vm in of else alone[node]
        for node, vms in come.items():
            self._on[node] = self._on.get(node, _NOBODY).union(vms)

    def remove(self, vm: str, node: str) -> None:
        """A VM has no memory on a node any more."""
        for found, key, member in ((self._on, node, vm), (self._of, vm, node)):
            left = found[key] - {member}
            if left:
                found[key] = left
            else:
                del found[key]
        if node not in self._on:
            self._hosts(node, -1)
        for count in self._counts_of.get(vm, ()):
            if node in count.nodes and count.nodes.isdisjoint(self.nodes_of(vm)):
                count.number -= 1

    def number_on(self, vms: frozenset[str], nodes: frozenset[str]) -> int:
        """The number of these VMs that have memory on one of these nodes.

        It is counted once, and kept while VMs come and go: a rule asks for each VM that is placed.
        """
        count = self._counts.get((vms, nodes))
        if count is None:
            if len(self._counts) >= _COUNTS:
                self._counts, self._counts_of = {}, {}
            there = set[str]().union(*(self.vms_on(node) for node in nodes))
            count = self._counts[vms, nodes] = _Count(nodes, len(there & vms))
            for vm in vms:
                self._counts_of.setdefault(vm, []).append(count)
        return count.number

    def number_hosting(self, nodes: frozenset[str]) -> int:
        """The number of these nodes where any VM has memory; counted once, and kept while VMs come and go."""
        if nodes not in self._hosting:
            if len(self._hosting) >= _COUNTS:
                self._hosting = {}
            self._hosting[nodes] = len(nodes & self._on.keys())
        return self._hosting[nodes]

    def _hosts(self, node: str, change: int) -> None:
        """A node hosts its first VM (1), or none any more (-1)."""
        for nodes in self._hosting:
            if node in nodes:
                self._hosting[nodes] += change

    def nodes(self) -> Set[str]:
        """The nodes where any VM has memory."""
        return self._on.keys()
