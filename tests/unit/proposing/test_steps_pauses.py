"""Plans with pauses as steps of whole vjobs, and what is said of vjobs while their turn to go on comes."""

from __future__ import annotations

import pytest

from rmsplugin.assessment.facts import Members, NodeFacts, RoomUse, VJobFacts, VMFacts
from rmsplugin.assessment.promises import Promise, promises
from rmsplugin.assessment.settled import settled
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.result import Decision, Reason, ReasonCode
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, WAITING, Location, Node, VJob, paused_on, running_on
from rmsplugin.model.operation import OperationKind
from rmsplugin.model.resources import Resources
from rmsplugin.model.rules import allowing
from rmsplugin.model.vjob import VJobState
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.prepared import prepare
from rmsplugin.proposing.proposal import NoProposal, Proposal
from rmsplugin.proposing.propose import propose, propose_for
from rmsplugin.proposing.steps import PlannedStep, UnsuitableError, steps_of

K = OperationKind
PAUSING = ProposalParameters("rjsp", decision=Parameters(pause_limit_s=3600.0))


def vjob(name: str, memory_mib: int = 512, vms: int = 1, **fields: object) -> VJob:
    return VJob(name, tuple(VM(f"{name}-{i}", Resources(1, memory_mib)) for i in range(vms)), **fields)  # type: ignore[arg-type]


def steps(nodes: tuple[Node, ...], places: dict[VJob, tuple[Location, ...]]) -> tuple[PlannedStep, ...]:
    at = {vm.name: where for each, all_of_it in places.items() for vm, where in zip(each.vms, all_of_it, strict=True)}
    source = Configuration(nodes, tuple(places), at)
    found = propose(source, PAUSING)
    assert isinstance(found, Proposal), found
    return steps_of(source, found)


NODES = (Node("n1", Resources(1, 1024)), Node("n2", Resources(1, 1024)))


def test_all_vms_of_a_vjob_are_paused_in_one_step_and_go_on_in_one() -> None:
    first, last = vjob("first", vms=2, state_s=0.0), vjob("last", vms=2)
    places = {first: (paused_on("n1"), paused_on("n2")), last: (running_on("n1"), running_on("n2"))}
    assert steps(NODES, places) == (
        PlannedStep("last", K.PAUSE, {}),
        PlannedStep("first", K.UNPAUSE, {"first-0": "n1", "first-1": "n2"}, (0,)),
    )


def test_who_starts_where_one_is_paused_does_not_wait_for_that() -> None:
    places = {vjob("first"): (WAITING,), vjob("last"): (running_on("n1"),)}
    assert steps(NODES[:1], places) == (
        PlannedStep("last", K.PAUSE, {}),
        PlannedStep("first", K.START, {"first-0": "n1"}),
    )


def test_one_is_paused_before_it_is_saved_where_another_goes_on_at_once() -> None:
    saved, goes_on = vjob("saved", target=VJobState.SLEEPING), vjob("first", state_s=0.0)
    places = {goes_on: (paused_on("n1"),), saved: (running_on("n1"),)}
    assert steps(NODES[:1], places) == (
        PlannedStep("saved", K.PAUSE, {}),
        PlannedStep("first", K.UNPAUSE, {"first-0": "n1"}, (0,)),
        PlannedStep("saved", K.SUSPEND, {}, (0,)),
    )


def cycle() -> Configuration:
    """A paused one and one that runs have to change places, and there is no third one."""
    x, y = (
        vjob("x", 1024, rules=allowing(frozenset({"n1"})), state_s=0.0),
        vjob("y", 1024, rules=allowing(frozenset({"n2"}))),
    )
    return Configuration(NODES, (y, x), {"x-0": paused_on("n2"), "y-0": running_on("n1")})


def test_a_paused_one_is_saved_to_break_a_cycle_and_goes_on_by_its_resume() -> None:
    found = prepare(cycle(), PAUSING, propose)
    assert [(step.vjob, step.kind) for step in found.steps] == [("x", K.SUSPEND), ("y", K.MIGRATE), ("x", K.RESUME)]


def stays_paused(configuration: Configuration, parameters: ProposalParameters) -> Proposal | NoProposal:
    """A decision by which it should be paused in the end, as long as anybody is paused."""
    if not parameters.decision.pause_limit_s:
        return propose(configuration, parameters)
    reasons = {name: Reason(ReasonCode.FITS, "as the test wants it") for name in "xy"}
    states = {"y": VJobState.RUNNING, "x": VJobState.PAUSED}
    return propose_for(configuration, Decision("test", states, reasons, {"x-0": "n1", "y-0": "n2"}), parameters)


def test_no_vjob_is_woken_only_to_break_a_cycle_and_nobody_is_paused_where_there_is_no_other_plan() -> None:
    proposal = stays_paused(cycle(), PAUSING)
    assert isinstance(proposal, Proposal)
    with pytest.raises(UnsuitableError, match="x, which is to be paused, would be woken"):
        steps_of(cycle(), proposal)
    found = prepare(cycle(), PAUSING, stays_paused)
    assert found.parameters.decision.pause_limit_s == 0
    assert [(step.vjob, step.kind) for step in found.steps] == [("x", K.SUSPEND), ("y", K.MIGRATE), ("x", K.RESUME)]


@pytest.mark.parametrize(("kind", "holds"), [(K.PAUSE, "n2"), (K.UNPAUSE, "n2"), (K.SUSPEND, "")])
def test_a_paused_vjob_that_has_moved_stays_where_it_moved_to(kind: OperationKind, holds: str) -> None:
    hosts = {"a-0": "n2"} if kind is K.UNPAUSE else {}
    found = promises([PlannedStep("a", K.MIGRATE, {"a-0": "n2"}), PlannedStep("a", kind, hosts)])
    assert found["a"].will_hold("a-0", "n1") == frozenset({holds} - {""})
    assert isinstance(found["a"], Promise)


@pytest.mark.parametrize(("will_compute", "cpus"), [(False, 2.0), (True, 1.0)])
def test_one_that_is_paused_and_in_transit_holds_memory_and_cpus_only_if_its_turn_comes(
    will_compute: bool, cpus: float
) -> None:
    vm = VMFacts(VM("a-0", Resources(1, 512)), paused_on("n1"), frozenset({"n1"}), frozenset({"n1"}), will_compute)
    facts = VJobFacts(name="a", vms=Members([vm]), nodes=frozenset({"n1"}), unsettled="its turn comes")
    found = settled([NodeFacts("n1", Resources(2, 1024), RoomUse.HELD)], [facts])
    assert found.configuration.free("n1") == Resources(cpus, 512)


def test_something_can_be_decided_about_one_that_is_paused() -> None:
    vm = VMFacts(VM("a-0", Resources(1, 512)), paused_on("n1"), frozenset({"n1"}))
    facts = VJobFacts(name="a", vms=Members([vm]), nodes=frozenset({"n1"}))
    found = settled([NodeFacts("n1", Resources(2, 1024), RoomUse.HELD)], [facts])
    assert found.left_out == {}
    assert found.configuration.free("n1") == Resources(2, 512)
