"""What a proposing process answers: a decision, or the plan that empties a node."""

from __future__ import annotations

from dataclasses import replace

from rmsplugin.energy.emptying import Emptying
from rmsplugin.energy.power import PowerClass
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, Node, VJob, running_on
from rmsplugin.model.resources import Resources
from rmsplugin.proposer.process import ProposerLimits
from rmsplugin.proposer.proposer import Proposer
from rmsplugin.proposing.answering import answer
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.proposal import NoProposal, Proposal
from rmsplugin.proposing.terms import Terms

POWER = PowerClass(120.0, 300.0, 8.0, 150.0, off_s=30.0, on_s=120.0)
NODES = ("n0", "n1")
VJOBS = tuple(VJob(name, (VM(f"{name}-0", Resources(1, 1024)),)) for name in ("a", "b"))
SOURCE = Configuration(
    tuple(Node(name, Resources(4, 8192)) for name in NODES), VJOBS, {"a-0": running_on("n0"), "b-0": running_on("n1")}
)
PARAMETERS = ProposalParameters("slowdown")


def asked(idle_s: float) -> ProposalParameters:
    return replace(PARAMETERS, terms=Terms(Emptying(0.3), dict.fromkeys(NODES, POWER), {"n1": idle_s}))


def test_without_terms_it_decides() -> None:
    found = answer(SOURCE, PARAMETERS)
    assert isinstance(found, Proposal)
    assert not [*found.plan.actions()]


def test_with_terms_it_empties_a_node_or_there_is_no_proposal() -> None:
    found = answer(SOURCE, asked(86400.0))
    assert isinstance(found, Proposal)
    assert [(str(action.kind), action.vm.name, action.destination) for action in found.plan.actions()] == [
        ("migrate", "b-0", "n0")
    ]
    assert isinstance(answer(SOURCE, asked(10.0)), NoProposal)


def test_a_process_of_its_own_answers_the_same() -> None:
    with Proposer(ProposerLimits(deadline_s=60.0)) as proposer:
        found = proposer.propose(SOURCE, asked(86400.0))
    assert found.failure == ""
    assert isinstance(found.found, Proposal)
    assert found.found.plan == answer(SOURCE, asked(86400.0)).plan  # type: ignore[union-attr]
