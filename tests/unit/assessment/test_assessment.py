"""What of a world that is half-way can be decided about, and on which nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rmsplugin.assessment.facts import Members, NodeFacts, RoomUse, VJobFacts, VMFacts, vm_demand
from rmsplugin.assessment.settled import Settled, Why, settled
from rmsplugin.decision.result import ReasonCode
from rmsplugin.model.capabilities import EVERYTHING, NATIVE
from rmsplugin.model.elements import SHARED, VM, WAITING, Location, Node, NodeState, VMState, running_on, sleeping_on
from rmsplugin.model.resources import NOTHING, Resources
from rmsplugin.model.rules import confined_to
from rmsplugin.model.validation import InvalidConfigurationError
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.proposal import Proposal
from rmsplugin.proposing.propose import propose

N1 = NodeFacts("n1", Resources(4, 8192), RoomUse.HELD)
N2 = replace(N1, name="n2")
BOTH = frozenset({"n1", "n2"})


def facts(name: str, *places: Location, holds: str = "", cpus: float = 1, **fields: object) -> VJobFacts:
    """A vjob of VMs of 1024 MiB; ``holds``: the nodes on which each holds memory, if that is not its host."""
    vms = []
    for index, place in enumerate(places):
        host = {place.node} if place.state is VMState.RUNNING and place.node else set()
        held = frozenset(holds.split()) if holds else frozenset(host)
        vms.append(VMFacts(VM(f"{name}-{index}", Resources(cpus, 1024)), place, held))
    return VJobFacts(name, Members(vms), **{"nodes": BOTH, **fields})  # type: ignore[arg-type]


def left(found: Settled, node: str) -> tuple[float, int]:
    """What is free of a node for the vjobs about which something is decided."""
    configuration = found.configuration
    amount = configuration.free(node)
    for vjob in configuration.vjobs:
        for vm in vjob.vms:
            if configuration.locations[vm.name] == running_on(node) and not vjob.in_transit:
                amount += vm.demand
    return round(amount.cpus, 2), amount.memory_mib


def decided(found: Settled) -> list[str]:
    return [vjob.name for vjob in found.configuration.vjobs if not vjob.in_transit]


RUNS, SLEEPS, WAITS = (
    facts("r", running_on("n1"), running_on("n2"), preemptible=False, time_limit_s=60.0, ran_s=3.0, state_s=4.0),
    facts("s", sleeping_on("n2"), priority=2),
    facts("w", WAITING, WAITING),
)


def test_settled_vjobs_are_in_it_in_the_order_of_the_queue_with_all_that_a_decision_needs() -> None:
    found = settled([N1, N2], [WAITS, RUNS, SLEEPS])
    assert decided(found) == ["w", "r", "s"]
    assert found.configuration.nodes == (Node("n1", N1.size), Node("n2", N2.size))
    assert found.configuration.locations == {
        "w-0": WAITING,
        "w-1": WAITING,
        "r-0": running_on("n1"),
        "r-1": running_on("n2"),
        "s-0": sleeping_on("n2"),
    }
    _, runs, sleeps = found.configuration.vjobs
    assert (runs.preemptible, runs.time_limit_s, runs.ran_s, runs.state_s) == (False, 60.0, 3.0, 4.0)
    assert (sleeps.priority, confined_to(sleeps.rules), sleeps.demand) == (2, BOTH, Resources(1, 1024))
    assert (found.left_out, found.quarantined) == ({}, {})


def test_one_in_transition_holds_its_part_on_every_node_that_it_needs() -> None:
    moves = facts("m", running_on("n1"), holds="n1 n2", cpus=0.3, unsettled="is migrated")
    found = settled([N1, N2], [moves, RUNS])
    assert (left(found, "n1"), left(found, "n2")) == ((3.7, 7168), (3.7, 7168))
    assert decided(found) == ["r"]
    assert (found.left_out["m"].why, str(found.left_out["m"])) == (Why.UNSETTLED, "is migrated")


def test_what_is_about_to_come_has_its_place() -> None:
    starts = facts("m", *[WAITING] * 3, holds="n2", cpus=0.1, unsettled="is starting")
    assert left(settled([N1, N2], [starts]), "n2") == (3.7, 5120)


def test_one_that_waits_for_something_else_is_left_out_and_holds_nothing() -> None:
    found = settled([N1], [facts("h", WAITING, unsettled="is held by its user")])
    assert left(found, "n1") == (4, 8192) and decided(found) == []


def test_where_more_is_held_than_there_is_nothing_is_left() -> None:
    starts = facts("m", *[WAITING] * 9, holds="n1", unsettled="is starting")
    assert max(left(settled([N1], [starts]), "n1")) <= 0


def test_room_that_one_gives_back_and_another_is_promised_counts_once() -> None:
    goes = facts("g", running_on("n1"), cpus=2, unsettled="is suspending")
    goes = goes._replace(vms=Members([replace(goes.vms[0], will_hold=frozenset())]))
    comes = facts("c", WAITING, cpus=3, unsettled="its turn comes")
    comes = comes._replace(vms=Members([replace(comes.vms[0], will_hold=frozenset({"n1"}))]))
    assert left(settled([N1, N2], [goes, comes]), "n1") == (1, 7168)
    assert left(settled([N1, N2], [goes]), "n1") == (2, 7168), "until it has gone"
    assert left(settled([N1, N2], [comes]), "n1") == (1, 7168), "although nobody is there yet"


def test_who_came_before_another_one_has_gone_does_not_overload_the_node() -> None:
    goes = facts("g", running_on("n1"), cpus=3, unsettled="is suspending")
    goes = goes._replace(vms=Members([replace(goes.vms[0], will_hold=frozenset())]))
    came = facts("came", running_on("n1"), cpus=4)
    found = settled([N1, N2], [came, goes])
    assert found.configuration.overloaded() == []
    assert left(found, "n1") == (4, 7168), "memory is held by both"
    proposed = propose(found.configuration, ProposalParameters("mixed").without_solver())
    assert isinstance(proposed, Proposal)
    assert list(proposed.plan.actions()) == []


def test_nobody_sleeps_because_one_that_is_being_suspended_has_not_gone_yet() -> None:
    """Node n1 is overloaded by a CPU, and the CPUs that one of ``head`` can move to are those of ``goes``."""
    goes = facts("goes", running_on("n2"), cpus=2, unsettled="is suspending")
    goes = goes._replace(vms=(replace(goes.vms[0], will_hold=frozenset()),))
    head = facts("head", running_on("n1"), running_on("n1"), cpus=2.5)
    second = facts("second", running_on("n2"), cpus=1.5)
    found = settled([N1, N2], [head, second, goes])
    proposed = propose(found.configuration, ProposalParameters("mixed").without_solver())
    assert isinstance(proposed, Proposal)
    assert list(proposed.plan.actions()) == []
    assert proposed.decision.reasons["second"].code is ReasonCode.AWAITS


def test_what_is_about_to_be_given_back_does_not_let_others_pass_the_head_of_the_queue() -> None:
    goes = facts("g", running_on("n1"), cpus=1, unsettled="is stopping", preemptible=False)
    goes = goes._replace(vms=Members([replace(goes.vms[0], will_hold=frozenset())]))
    head = facts("head", WAITING, WAITING, cpus=4, preemptible=False, time_limit_s=600.0)
    small = facts("small", WAITING, preemptible=False, time_limit_s=3600.0)
    found = settled([N1, N2], [head, small, goes])
    proposed = propose(found.configuration, ProposalParameters("mixed").without_solver())
    assert isinstance(proposed, Proposal)
    assert list(proposed.plan.actions()) == []
    assert "leaves no room for head to start in 60 s" in proposed.decision.reasons["small"].sentence
    assert proposed.sentence == "0 of 2 vjobs run: nothing changes; there is nothing to do."


@pytest.mark.parametrize(
    ("room", "with_vms", "state"),
    [
        (RoomUse.HELD, True, NodeState.UP),
        (RoomUse.LEAVING, True, NodeState.DRAINING),
        (RoomUse.LEAVING, False, NodeState.DRAINING),
        (RoomUse.NONE, True, NodeState.UP),
        (RoomUse.NONE, False, NodeState.UP),
    ],
)
def test_a_node_has_something_only_while_the_engine_has_a_room_there(
    room: RoomUse, with_vms: bool, state: NodeState
) -> None:
    found = settled([replace(N1, room=room), N2], [facts("r", running_on("n1"))] if with_vms else [])
    node = found.configuration.node_by_name["n1"]
    assert node == Node("n1", N1.size if room is RoomUse.HELD else NOTHING, state)


def test_vms_stay_where_a_room_is_missing_and_nobody_else_wants_the_node() -> None:
    found = settled([replace(N1, room=RoomUse.NONE), N2], [facts("r", running_on("n1"), running_on("n2"))])
    assert found.left_out["r"].why is Why.ROOMLESS
    assert str(found.left_out["r"]) == "r-0 is on n1, and stays while the engine has no room there"
    assert left(found, "n2") == (3, 7168)
    state_there = settled([replace(N1, room=RoomUse.NONE), N2], [facts("s", sleeping_on("n1"))])
    assert state_there.left_out == {}, "a saved state needs no room"


def test_vms_leave_a_node_whose_room_is_to_be_given_back() -> None:
    found = settled([replace(N1, room=RoomUse.LEAVING), N2], [facts("r", running_on("n1"))])
    proposed = propose(found.configuration, ProposalParameters("mixed").without_solver())
    assert isinstance(proposed, Proposal)
    assert [str(action) for action in proposed.plan.actions()] == ["migrate r-0 from n1 to n2"]


@pytest.mark.parametrize("place", [running_on("n1"), sleeping_on("n1")])
def test_who_has_something_out_of_reach_keeps_its_place_and_nobody_acts_on_it(place: Location) -> None:
    silent = replace(N1, out_of_reach="its libvirt does not answer")
    other = running_on("n2") if place.state is VMState.RUNNING else sleeping_on("n2")
    found = settled([silent, N2], [facts("q", other, place), WAITS])
    assert found.quarantined == {"n1": "its libvirt does not answer"}
    assert found.left_out["q"].why is Why.QUARANTINED
    assert str(found.left_out["q"]).endswith("q-1 is on n1: its libvirt does not answer")
    assert found.configuration.node_by_name["n1"] == Node("n1", NOTHING, NodeState.DRAINING)
    # what it has elsewhere keeps its room there
    assert left(found, "n2") == ((3, 7168) if place.state is VMState.RUNNING else (4, 8192))
    proposed = propose(found.configuration, ProposalParameters("mixed").without_solver())
    assert isinstance(proposed, Proposal)
    assert [str(action) for action in proposed.plan.actions()] == ["run w-0 to n2", "run w-1 to n2"]


def test_a_state_on_shared_storage_is_in_reach() -> None:
    found = settled([replace(N1, out_of_reach="silent"), N2], [facts("s", sleeping_on(SHARED))])
    assert found.left_out == {}


@pytest.mark.parametrize(
    ("vjob", "why", "words"),
    [
        (facts("x", running_on("n9")), Why.CONTRADICTION, "x-0 is on n9, which is no VM host (any more)"),
        (
            facts("x", sleeping_on("n9")),
            Why.CONTRADICTION,
            "its saved state x-0 is on n9, which is no VM host (any more)",
        ),
        (
            facts("x", running_on("n1"), sleeping_on("n1")),
            Why.CONTRADICTION,
            "its VMs are in different states: running, sleeping",
        ),
        (facts("x", running_on("n1"), holds="n1 n2"), Why.CONTRADICTION, "its VMs hold memory elsewhere"),
        (facts("x", WAITING, nodes=frozenset({"n7"})), Why.NO_HOST, "no node that hosts VMs is left"),
        (facts("x", WAITING, nodes=frozenset()), Why.NO_HOST, "no node that hosts VMs is left"),
        (facts("x"), Why.CONTRADICTION, "its known state is impossible: vjob 'x' has no VM"),
        (facts("x", WAITING, cpus=0.125), Why.CONTRADICTION, "its known state is impossible: CPUs are counted"),
        (facts("x", WAITING, time_limit_s=-1.0), Why.CONTRADICTION, "its known state is impossible: must be a number"),
    ],
)
def test_one_whose_facts_cannot_be_hurts_only_itself(vjob: VJobFacts, why: Why, words: str) -> None:
    found = settled([N1, N2], [vjob, WAITS])
    assert found.left_out["x"].why is why and str(found.left_out["x"]).startswith(words)
    assert decided(found) == ["w"]


def test_of_two_vjobs_of_one_name_in_different_states_the_second_harms_nobody_else() -> None:
    """Names of VMs come from job ids; should two vjobs share one, the second is left out."""
    twin = WAITS._replace(name="y")
    found = settled([N1, N2], [WAITS, twin])
    assert decided(found) == ["w"]
    assert "exists already" in str(found.left_out["y"])


def test_what_is_left_out_late_still_holds_its_part() -> None:
    odd = facts("x", running_on("n1"), ran_s=-1.0)
    found = settled([N1, N2], [odd])
    assert found.left_out["x"].why is Why.CONTRADICTION and left(found, "n1") == (3, 7168)


def test_nodes_that_cannot_be_are_a_fault_of_the_caller() -> None:
    with pytest.raises(InvalidConfigurationError, match="exists already"):
        settled([N1, N1], [])


def test_the_demand_is_memory_with_overhead_and_the_cpus_that_were_seen() -> None:
    size = Resources(2, 1024)
    assert vm_demand(size, 128) == Resources(2, 1152)
    assert vm_demand(size, 128, 0.35) == Resources(0.35, 1152)


def test_a_vm_that_its_platform_cannot_move_may_only_be_where_it_is() -> None:
    can = replace(EVERYTHING, migrate=False)
    found = settled([N1, N2], [facts("1", running_on("n1"), running_on("n2"), can=can), facts("2", WAITING, can=can)])
    assert {vm.name: vm.only for vjob in found.configuration.vjobs for vm in vjob.vms} == {
        "1-0": "n1",
        "1-1": "n2",
        "2-0": None,
    }
    assert all(vjob.preemptible and vjob.can is can for vjob in found.configuration.vjobs)
    cannot = replace(can, suspend=False, pause=False)
    [kept] = settled([N1, N2], [facts("1", running_on("n1"), can=cannot)]).configuration.vjobs
    assert not kept.preemptible
    [paused] = settled([N1, N2], [facts("1", running_on("n1"), can=NATIVE)]).configuration.vjobs
    assert paused.preemptible, "it makes way by a pause"
