"""VMs of one vjob that their platform cannot move: each stays on its own node, not only on one of the vjob's."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest
from unit.queues import Queue, nodes, states

from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.policies import decide
from rmsplugin.decision.result import Decision
from rmsplugin.decision.room import Site
from rmsplugin.model.abiding import abiding
from rmsplugin.model.capabilities import EVERYTHING
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, Location, Node, paused_on, running_on
from rmsplugin.model.resources import Resources
from rmsplugin.packing.first_fit import FirstFit
from rmsplugin.planning.order.builder import build_plan
from rmsplugin.planning.order.moves import moves_between
from rmsplugin.planning.order.small import switch_to
from rmsplugin.planning.plan import Plan, Unreachable
from rmsplugin.proposing.check import check
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.proposal import Proposal
from rmsplugin.proposing.propose import propose


def bound(queue: Queue) -> Configuration:
    fixed = [replace(vjob, can=replace(EVERYTHING, migrate=False)) for vjob in queue.vjobs]
    return Configuration(queue.nodes, abiding(queue.nodes, fixed, queue.locations), queue.locations)


@pytest.mark.parametrize("heuristic", [None, "better-fit", "repair"])
def test_nodes_are_not_emptied_of_vms_that_cannot_move(heuristic: Literal["better-fit", "repair"] | None) -> None:
    source = bound(Queue(*nodes(2, cpus=2)).add("a", "n1", "n2", cpus=0.1, memory_mib=64))
    found = propose(source, ProposalParameters("rjsp", objective="nodes", heuristic=heuristic))
    assert isinstance(found, Proposal) and check(source, found) == []
    assert not found.plan.pools and found.nodes_used == 2
    assert heuristic is not None or found.nodes_lower_bound == 2


def test_of_two_equal_vjobs_that_overload_a_node_the_second_makes_way_although_both_had_room_elsewhere() -> None:
    one, other = nodes(2, cpus=3)
    small = replace(other, capacity=replace(other.capacity, cpus=1))
    queue = Queue(one, small).add("a", "n1", "n2", memory_mib=256).add("b", "n1", "n2", memory_mib=256)
    free, fixed = decide("rjsp", queue.configuration, Parameters()), decide("rjsp", bound(queue), Parameters())
    assert isinstance(free, Decision) and isinstance(fixed, Decision)
    assert states(free) == {"a": "running", "b": "running"}
    assert states(fixed) == {"a": "running", "b": "sleeping"}
    assert fixed.placement == {"a-0": "n1", "a-1": "n2"}


def test_a_vm_that_cannot_move_makes_no_way_for_a_cheaper_resume() -> None:
    one, other = nodes(2, cpus=4)
    small = replace(other, capacity=replace(other.capacity, memory_mib=1200))
    queue = Queue(one, small).add("a", "n1", "n2", memory_mib=256).add("b", "zz:n2", memory_mib=1024)
    for source, kinds in ((queue.configuration, ["migrate", "resume"]), (bound(queue), ["resume"])):
        found = propose(source, ProposalParameters("rjsp"))
        assert isinstance(found, Proposal) and check(source, found) == []
        assert [action.kind for action in found.plan.actions()] == kinds


def test_equal_vjobs_are_not_packed_as_one_where_their_vms_cannot_move() -> None:
    one, other = nodes(2, cpus=3)
    small = replace(other, capacity=replace(other.capacity, cpus=1))
    queue = Queue(one, small).add("a", "n1", "n2", memory_mib=256).add("b", "n1", "n2", memory_mib=256)
    assert Site(queue.configuration).pack(queue.vjobs) is not None
    source = bound(queue)
    assert Site(source).pack(source.vjobs) is None


def crossing(**lacks: bool) -> tuple[Configuration, dict[str, Location]]:
    """Two VMs that change nodes, which they fill."""
    can = replace(EVERYTHING, **lacks)
    queue = Queue(*nodes(2, memory_mib=1024))
    queue.add("a", "n1", memory_mib=1024, can=can).add("b", "n2", memory_mib=1024, can=can)
    return queue.configuration, {"a-0": running_on("n2"), "b-0": running_on("n1")}


def test_vms_that_wait_for_each_other_are_saved_only_where_their_platform_saves_and_restores_elsewhere() -> None:
    plan = build_plan(*crossing())
    assert isinstance(plan, Plan) and "suspend" in {action.kind for action in plan.actions()}
    for lacks in ({"suspend": False}, {"elsewhere": False}):
        none = build_plan(*crossing(**lacks))
        assert isinstance(none, Unreachable)
        assert none.explanation.endswith("no node has room meanwhile, and their platform cannot save them: a-0, b-0")


def test_the_exact_search_leaves_out_vms_that_cannot_make_every_detour() -> None:
    for lacks, guests in ({}, 2), ({"suspend": False}, 0), ({"elsewhere": False}, 0), ({"migrate": False}, 0):
        moves = moves_between(*crossing(**lacks))
        assert not isinstance(moves, Unreachable)
        switch = switch_to(moves)
        assert (0 if switch is None else len(switch.kind_of)) == guests
    queue = Queue(*nodes(2)).add("a", "n1", memory_mib=256, can=replace(EVERYTHING, migrate=False)).add("w")
    moves = moves_between(queue.configuration, {"w-0": running_on("n1")})
    assert not isinstance(moves, Unreachable)
    switch = switch_to(moves)
    assert switch is not None and len(switch.kind_of) == 1  # not the VM that stays


def test_no_vm_that_cannot_migrate_is_restored_beside_its_state_to_migrate_later() -> None:
    """It would cost less: its vjob would not wait for the memory on the other node."""
    queue = Queue(Node("n1", Resources(1, 1024)), Node("n2", Resources(4, 1024)))
    queue.add("woken", "zz:n1", "zz:n1", cpus=1, memory_mib=256).add("yields", "n2", cpus=4, memory_mib=1024)
    for source, kinds in (
        (queue.configuration, {"suspend", "resume", "migrate"}),
        (bound(queue), {"suspend", "resume"}),
    ):
        found = propose(source, ProposalParameters("rjsp"))
        assert isinstance(found, Proposal) and check(source, found) == []
        assert {action.kind for action in found.plan.actions()} == kinds


def test_a_paused_vm_that_demands_no_cpus_goes_on_beside_one_that_overloads_its_node() -> None:
    queue = Queue(*nodes(2, memory_mib=1024)).add("busy", "n1", cpus=2, memory_mib=768)
    queue.add("idle", "n1", cpus=0, memory_mib=256).add("other", "n2", cpus=0, memory_mib=512)
    source = queue.configuration.with_locations({**queue.locations, "idle-0": paused_on("n1")})
    found = propose(source, ProposalParameters("fcfs").without_solver())
    assert isinstance(found, Proposal) and check(source, found) == []
    assert [action.kind for action in found.plan.actions()] == ["unpause"]


def test_a_vjob_that_finds_no_room_where_its_vms_are_takes_none() -> None:
    first = FirstFit.on(nodes(2, cpus=1))
    here, full = VM("a-0", Resources(1, 256), "n1"), VM("a-1", Resources(2, 256), "n2")
    assert first.place_around([here, full]) is None
    assert first.free("n1") == first.free("n2") == Resources(1, 4096)
    assert first.place_around([VM("b-0", Resources(1, 256)), here]) == {"a-0": "n1", "b-0": "n2"}
