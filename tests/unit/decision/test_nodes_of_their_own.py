"""A vjob whose VMs need nodes of their own: every policy knows that, and has others make way, or holds room for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from unit.queues import Queue, nodes, states

from rmsplugin.decision import near
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.policies import POLICIES
from rmsplugin.decision.result import Decision, ReasonCode
from rmsplugin.decision.room import Effort, NodeRoom, Site
from rmsplugin.decision.ruled import decide_by_rules
from rmsplugin.decision.selection import Selection
from rmsplugin.model.abiding import abiding
from rmsplugin.model.capabilities import EVERYTHING, NATIVE, Capabilities
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import Node, VJob
from rmsplugin.model.given_rules import given_rules
from rmsplugin.model.joint import Joint, Root, Spread
from rmsplugin.model.resources import Resources
from rmsplugin.packing.budget import Budget
from rmsplugin.packing.search import Search

#: Policies under which a vjob makes way for one ahead of it, or of a higher tier.
PREEMPTING = ("easy-preempt", "mixed", "slowdown")
#: Policies under which nobody makes way.
KEEPING = ("fcfs", "easy", "conservative", "load-sharing", "v-reconfiguration")


def spread(*vjobs: str, vms: int = 2) -> Spread:
    return Spread(frozenset(f"{vjob}-{number}" for vjob in vjobs for number in range(vms)), label="--spread-job")


def with_rules(queue: Queue, *rules: Joint) -> Configuration:
    source = queue.configuration
    vjobs = given_rules(source.vjobs, [(rule, rule.names) for rule in rules])
    return Configuration(source.nodes, abiding(source.nodes, vjobs, source.locations), source.locations)


def decide(policy: str, source: Configuration) -> Decision:
    found = decide_by_rules(policy, source, Parameters())
    assert isinstance(found, Decision)
    return found


def one_node_is_free(can: Capabilities = EVERYTHING) -> Queue:
    """Of three nodes ``low`` has two. On the third one there is room for both VMs of ``wide``."""
    queue = Queue(*nodes(3, cpus=4))
    queue.add("wide", vms=2, cpus=2, memory_mib=100, priority=2, time_limit_s=600, waited_s=5000, can=can)
    about = {"priority": 1, "time_limit_s": 36000, "ran_s": 3000, "state_s": 3000, "can": can}
    return queue.add("low", "n2", "n3", cpus=4, memory_mib=100, **about)


@pytest.mark.parametrize("can", [EVERYTHING, NATIVE], ids=["VMs", "native jobs"])
@pytest.mark.parametrize("policy", PREEMPTING)
def test_others_make_way_for_it_although_one_node_has_room_for_all_of_it(policy: str, can: Capabilities) -> None:
    """Else it stays out, or another one makes way for a rule, and the user of neither is told why."""
    found = decide(policy, with_rules(one_node_is_free(can), spread("wide")))
    assert states(found) == {"wide": "running", "low": "paused" if can is NATIVE else "sleeping"}
    assert found.reasons["wide"].code is ReasonCode.PREEMPTS and found.reasons["low"].code is ReasonCode.PREEMPTED
    assert found.placement["wide-0"] != found.placement["wide-1"]


@pytest.mark.parametrize("policy", KEEPING)
def test_nobody_makes_way_for_it_under_a_policy_that_suspends_nobody(policy: str) -> None:
    found = decide(policy, with_rules(one_node_is_free(), spread("wide")))
    assert states(found) == {"wide": "waiting", "low": "running"}
    reason = found.reasons["wide"]
    assert reason.code is ReasonCode.RULE
    assert reason.sentence.startswith(
        "needs 4 CPUs and 200 MiB in 2 VMs; 1 node has room for one of its VMs, "
        "but rule --spread-job: spread of 'wide-0' 'wide-1' has each on a node of its own"
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_without_the_rule_it_has_room_beside_all(policy: str) -> None:
    found = decide(policy, with_rules(one_node_is_free()))
    assert states(found) == {"wide": "running", "low": "running"}


@pytest.mark.parametrize("policy", ["easy", "conservative"])
def test_its_start_is_reserved_for_the_time_at_which_enough_nodes_have_room(policy: str) -> None:
    """At 100 s one node has room for both of its VMs; from 300 s on there is a second one."""
    queue = Queue(*nodes(2, cpus=4)).add("a", "n1", cpus=4, time_limit_s=100, preemptible=False)
    queue.add("b", "n2", cpus=4, time_limit_s=300, preemptible=False)
    queue.add("wide", vms=2, cpus=2, preemptible=False).add("c", vms=1, cpus=1, time_limit_s=250, preemptible=False)
    assert decide(policy, with_rules(queue)).reasons["wide"].numbers["shadow_s"] == 100
    assert decide(policy, with_rules(queue, spread("wide"))).reasons["wide"].numbers["shadow_s"] == 300


@pytest.mark.parametrize("policy", [each for each in POLICIES if each not in ("load-sharing", "v-reconfiguration")])
def test_those_ahead_move_for_it_where_first_fit_has_them_in_its_way(policy: str) -> None:
    """First Fit has ``ahead`` on n1, which it fills; ``wide`` has room only if ``ahead`` is on both nodes."""
    queue = Queue(*nodes(2, cpus=2)).add("ahead", "n2", "n2", preemptible=False).add("wide", vms=2)
    assert states(decide(policy, with_rules(queue, spread("wide")))) == {"ahead": "running", "wide": "running"}
    rooted = with_rules(queue, spread("wide"), Root(frozenset({"ahead-0", "ahead-1"})))
    assert states(decide(policy, rooted)) == {"ahead": "running", "wide": "waiting"}


@pytest.mark.parametrize("wide", [("n1", "n3"), ()], ids=["wide runs", "wide waits"])
@pytest.mark.parametrize("policy", POLICIES)
def test_one_behind_it_that_runs_keeps_its_room(policy: str, wide: Sequence[str]) -> None:
    """The first nodes with room for its VMs are n1 and n2; one behind it has room on n2 alone."""
    queue = uneven().add("first", "n1").add("wide", *wide, vms=2).add("behind", "n2", cpus=2)
    found = states(decide(policy, with_rules(queue, spread("wide"))))
    waits = not wide and policy in ("fcfs", "easy", "conservative")  # by First Fit alone it has no room
    assert found == {"first": "running", "wide": "waiting" if waits else "running", "behind": "running"}


@pytest.mark.parametrize("policy", POLICIES)
def test_one_behind_it_does_not_wait_for_the_room_of_others_while_it_runs(policy: str) -> None:
    queue = uneven().add("first", "n1").add("wide", "n1", "n3").add("behind", cpus=2)
    assert set(states(decide(policy, with_rules(queue, spread("wide")))).values()) == {"running"}


def uneven() -> Queue:
    """Two nodes of 2 CPUs, and one of 1."""
    return Queue(*(Node(f"n{number}", Resources(cpus, 4096)) for number, cpus in enumerate((2, 2, 1), start=1)))


def test_a_policy_of_a_site_leaves_one_behind_the_room_of_that() -> None:
    queue = Queue(Node("n1", Resources(1, 4096)), Node("n2", Resources(2, 4096)), Node("n3", Resources(1, 4096)))
    source = with_rules(queue.add("wide", vms=2).add("behind", "n2", cpus=2), spread("wide"))
    selection = Selection(source, Parameters())
    assert [selection.add(vjob) for vjob in selection.vjobs] == [True, True]
    found = selection.decision()
    assert isinstance(found, Decision) and found.placement["behind-0"] == "n2"


@pytest.mark.parametrize("policy", POLICIES)
def test_one_that_runs_on_one_node_against_a_new_rule_moves_and_one_that_cannot_runs_on(policy: str) -> None:
    for count, preemptible in ((2, True), (1, False)):
        queue = Queue(*nodes(count, cpus=2, memory_mib=4096)).add("wide", "n1", "n1", preemptible=preemptible)
        found = decide(policy, with_rules(queue, spread("wide")))
        assert states(found) == {"wide": "running"}
        assert len(set(found.placement.values())) == count


@pytest.mark.parametrize("policy", POLICIES)
def test_a_rule_about_some_of_its_vms_leaves_the_others_together(policy: str) -> None:
    queue = Queue(*nodes(2, cpus=2)).add("wide", vms=3)
    source = with_rules(queue, spread("wide"))
    assert source.apart == {}
    assert states(decide(policy, source)) == {"wide": "running"}


def test_a_rule_about_several_vjobs_is_one_about_each_whose_vms_are_all_in_it() -> None:
    queue = Queue(*nodes(2)).add("a", vms=2).add("b", vms=3).add("c", vms=2).add("d", vms=2, in_transit=True)
    rule = spread("a", "b", "d")
    assert with_rules(queue, rule).apart == {"a": rule}


def room(*capacities: tuple[float, int], rules: Sequence[Joint], **vjobs: int) -> tuple[NodeRoom, list[VJob]]:
    """An empty room, and vjobs of so many VMs of 1 CPU and 1 MiB."""
    queue = Queue(*(Node(f"n{i}", Resources(*each)) for i, each in enumerate(capacities, start=1)))
    for name, vms in vjobs.items():
        queue.add(name, vms=vms, memory_mib=1)
    source = with_rules(queue, *rules)
    effort = Effort(reserving=Budget(Search(deterministic_limit=1.0)))
    return NodeRoom(Site(source, effort=effort)), list(source.vjobs)


def test_equal_vjobs_are_not_packed_as_one_if_the_vms_of_one_need_nodes_of_their_own() -> None:
    empty, vjobs = room((6, 9), rules=[spread("b")], a=2, b=2, c=2)
    assert [empty.append(vjob) for vjob in vjobs] == [True, False, True]
    packed, stuck = Site(empty.site.configuration).pack_until(vjobs)
    assert stuck is vjobs[1] and packed.names == {"a"}


def test_what_one_was_told_is_not_told_to_another_whose_vms_may_be_together() -> None:
    empty, (a, b, c) = room((4, 9), rules=[spread("a"), spread("c")], a=2, b=2, c=2)
    assert not empty.append(a) and not empty.append(c)
    assert empty.barred
    assert empty.append(b)
    assert not empty.barred


def test_a_taken_back_vjob_leaves_the_room_as_it_was() -> None:
    empty, (a, b) = room((1, 9), (1, 9), rules=[spread("a"), spread("b")], a=2, b=2)
    assert empty.add(a)
    empty.discard(a)
    assert empty.add(b) and empty.placement == {"b-0": "n1", "b-1": "n2"}


def test_each_of_two_that_are_alike_is_told_its_own_rule() -> None:
    """The reason of one that waits is kept for others like it; a rule about few VMs has their names in its words."""
    queue = Queue(*nodes(1, cpus=4)).add("a", vms=2, time_limit_s=600).add("b", vms=2, time_limit_s=600)
    rules = [Spread(frozenset(f"{vjob}-{number}" for number in range(2))) for vjob in "ab"]
    found = decide("mixed", with_rules(queue, *rules))
    for vjob in "ab":
        reason, title = found.reasons[vjob], f"spread of '{vjob}-0' '{vjob}-1'"
        assert title in reason.sentence and reason.numbers["rule"] == title, reason
        assert reason.numbers["nodes_with_room"] == 1


def an_empty_node(**known: Any) -> Queue:
    """``n1`` is empty, and First Fit has ``r`` there: VMs on nodes of their own stay where they are."""
    queue = Queue(*nodes(3, cpus=4)).add("a", "n2", "n3", cpus=2, time_limit_s=600, ran_s=100, state_s=1e6)
    return queue.add("r", "n2", cpus=2, time_limit_s=600, ran_s=100, state_s=1e6).add("b", cpus=4, **known)


@pytest.mark.parametrize("policy", POLICIES)
def test_one_starts_on_a_node_that_is_empty_wherever_first_fit_has_those_that_run(policy: str) -> None:
    """Else its user is told that no node has as many CPUs free."""
    found = decide(policy, with_rules(an_empty_node(), spread("a")))
    assert set(states(found).values()) == {"running"}
    assert found.placement["b-0"] == "n1"


def behind_one_that_waits(**longer: int) -> Configuration:
    """``w`` waits for the whole cluster, which it has in 500 s; those of so many CPUs run longer, ``c`` not."""
    source = an_empty_node().configuration
    queue = Queue(*source.nodes)
    queue.vjobs, queue.locations = list(source.vjobs[:2]), {at: source.locations[at] for at in ("a-0", "a-1", "r-0")}
    queue.add("w", vms=3, cpus=4, time_limit_s=600)
    for name, cpus in longer.items():
        queue.add(name, cpus=cpus, time_limit_s=1e5)
    return with_rules(queue.add("c", cpus=4, time_limit_s=60), spread("a"))


@pytest.mark.parametrize("policy", ["easy", "conservative"])
def test_one_that_would_delay_another_one_starts_on_no_empty_node_either(policy: str) -> None:
    found = decide(policy, behind_one_that_waits(b=4))
    assert states(found) == {"a": "running", "r": "running", "w": "waiting", "b": "waiting", "c": "running"}


def test_the_room_beside_all_is_made_once_for_all_that_would_delay_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Site] = []
    look = near.near
    monkeypatch.setattr(near, "near", lambda site, *more: made.append(site) or look(site, *more))
    assert states(decide("easy", behind_one_that_waits(b=4, small=1, d=4, e=4)))["c"] == "running"
    assert len(made) == 1
