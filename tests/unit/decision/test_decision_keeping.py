"""The live policy keeps what runs: as it is, else by migrations, and only then it asks who must go."""

from __future__ import annotations

import pytest
from unit.queues import Queue, nodes, running, states

from rmsplugin.decision.result import ReasonCode
from rmsplugin.model.elements import Node, NodeState
from rmsplugin.model.resources import Resources
from rmsplugin.model.rules import allowing


def sized(*memory_mib: int) -> list[Node]:
    return [Node(f"n{i}", Resources(8, memory)) for i, memory in enumerate(memory_mib, start=1)]


def test_what_first_fit_decreasing_cannot_pack_stays_where_it_is() -> None:
    queue = Queue(*sized(6, 7)).add("a", "n1", memory_mib=3).add("b", "n1", memory_mib=3)
    queue.add("c", "n2", memory_mib=4).add("d", "n2", memory_mib=2).add("e", "n2", memory_mib=1)
    decision = queue.decide("mixed", exact_checks=0)
    assert running(decision) == set("abcde")
    assert decision.placement == {"a-0": "n1", "b-0": "n1", "c-0": "n2", "d-0": "n2", "e-0": "n2"}


@pytest.mark.parametrize("checks", [0, 10])
def test_who_runs_is_migrated_and_nobody_suspended(checks: int) -> None:
    """First Fit Decreasing in queue order fails: 3 and 2 on the first node leave no room for 4 and 4."""
    queue = Queue(*sized(6, 6, 6)).add("a", "n1", memory_mib=3).add("b", "n1", memory_mib=2)
    queue.add("c", "n2", memory_mib=4).add("d", "n1", memory_mib=2).add("e", "n3", memory_mib=4).add(
        "f", "n2", memory_mib=2
    )
    decision = queue.decide("mixed", exact_checks=checks)
    assert running(decision) == set("abcdef")
    moved = {vm for vm, node in decision.placement.items() if queue.locations[vm].node != node}
    assert len(moved) == 1 and moved <= {"b-0", "d-0"}


def test_a_solver_makes_room_where_only_two_vms_can_change_places() -> None:
    queue = Queue(*sized(6, 6)).add("a", "n2", memory_mib=2).add("b", "n2", memory_mib=2)
    queue.add("c", "n1", memory_mib=4).add("d", "n1", memory_mib=4)
    assert running(queue.decide("mixed")) == set("abcd")
    assert running(queue.decide("mixed", exact_checks=0)) == set("abc")


def test_a_suspension_that_costs_less_than_the_migrations_is_preferred() -> None:
    """To keep `tiny`, b and d would change places: 7 MiB; to suspend and resume it takes 4."""
    queue = Queue(*sized(10, 10)).add("a", "n1", memory_mib=5).add("b", "n1", memory_mib=4)
    queue.add("c", "n2", memory_mib=6).add("d", "n2", memory_mib=3).add("tiny", "n1", memory_mib=2)
    decision = queue.decide("mixed")
    assert running(decision) == set("abcd")
    assert decision.reasons["tiny"].code is ReasonCode.DOES_NOT_PAY
    assert "7 MiB would have to migrate" in str(decision.reasons["tiny"])
    assert all(queue.locations[vm].node == node for vm, node in decision.placement.items())


def test_the_last_in_the_queue_go_when_not_all_can_stay() -> None:
    queue = Queue(*nodes(1, cpus=2), Node("n2", Resources(2, 4096), NodeState.DRAINING))
    queue.add("a", "n1").add("b", "n2").add("c", "n1").add("d", "n2", cpus=0)
    decision = queue.decide("mixed")
    assert states(decision) == {"a": "running", "b": "running", "c": "sleeping", "d": "running"}


def test_one_that_arrives_starts_beside_those_that_run_and_nobody_else_moves() -> None:
    queue = Queue(*nodes(3, cpus=2)).add("new").add("a", "n3").add("b", "n2").add("c", "n3")
    decision = queue.decide("mixed")
    assert running(decision) == {"new", "a", "b", "c"}
    assert {vm: decision.placement[vm] for vm in ("a-0", "b-0", "c-0")} == {"a-0": "n3", "b-0": "n2", "c-0": "n3"}


def test_one_ahead_takes_nobodys_room_if_there_is_room_beside_all() -> None:
    """Packed from scratch in queue order, `new` and `a` on one node leave no room for `c`."""
    queue = Queue(*sized(6, 6)).add("new", memory_mib=2)
    queue.add("a", "n1", memory_mib=2).add("b", "n2", memory_mib=4).add("c", "n1", memory_mib=4)
    decision = queue.decide("mixed")
    assert running(decision) == {"new", "a", "b", "c"}
    assert decision.placement == {"new-0": "n2", "a-0": "n1", "b-0": "n2", "c-0": "n1"}


@pytest.mark.parametrize(("memory_mib", "state"), [(6, "waiting"), (7, "running")])
def test_one_for_which_too_much_would_move_waits(memory_mib: int, state: str) -> None:
    """14 MiB would have to move: more than twice 6 MiB, and no more than twice 7."""
    queue = Queue(*sized(30, 19)).add("a", "n1", memory_mib=5).add("b", "n2", memory_mib=14)
    queue.add("new", memory_mib=memory_mib, rules=allowing(frozenset({"n2"})))
    assert states(queue.decide("mixed"))["new"] == state


def overloaded_by_one_that_arrives(**known: object) -> Queue:
    """Six VMs of a CPU on four CPUs; ``last`` is being migrated to the second node."""
    queue = Queue(*nodes(2, cpus=2)).add("head", "n1").add("second", "n1").add("third", "n2")
    return queue.add("last", "n2", "n2", in_transit=True, rules=allowing(frozenset({"n2"})), preemptible=False, **known)


def test_nobody_sleeps_instead_of_one_behind_it_that_is_being_migrated() -> None:
    queue = overloaded_by_one_that_arrives(yields_later=True)
    decision = queue.decide("mixed")
    assert running(decision) == {"head", "second", "third", "last"}
    assert decision.reasons["third"].code is ReasonCode.AWAITS
    assert "shares its CPUs until last, on which something is under way, has made way or can" in str(
        decision.reasons["third"]
    )
    assert all(queue.locations[vm].node == node for vm, node in decision.placement.items())


@pytest.mark.parametrize("known", [{}, {"yields_later": True, "state_s": 10.0}])
def test_one_in_transit_that_makes_no_way_afterwards_is_not_awaited(known: dict[str, object]) -> None:
    decision = overloaded_by_one_that_arrives(**known).decide("mixed", exempt_s=60.0)
    assert running(decision) == {"head", "second", "last"}


def test_who_sleeps_in_any_case_does_not_wait_for_the_one_that_is_being_migrated() -> None:
    queue = overloaded_by_one_that_arrives(yields_later=True).add("behind", "n1", cpus=2)
    decision = queue.decide("mixed")
    assert running(decision) == {"head", "second", "third", "last"}
    assert decision.reasons["behind"].code is ReasonCode.NO_ROOM


def test_one_in_transit_ahead_of_all_is_not_awaited() -> None:
    queue = Queue(*nodes(2, cpus=2))
    queue.add(
        "first", "n2", "n2", in_transit=True, yields_later=True, rules=allowing(frozenset({"n2"})), preemptible=False
    )
    queue.add("second", "n1").add("third", "n1").add("last", "n2")
    assert running(queue.decide("mixed")) == {"first", "second", "third"}


def test_nobody_sleeps_for_cpus_that_one_still_has_which_is_being_suspended() -> None:
    """The head has two VMs on one CPU; the CPU that one of them would move to is not free yet."""
    queue = Queue(Node("n1", Resources(1, 4096)), *nodes(3, cpus=1)[1:])
    queue.add("head", "n1", "n1").add("second", "n2")
    queue.add("last@n3", "n3", in_transit=True, leaves=True, rules=allowing(frozenset({"n3"})), preemptible=False)
    decision = queue.decide("mixed")
    assert running(decision) == {"head", "second", "last@n3"}
    assert decision.reasons["second"].code is ReasonCode.AWAITS
    assert "until last, on which" in str(decision.reasons["second"])
    assert all(queue.locations[vm].node == node for vm, node in decision.placement.items())


def test_one_that_goes_is_not_awaited_by_whom_it_would_not_help() -> None:
    queue = Queue(*nodes(2, cpus=1)).add("head", "n1").add("second", "n1").add("third", "n1")
    queue.add("last@n2", "n2", in_transit=True, leaves=True, rules=allowing(frozenset({"n2"})), preemptible=False)
    decision = queue.decide("mixed")
    assert running(decision) == {"head", "second", "last@n2"}
    assert decision.reasons["third"].code is ReasonCode.NO_ROOM
