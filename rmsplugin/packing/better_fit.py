"""Better-fit: VMs are placed one after the other as they arrive, and placed VMs may move (RR-7398, section 2.1.2).

An arriving VM takes the place of one that fills its node less; that one goes to another node by best fit. A node that
a VM has left, or that is little used, is emptied in the same way. The report has one dimension; here the size of a VM
on a node is the sum of its shares of the node's CPUs and memory (docs/decisions/0200-better-fit.md).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from rmsplugin.model.elements import VM, Node, NodeState
from rmsplugin.model.rules import admit
from rmsplugin.packing.item import Item

#: A node of which neither CPUs nor memory are used more than this is underutilised (RR-7398, figure 3: 20 %).
UNDERLOAD = 0.2


class _Host:
    """A node that takes VMs: its free resources (hundredths of a CPU, MiB) and its VMs in the order of arrival."""

    def __init__(self, node: Node) -> None:
        up = node.state is NodeState.UP
        self.name = node.name
        self.cpus = node.capacity.centi_cpus if up else 0
        self.memory = node.capacity.memory_mib if up else 0
        self.free_cpus, self.free_memory = self.cpus, self.memory
        self.takes = up
        self.items: dict[str, Item] = {}
        self.stay: set[str] = set()  # VMs that are never moved

    def size(self, vm: VM) -> int:
        """The shares of CPUs and memory that a VM takes, summed; exact, in a unit of this node."""
        return vm.demand.centi_cpus * max(1, self.memory) + vm.demand.memory_mib * max(1, self.cpus)

    @property
    def room(self) -> float:
        """The free shares of CPUs and memory, summed."""
        return self.free_cpus / max(1, self.cpus) + self.free_memory / max(1, self.memory)

    @property
    def overloaded(self) -> bool:
        return self.free_cpus < 0 or self.free_memory < 0

    def is_relieved_by(self, vm: VM) -> bool:
        """Whether a VM takes of what is short."""
        short_cpus, short_memory = self.free_cpus < 0, self.free_memory < 0
        return (short_cpus and vm.demand.centi_cpus > 0) or (short_memory and vm.demand.memory_mib > 0)

    def accepts(self, item: Item, instead: VM | None = None) -> bool:
        """Whether a VM has room here, perhaps instead of another one."""
        demand = item.vm.demand
        cpus = self.free_cpus + (instead.demand.centi_cpus if instead else 0)
        memory = self.free_memory + (instead.demand.memory_mib if instead else 0)
        has_room = demand.centi_cpus <= cpus and demand.memory_mib <= memory
        return has_room and self.takes and admit(item.rules, self.name)

    def change(self, item: Item, sign: int) -> None:
        """Take a VM (1), or give its resources back (-1)."""
        self.free_cpus -= sign * item.vm.demand.centi_cpus
        self.free_memory -= sign * item.vm.demand.memory_mib
        if sign > 0:
            self.items[item.vm.name] = item
        else:
            del self.items[item.vm.name]


class BetterFit:
    """The nodes, while VMs arrive, end and move."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        """Begin with empty nodes, in the order in which they are looked at."""
        self._hosts = {node.name: _Host(node) for node in nodes}
        self._at: dict[str, _Host] = {}
        self._journal: list[tuple[Item, _Host | None, _Host | None]] = []  # changes: a VM, from and to

    @property
    def assignment(self) -> dict[str, str]:
        """Node by VM name."""
        return {name: host.name for name, host in self._at.items()}

    @property
    def nodes_used(self) -> int:
        """The number of nodes that host VMs."""
        return sum(bool(host.items) for host in self._hosts.values())

    def put(self, item: Item, node: str, *, stays: bool = False) -> None:
        """Record that a VM is on a node, even if that has no room; ``stays``: it is never moved."""
        host = self._hosts[node]
        self._move(item, None, host)
        if stays:
            host.stay.add(item.vm.name)

    def insert(self, item: Item) -> bool:
        """Place an arriving VM. Returns False, and changes nothing, if no node has room.

        No node is taken into use for a VM that fits on one in use. At most one other VM moves.
        """
        return self._insert(item, ())

    def remove(self, name: str) -> str:
        """Remove a VM that has ended. Returns its node, which can be emptied then (``empty``)."""
        host = self._at[name]
        host.stay.discard(name)
        self._move(host.items[name], host, None)
        return host.name

    def empty(self, node: str, *, exchange: bool = True) -> bool:
        """Insert all VMs of a node anew on other nodes in use. Returns False, and changes nothing, if one has no room.

        A node that only gets other VMs instead is not worth the migrations. Without ``exchange`` no VM of another
        node makes way.
        """
        host = self._hosts[node]
        if host.stay or not host.items:
            return False
        begun = len(self._journal)
        leaving = sorted(host.items.values(), key=lambda item: (-host.size(item.vm), item.vm.name))
        for item in leaving:
            if not self._remap(item, host, open_node=False, exchange=exchange):
                self._undo(begun)
                return False
        return True

    def moves_to_empty(self, node: str, *, exchange: bool = True) -> dict[str, str] | None:
        """The new node of each VM that would move if a node were emptied; None if it cannot be. Nothing changes."""
        begun = len(self._journal)
        if not self.empty(node, exchange=exchange):
            return None
        moves = {item.vm.name: self._at[item.vm.name].name for item, _, _ in self._journal[begun:]}
        self._undo(begun)
        return moves

    def relieve(self, node: str) -> bool:
        """Insert VMs of an overloaded node anew, the smallest first, until it is not.

        Returns whether all is well then, or the rest is of VMs that are never moved.
        """
        host = self._hosts[node]
        for item in sorted(host.items.values(), key=lambda item: (host.size(item.vm), item.vm.name)):
            if not host.overloaded:
                break
            if item.vm.name not in host.stay and host.is_relieved_by(item.vm):
                self._remap(item, host, open_node=True)
        return not host.overloaded or bool(host.stay)

    def overloaded(self) -> list[str]:
        """The nodes whose VMs demand more than they have, in order."""
        return [host.name for host in self._hosts.values() if host.overloaded]

    def underloaded(self, share: float = UNDERLOAD) -> list[str]:
        """The nodes in use of which neither CPUs nor memory are used more than a share, in order."""
        return [
            host.name
            for host in self._hosts.values()
            if host.items
            and host.cpus - host.free_cpus <= share * host.cpus
            and host.memory - host.free_memory <= share * host.memory
        ]

    def _remap(self, item: Item, host: _Host, *, open_node: bool, exchange: bool = True) -> bool:
        """Insert a VM of a node anew, on another one."""
        self._move(item, host, None)
        if self._insert(item, (host,), open_node=open_node, exchange=exchange):
            return True
        self._undo(len(self._journal) - 1)
        return False

    def _insert(self, item: Item, avoid: Collection[_Host], *, open_node: bool = True, exchange: bool = True) -> bool:
        best = self._best_fit(item, avoid)
        may_open = open_node and best is None  # a node is taken into use only if no node in use has room
        for host in self._in_use(avoid) if exchange else ():
            if host.accepts(item):
                continue  # beside all others it fills the node more than instead of one
            replaced = self._replaced(item, host)
            found = ((each, self._best_fit(each, (*avoid, host))) for each in replaced)
            each, to = next(((each, to) for each, to in found if to is not None), (None, None))
            if each is None and may_open and replaced:
                each = replaced[0]
                to = self._first_unused(each, avoid)
            if each is not None and to is not None:
                self._move(each, host, to)
                self._move(item, None, host)
                return True
        to = best or (self._first_unused(item, avoid) if may_open else None)
        if to is None:
            return False
        self._move(item, None, to)
        return True

    def _replaced(self, item: Item, host: _Host) -> list[Item]:
        """The VMs of a node that an arriving one may replace because it fills the node more; the fullest node first."""
        size = host.size(item.vm)
        smaller = (
            each
            for each in host.items.values()
            if each.vm.name not in host.stay and host.size(each.vm) < size and host.accepts(item, instead=each.vm)
        )
        return sorted(smaller, key=lambda each: host.size(each.vm))

    def _best_fit(self, item: Item, avoid: Collection[_Host]) -> _Host | None:
        """The node in use with the smallest room that accepts a VM."""
        fits = (host for host in self._in_use(avoid) if host.accepts(item))
        return min(fits, key=lambda host: host.room, default=None)

    def _first_unused(self, item: Item, avoid: Collection[_Host]) -> _Host | None:
        unused = (host for host in self._hosts.values() if not host.items and host not in avoid)
        return next((host for host in unused if host.accepts(item)), None)

    def _in_use(self, avoid: Collection[_Host]) -> Iterator[_Host]:
        return (host for host in self._hosts.values() if host.items and host not in avoid)

    def _move(self, item: Item, source: _Host | None, to: _Host | None) -> None:
        self._journal.append((item, source, to))
        self._change(item, source, to)

    def _change(self, item: Item, source: _Host | None, to: _Host | None) -> None:
        if source is not None:
            source.change(item, -1)
            del self._at[item.vm.name]
        if to is not None:
            to.change(item, 1)
            self._at[item.vm.name] = to

    def _undo(self, begun: int) -> None:
        while len(self._journal) > begun:
            item, source, to = self._journal.pop()
            self._change(item, to, source)
