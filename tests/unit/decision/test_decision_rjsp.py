"""The paper's RJSP and its exact variant: the worked example, and the rules one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from unit.queues import Queue, nodes, running, states

from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.policies import POLICIES, decide
from rmsplugin.decision.result import Infeasible, ReasonCode
from rmsplugin.model.elements import Node, NodeState
from rmsplugin.model.resources import Resources
from rmsplugin.model.rules import allowing
from rmsplugin.model.vjob import VJobState


def figure_6() -> Queue:
    """3 uniprocessor nodes; vjobs 1 and 2 run, with two busy VMs each; vjob 3 waits."""
    queue = Queue(*nodes(3)).add("vjob1", "n1", "n2", memory_mib=512)
    return queue.add("vjob2", "n3", "n3", memory_mib=512).add("vjob3", vms=1, memory_mib=512)


@pytest.mark.parametrize("policy", ["rjsp", "rjsp-exact", "mixed"])
def test_rr_6929_figure_6(policy: str) -> None:
    decision = figure_6().decide(policy)
    assert states(decision) == {"vjob1": "running", "vjob2": "sleeping", "vjob3": "running"}
    assert decision.sentence == "2 of 3 vjobs run: 1 starts, 1 is suspended"


def test_figure_6_in_the_baselines_which_suspend_nothing() -> None:
    for policy in ("fcfs", "easy"):
        decision = figure_6().decide(policy)
        assert states(decision) == {"vjob1": "running", "vjob2": "running", "vjob3": "waiting"}
        assert decision.reasons["vjob2"].code is ReasonCode.RESERVED_IN_PLACE


def test_reasons_say_what_is_needed_and_what_is_free() -> None:
    queue = Queue(*nodes(4, cpus=2, memory_mib=2000)).add("a", *["n1"] * 4, memory_mib=1000)
    decision = queue.add("b", vms=9, memory_mib=1024).decide("rjsp")
    assert str(decision.reasons["b"]) == (
        "needs 9 CPUs and 9216 MiB in 9 VMs; 4 CPUs and 4000 MiB are free behind those ahead of it"
    )
    assert decision.reasons["b"].numbers["free_memory_mib"] == 4000


def test_reasons_say_when_what_is_free_is_in_pieces() -> None:
    decision = Queue(*nodes(2, cpus=2)).add("a", vms=1).add("b", vms=1, cpus=2).add("c", cpus=1.5).decide("rjsp")
    assert states(decision) == {"a": "running", "b": "running", "c": "waiting"}
    queue = Queue(*nodes(2, cpus=2)).add("a", vms=2, cpus=1.5).add("c")
    assert "in pieces: no node has more than 0.5 CPUs and 4096 MiB free" in str(queue.decide("rjsp").reasons["c"])


def test_reasons_say_when_no_node_may_be_used() -> None:
    queue = Queue(*nodes(1), Node("n2", Resources(4, 4096), NodeState.DRAINING))
    decision = queue.add("a", rules=allowing(frozenset({"n2"}))).decide("rjsp")
    assert str(decision.reasons["a"]).endswith("no node that it may use takes VMs now")


def test_what_is_not_preemptible_and_runs_is_admitted_first() -> None:
    decision = Queue(*nodes(2)).add("a", vms=2).add("b", "n2", preemptible=False).add("c", "n1").decide("rjsp")
    assert states(decision) == {"a": "waiting", "b": "running", "c": "running"}
    assert decision.reasons["b"].code is ReasonCode.NOT_PREEMPTIBLE


def test_what_must_run_is_packed_exactly_when_ffd_fails() -> None:
    # FFD puts `a` on n1, where only `b` may be.
    queue = Queue(*nodes(2)).add("a", "n2", preemptible=False)
    decision = queue.add("b", "n1", preemptible=False, rules=allowing(frozenset({"n1"}))).decide("rjsp")
    assert decision.placement == {"a-0": "n2", "b-0": "n1"}
    assert {reason.code for reason in decision.reasons.values()} == {ReasonCode.NOT_PREEMPTIBLE}


def test_what_must_run_and_has_no_room_is_reserved_where_it_is() -> None:
    queue = Queue(*nodes(2, cpus=2)).add("a", "n1", cpus=3, preemptible=False).add("b", "n1", cpus=1).add("c", cpus=2)
    decision = queue.decide("rjsp")
    assert states(decision) == {"a": "running", "b": "running", "c": "waiting"}
    assert decision.placement == {"a-0": "n1", "b-0": "n2"}
    assert decision.reasons["a"].code is ReasonCode.RESERVED_IN_PLACE
    assert "free" in str(decision.reasons["a"])


def test_vms_on_a_draining_node_are_placed_elsewhere_or_reserved_there() -> None:
    draining = Node("n2", Resources(2, 4096), NodeState.DRAINING)
    queue = Queue(*nodes(1), draining).add("a", "n2", preemptible=False)
    assert queue.decide("rjsp").placement == {"a-0": "n1"}
    decision = queue.add("b", "n1", preemptible=False).decide("rjsp")
    assert running(decision) == {"a", "b"}
    assert decision.placement == {"a-0": "n2", "b-0": "n1"}
    assert decision.reasons["b"].code is ReasonCode.NOT_PREEMPTIBLE
    assert decision.reasons["a"].code is ReasonCode.RESERVED_IN_PLACE
    assert str(decision.reasons["a"]) == (
        "is not preemptible, and keeps running; its VM cannot leave n2: it needs 1 CPU and 0 MiB, and free beside "
        "those that must run are 0 CPUs and 4096 MiB on n1"
    )


def test_targets_fix_the_decision() -> None:
    queue = Queue(*nodes(2)).add("a", "n1").add("s", "n2", target=VJobState.SLEEPING)
    queue.add("w", target=VJobState.WAITING).add("t", "zz:n1", target=VJobState.TERMINATED)
    queue.add("r", vms=2, target=VJobState.RUNNING)
    decision = queue.decide("rjsp")
    assert states(decision) == {"a": "sleeping", "s": "sleeping", "w": "waiting", "t": "terminated", "r": "running"}
    assert {decision.reasons[name].code for name in "swtr"} == {ReasonCode.TARGET}
    assert decision.sentence == "1 of 5 vjobs run: 1 starts, 2 are suspended, 1 is stopped"


@pytest.mark.parametrize("policy", POLICIES)
def test_a_target_that_cannot_be_met_makes_the_decision_infeasible(policy: str) -> None:
    queue = Queue(*nodes(2)).add("a", "n1", preemptible=False).add("r", vms=2, target=VJobState.RUNNING)
    decision = decide(policy, queue.configuration, Parameters())
    assert isinstance(decision, Infeasible)
    assert decision.explanation == (
        "vjob 'r' cannot run, as its target demands: it needs 2 CPUs and 0 MiB in 2 VMs; "
        "1 CPU and 8192 MiB are free beside 1 other vjob that must run"
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_what_has_ended_stays_so_and_what_is_lost_is_stopped_first(policy: str) -> None:
    queue = Queue(*nodes(3)).add("ended", "ended").add("half", "n1", "ended").add("hit", "n2", "", lost=True)
    queue.add("asleep", "zz:n1", "", lost=True).add("gone", vms=1, lost=True)
    decision = queue.decide(policy)
    ended = {"ended": "terminated", "half": "terminated"}
    assert states(decision) == {**ended, "hit": "waiting", "asleep": "waiting", "gone": "running"}
    assert decision.reasons["hit"].code is ReasonCode.LOST
    assert "1 of 2 VMs, is stopped first" in str(decision.reasons["hit"])


def test_a_lost_vjob_that_its_target_runs_says_that_it_will_later() -> None:
    queue = Queue(*nodes(3)).add("hit", "n2", "", lost=True, target=VJobState.RUNNING)
    decision = queue.decide("rjsp")
    assert states(decision) == {"hit": "waiting"}
    assert str(decision.reasons["hit"]).endswith("is stopped first, and its target, to run, can be met after that")
    assert decision.sentence == "0 of 1 vjob runs: 1 is lost and begins anew"


def test_the_whole_queue_is_considered() -> None:
    queue = Queue(*nodes(2)).add("a", vms=3).add("b", vms=2).add("c")
    assert states(queue.decide("rjsp")) == {"a": "waiting", "b": "running", "c": "waiting"}


def fragmented() -> Queue:
    """FFD puts `a` on the first node, the only one that `b` may use: an exact packing has room for both."""
    return Queue(*nodes(2)).add("a").add("b", rules=allowing(frozenset({"n1"}))).add("c")


def test_rjsp_exact_finds_room_that_ffd_does_not() -> None:
    assert running(fragmented().decide("rjsp")) == {"a", "c"}
    decision = fragmented().decide("rjsp-exact")
    assert running(decision) == {"a", "b"}
    assert decision.placement == {"a-0": "n2", "b-0": "n1"}
    assert decision.reasons["b"].code is ReasonCode.FITS_EXACTLY


def test_rjsp_exact_keeps_who_is_reserved_in_place_where_it_is() -> None:
    queue = fragmented()
    queue.nodes = (*queue.nodes, Node("n3", Resources(1, 4096)))
    queue.add("x", "n3", cpus=3, preemptible=False)
    decision = queue.decide("rjsp-exact")
    assert running(decision) == {"a", "b", "x"}
    assert decision.placement == {"a-0": "n2", "b-0": "n1", "x-0": "n3"}


def test_the_number_of_exact_checks_is_bounded() -> None:
    queue = Queue(*nodes(4))
    for i in range(2):
        queue.add(f"a{i}").add(f"b{i}", rules=allowing(frozenset({f"n{2 * i + 1}"})))
    assert running(queue.decide("rjsp-exact")) == {"a0", "b0", "a1", "b1"}
    one = queue.decide("rjsp-exact", exact_checks=1)
    assert len(running(one)) < 4


def test_parameters_share_the_limits_of_the_search_among_the_checks() -> None:
    whole = Parameters(exact_checks=4)
    deterministic = replace(whole, search=replace(whole.search, deterministic_limit=2.0))
    assert deterministic.search_of_one_check.deterministic_limit == 0.5


@pytest.mark.parametrize("wrong", [{"exempt_s": -1}, {"patience_s": -1}, {"horizon_s": 0}, {"rounds": 0}])
def test_tunables_that_cannot_be_meant_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Parameters(**wrong)  # type: ignore[arg-type]
