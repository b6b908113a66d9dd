"""Which further nodes waiting vjobs could use."""

from __future__ import annotations

from rmsplugin.decision.wanted import Candidate, nodes_wanted
from rmsplugin.model.elements import VM
from rmsplugin.model.resources import Resources


def test_nodes_are_wanted_for_those_that_find_no_room_and_no_more_of_them() -> None:
    queue = [
        Candidate(str(n), (VM(f"v{n}", Resources(2, 100)),), frozenset({"n1", "n2", "n3", "n4"})) for n in range(3)
    ]
    bound = Candidate("bound", (VM("b", Resources(1, 100)),), frozenset({"n4"}))
    node = Resources(2, 1000)
    others = {"n2": node, "n3": node, "n4": node}
    assert nodes_wanted(queue, {"n1": node}, others) == {"n2", "n3"}
    assert nodes_wanted([bound, *queue], {"n1": node}, others) == {"n2", "n3", "n4"}
    assert nodes_wanted([bound], {"n4": node}, {"n2": node}) == frozenset()
