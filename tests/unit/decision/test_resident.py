"""Memory of a vjob that only pauses is its own until it ends: others are not promised it, unless by that end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from unit.queues import Queue, nodes, running, states

from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.pausing import decide_with_pauses
from rmsplugin.decision.resident import given_away, with_memory_taken
from rmsplugin.decision.result import Decision, ReasonCode
from rmsplugin.model.abiding import abiding
from rmsplugin.model.capabilities import EVERYTHING, NATIVE
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import paused_on


def site(*jobs: tuple[str, str | None, int], count: int = 1, **more: Any) -> Configuration:
    """Nodes of one CPU and 1000 MiB, and native jobs of one CPU: name, node (None: it waits), memory."""
    found = Queue(*(replace(node, capacity=replace(node.capacity, memory_mib=1000)) for node in nodes(count)))
    for name, node, memory_mib in jobs:
        found.add(name, *([node] if node else []), memory_mib=memory_mib, can=NATIVE, **more)
    return Configuration(found.nodes, abiding(found.nodes, found.vjobs, found.locations), found.locations)


def decided(policy: str, configuration: Configuration) -> Decision:
    found = decide_with_pauses(policy, configuration, Parameters())
    assert isinstance(found, Decision)
    return found


def test_one_makes_way_for_a_head_that_has_memory_beside_it_and_nobody_for_one_that_has_not() -> None:
    found = decided("rjsp", site(("head", None, 400), ("yields", "n1", 600)))
    assert states(found) == {"head": "running", "yields": "paused"}
    assert found.reasons["yields"].sentence.endswith("it keeps its memory meanwhile")
    assert states(decided("rjsp", site(("head", None, 401), ("yields", "n1", 600)))) == {
        "head": "waiting",
        "yields": "running",
    }


def test_a_smaller_one_starts_where_the_head_would_have_had_memory_that_stays_taken() -> None:
    found = decided("rjsp", site(("head", None, 500), ("small", None, 300), ("yields", "n1", 600)))
    assert states(found) == {"head": "waiting", "small": "running", "yields": "paused"}


def test_a_start_is_reserved_for_the_end_of_one_that_runs_and_has_the_memory() -> None:
    configuration = site(("head", None, 500), ("runs", "n1", 600), time_limit_s=600.0)
    found = decided("easy", configuration)
    assert running(found) == {"runs"}
    assert found.reasons["head"].code is ReasonCode.RESERVED
    assert found.reasons["head"].numbers["shadow_s"] == 600.0


def test_a_vjob_that_is_saved_is_decided_about_as_before_beside_one_that_only_pauses() -> None:
    jobs = (("first", None, 300), ("second", None, 900), ("pauses", "n1", 600), ("saved", "n2", 600))
    configuration = site(*jobs, count=2)
    vms = ("saved", "second")
    vjobs = [replace(each, can=EVERYTHING) if each.name in vms else each for each in configuration.vjobs]
    found = decided("rjsp", replace(configuration, vjobs=tuple(vjobs)))
    assert states(found) == {"first": "running", "second": "running", "pauses": "paused", "saved": "sleeping"}


@pytest.mark.parametrize("taken", [frozenset(), frozenset({"runs"})])
def test_the_memory_of_paused_ones_is_taken_off_their_node_and_that_of_others_if_it_was_given_away(
    taken: frozenset[str],
) -> None:
    configuration = site(("runs", "n1", 300), ("paused", "n1", 200), ("waits", None, 100))
    configuration = configuration.with_locations({**configuration.locations, "paused-0": paused_on("n1")})
    view = with_memory_taken(configuration, taken)
    assert view.nodes[0].capacity.memory_mib == (500 if taken else 800)
    memory = {vjob.name: vjob.demand.memory_mib for vjob in view.vjobs}
    assert memory == {"runs": 0 if taken else 300, "paused": 0, "waits": 100}


def test_a_vm_that_could_migrate_is_where_its_memory_was_taken() -> None:
    """Without a demand for memory it would find room on any node."""
    moves = replace(NATIVE, migrate=True, elsewhere=True)
    source = site(("one", "n1", 600), ("other", "n2", 600), count=2)
    source = replace(
        source, vjobs=tuple(replace(v, can=moves, vms=(replace(v.vms[0], only=None),)) for v in source.vjobs)
    )
    view = with_memory_taken(source, {"one"})
    assert [(vjob.vms[0].only, vjob.anchored) for vjob in view.vjobs] == [("n1", True), (None, False)]


def test_only_those_whose_memory_others_got_are_given_away() -> None:
    others = (("b", None, 100), ("big", "n1", 600), ("small", "n2", 600))
    configuration = site(("a", None, 500), *others, count=2)
    decision = decided("rjsp", site(("a", None, 400), *others, count=2))
    assert given_away(configuration, decision) == {"big"}


def test_nobody_makes_way_for_memory_that_stays_taken_however_many_nodes_a_policy_would_try() -> None:
    configuration = site(("head", None, 500), *((f"runs{i}", f"n{i}", 600) for i in range(1, 9)), count=8)
    found = states(decided("rjsp", configuration))
    assert found.pop("head") == "waiting"
    assert set(found.values()) == {"running"}
