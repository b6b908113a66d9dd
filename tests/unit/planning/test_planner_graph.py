"""The reconfiguration graph, and how it is written for Graphviz."""

from __future__ import annotations

import re

from rmsplugin.model.action import migrate, resume, run, stop, suspend
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import SHARED, VM, WAITING, Node, VJob, running_on, sleeping_on
from rmsplugin.model.resources import Resources
from rmsplugin.planning.graph import GraphEdge, GraphNode, reconfiguration_graph, roman, to_dot
from rmsplugin.planning.plan import Plan

A, B, C, D = (VM(name, Resources(1, 512)) for name in ("a", "b", "c", "d"))
SOURCE = Configuration(
    tuple(Node(name, Resources(2, 1024)) for name in ("n1", "n2", "idle", "waiting")),
    tuple(VJob(each.name, (each,)) for each in (A, B, C, D)),
    {"a": running_on("n1"), "b": running_on("n2"), "c": sleeping_on(SHARED), "d": WAITING},
)
PLAN = Plan(
    (
        (suspend(B, "n2"), migrate(A, "n1", "waiting", bypass=True)),
        (run(D, "n1"), resume(C, SHARED, "n1")),
        (migrate(A, "waiting", "n2"),),
    )
)


def test_nodes_that_take_part_with_what_is_free_and_an_edge_for_each_action() -> None:
    graph = reconfiguration_graph(SOURCE, PLAN.actions())
    assert graph.nodes == (
        GraphNode("n1", Resources(1, 512)),
        GraphNode("n2", Resources(1, 512)),
        GraphNode("waiting", Resources(2, 1024)),
    )
    assert [(edge.tail, edge.head, edge.action) for edge in graph.edges] == [
        ("n2", "n2", PLAN.pools[0][0]),
        ("n1", "waiting", PLAN.pools[0][1]),
        ("waiting", "n1", PLAN.pools[1][0]),
        (SHARED, "n1", PLAN.pools[1][1]),
        ("waiting", "n2", PLAN.pools[2][0]),
    ]
    assert graph.edges[0].demand == Resources(1, 512)


def test_stops_end_in_the_state_of_the_vm() -> None:
    graph = reconfiguration_graph(SOURCE, [stop(A, "n1"), stop(B, "n2", requeue=True)])
    assert [edge.head for edge in graph.edges] == ["terminated", "waiting"]
    assert isinstance(graph.edges[0], GraphEdge)


def test_the_drawing_says_pool_action_vm_and_memory() -> None:
    text = to_dot(reconfiguration_graph(SOURCE, PLAN.actions()), PLAN)
    assert '"node n1" [label="n1\\nfree: 512 MiB, 1 CPU"];' in text
    assert '"node n2" -> "node n2" [label="I. suspend b\\n512 MiB"];' in text
    assert '"node n1" -> "node waiting" [label="I. migrate a\\n512 MiB", style=dashed];' in text
    assert '"shared" -> "node n1" [label="II. resume c\\n512 MiB"];' in text
    assert '"node waiting" -> "node n2" [label="III. migrate a\\n512 MiB"];' in text
    assert '"shared" [label="shared", shape=cylinder];' in text
    assert f"3 pools, cost {PLAN.cost} MiB" in text
    assert "idle" not in text


def test_an_action_that_is_not_in_the_plan_has_no_pool() -> None:
    assert '[label="migrate a\\n512 MiB"]' in to_dot(reconfiguration_graph(SOURCE, [migrate(A, "n1", "n2")]), Plan(()))


def test_names_cannot_break_out_of_their_quotes() -> None:
    evil = 'x"];\nsubgraph { \\'
    vm = VM(evil, Resources(1, 1))
    source = Configuration((Node(evil, Resources(2, 64)),), (VJob("v", (vm,)),), {evil: WAITING})
    plan = Plan(((run(vm, evil),),))
    text = to_dot(reconfiguration_graph(source, plan.actions()), plan)
    assert len(text.splitlines()) == 6, "no name ends a line"
    outside = re.sub(r'"(?:[^"\\]|\\.)*"', "S", text)
    assert outside.splitlines() == [
        "digraph reconfiguration {",
        "  label=S; rankdir=LR; node [shape=box];",
        "  S [label=S];",
        "  S [label=S, shape=plaintext];",
        "  S -> S [label=S];",
        "}",
    ]


def test_roman_numerals() -> None:
    assert [roman(n) for n in (1, 3, 4, 6, 9, 14, 40, 99, 142)] == [
        "I",
        "III",
        "IV",
        "VI",
        "IX",
        "XIV",
        "XL",
        "XCIX",
        "CXLII",
    ]
