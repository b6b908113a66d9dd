"""Reconfiguration graph: the cluster's nodes with their free resources, and an edge for each action (RR-6929, fig. 9).

It is an oriented multigraph; every edge carries the demands of its VM. If a VM does not come from, or go to, a node of
the cluster, its edge begins or ends at its state (waiting, terminated) or at the storage that all nodes mount (shared).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rmsplugin.model.action import Action, ActionKind
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import SHARED, VMState
from rmsplugin.model.node_action import NodeAction
from rmsplugin.model.resources import Resources
from rmsplugin.model.wording import counted
from rmsplugin.planning.plan import Plan

#: Control characters, including those that turn the direction of text, and line ends outside ASCII.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A node of the cluster with its free resources before the first action; below 0 if it is overloaded."""

    name: str
    free: Resources


@dataclass(frozen=True, slots=True)
class GraphEdge:
    """An action, from ``tail`` to ``head``: names of nodes, ``shared``, or ``waiting`` and ``terminated``."""

    tail: str
    head: str
    action: Action

    @property
    def demand(self) -> Resources:
        """The demand of its VM."""
        return self.action.vm.demand


@dataclass(frozen=True, slots=True)
class Graph:
    """A reconfiguration graph; nodes in the order of the configuration, only those that take part."""

    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]


def reconfiguration_graph(configuration: Configuration, actions: Iterable[Action]) -> Graph:
    """The graph of actions that begin in a configuration; a plan's graph has the bypasses too (VEE'09, fig. 6)."""
    edges = tuple(_edge(action) for action in actions)
    taking_part = {end for edge in edges for end in (edge.tail, edge.head)}
    nodes = (node.name for node in configuration.nodes if node.name in taking_part)
    return Graph(tuple(GraphNode(name, configuration.free(name)) for name in nodes), edges)


def _edge(action: Action) -> GraphEdge:
    tail = action.source or VMState.WAITING.value
    if action.kind is ActionKind.PAUSE:
        return GraphEdge(tail, tail, action)
    if action.kind is ActionKind.STOP:
        return GraphEdge(tail, (VMState.WAITING if action.requeue else VMState.TERMINATED).value, action)
    return GraphEdge(tail, action.destination or "", action)


def to_dot(graph: Graph, plan: Plan, switched: Sequence[NodeAction] = ()) -> str:
    """The graph in Graphviz' language; each edge has its action's pool in the plan, as in VEE'09, fig. 6.

    Actions of the graph that are not in the plan are drawn without a pool. Nodes of the cluster get identifiers of
    their own, so that one named ``waiting`` is not taken for the state.

    Args:
        graph: the graph.
        plan: the plan.
        switched: nodes that are switched besides those of the plan: each has a dotted edge to what is done to it.
    """
    return "\n".join(_lines(graph, plan, (*plan.nodes, *switched))) + "\n"


def _lines(graph: Graph, plan: Plan, switched: Sequence[NodeAction]) -> Iterator[str]:
    pools = {action: number for number, pool in enumerate(plan.pools, start=1) for action in pool}
    known = {node.name for node in graph.nodes}
    yield "digraph reconfiguration {"
    yield f'  label="{counted(len(plan.pools), "pool")}, cost {plan.cost} MiB"; rankdir=LR; node [shape=box];'
    for node in graph.nodes:
        free = f"free: {node.free.memory_mib} MiB, {counted(node.free.cpus, 'CPU')}"
        yield f"  {_identifier(node.name, known)} [label={_quoted(node.name, free)}];"
    ends = dict.fromkeys(end for edge in graph.edges for end in (edge.tail, edge.head) if end not in known)
    for end in ends:
        shape = "cylinder" if end == SHARED else "plaintext"
        yield f"  {_identifier(end, known)} [label={_quoted(end)}, shape={shape}];"
    for edge in graph.edges:
        action = edge.action
        pool = f"{roman(pools[action])}. " if action in pools else ""
        label = _quoted(f"{pool}{action.kind} {action.vm.name}", f"{edge.demand.memory_mib} MiB")
        style = ", style=dashed" if action.bypass else ""
        yield f"  {_identifier(edge.tail, known)} -> {_identifier(edge.head, known)} [label={label}{style}];"
    for each in switched:
        act = _quoted(f"{each.kind} node {each.node}")
        if each.node not in known:
            yield f"  {_quoted(f'node {each.node}')} [label={_quoted(each.node)}];"
        yield f"  {act} [label={_quoted(str(each.kind))}, shape=plaintext];"
        yield f"  {_quoted(f'node {each.node}')} -> {act} [style=dotted, arrowhead=none];"
    yield "}"


def _identifier(end: str, known: set[str]) -> str:
    return _quoted(f"node {end}" if end in known else end)


def _quoted(*lines: str) -> str:
    r"""A string of Graphviz' language; control characters, which could end a line there, are shown as ``\x1b``."""
    clean = (_CONTROL.sub(_escaped, line).replace("\\", "\\\\").replace('"', '\\"') for line in lines)
    return '"' + "\\n".join(clean) + '"'


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


_ROMAN = ((100, "C"), (90, "XC"), (50, "L"), (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I"))


def roman(number: int) -> str:
    """A number from 1 in roman numerals, as the papers number the pools."""
    letters = ""
    for value, letter in _ROMAN:
        count, number = divmod(number, value)
        letters += letter * count
    return letters
