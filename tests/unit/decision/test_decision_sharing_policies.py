"""Load sharing by name: who runs stays, by migrations if need be; who arrives goes to the least loaded nodes."""

from __future__ import annotations

import pytest
from unit.queues import Queue, nodes, running, states

from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.policies import decide
from rmsplugin.decision.result import Decision, ReasonCode
from rmsplugin.decision.traits import RESERVES
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, WAITING, Node, NodeState, VJob, running_on
from rmsplugin.model.resources import Resources
from rmsplugin.model.rules import allowing
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.proposal import Proposal
from rmsplugin.proposing.propose import propose

EAGER = {"exempt_s": 0.0}
BOTH = pytest.mark.parametrize("policy", ["load-sharing", "v-reconfiguration"])


def cluster(count: int, memory_mib: int = 1024) -> Queue:
    return Queue(*nodes(count, cpus=8, memory_mib=memory_mib))


@BOTH
def test_arrivals_go_to_the_node_with_the_fewest_vms_then_to_the_one_with_most_memory_free(policy: str) -> None:
    queue = cluster(3).add("a", "n1", memory_mib=100).add("b", "n2", memory_mib=700).add("c", "n3", memory_mib=300)
    decision = queue.add("new", vms=4, memory_mib=100).decide(policy)
    assert [decision.placement[f"new-{i}"] for i in range(4)] == ["n1", "n3", "n2", "n1"]
    assert decision.reasons["new"].code is ReasonCode.FITS
    assert str(decision.reasons["new"]) == (
        "needs 4 CPUs and 400 MiB in 4 VMs, which fit beside what runs, without a migration, on the least loaded nodes"
    )


@BOTH
def test_the_planner_keeps_arrivals_where_they_are_spread_as_no_plan_is_cheaper(policy: str) -> None:
    queue = cluster(3).add("a", "n1", memory_mib=500).add("new", vms=2, memory_mib=100)
    for parameters in (ProposalParameters(policy), ProposalParameters(policy).without_solver()):
        found = propose(queue.configuration, parameters)
        assert isinstance(found, Proposal)
        assert [found.target[f"new-{i}"].node for i in range(2)] == ["n2", "n3"]


@BOTH
def test_nobody_migrates_to_make_room_for_an_arrival_which_waits_while_a_smaller_one_passes(policy: str) -> None:
    queue = cluster(2).add("a", "n1", memory_mib=500).add("b", "n2", memory_mib=500)
    queue.add("large", memory_mib=600).add("small", memory_mib=400)
    decision = queue.decide(policy)
    assert states(decision) == {"a": "running", "b": "running", "large": "waiting", "small": "running"}
    assert (decision.placement["a-0"], decision.placement["b-0"]) == ("n1", "n2")
    refusal = decision.reasons["large"]
    assert refusal.code is ReasonCode.NO_ROOM
    assert str(refusal) == (
        "needs 1 CPU and 600 MiB in 1 VM; 14 CPUs and 1048 MiB are free beside what runs, without a migration, "
        "but in pieces: no node has more than 7 CPUs and 524 MiB free"
    )


@BOTH
def test_all_vms_of_an_arrival_find_a_place_or_none_does(policy: str) -> None:
    queue = cluster(2).add("a", "n1", memory_mib=600).add("gang", vms=3, memory_mib=500).add("one", memory_mib=1000)
    decision = queue.decide(policy)
    assert running(decision) == {"a", "one"}
    assert decision.placement["one-0"] == "n2", "what was tried for the gang is given back"


@BOTH
def test_nobody_is_suspended_for_one_ahead_of_it_that_waits(policy: str) -> None:
    queue = cluster(1).add("head", memory_mib=900, priority=5).add("last", "n1", memory_mib=900)
    decision = queue.decide(policy, **EAGER)
    assert states(decision) == {"head": "waiting", "last": "running"}
    assert decision.reasons["last"].code is ReasonCode.KEPT


@BOTH
def test_a_short_node_sends_a_vm_away_and_the_plan_is_the_cheapest_relief(policy: str) -> None:
    queue = cluster(2).add("grown", "n1", memory_mib=800).add("small", "n1", memory_mib=300)
    decision = queue.decide(policy, **EAGER)
    assert running(decision) == {"grown", "small"}
    found = propose(queue.configuration, ProposalParameters(policy))
    assert isinstance(found, Proposal)
    assert [(str(action.kind), action.vm.name) for action in found.plan.actions()] == [("migrate", "small-0")]


@BOTH
def test_a_vm_that_has_to_leave_goes_to_the_least_loaded_node_and_not_to_the_tightest(policy: str) -> None:
    queue = cluster(4).add("grown", "n1", memory_mib=800).add("small", "n1", memory_mib=300)
    queue.add("tight", "n2", memory_mib=700).add("one", "n3", memory_mib=600)
    queue.add("two", "n4", memory_mib=50).add("three", "n4", memory_mib=50)
    decision = queue.decide(policy, **EAGER)
    assert decision.placement["small-0"] == "n3"
    assert {name: node for name, node in decision.placement.items() if name != "small-0"} == {
        **{"grown-0": "n1", "tight-0": "n2", "one-0": "n3"},
        **{"two-0": "n4", "three-0": "n4"},
    }
    found = propose(queue.configuration, ProposalParameters(policy))
    assert isinstance(found, Proposal)
    assert [(action.vm.name, action.destination) for action in found.plan.actions()] == [("small-0", "n3")]


@BOTH
def test_of_two_that_have_to_leave_the_second_goes_where_the_first_one_is_not_any_more(policy: str) -> None:
    """Both fit most tightly on n2, where there are fewer VMs than on n3 once the first one has gone to n3."""
    queue = cluster(3).add("grown", "n1", memory_mib=900)
    queue.add("first", "n1", memory_mib=160).add("second", "n1", memory_mib=150)
    queue.add("tight", "n2", memory_mib=700).add("one", "n3", memory_mib=600)
    placement = queue.decide(policy, **EAGER).placement
    assert (placement["first-0"], placement["second-0"]) == ("n3", "n2")


@BOTH
def test_a_vm_that_has_to_leave_keeps_off_nodes_that_its_vjob_may_not_use(policy: str) -> None:
    queue = cluster(3).add("grown", "n1", memory_mib=800)
    queue.add("small", "n1", memory_mib=300, rules=allowing(exclude=frozenset({"n3"})))
    queue.add("busy", "n2", memory_mib=300)
    assert queue.decide(policy, **EAGER).placement["small-0"] == "n2"


@BOTH
def test_who_runs_is_kept_by_migrations_that_move_more_than_a_suspend_would(policy: str) -> None:
    """``mixed`` asks what it costs, and suspends the small one."""
    queue = cluster(2).add("large", "n1", cpus=6, memory_mib=1000)
    queue.add("small", "n1", cpus=3, memory_mib=10, rules=allowing(frozenset({"n1"})))
    assert running(queue.decide("mixed", **EAGER)) == {"large"}
    decision = queue.decide(policy, **EAGER)
    assert running(decision) == {"large", "small"}
    assert decision.placement == {"large-0": "n2", "small-0": "n1"}


@BOTH
def test_where_no_migrations_make_room_the_last_of_the_queue_is_suspended(policy: str) -> None:
    queue = cluster(2).add("a", "n1", memory_mib=700).add("b", "n2", memory_mib=700).add("last", "n1", memory_mib=500)
    decision = queue.decide(policy, **EAGER)
    assert states(decision) == {"a": "running", "b": "running", "last": "sleeping"}
    assert decision.reasons["last"].code is ReasonCode.NO_ROOM


@BOTH
def test_an_arrival_goes_where_its_vjob_may_run_and_to_no_node_that_takes_none(policy: str) -> None:
    drained = nodes(4, cpus=8, memory_mib=1024)
    drained[1] = drained[1].__class__("n2", drained[1].capacity, NodeState.DRAINING)
    queue = Queue(*drained).add("free", vms=1).add("bound", vms=1, rules=allowing(frozenset({"n1"})))
    queue.add("without", vms=2, rules=allowing(exclude=frozenset({"n4"}))).add(
        "none", vms=1, rules=allowing(frozenset({"n2"}))
    )
    decision = queue.decide(policy)
    assert running(decision) == {"free", "bound", "without"}
    assert {decision.placement["bound-0"]} == {"n1"}
    assert {decision.placement[f"without-{i}"] for i in range(2)} <= {"n1", "n3"}
    assert str(decision.reasons["none"]).endswith("no node that it may use takes VMs now")


def test_virtual_reconfiguration_decides_as_load_sharing_does_and_is_preceded_by_reservations() -> None:
    queue = cluster(2).add("a", "n1", memory_mib=900).add("b", "n1", memory_mib=500).add("new", vms=3, memory_mib=100)
    one, other = queue.decide("load-sharing"), queue.decide("v-reconfiguration")
    assert (one.states, one.reasons, one.placement) == (other.states, other.reasons, other.placement)
    assert (one.policy, other.policy) == ("load-sharing", "v-reconfiguration")
    assert "v-reconfiguration" in RESERVES and "load-sharing" not in RESERVES


@BOTH
def test_who_found_no_room_is_asked_again_when_others_have_arrived(policy: str) -> None:
    """The large VM goes to the empty n2, where the other of its vjob finds no memory then; "b" takes n2 first."""
    nodes_ = Node("n1", Resources(1, 2048)), Node("n2", Resources(2, 1024))
    large = VJob("a", (VM("a-0", Resources(0, 1024)), VM("a-1", Resources(2, 256))))
    queue = (VJob("r", (VM("r-0", Resources(0, 512)),)), large, VJob("b", (VM("b-0", Resources(0, 256)),)))
    locations = {"r-0": running_on("n1"), "a-0": WAITING, "a-1": WAITING, "b-0": WAITING}
    decision = decide(policy, Configuration(nodes_, queue, locations), Parameters())
    assert isinstance(decision, Decision)
    assert decision.placement == {"r-0": "n1", "b-0": "n2", "a-0": "n1", "a-1": "n2"}
