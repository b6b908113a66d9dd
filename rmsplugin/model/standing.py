"""Standing: the nodes where each VM has memory. Rules about VMs beside each other (``model.joint``) ask it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set

from rmsplugin.model.rules import Held

_NOBODY: frozenset[str] = frozenset()


class Standing:
    """VMs and their nodes, while VMs come and go. A VM that migrates has memory on two nodes.

    Attributes:
        homes: the node of each VM that had memory at first, whatever has come and gone since.
    """

    def __init__(self, homes: Mapping[str, str], held: Iterable[Held] = ()) -> None:
        self.homes = homes
        self._on: dict[str, set[str]] = {}
        self._of: dict[str, set[str]] = {}
        for vm, node in held:
            self.put(vm, node)

    def put(self, vm: str, node: str) -> None:
        """A VM has memory on a node from now on."""
        self._on.setdefault(node, set()).add(vm)
        self._of.setdefault(vm, set()).add(node)

    def remove(self, vm: str, node: str) -> None:
        """A VM has no memory on a node any more."""
        for found, key, member in ((self._on, node, vm), (self._of, vm, node)):
            found[key].remove(member)
            if not found[key]:
                del found[key]

    def vms_on(self, node: str) -> Collection[str]:
        """The VMs that have memory on a node."""
        return self._on.get(node, _NOBODY)

    def nodes_of(self, vm: str) -> Collection[str]:
        """The nodes where a VM has memory."""
        return self._of.get(vm, _NOBODY)

    def nodes(self) -> Set[str]:
        """The nodes where any VM has memory."""
        return self._on.keys()
