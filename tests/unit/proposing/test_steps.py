"""A plan as steps of whole vjobs, and what each waits for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rmsplugin.engine.ledger.rows import OperationKind
from rmsplugin.model.action import Action, ActionKind
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, WAITING, Location, Node, VJob, running_on, sleeping_on
from rmsplugin.model.resources import Resources
from rmsplugin.model.rules import allowing
from rmsplugin.model.vjob import VJobState
from rmsplugin.planning.order.dependencies import Order
from rmsplugin.planning.plan import Plan
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.proposal import Proposal
from rmsplugin.proposing.propose import propose
from rmsplugin.proposing.steps import PlannedStep, UnsuitableError, steps_of

K = OperationKind
WHOLE = Resources(1, 1024)


def nodes(count: int, size: Resources = WHOLE) -> tuple[Node, ...]:
    return tuple(Node(f"n{number}", size) for number in range(1, count + 1))


def vjob(name: str, vms: int = 1, demand: Resources = WHOLE, **fields: object) -> VJob:
    return VJob(name, tuple(VM(f"{name}-{index}", demand) for index in range(vms)), **fields)  # type: ignore[arg-type]


def steps(size: tuple[Node, ...], vjobs: tuple[VJob, ...], **places: Location) -> tuple[PlannedStep, ...]:
    """The steps of the policy that the papers describe; ``places``: of all VMs of a vjob that do not wait."""
    at = {vm.name: places.get(each.name, WAITING) for each in vjobs for vm in each.vms}
    source = Configuration(size, vjobs, at)
    found = propose(source, ProposalParameters("rjsp"))
    assert isinstance(found, Proposal), found
    return steps_of(source, found)


def test_a_start_is_one_step_with_the_nodes_of_all_its_vms() -> None:
    [step] = steps(nodes(2), (vjob("a", 2),))
    assert (step.vjob, step.kind, step.needs) == ("a", K.START, ())
    assert sorted(step.hosts) == ["a-0", "a-1"]
    assert sorted(step.hosts.values()) == ["n1", "n2"]


def test_an_arrival_waits_for_the_suspend_that_gives_it_room() -> None:
    first, last = vjob("first"), vjob("last")
    suspend, start = steps(nodes(1), (first, last), last=running_on("n1"))
    assert suspend == PlannedStep("last", K.SUSPEND, {})
    assert start == PlannedStep("first", K.START, {"first-0": "n1"}, (0,))


def test_a_resume_of_several_vms_waits_for_all_that_makes_room_for_any_of_them() -> None:
    vjobs = (vjob("both", 2), vjob("one"), vjob("two"))
    found = steps(nodes(2), vjobs, both=sleeping_on("n1"), one=running_on("n1"), two=running_on("n2"))
    assert [(step.vjob, step.kind) for step in found] == [
        ("one", K.SUSPEND),
        ("two", K.SUSPEND),
        ("both", K.RESUME),
    ]
    assert found[2].needs == (0, 1)


def test_a_migration_names_only_the_vms_that_move_and_what_waits_for_it_waits() -> None:
    half = Resources(0.5, 512)
    moves, comes = vjob("moves", demand=half), vjob("comes", rules=allowing(frozenset({"n1"})))
    found = steps(nodes(2), (comes, moves), moves=running_on("n1"))
    assert found == (
        PlannedStep("moves", K.MIGRATE, {"moves-0": "n2"}),
        PlannedStep("comes", K.START, {"comes-0": "n1"}, (0,)),
    )


def swapped(preemptible: bool) -> tuple[PlannedStep, ...]:
    """Two vjobs that have to change places on nodes that are full, and there is no third one."""
    a = vjob("a", rules=allowing(frozenset({"n2"})), preemptible=preemptible)
    b = vjob("b", rules=allowing(frozenset({"n1"})), preemptible=preemptible)
    return steps(nodes(2), (a, b), a=running_on("n1"), b=running_on("n2"))


def test_where_only_a_suspend_breaks_a_cycle_the_whole_vjob_sleeps_until_its_place_is_free() -> None:
    found = swapped(preemptible=True)
    assert [step.kind for step in found] == [K.SUSPEND, K.MIGRATE, K.RESUME]
    suspend, migrate, resume = found
    assert suspend.vjob == resume.vjob != migrate.vjob
    assert migrate.needs == (0,)
    assert resume.needs == (0, 1)


def test_who_goes_out_of_the_way_does_not_wait_for_a_start_that_waits_for_its_place() -> None:
    """A rule has the bypass wait for one VM of the start; the other VM comes where the bypass has left."""
    moves, comes = vjob("moves"), vjob("comes", 2)
    at = {vm.name: WAITING for vm in comes.vms} | {"moves-0": running_on("n1")}
    source = Configuration(nodes(4), (moves, comes), at)
    found = propose(source, ProposalParameters("rjsp"))
    assert isinstance(found, Proposal), found
    [vm], (first, last) = moves.vms, comes.vms
    pools = (
        (Action(ActionKind.RUN, first, None, "n4"),),
        (Action(ActionKind.MIGRATE, vm, "n1", "n3", bypass=True),),
        (Action(ActionKind.MIGRATE, vm, "n3", "n2"), Action(ActionKind.RUN, last, None, "n1")),
    )
    order = Order(tuple(action for pool in pools for action in pool), ((), (0,), (1,), (0, 1)), ())
    assert steps_of(source, replace(found, plan=Plan(pools), order=order)) == (
        PlannedStep("moves", K.MIGRATE, {"moves-0": "n3"}),
        PlannedStep("moves", K.MIGRATE, {"moves-0": "n2"}, (0,)),
        PlannedStep("comes", K.START, {"comes-0": "n4", "comes-1": "n1"}, (0,)),
    )


def test_a_vjob_that_may_not_be_preempted_does_not_sleep_to_break_a_cycle() -> None:
    with pytest.raises(UnsuitableError, match="not preemptible"):
        swapped(preemptible=False)


def test_the_engine_stops_nothing_by_a_plan() -> None:
    with pytest.raises(UnsuitableError, match="the engine ends VMs only when their job has ended"):
        steps(nodes(1), (replace(vjob("a"), target=VJobState.TERMINATED),), a=running_on("n1"))
