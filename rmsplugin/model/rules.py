"""Rules: the rules for the places of a vjob's VMs. A rule is a value: a check, a sentence, and the time when it holds.

A vjob has a tuple of them (``VJob.rules``); all are obeyed. A rule's constraint for a solver is in
``rmsplugin.packing.ruled``, by the type of the rule, for this layer knows no solver. All others ask the functions here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

#: A VM and a node on which it has memory, by their names. A VM that migrates is on two.
Held = tuple[str, str]

#: The number of sets of rules that are remembered; most vjobs share one, of a partition's nodes.
_SETS = 4096

#: The number of sets whose words are remembered; those of one may take 100 KiB.
_QUOTED = 64


class Rule(ABC):
    """One rule about the places of a vjob's VMs.

    ``discrete``: it has to be obeyed only at the end of a plan; otherwise at each step of it, too.
    """

    __slots__ = ()

    discrete: bool
    everywhere: ClassVar[bool] = False  # whether ``admits`` is true for all nodes: it depends on other VMs

    @abstractmethod
    def admits(self, node: str) -> bool:
        """Whether a VM may be on ``node``, whatever other VMs are there."""

    @abstractmethod
    def broken(self, held: Collection[Held], came: Collection[Held]) -> str | None:
        """The check: the reason why these places break the rule, with the numbers; None if they do not.

        Args:
            held: the places of the vjob's VMs, ``came`` included.
            came: those of ``held`` to which VMs have come. Older places count against no VM.
        """

    @abstractmethod
    def faults(self, nodes: Collection[str]) -> Iterator[tuple[str, str]]:
        """The rule's faults in a cluster of these nodes: the key of a vjob in an instance, and a sentence."""

    @abstractmethod
    def __str__(self) -> str:
        """The rule in words that are the same everywhere: "only on 'n1' 'n2'"."""


@dataclass(frozen=True, slots=True)
class Fence(Rule):
    """The VMs are only on these nodes."""

    nodes: frozenset[str]
    discrete: bool = False

    def __hash__(self) -> int:
        """The hash that the frozenset keeps; mostly equal rules are one object."""
        return hash(self.nodes)

    def admits(self, node: str) -> bool:
        """Whether the node is one of them."""
        return node in self.nodes

    def broken(self, held: Collection[Held], came: Collection[Held]) -> str | None:
        """The reason if a VM has come to another node."""
        for vm, node in came:
            if node not in self.nodes:
                return f"{vm} may not be on {node}, which is none of the {len(self.nodes)} nodes that it may use"
        return None

    def faults(self, nodes: Collection[str]) -> Iterator[tuple[str, str]]:
        """Missing nodes are no fault, as long as one allowed node is there."""
        if not self.nodes:
            yield "nodes", "an empty list allows no node at all; leave it out to allow all"
        elif not any(name in nodes for name in self.nodes):
            yield from (("nodes", f"there is no node {name!r}") for name in sorted(self.nodes))

    def __str__(self) -> str:
        """Names all the nodes."""
        return f"only on {_quoted(self.nodes)}"


@dataclass(frozen=True, slots=True)
class Ban(Rule):
    """The VMs are on none of these nodes."""

    nodes: frozenset[str]
    discrete: bool = False

    def __hash__(self) -> int:
        """A hash other than that of a fence around the same nodes."""
        return ~hash(self.nodes)

    def admits(self, node: str) -> bool:
        """Whether the node is none of them."""
        return node not in self.nodes

    def broken(self, held: Collection[Held], came: Collection[Held]) -> str | None:
        """The reason if a VM has come to one of the nodes."""
        for vm, node in came:
            if node in self.nodes:
                return f"{vm} may not be on {node}, which is one of the {len(self.nodes)} nodes that it may not use"
        return None

    def faults(self, nodes: Collection[str]) -> Iterator[tuple[str, str]]:
        """Missing nodes are a fault: a name may be misspelt."""
        yield from (("exclude", f"there is no node {name!r}") for name in sorted(self.nodes) if name not in nodes)

    def __str__(self) -> str:
        """Names all the nodes."""
        return f"not on {_quoted(self.nodes)}"


#: The rules of one vjob.
Rules = tuple[Rule, ...]


@lru_cache(maxsize=_SETS)
def allowing(nodes: frozenset[str] | None = None, exclude: frozenset[str] = frozenset()) -> Rules:
    """The rules of a vjob that may be only on ``nodes`` (None: on all), and on none of ``exclude``.

    Equal sets give the same object, so that many vjobs are compared fast.
    """
    only: Rules = () if nodes is None else (Fence(nodes),)
    return (*only, Ban(exclude)) if exclude else only


def alone(rules: Rules) -> Rules:
    """The rules that do not depend on other VMs; the same object if all are such."""
    for rule in rules:
        if rule.everywhere:
            return tuple([each for each in rules if not each.everywhere])
    return rules


def admit(rules: Rules, node: str) -> bool:
    """Whether a VM with these rules may be on ``node``, whatever other VMs are there."""
    for rule in rules:  # noqa: SIM110 - a generator takes twice as long, and this is asked for each node of each vjob
        if not rule.admits(node):
            return False
    return True


def confined_to(rules: Rules) -> frozenset[str] | None:
    """The only nodes that fences name; None if there is no fence."""
    found: frozenset[str] | None = None
    for rule in rules:
        if isinstance(rule, Fence):
            found = rule.nodes if found is None else found & rule.nodes
    return found


def fenced(rules: Rules, nodes: frozenset[str]) -> Rules:
    """The same rules with one fence, around these nodes."""
    return (*allowing(nodes), *(rule for rule in rules if not isinstance(rule, Fence)))


@lru_cache(maxsize=_SETS)
def anchored_to(rules: Rules, node: str) -> Rules:
    """The same rules, for a VM that can only be on this node. Equal ones give the same object."""
    return fenced(rules, frozenset({node}) if admit(rules, node) else frozenset())


def moved_to(rules: Rules, nodes: frozenset[str]) -> Rules:
    """The same rules except those about nodes; the only allowed nodes are these."""
    return (*allowing(nodes), *_of_others(rules))


def kept_off(rules: Rules, nodes: frozenset[str]) -> Rules:
    """The same rules, with these nodes forbidden, too; the same object if that changes nothing."""
    banned = frozenset[str]().union(*(rule.nodes for rule in rules if isinstance(rule, Ban)))
    if nodes <= banned:
        return rules
    return (*allowing(confined_to(rules), banned | nodes), *_of_others(rules))


def unadmitted(rules: Rules, nodes: Iterable[str]) -> bool:
    """Whether there is a node among these where a VM may not be."""
    asking = alone(rules)
    return any(not admit(asking, node) for node in nodes) if asking else False


def first_broken(rules: Rules, held: Collection[Held], came: Collection[Held], *, at_end: bool) -> str | None:
    """The sentence of the first rule that these places break; None if they break none.

    Args:
        rules: the rules of one vjob.
        held: see ``Rule.broken``.
        came: see ``Rule.broken``.
        at_end: check the discrete rules, for places at the end of a plan; otherwise the continuous ones, for a step of
            it.
    """
    told = (rule.broken(held, came) for rule in rules if rule.discrete is at_end)
    return next((sentence for sentence in told if sentence is not None), None)


def in_the_way(rules: Rules, up: Collection[str]) -> str | None:
    """The sentence of rules that keep a vjob from starting whatever is free; None if there are none.

    Args:
        rules: the rules of the vjob.
        up: the nodes that take VMs now.
    """
    if not any(admit(rules, node) for node in up):
        return "no node that it may use takes VMs now"
    return None


def _of_others(rules: Rules) -> Rules:
    """The rules that name no nodes."""
    return tuple(rule for rule in rules if not isinstance(rule, (Fence, Ban)))


@lru_cache(maxsize=_QUOTED)
def _quoted(names: frozenset[str]) -> str:
    """The names in their order. Vjobs of a partition share one set, perhaps of ten thousand nodes."""
    return " ".join(map(repr, sorted(names)))
