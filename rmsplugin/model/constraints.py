"""Constraints: the nodes that a vjob's user allows for its VMs: ``--constraint``, ``--nodelist``, ``--exclude``."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice

from rmsplugin.model.hostlist import HostList, split

_TOKEN = re.compile(r"[&|()]|[A-Za-z0-9_.:+@/-]+")
_OPERATORS = ("&", "|")


@dataclass(frozen=True, slots=True)
class Constraints:
    """The nodes that a vjob may use, among those that host VMs.

    Attributes:
        features: an expression in names of features, ``&``, ``|`` and parentheses, read from left to right as Slurm
            does: neither operator binds more strongly. Empty: any node.
        nodes: host lists (``n1``, ``n[2-4]``) of the only nodes to use. Empty: any node.
        exclude: host lists of nodes not to use.
    """

    features: str = ""
    nodes: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse values that cannot be read, so that the other methods need not.

        Raises:
            ValueError: the expression or a host list is malformed, or stands for too many nodes.
        """
        _tokens(self.features)
        for lists in (self.nodes, self.exclude):
            _host_list(lists)

    @classmethod
    def parse(cls, features: str = "", nodes: str = "", exclude: str = "") -> Constraints:
        """Read the values that users give to sbatch.

        Args:
            features: value of ``--constraint``.
            nodes: value of ``--nodelist``.
            exclude: value of ``--exclude``.

        Raises:
            ValueError: one of them is malformed.
        """
        return cls(features, split(nodes), split(exclude))

    def allowed(self, nodes: Mapping[str, Collection[str]]) -> frozenset[str]:
        """Those of the nodes (name: its features) on which VMs may run."""
        named = _host_list(self.nodes).among(nodes.keys()) if self.nodes else nodes.keys()
        left = named - _host_list(self.exclude).among(nodes.keys())
        tokens = _tokens(self.features)
        return frozenset(name for name in left if _satisfied(tokens, nodes[name]))

    def objection(self, nodes: Mapping[str, Collection[str]]) -> str:
        """The reason why none of the nodes (name: its features) may be used, in words for users; empty if one may."""
        if self.allowed(nodes):
            return ""
        named = chain(_host_list(self.nodes), _host_list(self.exclude))
        strange = dict.fromkeys(islice((name for name in named if name not in nodes), 3))
        if strange:
            return f"no node that hosts VMs is called {', '.join(strange)} (--nodelist, --exclude)"
        known = {feature for features in nodes.values() for feature in features}
        for token in _tokens(self.features):
            if token not in (*_OPERATORS, "(", ")") and token not in known:
                return f"no node that hosts VMs has the feature {token} (--constraint)"
        return "no node that hosts VMs is left by --constraint, --nodelist and --exclude"


def _host_list(lists: tuple[str, ...]) -> HostList:
    """Host lists as one.

    Raises:
        ValueError: one is malformed, or they stand for too many names.
    """
    return HostList(",".join(lists))


@lru_cache(maxsize=1024)
def _tokens(features: str) -> tuple[str, ...]:
    """Names, operators and parentheses of an expression that is well formed.

    Raises:
        ValueError: the expression is malformed.
    """
    tokens = tuple(_TOKEN.findall(features))
    wants_name, depth = True, 0
    for token in tokens:
        if token in _OPERATORS or token == ")":
            depth -= token == ")"
            if wants_name or depth < 0:
                raise ValueError(f"not an expression of features: {features!r}: a name is missing before {token!r}")
            wants_name = token in _OPERATORS
        else:
            depth += token == "("
            if not wants_name:
                raise ValueError(f"not an expression of features: {features!r}: & or | is missing before {token!r}")
            wants_name = token == "("
    if "".join(tokens) != features or (tokens and wants_name) or depth:
        raise ValueError(f"not an expression of features: {features!r}; write it as a&(b|c)")
    return tokens


def _satisfied(tokens: tuple[str, ...], features: Collection[str]) -> bool:
    """The value of an expression for a node with these features; true if it is empty."""
    value, operator = True, "&"
    outer: list[tuple[bool, str]] = []
    for token in tokens:
        if token in _OPERATORS:
            operator = token
            continue
        if token == "(":
            outer.append((value, operator))
            value, operator = True, "&"
            continue
        term = token in features
        if token == ")":
            term = value
            value, operator = outer.pop()
        value = (value and term) if operator == "&" else (value or term)
    return value
