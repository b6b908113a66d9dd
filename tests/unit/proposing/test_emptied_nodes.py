"""The plan that empties one node that is little used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from rmsplugin.decision.result import Decision
from rmsplugin.energy.emptying import Emptying
from rmsplugin.energy.power import PowerClass
from rmsplugin.model.capabilities import EVERYTHING
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, WAITING, Location, Node, VJob, paused_on, running_on, sleeping_on
from rmsplugin.model.given_rules import given_rules
from rmsplugin.model.joint import Capacity, Gather, Joint, Lonely, Root, Spread
from rmsplugin.model.operation import OperationKind
from rmsplugin.model.resources import Resources
from rmsplugin.model.rules import allowing
from rmsplugin.model.vjob import VJobState
from rmsplugin.planning.order.transfers import Duration, Durations
from rmsplugin.proposing import emptying
from rmsplugin.proposing.emptying import empty_one
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.proposal import NoProposal, Proposal
from rmsplugin.proposing.propose import propose_for
from rmsplugin.proposing.terms import Terms

POWER = PowerClass(120.0, 300.0, 8.0, 150.0, off_s=30.0, on_s=120.0)
PARAMETERS = ProposalParameters("slowdown")
DAY_S = 86400.0


def vjob(name: str, cpus: float = 1, memory_mib: int = 1024, vms: int = 1) -> VJob:
    return VJob(name, tuple(VM(f"{name}-{index}", Resources(cpus, memory_mib)) for index in range(vms)))


def cluster(places: Mapping[VJob, Iterable[Location]], nodes: int = 3) -> Configuration:
    """Nodes of 4 CPUs and 8 GiB."""
    at = {vm.name: place for each, found in places.items() for vm, place in zip(each.vms, found, strict=True)}
    return Configuration(tuple(Node(f"n{i}", Resources(4, 8192)) for i in range(nodes)), tuple(places), at)


def terms(source: Configuration, underload: float = 0.25, **idle_s: float) -> Terms:
    names = [node.name for node in source.nodes]
    return Terms(Emptying(underload), dict.fromkeys(names, POWER), {**dict.fromkeys(names, DAY_S), **idle_s})


def moves(
    source: Configuration, asked: Terms | None = None, parameters: ProposalParameters = PARAMETERS
) -> dict[str, str]:
    """Where VMs go; nothing else is done."""
    found = empty_one(source, asked or terms(source), parameters)
    steps = [] if found is None else found.prepared.steps
    assert found is None or {step.kind for step in steps} == {OperationKind.MIGRATE}
    return {vm: node for step in steps for vm, node in step.hosts.items()}


BUSY = vjob("busy", vms=2)
SMALL = vjob("small")


def test_the_vms_of_a_node_that_is_little_used_join_others() -> None:
    source = cluster({BUSY: [running_on("n0")] * 2, SMALL: [running_on("n1")]})
    found = empty_one(source, terms(source), PARAMETERS)
    assert found is not None and found.node == "n1" and found.prepared.proposal is not None
    assert {vm: node for step in found.prepared.steps for vm, node in step.hosts.items()} == {"small-0": "n0"}
    assert found.prepared.proposal.sentence.startswith("n1 is emptied, so that it can be switched off; 1 action")


def test_a_node_that_is_used_more_is_left_alone() -> None:
    source = cluster({BUSY: [running_on("n0")] * 2, SMALL: [running_on("n1")]})
    assert moves(source, terms(source, underload=0.24)) == {}


def test_no_node_is_taken_into_use_for_it() -> None:
    assert moves(cluster({SMALL: [running_on("n1")]})) == {}


def test_a_node_is_emptied_wholly_or_not_at_all() -> None:
    wide, other = vjob("wide", 3, vms=1), vjob("other", 0.5)
    places = {wide: [running_on("n0")], SMALL: [running_on("n1")], other: [running_on("n1")]}
    assert moves(cluster(places), terms(cluster(places), underload=0.4)) == {}
    places[vjob("third", 0.5)] = [running_on("n2")]
    assert moves(cluster(places), terms(cluster(places), underload=0.4)) == {"third-0": "n0"}


def test_another_vm_makes_way_where_there_is_no_room_otherwise() -> None:
    """The VM of n1 has room on n0 only in place of one that n2 takes."""
    places = {
        vjob("a", 2): [running_on("n0")],
        vjob("b", 1): [running_on("n0")],
        SMALL: [running_on("n2")],
        vjob("c", 2): [running_on("n2")],
        vjob("d", 1.5): [running_on("n1")],
    }
    source = cluster(places)
    assert moves(source, terms(source, underload=0.4)) == {"d-0": "n0", "b-0": "n2"}


def test_no_other_vm_makes_way_where_there_is_room() -> None:
    places = {
        vjob("a", 2): [running_on("n0")],
        vjob("b", 1): [running_on("n0")],
        vjob("c", 2): [running_on("n2")],
        vjob("d", 1.5): [running_on("n1")],
    }
    source = cluster(places)
    assert moves(source, terms(source, underload=0.4)) == {"d-0": "n2"}


def test_nothing_is_emptied_while_the_start_of_a_vjob_stands_interrupted() -> None:
    """A plan would stop its VM as well."""
    half = vjob("half", vms=2)
    source = cluster({BUSY: [running_on("n0")] * 2, SMALL: [running_on("n1")], half: [running_on("n0"), WAITING]})
    assert moves(source) == {}


@pytest.mark.parametrize("there", [sleeping_on("n1"), paused_on("n1")])
def test_a_node_with_a_saved_state_or_a_paused_vm_is_left_alone(there: Location) -> None:
    asleep = vjob("asleep", 0.1, 16)
    source = cluster({BUSY: [running_on("n0")] * 2, SMALL: [running_on("n1")], asleep: [there]})
    assert moves(source) == {}


@pytest.mark.parametrize(
    "changed", [{"in_transit": True}, {"leaves": True}, {"rules": allowing(frozenset({"n1", "n2"}))}]
)
def test_a_vm_that_may_not_move_keeps_its_node(changed: Mapping[str, object]) -> None:
    source = cluster({BUSY: [running_on("n0")] * 2, replace(SMALL, **changed): [running_on("n1")]})  # type: ignore[arg-type]
    assert moves(source) == {}


def test_a_node_is_left_alone_if_what_it_saves_does_not_repay_the_migrations() -> None:
    source = cluster({BUSY: [running_on("n0")] * 2, SMALL: [running_on("n1")]})
    slow = replace(PARAMETERS, durations=replace(Durations(), migrate=Duration(100.0)))
    # 9000 J of migrations, 100 s of which the node has something: 198.75 s become 379.1.
    assert moves(source, terms(source, n1=380), slow) == {"small-0": "n0"}
    assert moves(source, terms(source, n1=378), slow) == {}


def test_a_node_of_which_nothing_is_known_is_left_alone() -> None:
    source = cluster({BUSY: [running_on("n0")] * 2, SMALL: [running_on("n1")]})
    known = terms(source)
    assert moves(source, replace(known, idle_s={"n0": DAY_S})) == {}


def test_the_node_with_which_most_is_saved_is_emptied_first() -> None:
    source = cluster({BUSY: [running_on("n0")] * 2, SMALL: [running_on("n1")], vjob("next"): [running_on("n2")]})
    assert moves(source, terms(source, n1=1000, n2=2000)) == {"next-0": "n0"}
    assert moves(source, terms(source, n1=2000, n2=1000)) == {"small-0": "n0"}


def test_of_nodes_that_save_as_much_the_one_with_less_memory_to_move_is_emptied() -> None:
    light = vjob("light", 1, 256)
    source = cluster({BUSY: [running_on("n0")] * 2, SMALL: [running_on("n1")], light: [running_on("n2")]})
    assert moves(source) == {"light-0": "n0"}


def test_a_platform_that_migrates_nothing_empties_no_node() -> None:
    source = cluster({BUSY: [running_on("n0")] * 2, SMALL: [running_on("n1")]})
    cannot = replace(PARAMETERS, capabilities=replace(EVERYTHING, migrate=False))
    assert moves(source, parameters=cannot) == {}


def test_a_plan_that_does_more_than_migrate_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    source = cluster({BUSY: [running_on("n0")] * 2, SMALL: [running_on("n1")]})

    def asleep(of: Configuration, decision: Decision, how: ProposalParameters) -> Proposal | NoProposal:
        return propose_for(of, replace(decision, states={**decision.states, "small": VJobState.SLEEPING}), how)

    monkeypatch.setattr(emptying, "propose_for", asleep)
    assert moves(source) == {}


@pytest.mark.parametrize(
    ("rules", "goes"),
    [
        ([], {"small-0": "n0"}),
        ([Spread(frozenset({"small-0", "busy-0"}))], {"small-0": "n1"}),
        ([Lonely(frozenset({"busy-0", "busy-1"}), discrete=True)], {"small-0": "n1"}),
        ([Gather(frozenset({"small-0", "other-0"}), discrete=True)], {"small-0": "n1"}),
        ([Spread(frozenset({"small-0", "busy-0"})), Spread(frozenset({"small-0", "other-0"}))], {}),
        ([Root(frozenset({"small-0"}))], {}),
        ([Capacity(frozenset({"n0", "n1"}), frozenset({"small-0", "busy-0"}), 1)], {}),
    ],
)
def test_the_vms_of_an_emptied_node_join_others_where_rules_let_them(rules: list[Joint], goes: dict[str, str]) -> None:
    other = vjob("other", vms=2)
    source = cluster({BUSY: [running_on("n0")] * 2, other: [running_on("n1")] * 2, SMALL: [running_on("n2")]})
    vjobs = given_rules(source.vjobs, [(rule, rule.names) for rule in rules])
    assert moves(Configuration(source.nodes, tuple(vjobs), source.locations)) == goes


def test_no_plan_is_searched_for_where_a_rule_keeps_a_node_from_being_emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Decision] = []
    monkeypatch.setattr(emptying, "_ask", lambda decision, *_: asked.append(decision))
    source = cluster({BUSY: [running_on("n0")] * 2, SMALL: [running_on("n1")]})
    vjobs = given_rules(source.vjobs, [(rule, rule.names) for rule in [Spread(frozenset({"small-0", "busy-0"}))]])
    assert empty_one(Configuration(source.nodes, tuple(vjobs), source.locations), terms(source), PARAMETERS) is None
    assert asked == []
