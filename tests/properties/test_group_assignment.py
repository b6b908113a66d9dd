"""Whole vjobs go to groups; what the groups propose is one proposal that is right; and hardly anybody loses by it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from examples import few
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from properties.generators import configurations

from rmsplugin.decision.outgrown import MemoryFacts, Shortage
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.policies import decide
from rmsplugin.decision.reservation import ReservationLimits, Reservations
from rmsplugin.decision.result import Decision
from rmsplugin.groups.assignment import assign, homes
from rmsplugin.groups.forming import Group
from rmsplugin.groups.proposing import Grouped, Memory, Request, propose_by_groups
from rmsplugin.groups.splitting import split
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, WAITING, Node, NodeState, VJob, running_on
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import VJobState
from rmsplugin.proposing.check import check
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.proposal import NoProposal, Proposal
from rmsplugin.proposing.propose import propose


@st.composite
def groupings(draw: st.DrawFn, configuration: Configuration) -> tuple[Group, ...]:
    """Two or three groups of the nodes; some may be empty."""
    number = draw(st.integers(2, 3))
    chosen = [draw(st.integers(0, number - 1)) for _ in configuration.nodes]
    return tuple(
        Group(f"g{index}", tuple(n.name for n, at in zip(configuration.nodes, chosen, strict=True) if at == index))
        for index in range(number)
    )


@st.composite
def grouped_clusters(draw: st.DrawFn) -> tuple[Configuration, tuple[Group, ...]]:
    configuration = draw(configurations(max_nodes=8, max_vjobs=8))
    return configuration, draw(groupings(configuration))


def ask_each(requests: Sequence[Request]) -> list[Proposal | NoProposal]:
    return [propose(source, parameters) for source, parameters in requests]


@given(grouped_clusters(), st.data())
@settings(max_examples=few(200), deadline=None)
def test_every_vjob_has_one_group_and_is_whole_there(
    cluster: tuple[Configuration, tuple[Group, ...]], data: st.DataObject
) -> None:
    configuration, groups = cluster
    names = [group.name for group in groups]
    some = st.dictionaries(st.sampled_from([v.name for v in configuration.vjobs]), st.sampled_from(names))
    before = data.draw(some)
    refused = {name: {group} for name, group in data.draw(some).items()}
    found = assign(configuration, groups, before, refused)
    assert list(found) == [vjob.name for vjob in configuration.vjobs]
    assert all(each.group in names for each in found.values())
    assert found == assign(configuration, groups, before, refused)
    parts = split(configuration, groups, found)
    assert sorted(name for part in parts for name in part.groups) == sorted(names)
    everybody = [vjob for part in parts for vjob in part.configuration.vjobs]
    assert sorted(v.name for v in everybody) == sorted(found)
    for part in parts:
        there = {vm.name for vjob in part.configuration.vjobs for vm in vjob.vms}
        assert part.configuration.locations.keys() == there
        own = {host for group in groups if group.name in part.groups for host in group.hosts}
        for node in part.configuration.nodes:
            if node.name not in own:  # of a saved state: nobody may come there
                assert (node.state, node.capacity) == (NodeState.DRAINING, Resources(0, 0))
        for at in part.configuration.locations.values():
            assert not at.state.holds_memory or at.node in own


@given(grouped_clusters())
@settings(max_examples=few(200), deadline=None)
def test_a_vjob_stays_with_its_memory_and_goes_where_its_only_nodes_are(
    cluster: tuple[Configuration, tuple[Group, ...]],
) -> None:
    configuration, groups = cluster
    found = assign(configuration, groups)
    home = homes(configuration, groups)
    up = [node.name for node in configuration.nodes if node.state is NodeState.UP]
    for vjob in configuration.vjobs:
        if configuration.state(vjob) is VJobState.RUNNING:
            assert found[vjob.name].group == home[vjob.name]
        usable = {group.name for group in groups if any(vjob.allows(host) for host in group.hosts if host in up)}
        if len(usable) == 1 and vjob.name not in home:
            assert found[vjob.name].group in usable


@pytest.mark.parametrize("policy", ["rjsp", "mixed", "slowdown"])
@given(cluster=grouped_clusters(), shared=st.booleans())
@settings(max_examples=few(100), deadline=None)
def test_the_proposals_of_the_groups_are_one_that_passes_the_check(
    policy: str, cluster: tuple[Configuration, tuple[Group, ...]], shared: bool
) -> None:
    configuration, groups = cluster
    shortage = None
    if policy != "rjsp":
        shortage = Shortage(MemoryFacts(), Reservations(), 0.0, ReservationLimits(), None)
    parameters = ProposalParameters(policy, shared_store=shared, shortage=shortage).without_solver()
    done = propose_by_groups(configuration, groups, parameters, ask_each)
    if isinstance(done.found, Proposal):
        assert check(done.found.decided_about(configuration), done.found) == []
        assert done.found.sentence.endswith(".")
        again = propose_by_groups(configuration, groups, parameters, ask_each, done.memory)
        assert isinstance(again, Grouped)
    else:
        assert done.found.explanation


@given(cluster=grouped_clusters())
@settings(max_examples=few(40), deadline=None)
def test_with_one_group_the_proposal_is_that_of_the_whole(cluster: tuple[Configuration, tuple[Group, ...]]) -> None:
    configuration, _ = cluster
    one = (Group("all", tuple(node.name for node in configuration.nodes)),)
    parameters = ProposalParameters("mixed").without_solver()
    done = propose_by_groups(configuration, one, parameters, ask_each)
    assert done.found == propose(configuration, parameters)
    assert done.memory == Memory()


#: Whole CPUs and quarters of a GiB: there are no fragments that a summary does not tell.
PLAIN = st.builds(Resources, st.sampled_from([1.0, 2.0]), st.sampled_from([256, 512, 1024]))


@st.composite
def plain_clusters(draw: st.DrawFn) -> tuple[Configuration, tuple[Group, ...]]:
    """Equal nodes, some vjobs of one VM that run, some that wait."""
    nodes = tuple(Node(f"n{i}", Resources(4.0, 4096)) for i in range(1, draw(st.integers(2, 8)) + 1))
    free = {node.name: node.capacity for node in nodes}
    queue, locations = [], {}
    for number in range(draw(st.integers(1, 20))):
        demand = draw(PLAIN)
        vm = VM(f"v{number}-0", demand)
        host = draw(st.sampled_from([*free, None, None]))
        runs = host is not None and free[host].holds(demand)
        if runs:
            free[host] -= demand
        queue.append(VJob(f"v{number}", (vm,), preemptible=not runs))
        locations[vm.name] = running_on(host) if runs else WAITING
    configuration = Configuration(nodes, tuple(queue), locations)
    return configuration, draw(groupings(configuration))


@given(plain_clusters())
@settings(max_examples=few(200), deadline=None)
def test_nobody_waits_while_a_group_has_a_hole_for_it(cluster: tuple[Configuration, tuple[Group, ...]]) -> None:
    """Of vjobs of one VM, on nodes that nobody leaves: who waits after all has no node to go to in any group."""
    configuration, groups = cluster
    parts = split(configuration, groups, assign(configuration, groups))
    running: dict[str, str] = {}
    for part in parts:
        decision = decide("rjsp", part.configuration, Parameters(exact_checks=0))
        assert isinstance(decision, Decision)
        running |= decision.placement
    free = {node.name: node.capacity for node in configuration.nodes}
    for vm, node in running.items():
        free[node] -= configuration.vm_by_name[vm].demand
    waits = [vjob for vjob in configuration.vjobs if vjob.vms[0].name not in running]
    assume(waits)
    for vjob in waits:
        assert not any(left.holds(vjob.demand) for left in free.values()), vjob
