"""Plans with pauses: what they cost, in which order VMs are paused, go on and move, and what waits for what."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from rmsplugin.decision.result import Decision, Reason, ReasonCode
from rmsplugin.model.action import Action, migrate, pause, unpause
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import (
    VM,
    WAITING,
    Location,
    Node,
    NodeState,
    VJob,
    VMState,
    paused_on,
    running_on,
    sleeping_on,
)
from rmsplugin.model.resources import Resources
from rmsplugin.model.rules import allowing
from rmsplugin.model.vjob import VJobState
from rmsplugin.planning.order.dependencies import dependency_order
from rmsplugin.planning.order_checker import check_order
from rmsplugin.planning.pausing import reduced
from rmsplugin.planning.plan import Plan
from rmsplugin.proposing.check import check
from rmsplugin.proposing.document import document
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.proposal import Proposal
from rmsplugin.proposing.propose import propose_for

R, P, S, W, T = (
    VJobState.RUNNING,
    VJobState.PAUSED,
    VJobState.SLEEPING,
    VJobState.WAITING,
    VJobState.TERMINATED,
)


def vm(name: str, memory_mib: int = 512, cpus: float = 1) -> VM:
    return VM(name, Resources(cpus, memory_mib))


def cluster(
    nodes: Mapping[str, int], places: Mapping[VM, Location], cpus: float = 1, **changes: object
) -> Configuration:
    """Nodes by memory, and a vjob for all VMs whose names begin with the same letter, in their order."""
    queue: dict[str, list[VM]] = {}
    for each in places:
        queue.setdefault(each.name[0], []).append(each)
    vjobs = tuple(VJob(name, tuple(vms), **changes.get(name, {})) for name, vms in queue.items())  # type: ignore[call-overload]
    made = tuple(Node(name, Resources(cpus, memory)) for name, memory in nodes.items())
    return Configuration(made, vjobs, {each.name: at for each, at in places.items()})


def proposed(source: Configuration, states: Mapping[str, VJobState], sample: Mapping[str, str]) -> Proposal:
    """The plan for decided states; the checkers accept it."""
    reasons = {name: Reason(ReasonCode.FITS, "as the test wants it") for name in states}
    found = propose_for(source, Decision("test", states, reasons, sample), ProposalParameters("rjsp"))
    assert isinstance(found, Proposal), found
    assert check(source, found) == []
    return found


def told(proposal: Proposal) -> list[list[str]]:
    return [[str(action) for action in pool] for pool in proposal.plan.pools]


A, B, C = vm("a"), vm("b"), vm("c", 256)


def test_one_that_is_short_takes_the_cpus_of_a_long_one_and_gives_them_back_for_nothing() -> None:
    before = cluster({"n": 1024}, {A: running_on("n"), C: WAITING})
    arrived = proposed(before, {"a": P, "c": R}, {"a": "n", "c": "n"})
    assert told(arrived) == [["pause a from n"], ["run c to n"]]
    assert arrived.plan.cost == arrived.lower_bound == 0
    after = Configuration(before.nodes, before.vjobs, arrived.target).with_locations(
        {"c": Location(VMState.TERMINATED)}
    )
    ended = proposed(after, {"a": R, "c": T}, {"a": "n"})
    assert told(ended) == [["unpause a from n to n"]]
    assert ended.plan.cost == ended.lower_bound == 0


def test_it_costs_what_it_moves_to_save_one_that_is_paused_and_nobody_computes_less_for_that() -> None:
    source = cluster({"n": 1024}, {A: paused_on("n"), B: running_on("n"), C: WAITING}, cpus=2)
    found = proposed(source, {"a": S, "b": R, "c": R}, {"b": "n", "c": "n"})
    assert told(found) == [["suspend paused a from n to n"], ["run c to n"]]
    assert found.plan.cost == found.lower_bound == 512 + 512  # and who starts waits for it
    assert found.target["a"] == sleeping_on("n")


def test_two_change_places_once_the_first_is_paused() -> None:
    source = cluster({"n": 1024}, {A: running_on("n"), B: paused_on("n")})
    found = proposed(source, {"a": P, "b": R}, {"a": "n", "b": "n"})
    assert told(found) == [["pause a from n"], ["unpause b from n to n"]]
    assert found.plan.cost == found.lower_bound == 0
    assert found.order.needs == ((), (0,))


def test_one_whose_cpus_are_free_goes_on_at_once_and_waits_for_nobody() -> None:
    source = cluster({"n": 1024}, {A: running_on("n"), B: paused_on("n")}, cpus=2)
    found = proposed(source, {"a": P, "b": R}, {"a": "n", "b": "n"})
    assert found.order.needs == ((), ())


def test_one_goes_on_with_the_cpus_of_one_that_is_saved_before_that_has_ended() -> None:
    """To save takes minutes; to pause before that takes none, and costs nothing."""
    source = cluster({"n": 1024}, {A: running_on("n"), B: paused_on("n")})
    found = proposed(source, {"a": S, "b": R}, {"b": "n"})
    assert told(found) == [["pause a from n"], ["unpause b from n to n"], ["suspend paused a from n to n"]]
    assert found.plan.cost == found.lower_bound == 512


def test_and_of_one_that_ends() -> None:
    source = cluster({"n": 1024, "m": 512}, {A: running_on("n"), B: paused_on("n"), C: running_on("m")})
    found = proposed(source, {"a": T, "b": R, "c": S}, {"b": "n"})
    assert told(found) == [["stop a from n"], ["unpause b from n to n"], ["suspend c from m to m"]]
    assert found.plan.cost == found.lower_bound == 256


def test_a_vjob_goes_on_together_when_all_its_vms_have_cpus() -> None:
    b1, b2, c = vm("b1"), vm("b2"), vm("c", 512)
    source = cluster({"n": 1024, "m": 1024, "o": 1024}, {b1: paused_on("n"), b2: paused_on("m"), c: running_on("m")})
    found = proposed(source, {"b": R, "c": R}, {"b1": "n", "b2": "m", "c": "o"})
    pools = told(found)
    assert ["unpause b1 from n to n", "unpause b2 from m to m"] in pools or any(
        "migrate paused" in str(p) for p in pools
    )
    together = [number for number, pool in enumerate(pools) for action in pool if action.startswith("unpause")]
    assert len(together) == 2
    assert len(set(together)) == 1


def test_one_that_cannot_go_on_where_it_is_moves_as_it_is_and_goes_on_there() -> None:
    big = vm("b", 512, 2)
    nodes = (Node("small", Resources(1, 1024)), Node("large", Resources(2, 1024)))
    source = Configuration(nodes, (VJob("b", (big,)),), {"b": paused_on("small")})
    found = proposed(source, {"b": R}, {"b": "large"})
    assert told(found) == [["migrate paused b from small to large"], ["unpause b from large to large"]]
    assert (found.plan.cost, found.lower_bound) == (1024, 512)  # to go on waits for the migration


def test_one_leaves_a_node_that_drains_in_its_sleep() -> None:
    nodes = (Node("leaves", Resources(1, 1024), NodeState.DRAINING), Node("n", Resources(1, 1024)))
    source = Configuration(nodes, (VJob("a", (A,)),), {"a": paused_on("leaves")})
    stays = proposed(source, {"a": P}, {"a": "n"})
    assert told(stays) == [["migrate paused a from leaves to n"]]
    goes_on = proposed(source, {"a": R}, {"a": "n"})
    assert told(goes_on) == [["migrate paused a from leaves to n"], ["unpause a from n to n"]]


def test_the_memory_of_a_paused_one_is_not_given_away_but_it_makes_room() -> None:
    c = vm("c", 1024)
    source = cluster({"n": 1024, "m": 1024}, {A: paused_on("n"), B: running_on("m"), c: WAITING})
    found = proposed(source, {"a": P, "b": R, "c": R}, {"a": "m", "b": "m", "c": "n"})
    assert told(found) == [["migrate paused a from n to m"], ["run c to n"]]
    assert found.plan.cost == found.lower_bound == 1024


def test_a_cycle_of_paused_ones_is_broken_and_who_was_woken_for_that_is_paused_again() -> None:
    x, y = vm("x"), vm("y")
    nodes = (Node("n", Resources(1, 512)), Node("m", Resources(1, 512)))
    queue = (VJob("x", (x,), rules=allowing(frozenset({"n"}))), VJob("y", (y,), rules=allowing(frozenset({"m"}))))
    source = Configuration(nodes, queue, {"x": paused_on("m"), "y": running_on("n")})
    found = proposed(source, {"x": P, "y": R}, {"x": "n", "y": "m"})
    assert found.target == {"x": paused_on("n"), "y": running_on("m")}


def test_half_of_a_vjob_that_sleeps_already_is_saved_with_the_rest() -> None:
    b1, b2 = vm("b1"), vm("b2")
    source = cluster({"n": 1024}, {b1: paused_on("n"), b2: sleeping_on("n")})
    assert source.state(source.vjobs[0]) is P
    found = proposed(source, {"b": S}, {})
    assert told(found) == [["suspend paused b1 from n to n"]]


def test_nothing_is_reduced_where_nothing_is_paused() -> None:
    source = cluster({"n": 1024}, {A: running_on("n"), B: WAITING})
    assert reduced(source, {"a": R, "b": W}) is None


def test_in_json_pauses_are_actions_and_paused_vms_have_hosts() -> None:
    source = cluster({"n": 1024}, {A: running_on("n"), B: paused_on("n"), C: paused_on("n")}, cpus=1)
    source = Configuration((Node("n", Resources(1, 1280)),), source.vjobs, source.locations)
    found = document(source, proposed(source, {"a": P, "b": R, "c": S}, {"a": "n", "b": "n"}), {})
    assert found["target"]["a"] == {"state": "paused", "host": "n"}
    actions = [action for pool in found["plan"]["pools"] for action in pool]
    assert [{k: v for k, v in each.items() if k not in ("id", "needs")} for each in actions] == [
        {"action": "pause", "vm": "a", "from": "n", "cost": 0},
        {"action": "unpause", "vm": "b", "from": "n", "to": "n", "cost": 0},
        {"action": "suspend", "vm": "c", "from": "n", "image": "n", "paused": True, "cost": 256},
    ]


@pytest.mark.parametrize(
    ("needs", "is_right"),
    [(((), (0,)), True), (((), ()), False)],
    ids=["after the pause", "at any time"],
)
def test_an_order_is_right_only_if_who_goes_on_waits_for_its_cpus(
    needs: tuple[tuple[int, ...], ...], is_right: bool
) -> None:
    source = cluster({"n": 1024}, {A: running_on("n"), B: paused_on("n")})
    actions: list[Action] = [pause(A, "n"), unpause(B, "n")]
    assert (check_order(source, actions, needs) == []) is is_right
    order = dependency_order(source, Plan(tuple((action,) for action in actions)))
    assert order.needs == ((), (0,))


def test_two_that_go_on_need_cpus_for_both() -> None:
    source = cluster({"n": 1024}, {A: paused_on("n"), B: paused_on("n")})
    assert len(check_order(source, [unpause(A, "n"), unpause(B, "n")], [(), ()])) == 1


def test_one_that_goes_on_waits_for_one_that_went_on_there_before_and_has_moved() -> None:
    """The second was let go on as soon as the first had: its CPUs were free at the start."""
    source = cluster({"n": 1024, "m": 1024}, {A: paused_on("n"), B: paused_on("n")})
    actions = (unpause(A, "n"), migrate(A, "n", "m"), unpause(B, "n"))
    order = dependency_order(source, Plan(tuple((action,) for action in actions)))
    assert order.needs == ((), (0,), (1,))
    assert check_order(source, actions, order.needs) == []
    assert len(check_order(source, actions, ((), (0,), ()))) == 1
