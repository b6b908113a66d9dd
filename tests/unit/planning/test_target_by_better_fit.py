"""Better-fit as the target of a plan: VMs that end, arrive and must move, and nodes that are emptied."""

from __future__ import annotations

from collections.abc import Mapping

from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, Location, Node, NodeState, VJob, VMState, running_on
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import VJobState
from rmsplugin.planning.plan import Unreachable
from rmsplugin.planning.target.placement import place_better_fit
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.proposal import Proposal
from rmsplugin.proposing.propose import propose

WAITING = Location(VMState.WAITING)


def cluster(percents: Mapping[str, int], at: Mapping[str, Location], *states: NodeState) -> Configuration:
    """Vjobs of one VM with these per cents of a node's CPUs, in the order of the queue."""
    nodes = tuple(Node(f"PM{i}", Resources(1.0, 1000), state) for i, state in enumerate(states, 1))
    vjobs = tuple(VJob(name, (VM(name, Resources(percent / 100, 50)),)) for name, percent in percents.items())
    return Configuration(nodes, vjobs, {name: at.get(name, WAITING) for name in percents})


UP, DRAINING = NodeState.UP, NodeState.DRAINING
PM1, PM2 = running_on("PM1"), running_on("PM2")


def proposed(source: Configuration) -> dict[str, str | None]:
    found = propose(source, ProposalParameters("rjsp", heuristic="better-fit"))
    assert isinstance(found, Proposal)
    return {name: at.node for name, at in found.target.items()}


def test_a_vjob_arrives_in_place_of_one_that_moves() -> None:
    source = cluster({"a": 10, "b": 80, "c": 90, "d": 20}, {"a": PM1, "b": PM1, "c": PM2}, UP, UP, UP)
    assert proposed(source) == {"a": "PM2", "b": "PM1", "c": "PM2", "d": "PM1"}


def test_the_node_of_a_vjob_that_makes_way_is_emptied() -> None:
    source = cluster({"a": 90, "b": 10, "c": 90}, {"a": PM1, "b": PM2, "c": PM2}, UP, UP)
    states = {"a": VJobState.RUNNING, "b": VJobState.RUNNING, "c": VJobState.SLEEPING}
    placed = place_better_fit(source, states, {"a": "PM1", "b": "PM2"})
    assert not isinstance(placed, Unreachable)
    assert (placed.target["b"], placed.nodes_used, placed.nodes_lower_bound) == (PM1, 1, 1)


def test_vms_leave_draining_and_overloaded_nodes() -> None:
    source = cluster({"a": 70, "b": 60, "c": 60}, {"a": PM1, "b": PM1, "c": PM2}, UP, DRAINING, UP, UP)
    hosts = proposed(source)
    assert (hosts["a"], hosts["b"]) == ("PM1", "PM3")
    assert hosts["c"] == "PM4"


def test_an_underutilised_node_is_emptied() -> None:
    source = cluster({"a": 70, "b": 10, "c": 10}, {"a": PM1, "b": PM2, "c": PM2}, UP, UP)
    assert set(proposed(source).values()) == {"PM1"}


def test_where_an_online_heuristic_finds_no_room_that_is_said() -> None:
    """Only {c, d} and {a, b, e} fit; one exchange does not lead there."""
    at = {"a": PM1, "c": PM1, "b": PM2, "d": PM2}
    source = cluster({"a": 20, "b": 20, "c": 50, "d": 50, "e": 60}, at, UP, UP)
    sample = {"c": "PM1", "d": "PM1", "a": "PM2", "b": "PM2", "e": "PM2"}
    found = place_better_fit(source, dict.fromkeys(sample, VJobState.RUNNING), sample)
    assert found == Unreachable("better-fit finds no node with room for VM e")
