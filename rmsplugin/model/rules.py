"""Rules: what the places of a vjob's VMs have to obey. A rule is a value: a check, a sentence, and when it holds.

A vjob has a tuple of them (``VJob.rules``); all are obeyed. What a rule means to a solver is in
``rmsplugin.packing.ruled``, by the type of the rule, for this layer knows none. Everybody else asks the functions here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

#: A VM and a node on which it has memory, by their names. A VM that migrates is on two.
Held = tuple[str, str]

#: So many sets of rules are known at once; most vjobs share one, of a partition's nodes.
_SETS = 4096


class Rule(ABC):
    """One rule about the places of a vjob's VMs.

    ``discrete``: it has to be obeyed at the end of a plan only; otherwise at each step of it, too.
    """

    __slots__ = ()

    discrete: bool

    @abstractmethod
    def admits(self, node: str) -> bool:
        """Whether a VM may be on ``node``, whoever else is there."""

    @abstractmethod
    def broken(self, held: Collection[Held], came: Collection[Held]) -> str | None:
        """The check: why these places do not obey it, with the numbers; None if they do.

        Args:
            held: where VMs of the vjob are, ``came`` included.
            came: those of ``held`` that have come there. What was there before is held against nobody.
        """

    @abstractmethod
    def faults(self, nodes: Collection[str]) -> Iterator[tuple[str, str]]:
        """What is wrong with it in a cluster of these nodes: the key of a vjob in an instance, and a sentence."""

    @abstractmethod
    def __str__(self) -> str:
        """What it asks, in words that are the same everywhere: "only on 'n1' 'n2'"."""


@dataclass(frozen=True, slots=True)
class Fence(Rule):
    """The VMs are only on these nodes."""

    nodes: frozenset[str]
    discrete: bool = False

    def __hash__(self) -> int:
        """A frozenset knows its own; of equal rules mostly all are one object."""
        return hash(self.nodes)

    def admits(self, node: str) -> bool:
        """Whether the node is one of them."""
        return node in self.nodes

    def broken(self, held: Collection[Held], came: Collection[Held]) -> str | None:
        """A VM has come to another node."""
        for vm, node in came:
            if node not in self.nodes:
                return f"{vm} may not be on {node}, which is none of the {len(self.nodes)} nodes that it may use"
        return None

    def faults(self, nodes: Collection[str]) -> Iterator[tuple[str, str]]:
        """A node that is allowed need not be there (any more), as long as another one is."""
        if not self.nodes:
            yield "nodes", "an empty list allows no node at all; leave it out to allow all"
        elif not any(name in nodes for name in self.nodes):
            yield from (("nodes", f"there is no node {name!r}") for name in sorted(self.nodes))

    def __str__(self) -> str:
        """All the nodes."""
        return f"only on {_quoted(self.nodes)}"


@dataclass(frozen=True, slots=True)
class Ban(Rule):
    """The VMs are on none of these nodes."""

    nodes: frozenset[str]
    discrete: bool = False

    def __hash__(self) -> int:
        """Another one than that of a fence around the same nodes."""
        return ~hash(self.nodes)

    def admits(self, node: str) -> bool:
        """Whether the node is none of them."""
        return node not in self.nodes

    def broken(self, held: Collection[Held], came: Collection[Held]) -> str | None:
        """A VM has come to one of the nodes."""
        for vm, node in came:
            if node in self.nodes:
                return f"{vm} may not be on {node}, which is one of the {len(self.nodes)} nodes that it may not use"
        return None

    def faults(self, nodes: Collection[str]) -> Iterator[tuple[str, str]]:
        """A node that is not there may be a slip of the pen for one that is."""
        yield from (("exclude", f"there is no node {name!r}") for name in sorted(self.nodes) if name not in nodes)

    def __str__(self) -> str:
        """All the nodes."""
        return f"not on {_quoted(self.nodes)}"


#: The rules of one vjob.
Rules = tuple[Rule, ...]


@lru_cache(maxsize=_SETS)
def allowing(nodes: frozenset[str] | None = None, exclude: frozenset[str] = frozenset()) -> Rules:
    """The rules of a vjob that may be on ``nodes`` only (None: on all), and on none of ``exclude``.

    The same object for equal sets, so that many vjobs are compared fast.
    """
    only: Rules = () if nodes is None else (Fence(nodes),)
    return (*only, Ban(exclude)) if exclude else only


def admit(rules: Rules, node: str) -> bool:
    """Whether a VM with these rules may be on ``node``, whoever else is there."""
    for rule in rules:  # noqa: SIM110 - a generator takes twice as long, and this is asked for each node of each vjob
        if not rule.admits(node):
            return False
    return True


def confined_to(rules: Rules) -> frozenset[str] | None:
    """The only nodes that fences name; None where there is no fence."""
    found: frozenset[str] | None = None
    for rule in rules:
        if isinstance(rule, Fence):
            found = rule.nodes if found is None else found & rule.nodes
    return found


def fenced(rules: Rules, nodes: frozenset[str]) -> Rules:
    """The same rules with one fence, around these nodes."""
    return (*allowing(nodes), *(rule for rule in rules if not isinstance(rule, Fence)))


def moved_to(rules: Rules, nodes: frozenset[str]) -> Rules:
    """The same rules but those of nodes: it may be on these, and only there."""
    return (*allowing(nodes), *_of_others(rules))


def kept_off(rules: Rules, nodes: frozenset[str]) -> Rules:
    """The same rules, and on none of these nodes either; the same object if that changes nothing."""
    banned = frozenset[str]().union(*(rule.nodes for rule in rules if isinstance(rule, Ban)))
    if nodes <= banned:
        return rules
    return (*allowing(confined_to(rules), banned | nodes), *_of_others(rules))


def unadmitted(rules: Rules, nodes: Iterable[str]) -> bool:
    """Whether there is one among these nodes where a VM may not be."""
    return any(not admit(rules, node) for node in nodes) if rules else False


def first_broken(rules: Rules, held: Collection[Held], came: Collection[Held], *, at_end: bool) -> str | None:
    """What the first rule says that these places break; None if they break none.

    Args:
        rules: of one vjob.
        held: see ``Rule.broken``.
        came: see ``Rule.broken``.
        at_end: ask the discrete rules, of places at the end of a plan; otherwise the continuous ones, of a step of it.
    """
    told = (rule.broken(held, came) for rule in rules if rule.discrete is at_end)
    return next((sentence for sentence in told if sentence is not None), None)


def in_the_way(rules: Rules, up: Collection[str]) -> str | None:
    """What rules say when a vjob cannot start whatever is free; None if they do not stand in its way.

    Args:
        rules: of the vjob.
        up: the nodes that take VMs now.
    """
    if not any(admit(rules, node) for node in up):
        return "no node that it may use takes VMs now"
    return None


def _of_others(rules: Rules) -> Rules:
    """Those that name no nodes."""
    return tuple(rule for rule in rules if not isinstance(rule, (Fence, Ban)))


def _quoted(names: Iterable[str]) -> str:
    return " ".join(map(repr, sorted(names)))
