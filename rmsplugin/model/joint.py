"""Joint: rules about VMs of any vjobs, by their names: where one may be depends on where others are.

Such a rule is among the rules of each vjob that has VMs of it (``online``: of every vjob). So it is wherever vjobs are,
and ``Configuration.joint`` finds all rules. ``lets`` is for those who place VMs one after the other. ``broken`` is the
check. It is not written by ``lets``, so that one mistake does not hide in both.

A VM that leaves breaks no rule. So VMs that end at places which obey the rules can always get there: at worst, those in
the way are saved first.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from rmsplugin.model.resources import Resources
from rmsplugin.model.rules import Ban, Fence, Held, Rule
from rmsplugin.model.standing import Standing
from rmsplugin.model.wording import counted

#: So many names are listed in a rule's title; of more, their number is enough.
_NAMED = 3
#: So many sets of sets of nodes are remembered: a site has one.
_SETS = 8


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
    def lets(self, vm: str, node: str, standing: Standing) -> bool:
        """Whether a VM may come to a node, by where others stand.

        It is asked for each VM that is placed, and for each node that is tried. So it looks at the VMs of this node,
        and at no others if that can be.
        """

    def confines(self, vm: str, standing: Standing) -> Fence | Ban | None:
        """The nodes to which the rule confines a VM now, all for one reason: no other is worth asking about.

        None: each node has to be asked about. ``lets`` decides in any case.
        """
        return None

    @abstractmethod
    def is_kept(self, standing: Standing) -> bool:
        """Whether all VMs obey the rule where they stand, whoever came first.

        It looks at the VMs of the rule once. To ask ``lets`` for each VM that there is takes many times as long.
        """

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

    def lets(self, vm: str, node: str, standing: Standing) -> bool:
        """Whether none of the others is there."""
        if vm not in self.vms:
            return True
        there = standing.vms_on(node)
        return self.vms.isdisjoint(there) or self.vms.intersection(there) == {vm}

    def is_kept(self, standing: Standing) -> bool:
        """Whether no node has two of them."""
        taken: dict[str, str] = {}
        return all(taken.setdefault(node, vm) == vm for vm in self.vms for node in standing.nodes_of(vm))

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

    def lets(self, vm: str, node: str, standing: Standing) -> bool:
        """Whether no other is elsewhere."""
        if vm not in self.vms:
            return True
        for other in self.vms:
            its = standing.nodes_of(other)
            if its and other != vm and (len(its) > 1 or node not in its):
                return False
        return True

    def confines(self, vm: str, standing: Standing) -> Fence | Ban | None:
        """To the node of another."""
        if vm in self.vms:
            for other in self.vms:
                if other != vm and standing.nodes_of(other):
                    return Fence(frozenset(standing.nodes_of(other)))
        return None

    def is_kept(self, standing: Standing) -> bool:
        """Whether one node has all of them."""
        there = [standing.nodes_of(vm) for vm in self.vms if standing.nodes_of(vm)]
        return len(there) < 2 or len(set[str]().union(*there)) == 1

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

    def lets(self, vm: str, node: str, standing: Standing) -> bool:
        """Whether no stranger is there, for one of them; whether none of them is, for a stranger."""
        if vm in self.vms:
            return all(other in self.vms or other in self.friends for other in standing.vms_on(node))
        return vm in self.friends or self.vms.isdisjoint(standing.vms_on(node))

    def is_kept(self, standing: Standing) -> bool:
        """Whether their nodes have no stranger."""
        theirs = {node for vm in self.vms for node in standing.nodes_of(vm)}
        return all(vm in self.vms or vm in self.friends for node in theirs for vm in standing.vms_on(node))

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
    group_of: Mapping[str, int] = field(init=False, repr=False, compare=False)  # the number of each VM's group

    def __post_init__(self) -> None:
        """Number the groups: there may be hundreds of them, and each VM's is asked for at each place."""
        numbers = {vm: number for number, group in enumerate(self.groups) for vm in group}
        object.__setattr__(self, "group_of", numbers)

    def __reduce__(self) -> tuple[type[Split], tuple[object, ...]]:
        """Another process numbers them again."""
        return Split, (self.groups, self.discrete, self.label)

    @property
    def words(self) -> str:
        """Names a few VMs of each of a few groups."""
        if len(self.groups) > _NAMED:
            return f"split of {counted(sum(map(len, self.groups)), 'VM')} in {len(self.groups)} groups"
        return f"split of {' from '.join(_few(group, 'VM') for group in self.groups)}"

    @property
    def names(self) -> Collection[str] | None:
        """The VMs of all groups."""
        return self.group_of.keys()

    def lets(self, vm: str, node: str, standing: Standing) -> bool:
        """Whether no VM of another group is there."""
        own = self.group_of.get(vm)
        return own is None or all(self.group_of.get(other, own) == own for other in standing.vms_on(node))

    def is_kept(self, standing: Standing) -> bool:
        """Whether each node has VMs of one group at most."""
        taken: dict[str, int] = {}
        own = self.group_of.items()
        return all(taken.setdefault(node, number) == number for vm, number in own for node in standing.nodes_of(vm))

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

    def lets(self, vm: str, node: str, standing: Standing) -> bool:
        """Whether it is the VM's own, if it had memory on one at first."""
        return vm not in self.vms or standing.homes.get(vm, node) == node

    def confines(self, vm: str, standing: Standing) -> Fence | Ban | None:
        """To its own node, if it has one."""
        return Fence(frozenset({standing.homes[vm]})) if vm in self.vms and vm in standing.homes else None

    def is_kept(self, standing: Standing) -> bool:
        """Whether each is on its own node, if it had memory on one at first."""
        return all(standing.homes.get(vm, node) == node for vm in self.vms for node in standing.nodes_of(vm))

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

    def lets(self, vm: str, node: str, standing: Standing) -> bool:
        """Whether the node is none of these; or the VM is on one already, or fewer others than may be."""
        return node not in self.nodes or vm not in self.vms or not self._is_full(vm, standing)

    def _is_full(self, vm: str, standing: Standing) -> bool:
        """Whether as many are there as may be, and the VM is not."""
        is_there = not self.nodes.isdisjoint(standing.nodes_of(vm))
        return not is_there and standing.number_on(self.vms, self.nodes) >= self.most

    def confines(self, vm: str, standing: Standing) -> Fence | Ban | None:
        """To other nodes, if these are full."""
        return Ban(self.nodes) if vm in self.vms and self._is_full(vm, standing) else None

    def is_kept(self, standing: Standing) -> bool:
        """Whether no more of them are there than may be."""
        return standing.number_on(self.vms, self.nodes) <= self.most

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

    def lets(self, vm: str, node: str, standing: Standing) -> bool:
        """Whether the node is none of these; or it hosts VMs already, or fewer nodes than may do."""
        if node not in self.nodes or standing.vms_on(node):
            return True
        return standing.number_hosting(self.nodes) < self.most

    def is_kept(self, standing: Standing) -> bool:
        """Whether no more of the nodes host VMs than may do."""
        return standing.number_hosting(self.nodes) <= self.most

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
class Within(Joint):
    """The VMs are on at most so many of these sets of nodes. A node of no set is one by itself.

    ``sets``: no node is in two of them.
    """

    sets: tuple[frozenset[str], ...]
    vms: frozenset[str]
    most: int
    discrete: bool = False
    label: str = ""
    number_of: Mapping[str, int] = field(init=False, repr=False, compare=False)  # the number of each node's set

    def __post_init__(self) -> None:
        """Number the sets: rules about the same switches share the numbers."""
        object.__setattr__(self, "number_of", _numbers(self.sets))

    def __reduce__(self) -> tuple[type[Within], tuple[object, ...]]:
        """Another process numbers them again."""
        return Within, (self.sets, self.vms, self.most, self.discrete, self.label)

    @property
    def words(self) -> str:
        """Names a few VMs."""
        return f"within: {_few(self.vms, 'VM')} on at most {self.most} of {counted(len(self.sets), 'set')} of nodes"

    @property
    def names(self) -> Collection[str] | None:
        """The VMs."""
        return self.vms

    def set_of(self, node: str) -> int | str:
        """The number of a node's set; of a node that is in none, its name."""
        return self.number_of.get(node, node)

    def used(self, standing: Standing) -> set[int | str]:
        """The sets where the VMs have memory."""
        return {self.set_of(node) for vm in self.vms for node in standing.nodes_of(vm)}

    def nodes_in(self, sets: Iterable[int | str]) -> frozenset[str]:
        """All nodes of some sets."""
        return frozenset().union(*({each} if isinstance(each, str) else self.sets[each] for each in sets))

    def lets(self, vm: str, node: str, standing: Standing) -> bool:
        """Whether one of them is in the node's set already, or fewer sets are used than may be."""
        if vm not in self.vms:
            return True
        used = self.used(standing)
        return len(used) < self.most or self.set_of(node) in used

    def confines(self, vm: str, standing: Standing) -> Fence | Ban | None:
        """To the sets that are used, if no other may be."""
        if vm not in self.vms:
            return None
        used = self.used(standing)
        return Fence(self.nodes_in(used)) if len(used) >= self.most else None

    def is_kept(self, standing: Standing) -> bool:
        """Whether no more sets are used than may be."""
        return len(self.used(standing)) <= self.most

    def broken(self, held: Collection[Held], came: Collection[Held]) -> str | None:
        """The reason if too many sets are used, and one of them only by VMs that have come."""
        of = {node: at for at, nodes in enumerate(self.sets) for node in nodes}
        new, theirs = set(came), [each for each in held if each[0] in self.vms]
        number = len({of.get(node, node) for _, node in theirs})
        before = {of.get(node, node) for vm, node in theirs if (vm, node) not in new}
        for vm, node in came:
            if number > self.most and vm in self.vms and of.get(node, node) not in before:
                return f"{vm} may not be on {node}: they would be on {number} sets of nodes ({self.title})"
        return None

    def __str__(self) -> str:
        return f"within {self.most} of {_quoted_sets(self.sets)} {_all(self.vms)}{_when(self)}"


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

    def lets(self, vm: str, node: str, standing: Standing) -> bool:
        """As the fence or the ban says."""
        return vm not in self.vms or self.rule.admits(node)

    def confines(self, vm: str, standing: Standing) -> Fence | Ban | None:
        """As the fence or the ban says."""
        return self.rule if vm in self.vms else None

    def is_kept(self, standing: Standing) -> bool:
        """As the fence or the ban says."""
        return all(self.rule.admits(node) for vm in self.vms for node in standing.nodes_of(vm))

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


class Concerning:
    """Finds the rules that the place of a VM can break, of many that are about a few VMs each.

    ``rules``: all of them.
    """

    def __init__(self, rules: Iterable[Joint]) -> None:
        self.rules = tuple(rules)
        self._all = [rule for rule in self.rules if rule.names is None]
        self._of: dict[str, list[Joint]] = {}
        for rule in self.rules:
            for vm in rule.names or ():
                self._of.setdefault(vm, self._all.copy()).append(rule)

    def of(self, vm: str) -> Sequence[Joint]:
        """The rules that the place of a VM can break."""
        return self._of.get(vm, self._all)


@lru_cache(maxsize=_SETS)
def _numbers(sets: tuple[frozenset[str], ...]) -> Mapping[str, int]:
    """The number of each node's set; many rules have the sets of one site."""
    return {node: number for number, nodes in enumerate(sets) for node in nodes}


@lru_cache(maxsize=_SETS)
def _quoted_sets(sets: tuple[frozenset[str], ...]) -> str:
    return " / ".join(map(_all, sets))


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
