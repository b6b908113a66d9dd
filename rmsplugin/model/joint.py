"""Joint: rules about VMs of any vjobs, by their names: where one may be depends on where others are.

Such a rule is among the rules of each vjob that has VMs of it (``online``: of every vjob). So it is wherever vjobs are,
and ``Configuration.joint`` finds all rules. ``bars`` is for those who place VMs one after the other. ``broken`` is the
check. It is not written by ``bars``, so that one mistake does not hide in both.

A VM that leaves breaks no rule. So VMs that end at places which obey the rules can always get there: at worst, those in
the way are saved first.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from rmsplugin.model.resources import Resources
from rmsplugin.model.rules import Ban, Fence, Held, Rule, Rules
from rmsplugin.model.standing import Standing
from rmsplugin.model.wording import counted

#: So many names are listed in a rule's title; of more, their number is enough.
_NAMED = 3


class Bars(NamedTuple):
    """The nodes to which a VM may not come: all but ``only`` (None: no such bound), and those in ``never``."""

    only: Collection[str] | None = None
    never: Collection[str] = ()

    def admits(self, node: str) -> bool:
        """Whether the VM may come to a node."""
        return node not in self.never and (self.only is None or node in self.only)


class Joint(Rule):
    """A rule about named VMs of any vjobs.

    ``label``: the name that an administrator gave it; empty: it has none.
    """

    __slots__ = ()

    label: str

    everywhere = True

    def admits(self, node: str) -> bool:
        """Whatever other VMs there are: a joint rule closes no node to a whole vjob."""
        return True

    def faults(self, nodes: Collection[str]) -> Iterator[tuple[str, str]]:
        """None: the reader of an instance has looked at the names, where the rule stands."""
        return iter(())

    @property
    def title(self) -> str:
        """The rule in a few words, for sentences: its name, if it has one, and what it is."""
        return f"rule {self.label}: {self.words}" if self.label else self.words

    @property
    @abstractmethod
    def words(self) -> str:
        """What it is, in a few words: "spread of 'a-0' 'a-1'"."""

    @property
    @abstractmethod
    def names(self) -> Collection[str] | None:
        """The names of the VMs whose places can break the rule; None: those of all VMs can."""

    def concerns(self, vm: str) -> bool:
        """Whether the place of this VM can break the rule."""
        return self.names is None or vm in self.names

    @abstractmethod
    def bars(self, vm: str, standing: Standing) -> Bars | None:
        """The nodes to which a VM may not come, by where others stand; None if the rule bars it from none."""

    @abstractmethod
    def broken(self, held: Collection[Held], came: Collection[Held]) -> str | None:
        """As ``Rule.broken``; ``held`` are the places of the VMs of all vjobs."""


@dataclass(frozen=True, slots=True)
class Spread(Joint):
    """No two of the VMs are on one node."""

    vms: frozenset[str]
    discrete: bool = False
    label: str = ""

    @property
    def words(self) -> str:
        """Names a few VMs."""
        return f"spread of {_few(self.vms, 'VM')}"

    @property
    def names(self) -> Collection[str] | None:
        """The VMs."""
        return self.vms

    def bars(self, vm: str, standing: Standing) -> Bars | None:
        """The nodes of all the others."""
        if vm not in self.vms:
            return None
        return Bars(never={node for other in self.vms if other != vm for node in standing.nodes_of(other)})

    def broken(self, held: Collection[Held], came: Collection[Held]) -> str | None:
        """The reason if a VM has come to the node of another."""
        at = _by_node((vm, node) for vm, node in held if vm in self.vms)
        for vm, node in came:
            others = at.get(node, set()) - {vm}
            if vm in self.vms and others:
                return f"{vm} may not be on {node}, where {min(others)} is ({self.title})"
        return None

    def __str__(self) -> str:
        return f"spread {_all(self.vms)}{_when(self)}"


@dataclass(frozen=True, slots=True)
class Gather(Joint):
    """All of the VMs that have memory are on one node."""

    vms: frozenset[str]
    discrete: bool = False
    label: str = ""

    @property
    def words(self) -> str:
        """Names a few VMs."""
        return f"gather of {_few(self.vms, 'VM')}"

    @property
    def names(self) -> Collection[str] | None:
        """The VMs."""
        return self.vms

    def bars(self, vm: str, standing: Standing) -> Bars | None:
        """All nodes but that of the others; all, if these are on two."""
        if vm not in self.vms:
            return None
        there = {node for other in self.vms if other != vm for node in standing.nodes_of(other)}
        return Bars(only=there if len(there) == 1 else ()) if there else None

    def broken(self, held: Collection[Held], came: Collection[Held]) -> str | None:
        """The reason if a VM has come to a node while another is elsewhere."""
        for vm, node in came:
            if vm not in self.vms:
                continue
            away = [other for other in held if other[0] in self.vms and other[0] != vm and other[1] != node]
            if away:
                other, where = min(away)
                return f"{vm} may not be on {node} while {other} is on {where} ({self.title})"
        return None

    def __str__(self) -> str:
        return f"gather {_all(self.vms)}{_when(self)}"


@dataclass(frozen=True, slots=True)
class Lonely(Joint):
    """No VM but these, and their friends, is on their nodes. Friends may be with others elsewhere."""

    vms: frozenset[str]
    discrete: bool = False
    label: str = ""
    friends: frozenset[str] = frozenset()

    @property
    def words(self) -> str:
        """Names a few VMs."""
        return f"lonely {_few(self.vms, 'VM')}"

    @property
    def names(self) -> Collection[str] | None:
        """All VMs."""
        return None

    def bars(self, vm: str, standing: Standing) -> Bars | None:
        """The nodes of strangers, for one of them; their nodes, for a stranger."""
        if vm in self.friends:
            return None
        if vm not in self.vms:
            return Bars(never={node for lonely in self.vms for node in standing.nodes_of(lonely)})
        known = self.vms | self.friends
        return Bars(never=[node for node in standing.nodes() if not known.issuperset(standing.vms_on(node))])

    def broken(self, held: Collection[Held], came: Collection[Held]) -> str | None:
        """The reason if one of them and a stranger are on one node, and one has come there."""
        at = _by_node((vm, node) for vm, node in held if vm not in self.friends)
        for vm, node in came:
            if vm in self.friends:
                continue
            others = {other for other in at.get(node, ()) if (other in self.vms) is not (vm in self.vms)}
            if others:
                return f"{vm} may not be on {node}, where {min(others)} is ({self.title})"
        return None

    def __str__(self) -> str:
        beside = f" but {_all(self.friends)}" if self.friends else ""
        return f"lonely {_all(self.vms)}{beside}{_when(self)}"


@dataclass(frozen=True, slots=True)
class Split(Joint):
    """No node has VMs of two of the groups. A VM is in one group at most."""

    groups: tuple[frozenset[str], ...]
    discrete: bool = False
    label: str = ""

    @property
    def words(self) -> str:
        """Names a few VMs of each of a few groups."""
        if len(self.groups) > _NAMED:
            return f"split of {counted(sum(map(len, self.groups)), 'VM')} in {len(self.groups)} groups"
        return f"split of {' from '.join(_few(group, 'VM') for group in self.groups)}"

    @property
    def names(self) -> Collection[str] | None:
        """The VMs of all groups."""
        return frozenset().union(*self.groups)

    def bars(self, vm: str, standing: Standing) -> Bars | None:
        """The nodes of all VMs of the other groups."""
        if not any(vm in group for group in self.groups):
            return None
        others = [other for group in self.groups if vm not in group for other in group]
        return Bars(never={node for other in others for node in standing.nodes_of(other)})

    def broken(self, held: Collection[Held], came: Collection[Held]) -> str | None:
        """The reason if a VM has come to a node with one of another group."""
        group_of = {vm: number for number, group in enumerate(self.groups) for vm in group}
        at = _by_node((vm, node) for vm, node in held if vm in group_of)
        for vm, node in came:
            if vm not in group_of:
                continue
            others = [other for other in at.get(node, ()) if group_of[other] != group_of[vm]]
            if others:
                return f"{vm} may not be on {node}, where {min(others)} is ({self.title})"
        return None

    def __str__(self) -> str:
        return f"split {' / '.join(_all(group) for group in self.groups)}{_when(self)}"


@dataclass(frozen=True, slots=True)
class Root(Joint):
    """The VMs do not migrate while they run. It holds at every step: the end of a plan does not show who migrated."""

    vms: frozenset[str]
    discrete: bool = False
    label: str = ""

    @property
    def words(self) -> str:
        """Names a few VMs."""
        return f"root of {_few(self.vms, 'VM')}"

    @property
    def names(self) -> Collection[str] | None:
        """The VMs."""
        return self.vms

    def bars(self, vm: str, standing: Standing) -> Bars | None:
        """All nodes but its own, for a VM that had memory on one at first."""
        home = standing.homes.get(vm) if vm in self.vms else None
        return None if home is None else Bars(only=(home,))

    def broken(self, held: Collection[Held], came: Collection[Held]) -> str | None:
        """The reason if a VM comes to a node while it has memory on another."""
        for vm, node in came:
            elsewhere = [where for other, where in held if other == vm and where != node]
            if vm in self.vms and elsewhere:
                return f"{vm} may not migrate from {min(elsewhere)} to {node} ({self.title})"
        return None

    def __str__(self) -> str:
        return f"root {_all(self.vms)}"


@dataclass(frozen=True, slots=True)
class Capacity(Joint):
    """At most so many of the VMs are on these nodes together."""

    nodes: frozenset[str]
    vms: frozenset[str]
    most: int
    discrete: bool = False
    label: str = ""

    @property
    def words(self) -> str:
        """Names a few VMs and nodes."""
        return f"capacity: at most {self.most} of {_few(self.vms, 'VM')} on {_few(self.nodes, 'node')}"

    @property
    def names(self) -> Collection[str] | None:
        """The VMs."""
        return self.vms

    def bars(self, vm: str, standing: Standing) -> Bars | None:
        """The nodes, if as many others as may be are there."""
        if vm not in self.vms or not self.nodes.isdisjoint(standing.nodes_of(vm)):
            return None
        return Bars(never=self.nodes) if standing.number_on(self.vms, self.nodes) >= self.most else None

    def broken(self, held: Collection[Held], came: Collection[Held]) -> str | None:
        """The reason if too many are there, and one has come that was not there before."""
        there = [(vm, node) for vm, node in held if vm in self.vms and node in self.nodes]
        number, new = len({vm for vm, _ in there}), set(came)
        before = {vm for vm, node in there if (vm, node) not in new}
        for vm, node in there:
            if number > self.most and vm not in before:
                return f"{vm} may not be on {node}: it would be one of {number} there ({self.title})"
        return None

    def __str__(self) -> str:
        return f"capacity {self.most} of {_all(self.vms)} on {_all(self.nodes)}{_when(self)}"


@dataclass(frozen=True, slots=True)
class Online(Joint):
    """At most so many of the nodes host VMs."""

    nodes: frozenset[str]
    most: int
    discrete: bool = False
    label: str = ""

    @property
    def words(self) -> str:
        """Names a few nodes."""
        return f"online: at most {self.most} of {_few(self.nodes, 'node')}"

    @property
    def names(self) -> Collection[str] | None:
        """All VMs."""
        return None

    def bars(self, vm: str, standing: Standing) -> Bars | None:
        """Those of the nodes that host nobody, if as many as may do."""
        if len(standing.nodes()) < self.most:
            return None
        hosting = self.nodes & standing.nodes()
        return Bars(never=self.nodes - hosting) if len(hosting) >= self.most else None

    def broken(self, held: Collection[Held], came: Collection[Held]) -> str | None:
        """The reason if too many of the nodes host VMs, and one of them hosts only VMs that have come."""
        new, theirs = set(came), {node for _, node in came if node in self.nodes}
        first = theirs - {each[1] for each in held if each[1] in theirs and each not in new}
        if not first:
            return None
        number = len({node for _, node in held if node in self.nodes})
        for vm, node in came:
            if number > self.most and node in first:
                return f"{vm} may not be on {node}: it would be one of {number} nodes with VMs ({self.title})"
        return None

    def __str__(self) -> str:
        return f"online {self.most} of {_all(self.nodes)}{_when(self)}"


@dataclass(frozen=True, slots=True)
class Part(Joint):
    """A fence or a ban for some of the VMs of a vjob; one for all of them is a rule of the vjob itself."""

    vms: frozenset[str]
    rule: Fence | Ban
    label: str = ""

    @property
    def discrete(self) -> bool:  # type: ignore[override]
        """As the rule says."""
        return self.rule.discrete

    @property
    def words(self) -> str:
        """Names a few VMs and nodes."""
        what = "only on" if isinstance(self.rule, Fence) else "never on"
        return f"{_few(self.vms, 'VM')} {what} {_few(self.rule.nodes, 'node')}"

    @property
    def names(self) -> Collection[str] | None:
        """The VMs."""
        return self.vms

    def bars(self, vm: str, standing: Standing) -> Bars | None:
        """As the fence or the ban says."""
        if vm not in self.vms:
            return None
        return Bars(only=self.rule.nodes) if isinstance(self.rule, Fence) else Bars(never=self.rule.nodes)

    def broken(self, held: Collection[Held], came: Collection[Held]) -> str | None:
        """As the fence or the ban says, for these VMs."""
        return self.rule.broken(held, [each for each in came if each[0] in self.vms])

    def __str__(self) -> str:
        return f"{_all(self.vms)} {self.rule}{_when(self)}"


@dataclass(frozen=True, slots=True)
class Reserve:
    """CPUs and memory of nodes that no VM may take. It is obeyed by all who know the nodes' capacity without them."""

    nodes: frozenset[str]
    kept: Resources

    def left_of(self, node: str, capacity: Resources) -> Resources:
        """The part of a node's capacity that VMs may take; below 0 if the node has not as much as is kept."""
        return capacity - self.kept if node in self.nodes else capacity


@lru_cache(maxsize=4096)
def alone(rules: Rules) -> Rules:
    """The rules that do not depend on other VMs. Equal rules give the same object."""
    return tuple(rule for rule in rules if not isinstance(rule, Joint))


def bars_of(rules: Iterable[Joint], vm: str, standing: Standing) -> list[Bars]:
    """The bars of each rule that bars a VM from some nodes."""
    return [bars for rule in rules if (bars := rule.bars(vm, standing)) is not None]


class Concerning:
    """Finds the rules that the place of a VM can break, of many that are about a few VMs each."""

    def __init__(self, rules: Iterable[Joint]) -> None:
        self._all: list[Joint] = []
        self._of: dict[str, list[Joint]] = {}
        for rule in rules:
            if rule.names is None:
                self._all.append(rule)
            for vm in rule.names or ():
                self._of.setdefault(vm, []).append(rule)

    def of(self, vm: str) -> list[Joint]:
        """The rules that the place of a VM can break."""
        return [*self._all, *self._of.get(vm, ())]


def _by_node(held: Iterable[Held]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for vm, node in held:
        found.setdefault(node, set()).add(vm)
    return found


def _few(names: Collection[str], what: str) -> str:
    return _all(names) if len(names) <= _NAMED else counted(len(names), what)


def _all(names: Iterable[str]) -> str:
    return " ".join(map(repr, sorted(names)))


def _when(rule: Rule) -> str:
    return " in the end" if rule.discrete else ""
