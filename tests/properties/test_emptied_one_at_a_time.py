"""A node that is emptied: what holds for every cluster."""

from __future__ import annotations

from examples import few
from generators import draw_configuration
from hypothesis import given, settings
from hypothesis import strategies as st
from properties.joint_rules import holds, steps, with_rules

from rmsplugin.energy.emptying import Emptying
from rmsplugin.energy.power import PowerClass
from rmsplugin.model.action import ActionKind
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VMState
from rmsplugin.model.joint import Root
from rmsplugin.proposing.check import check
from rmsplugin.proposing.emptying import empty_one
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.terms import Terms

POWER = PowerClass(120.0, 300.0, 8.0, 150.0, off_s=30.0, on_s=120.0)


def used(source: Configuration) -> set[str]:
    return {at.node for at in source.locations.values() if at.node is not None and at.state is not VMState.SLEEPING}


@st.composite
def clusters(draw: st.DrawFn) -> Configuration:
    return draw_configuration(draw)


@given(clusters(), st.sampled_from([0.2, 0.5, 1.0]))
@settings(max_examples=few(300))
def test_one_node_has_nothing_afterwards_and_no_other_one_comes_into_use(
    source: Configuration, underload: float
) -> None:
    names = [node.name for node in source.nodes]
    terms = Terms(Emptying(underload), dict.fromkeys(names, POWER), dict.fromkeys(names, 86400.0))
    found = empty_one(source, terms, ProposalParameters("rjsp"))
    if found is None:
        return
    assert found.prepared.proposal is not None
    after = source
    for action in found.prepared.proposal.plan.actions():
        assert action.kind is ActionKind.MIGRATE
        after = action.apply(after)
    assert len(used(source) - used(after)) == 1
    assert not used(after) - used(source)
    assert set(after.overloaded()) <= set(source.overloaded())
    (emptied,) = used(source) - used(after)
    assert emptied == found.node
    assert all(at.node != emptied for at in after.locations.values())
    allowed = {vm.name: vjob.allows for vjob in source.vjobs for vm in vjob.vms}
    moved = {name: at.node for name, at in after.locations.items() if at != source.locations[name]}
    assert all(node is not None and allowed[name](node) for name, node in moved.items())


@given(clusters().flatmap(with_rules), st.sampled_from([0.5, 1.0]))
@settings(max_examples=few(200), deadline=None)
def test_a_node_is_emptied_by_moves_that_rules_allow(source: Configuration, underload: float) -> None:
    names = [node.name for node in source.nodes]
    terms = Terms(Emptying(underload), dict.fromkeys(names, POWER), dict.fromkeys(names, 86400.0))
    found = empty_one(source, terms, ProposalParameters("rjsp"))
    if found is None:
        return
    proposal = found.prepared.proposal
    assert proposal is not None and check(source, proposal) == []
    moves = list(proposal.plan.actions())
    assert moves and all(action.kind is ActionKind.MIGRATE for action in moves)
    assert not any(
        isinstance(rule, Root) and rule.concerns(action.vm.name) for rule in source.joint for action in moves
    )
    if all(holds(rule, set(source.homes.items()), source.homes) for rule in source.joint):
        for held in steps(source, proposal.plan.pools):
            assert all(holds(rule, held, source.homes) for rule in source.joint if not rule.discrete)
