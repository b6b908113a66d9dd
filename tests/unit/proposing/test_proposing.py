"""One context switch proposed, its fingerprint, and the check of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from rmsplugin.decision import exact
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.result import Reason, ReasonCode
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, WAITING, Location, Node, NodeState, VJob, running_on, sleeping_on
from rmsplugin.model.resources import Resources
from rmsplugin.model.rules import allowing
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.repair import Repair
from rmsplugin.planning.order.dependencies import Order
from rmsplugin.planning.plan import Plan
from rmsplugin.proposing import propose as proposing
from rmsplugin.proposing.check import check
from rmsplugin.proposing.fingerprint import fingerprint, moved
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.proposal import Missing, NoProposal, Proposal
from rmsplugin.proposing.propose import propose

RJSP = ProposalParameters("rjsp", heuristic="ffd")


def vm(name: str, cpus: float, memory_mib: int) -> VM:
    return VM(name, Resources(cpus, memory_mib))


#: First Fit Decreasing places a-0 and a-1, then c-0, on n1; b goes back to sleep on n2; n3 and n4 are not needed.
A = VJob("a", (vm("a-0", 1, 1024), vm("a-1", 0.5, 512)))
B = VJob("b", (vm("b-0", 4, 2048),))
C = VJob("c", (vm("c-0", 1, 512),))
D = VJob("d", (vm("d-0", 1, 512),), rules=allowing(frozenset({"n4"})))
NODES = tuple(Node(f"n{i}", Resources(3, 3072)) for i in (1, 2, 3, 4))
LOCATIONS: Mapping[str, Location] = {
    "a-0": running_on("n1"),
    "a-1": WAITING,
    "b-0": sleeping_on("n2"),
    "c-0": running_on("n2"),
    "d-0": running_on("n4"),
}
A_RUNS = {**LOCATIONS, "a-1": running_on("n2")}
SOURCE = Configuration(NODES, (A, B, C, D), A_RUNS)


def proposed(source: Configuration = SOURCE, parameters: ProposalParameters = RJSP) -> Proposal:
    found = propose(source, parameters)
    assert isinstance(found, Proposal), found
    return found


def test_a_proposal_has_all_that_an_executor_and_a_person_need() -> None:
    found = proposed()
    assert found.decision.states == {
        "a": VJobState.RUNNING,
        "b": VJobState.SLEEPING,
        "c": VJobState.RUNNING,
        "d": VJobState.RUNNING,
    }
    assert [str(action) for action in found.plan.actions()] == [
        "migrate a-1 from n2 to n1",
        "migrate c-0 from n2 to n1",
    ]
    assert found.order.needs == ((), ())
    assert found.sentence == "3 of 4 vjobs run: nothing changes; 2 actions in 1 pool, cost 1024 MiB."
    assert found.estimate.by_dependencies_s > 0 and found.nodes_used == 2
    assert found.fallback == "" and check(SOURCE, found) == []


def test_a_search_finds_what_costs_less_than_the_sample() -> None:
    found = proposed(parameters=replace(RJSP, heuristic=None))
    assert (found.plan.cost, found.optimal) == (0, True)
    assert found.sentence == "3 of 4 vjobs run: nothing changes; there is nothing to do."


def test_the_last_hosts_are_a_start_and_shared_storage_takes_the_states(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Any]] = []

    def place(*arguments: Any, **named: Any) -> Any:
        seen.append(named)
        return original(*arguments, **named)

    original = proposing.place
    monkeypatch.setattr(proposing, "place", place)
    proposed(parameters=replace(RJSP, heuristic=None, previous={"c-0": "n3"}, shared_store=True, objective="nodes"))
    assert seen[0]["previous"] == {"c-0": "n3"} and seen[0]["shared_store"] and seen[0]["objective"] == "nodes"


def test_stages_are_entered_one_after_the_other() -> None:
    seen: list[str] = []

    @contextmanager
    def stage(name: str) -> Any:
        seen.append(f"{name} begins")
        yield
        seen.append(f"{name} ends")

    propose(SOURCE, RJSP, stage)
    names = ("decision", "placement", "planning")
    assert seen == [f"{name} {what}" for name in names for what in ("begins", "ends")]


def test_a_target_that_cannot_be_met_is_no_decision() -> None:
    impossible = replace(B, target=VJobState.RUNNING)
    found = propose(Configuration(NODES, (A, impossible, C, D), A_RUNS), RJSP)
    assert isinstance(found, NoProposal) and found.missing is Missing.DECISION
    assert found.sentence.startswith("no decision: vjob 'b' cannot run")


def test_an_order_that_contradicts_the_plan_is_a_value_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def order(*_: object, **__: object) -> Order:
        raise ValueError("n1 has not the memory")

    monkeypatch.setattr(proposing, "dependency_order", order)
    assert propose(SOURCE, RJSP) == NoProposal(Missing.ORDER, "n1 has not the memory")


@pytest.mark.parametrize("policy", ["rjsp", "rjsp-exact", "fcfs", "easy", "mixed", "slowdown"])
def test_without_solver_nothing_moves_that_need_not(policy: str) -> None:
    """First Fit Decreasing would have the two vjobs, each of which fills its node, change places."""
    vjobs = (VJob("p", (vm("p-0", 3, 3072),)), VJob("q", (vm("q-0", 3, 3000),)))
    source = Configuration(NODES[:2], vjobs, {"p-0": running_on("n2"), "q-0": running_on("n1")})
    found = proposed(source, ProposalParameters(policy).without_solver())
    assert (found.plan.cost, list(found.plan.actions())) == (0, [])
    assert check(source, found) == []


@pytest.mark.parametrize("policy", ["rjsp", "rjsp-exact", "fcfs", "easy", "mixed", "slowdown"])
def test_without_solver_none_is_started(monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
    """Neither First Fit Decreasing nor best fit finds places for vjobs that must run: two VMs have to change places."""
    asked: list[str] = []

    def solve(*_: object) -> None:
        asked.append("a solver")

    monkeypatch.setattr(exact, "fits", solve)
    monkeypatch.setattr(Repair, "by_program", solve)
    hosts = {"p": (1, "n2"), "q": (1, "n2"), "r": (2, "n1"), "s": (2, "n1")}
    must = tuple(VJob(name, (vm(f"{name}-0", cpus, 512),), preemptible=False) for name, (cpus, _) in hosts.items())
    places = {f"{name}-0": running_on(node) for name, (_, node) in hosts.items()}
    source = Configuration(NODES[:2], must, places)
    wished = ProposalParameters(policy, Parameters(), objective="nodes", previous={"p-0": "n2"})
    found = proposed(source, wished.without_solver())
    assert check(source, found) == [] and asked == []
    propose(source, replace(wished.without_solver(), decision=Parameters()))
    assert asked, "with exact checks one is started here"


# -- fingerprint -----------------------------------------------------------------------------------------------------


def changed(**fields: Any) -> Configuration:
    """SOURCE with other vjobs (by name), nodes (by name) or locations."""
    nodes = tuple(fields.get(node.name, node) for node in NODES)
    vjobs = tuple(fields.get(vjob.name, vjob) for vjob in SOURCE.vjobs)
    return Configuration(nodes, vjobs, {**A_RUNS, **fields.get("locations", {})})


#: What the plan of SOURCE (a-1 and c-0 go from n2 to n1) does not depend on.
ELSEWHERE = {
    "time has passed": changed(a=replace(A, ran_s=30.0, state_s=30.0), c=replace(C, state_s=1.0)),
    "a node that takes no part": changed(n3=replace(NODES[2], state=NodeState.DRAINING)),
    "a vjob on another node": changed(d=replace(D, vms=(vm("d-0", 2, 1024),))),
    "one that sleeps": changed(b=replace(B, vms=(vm("b-0", 3, 1024),))),
    "its state lies elsewhere": changed(locations={"b-0": sleeping_on("n3")}),
    "another tier": changed(c=replace(C, priority=3)),
}

#: What it depends on, and how the fact is called.
HERE = {
    "n1": changed(n1=replace(NODES[0], capacity=Resources(3, 2048))),
    "n2": changed(n2=replace(NODES[1], state=NodeState.DRAINING)),
    "c-0": changed(c=replace(C, vms=(vm("c-0", 1, 768),))),
    "a-0": changed(a=replace(A, vms=(vm("a-0", 2, 1024), A.vms[1]))),
    "vjob c": changed(c=replace(C, preemptible=False)),
    "vjob a": changed(a=replace(A, rules=allowing(frozenset({"n1", "n2"})))),
    "a-1": changed(locations={"a-1": running_on("n3")}),
    "d-0": changed(d=replace(D, rules=allowing(None)), locations={"d-0": running_on("n1")}),
}


@pytest.mark.parametrize("what", ELSEWHERE)
def test_what_a_plan_does_not_depend_on_leaves_its_fingerprint(what: str) -> None:
    found = proposed()
    assert fingerprint(ELSEWHERE[what], found.plan) == found.fingerprint
    assert moved(SOURCE, ELSEWHERE[what], found.plan) == []


@pytest.mark.parametrize("what", HERE)
def test_what_a_plan_depends_on_changes_its_fingerprint_and_is_named(what: str) -> None:
    found = proposed()
    assert fingerprint(HERE[what], found.plan) != found.fingerprint
    (said,) = moved(SOURCE, HERE[what], found.plan)
    assert what in said.partition(":")[0]


def test_a_vjob_that_has_gone_is_told() -> None:
    found = proposed()
    left = {name: place for name, place in A_RUNS.items() if name != "c-0"}
    gone = Configuration(NODES, (A, B, D), left)
    assert fingerprint(gone, found.plan) != found.fingerprint
    assert [line.partition(":")[0] for line in moved(SOURCE, gone, found.plan)] == ["VM c-0", "vjob c"]
    assert all(line.endswith("is not there") for line in moved(SOURCE, gone, found.plan))


def test_the_fingerprint_is_the_same_in_every_process() -> None:
    code = """
from unit.proposing.test_proposing import proposed
print(proposed().fingerprint)
"""
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert printed == {proposed().fingerprint}


# -- check -----------------------------------------------------------------------------------------------------------


def broken(what: str) -> Proposal:
    """The proposal for SOURCE with one thing wrong."""
    right = proposed()
    order, decision = right.order, right.decision
    match what:
        case "plan":
            return replace(right, plan=Plan((right.plan.pools[0][:1],)))
        case "fingerprint":
            return replace(right, fingerprint="0" * 32)
        case "states":
            return replace(right, decision=replace(decision, states={**decision.states, "c": VJobState.SLEEPING}))
        case "undecided":
            return replace(right, decision=replace(decision, states={}))
        case "stranger":
            states = {**decision.states, "x": VJobState.WAITING}
            reasons = {**decision.reasons, "x": Reason(ReasonCode.KEPT, "")}
            return replace(right, decision=replace(decision, states=states, reasons=reasons))
        case "other order":
            return replace(right, order=replace(order, actions=order.actions[::-1]))
        case "no needs":
            return replace(right, order=replace(order, needs=((),)))
        case _:
            return replace(right, order=replace(order, needs=((), (1,))))


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("plan", "c-0"),
        ("fingerprint", "the fingerprint is of another configuration"),
        ("states", "vjob c is to be sleeping, and the target has c-0 running on n1"),
        ("undecided", "nothing was decided for vjob a"),
        ("stranger", "there is no vjob 'x'"),
        ("other order", "the dependency order is of another plan"),
        ("no needs", "the dependency order is of another plan"),
        ("circle", "for one that is not before it"),
    ],
)
def test_each_fault_of_a_proposal_is_told(what: str, words: str) -> None:
    assert any(words in fault for fault in check(SOURCE, broken(what)))


def test_a_proposal_for_another_configuration_is_refused() -> None:
    assert check(changed(n2=replace(NODES[1], capacity=Resources(3, 4096))), proposed()) == [
        "the fingerprint is of another configuration, or of another plan"
    ]


def test_an_order_in_which_an_arrival_does_not_wait_for_the_memory_it_takes_is_refused() -> None:
    full = Node("n1", Resources(2, 1024))
    gone, comes = VM("x-0", Resources(1, 1024)), VM("y-0", Resources(1, 1024))
    vjobs = (VJob("y", (comes,)), VJob("x", (gone,)))
    source = Configuration((full,), vjobs, {"x-0": running_on("n1"), "y-0": WAITING})
    proposal = propose(source, ProposalParameters("rjsp"))
    assert isinstance(proposal, Proposal) and proposal.order.needs == ((), (0,))
    assert check(source, proposal) == []
    hasty = replace(proposal, order=replace(proposal.order, needs=((), ())))
    assert any("n1 has not the memory for y-0 if" in fault for fault in check(source, hasty))
