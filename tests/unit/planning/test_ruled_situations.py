"""Situations of public tests of placement rules, rebuilt: what is planned, step by step, and what cannot be.

They are those of BtrPlace's tests of its constraints (Spread, Gather, Lonely, Split, Root, RunningCapacity, MaxOnline).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from unit.situations import PARAMETERS, hosts_after, planned, pools, situation, size

from rmsplugin.decision import ruled
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.pausing import decide_with_pauses
from rmsplugin.decision.result import Decision
from rmsplugin.decision.ruled import decide_by_rules
from rmsplugin.instance import parse
from rmsplugin.model.action import Action, migrate, run, suspend
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import running_on, sleeping_on
from rmsplugin.model.vjob import VJobState
from rmsplugin.planning.checker import check_plan
from rmsplugin.planning.order.joint_waits import waits_for_rules
from rmsplugin.planning.order.ruled import build_by_rules
from rmsplugin.planning.order_checker import check_order
from rmsplugin.planning.plan import Plan, Unreachable
from rmsplugin.planning.target.placement import Placed
from rmsplugin.planning.target.ruled import place_by_rules
from rmsplugin.proposing.proposal import NoProposal
from rmsplugin.proposing.propose import propose

FENCE_1_TO_N2 = {"rule": "fence", "vms": ["1"], "nodes": ["n2"]}


def test_the_one_that_is_spread_leaves_before_the_other_comes() -> None:
    source = situation({"n1": ["1"], "n2": ["2"], "n3": []}, {"rule": "spread", "vms": ["1", "2"]}, FENCE_1_TO_N2)
    first, second = pools(source)
    assert first[0].startswith("migrate 2 from n2 to ") and second == ["migrate 1 from n1 to n2"]


def test_a_discrete_spread_holds_in_the_end_only() -> None:
    rule = {"rule": "spread", "vms": ["1", "2"], "discrete": True}
    (only,) = pools(situation({"n1": ["1"], "n2": ["2"], "n3": []}, rule, FENCE_1_TO_N2))
    assert len(only) == 2


def test_two_that_are_together_already_are_separated_by_one_migration() -> None:
    source = situation({"n1": ["1", "2"], "n2": []}, {"rule": "spread", "vms": ["1", "2"]}, FENCE_1_TO_N2)
    assert pools(source) == [["migrate 1 from n1 to n2"]]


def test_two_that_change_places_and_may_not_meet_go_by_way_of_a_third_node() -> None:
    target = {"1": running_on("n2"), "2": running_on("n1")}
    source = situation({"n1": ["1"], "n2": ["2"], "n3": []}, {"rule": "spread", "vms": ["1", "2"]})
    plan = build_by_rules(source, target)
    assert isinstance(plan, Plan)
    assert [[str(action) for action in pool] for pool in plan.pools] == [
        ["bypass migrate 1 from n1 to n3"],
        ["migrate 2 from n2 to n1"],
        ["migrate 1 from n3 to n2"],
    ]


def test_two_that_change_places_and_may_be_nowhere_else_are_saved_one_at_a_time() -> None:
    fences = [{"rule": "fence", "vms": [vm], "nodes": [node]} for vm, node in (("1", "n2"), ("2", "n1"))]
    source = situation({"n1": ["1"], "n2": ["2"], "n3": []}, {"rule": "spread", "vms": ["1", "2"]}, *fences)
    assert pools(source) == [
        ["bypass suspend 1 from n1 to n1"],
        ["migrate 2 from n2 to n1"],
        ["bypass resume 1 from n1 to n2"],
    ]


def test_one_that_starts_gathers_where_the_other_runs() -> None:
    source = situation({"n1": [], "n2": ["2"]}, {"rule": "gather", "vms": ["1", "2"]}, waiting=("1",))
    assert pools(source) == [["run 1 to n2"]]


def test_gathered_ones_begin_where_there_is_room_for_all() -> None:
    rules = [{"rule": "gather", "vms": ["1", "2", "3"]}]
    source = situation({"n1": ["x", "y"], "n2": []}, *rules, waiting=("1", "2", "3"))
    assert pools(source) == [["run 1 to n2", "run 2 to n2", "run 3 to n2"]]


def test_gathered_ones_are_never_on_two_nodes_while_they_move() -> None:
    fence = {"rule": "fence", "vms": ["1", "2"], "nodes": ["n1"]}
    source = situation({"n1": [], "n2": ["1", "2"]}, {"rule": "gather", "vms": ["1", "2"]}, fence)
    assert pools(source) == [
        ["bypass suspend 1 from n2 to n2"],
        ["migrate 2 from n2 to n1"],
        ["bypass resume 1 from n2 to n1"],
    ]


def test_others_leave_a_node_before_the_lonely_one_comes() -> None:
    fence = {"rule": "fence", "vms": ["3"], "nodes": ["n2"]}
    source = situation(
        {"n1": ["1", "2", "3"], "n2": ["4", "5"], "n3": []}, {"rule": "lonely", "vms": ["1", "2", "3"]}, fence
    )
    first, second = pools(source)
    assert {line[:9] for line in first} == {"migrate 4", "migrate 5"} and second == ["migrate 3 from n1 to n2"]


def test_others_keep_off_the_node_of_the_lonely_one() -> None:
    source = situation({"n1": ["1"], "n2": ["2"]}, {"rule": "lonely", "vms": ["1"]}, waiting=("3",))
    assert pools(source) == [["run 3 to n2"]]


def test_groups_are_split_and_one_group_takes_the_place_of_another_when_it_has_left() -> None:
    groups = {"rule": "split", "groups": [["1", "2"], ["3", "4", "5"], ["6", "7"]]}
    fence = {"rule": "fence", "vms": ["1", "2"], "nodes": ["n3"]}
    nodes = {"n1": ["1", "2"], "n2": [], "n3": ["3", "4", "5"], "n4": [], "n5": ["6", "7", "8"]}
    first, second = pools(situation(nodes, groups, fence))
    assert {line[:9] for line in first} == {"migrate 3", "migrate 4", "migrate 5"}
    assert second == ["migrate 1 from n1 to n3", "migrate 2 from n1 to n3"]
    mixed = {"n1": ["1", "2", "3"], "n2": [], "n3": ["4", "5", "6"], "n4": [], "n5": ["7", "8"]}
    after = hosts_after(situation(mixed, groups))
    on = [{after[vm] for vm in group} for group in (["1", "2"], ["3", "4", "5"], ["6", "7"])]
    assert not on[0] & on[1] and not on[0] & on[2] and not on[1] & on[2]


def test_a_rooted_one_does_not_migrate_to_make_room() -> None:
    """The newcomer needs two CPUs on one node: who is not rooted makes room for it."""
    for rooted, moved in (("1", "2"), ("2", "1")):
        nodes = [{"name": name, "cpu": 2, "memory_mib": 4096} for name in ("n1", "n2")]
        vjobs = [
            {"name": f"j{vm}", "state": "running", "preemptible": False, "vms": [{**size(vm), "host": f"n{vm}"}]}
            for vm in ("1", "2")
        ]
        vjobs.append({"name": "new", "state": "waiting", "vms": [{"name": "3", "cpu": 2, "memory_mib": 512}]})
        data = {"nodes": nodes, "vjobs": vjobs, "rules": [{"rule": "root", "vms": [rooted]}]}
        lines = pools(parse(json.dumps(data), "root"))
        assert lines[0][0].startswith(f"migrate {moved} "), lines


def test_where_all_are_rooted_the_newcomer_waits_and_is_told_why() -> None:
    nodes = [{"name": name, "cpu": 2, "memory_mib": 4096} for name in ("n1", "n2")]
    vjobs: list[dict[str, Any]] = [
        {"name": f"j{vm}", "state": "running", "preemptible": False, "vms": [{**size(vm), "host": f"n{vm}"}]}
        for vm in ("1", "2")
    ]
    vjobs.append({"name": "new", "state": "waiting", "vms": [{"name": "3", "cpu": 2, "memory_mib": 512}]})
    data = {"nodes": nodes, "vjobs": vjobs, "rules": [{"rule": "root", "vms": ["1", "2"]}]}
    found = planned(parse(json.dumps(data), "root"))
    assert found.decision.states["new"] == "waiting" and found.plan.pools == ()
    assert "no node has room for 3 beside those that rules keep apart or together" in str(found.decision.reasons["new"])


def test_no_more_of_them_run_on_the_nodes_than_their_capacity_says() -> None:
    rule = {"rule": "capacity", "nodes": ["n1", "n2"], "vms": ["1", "2", "3", "4"], "most": 2}
    after = hosts_after(situation({"n1": ["1"], "n2": ["2"], "n3": []}, rule, waiting=("3", "4")))
    assert after["3"] == after["4"] == "n3"
    barred = planned(situation({"n1": ["1"], "n2": ["2"]}, rule, waiting=("3", "4"))).decision.reasons["j3"]
    assert barred.sentence == (
        "needs 1 CPU and 512 MiB in 1 VM; 2 nodes with room for 3, but capacity: at most 2 of 4 VMs on 'n1' 'n2' bars "
        "it from 2"
    )
    assert barred.numbers["nodes_with_room"] == 2 and barred.numbers["barred"] == 2


def test_no_more_nodes_host_vms_than_may_be_online() -> None:
    after = hosts_after(
        situation({"n1": ["1"], "n2": ["2"], "n3": ["3"]}, {"rule": "online", "nodes": ["n1", "n2", "n3"], "most": 1})
    )
    assert len(set(after.values())) == 1
    rules = [
        {"rule": "online", "nodes": ["n1", "n2", "n3"], "most": 2},
        {"rule": "online", "nodes": ["n1", "n2"], "most": 1},
    ]
    after = hosts_after(situation({"n1": ["1", "4"], "n2": ["2"], "n3": ["3"]}, *rules))
    assert len(set(after.values())) <= 2 and not {"n1", "n2"} <= set(after.values())


def test_what_is_reserved_is_left_free_and_those_beyond_it_migrate() -> None:
    rule = {"rule": "reserve", "nodes": ["n1"], "cpu": 3}
    assert len(pools(situation({"n1": ["1", "2"], "n2": []}, rule))[0]) == 1


def test_a_vjob_that_must_run_by_its_target_and_is_barred_is_no_decision_but_a_sentence() -> None:
    nodes = [{"name": "n1", "cpu": 4, "memory_mib": 4096}]
    vms = [size("1"), size("2")]
    data = {
        "nodes": nodes,
        "vjobs": [{"name": "j", "state": "waiting", "target": "running", "vms": vms}],
        "rules": [{"rule": "spread", "vms": ["1", "2"]}],
    }
    found = propose(parse(json.dumps(data), "target"), PARAMETERS)
    assert isinstance(found, NoProposal)
    assert found.explanation == (
        "vjob 'j' cannot run, as its target demands: it needs 2 CPUs and 1024 MiB in 2 VMs; 1 node with room for 2, "
        "but spread of '1' '2' bars it from 1"
    )


class Calls:
    """A policy's decisions, counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.number = 0
        monkeypatch.setattr(ruled, "decide_with_pauses", self._decide)

    def _decide(self, *arguments: Any) -> Any:
        self.number += 1
        return decide_with_pauses(*arguments)


@pytest.mark.parametrize(("others", "asked"), [(("3",), 1), (("3", "4"), 2)], ids=["all others run", "another waits"])
def test_a_policy_is_asked_again_only_if_another_might_fill_in(
    others: tuple[str, ...], asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = situation({"n1": []}, SPREAD, waiting=("1", "2", *others), cpu=3)
    calls = Calls(monkeypatch)
    states = {name: str(state) for name, state in planned(source).decision.states.items()}
    assert states == {"j1": "running", "j2": "waiting", **{f"j{vm}": "running" for vm in others}}
    assert calls.number == asked


def test_one_behind_takes_what_a_barred_one_leaves() -> None:
    source = situation({"n1": []}, {"rule": "spread", "vms": ["1", "2"]}, waiting=("1", "2", "3"), cpu=2)
    found = planned(source)
    assert {name: str(state) for name, state in found.decision.states.items()} == {
        "j1": "running",
        "j2": "waiting",
        "j3": "running",
    }


def overloaded(*rules: Any, cpus: tuple[float, float, float] = (1, 1, 4)) -> Configuration:
    """One that stays running demands more than its nodes have; two others may go."""
    amounts = [("1", 0, 256, "n1"), ("2", 1, 768, "n2"), ("3", 2, 256, "n1"), ("4", 2, 1024, "n2"), ("5", 0, 256, "n2")]
    vms = {name: {"name": name, "cpu": cpu, "memory_mib": memory, "host": at} for name, cpu, memory, at in amounts}
    vjobs = [
        {"name": "a", "state": "running", "vms": [vms["1"]]},
        {"name": "b", "state": "running", "preemptible": False, "vms": [vms["2"], vms["3"], vms["4"]]},
        {"name": "c", "state": "running", "vms": [vms["5"]]},
    ]
    sizes = zip(("n1", "n2", "n3"), cpus, (512, 2048, 1024), strict=True)
    nodes = [{"name": name, "cpu": cpu, "memory_mib": memory} for name, cpu, memory in sizes]
    return parse(json.dumps({"nodes": nodes, "vjobs": vjobs, "rules": list(rules)}), "overloaded")


def test_one_that_stays_on_overloaded_nodes_is_led_away_by_no_half_measure_that_breaks_a_rule() -> None:
    source = overloaded({"rule": "spread", "vms": ["1", "2", "3"], "discrete": True})
    after = hosts_after(source)
    assert {name: after[name] for name in "234"} == {"2": "n2", "3": "n1", "4": "n2"}


def test_nobody_comes_to_a_node_that_one_who_stays_overloads() -> None:
    source = overloaded({"rule": "spread", "vms": ["1", "3"]}, {"rule": "online", "nodes": ["n3"], "most": 0})
    assert "n3" not in hosts_after(source).values()


SPREAD = {"rule": "spread", "vms": ["1", "2"]}


def refusals(source: Configuration, *pools: list[Action]) -> list[str]:
    locations = dict(source.locations)
    for pool in pools:
        locations |= {action.vm.name: action.after for action in pool}
    return [str(fault) for fault in check_plan(source, locations, pools)]


def test_the_checker_refuses_a_plan_in_which_two_meet_for_a_step() -> None:
    nodes = {"n1": ["1"], "n2": ["2"], "n3": []}
    source = situation(nodes, SPREAD)
    one, two = source.vm_by_name["1"], source.vm_by_name["2"]
    together = [migrate(one, "n1", "n2"), migrate(two, "n2", "n3")]
    assert refusals(source, together) == ["pool 0: 1 may not be on n2, where 2 is (spread of '1' '2')"]
    assert refusals(source, together[1:], together[:1]) == []
    in_the_end = situation(nodes, {**SPREAD, "discrete": True})
    assert refusals(in_the_end, together) == []
    assert refusals(in_the_end, together[:1]) == [
        "the plan: 1 may not be on n2, where 2 is (spread of '1' '2') in the end"
    ]


def test_the_checker_holds_nothing_against_those_who_were_there_before() -> None:
    for discrete in (False, True):
        source = situation({"n1": ["1", "2", "x"], "n2": []}, {**SPREAD, "discrete": discrete})
        assert refusals(source, [migrate(source.vm_by_name["x"], "n1", "n2")]) == []


def test_an_order_in_which_one_might_come_before_the_other_has_left_is_refused() -> None:
    source = situation({"n1": ["1"], "n2": ["2"], "n3": [], "n4": []}, SPREAD)
    one, two = source.vm_by_name["1"], source.vm_by_name["2"]
    actions = [migrate(one, "n1", "n3", bypass=True), migrate(one, "n3", "n4"), migrate(two, "n2", "n3")]
    assert check_order(source, actions, [(), (0,), (1,)]) == []
    early = check_order(source, actions, [(), (0,), ()])
    assert [fault.action for fault in early] == [actions[0], actions[2]]  # whichever of the two comes to n3 first
    assert "where 1 is" in early[1].sentence and "slow, or fail" in early[1].sentence


def test_an_arrival_waits_for_all_of_its_rule_that_leave_its_node_in_earlier_pools() -> None:
    source = situation({"n1": ["1", "x"], "n2": ["2"], "n3": []}, {**SPREAD, "vms": ["1", "2", "3"]}, waiting=("3",))
    one, two, three, other = (source.vm_by_name[name] for name in ("1", "2", "3", "x"))
    pools = [[suspend(one, "n1"), suspend(other, "n1")], [suspend(two, "n2")], [run(three, "n1")]]
    assert waits_for_rules(source, pools) == [set(), set(), set(), {0}]
    again = [[migrate(one, "n1", "n3")], [migrate(one, "n3", "n2")], [run(three, "n3")]]
    assert waits_for_rules(source, again) == [set(), set(), {0, 1}]


def waits(rule: dict[str, Any]) -> set[int]:
    """The actions that the start of 3 on n1 waits for: 1 leaves it, 2 leaves n2, where another stays, and 4 leaves n3.

    All of these wait for nobody.
    """
    hosts = {"n1": ["1"], "n2": ["2", "x"], "n3": ["4"]}
    source = situation(hosts, rule, waiting=("3",))
    vms = source.vm_by_name
    pools = [[suspend(vms["1"], "n1"), suspend(vms["2"], "n2"), suspend(vms["4"], "n3")], [run(vms["3"], "n1")]]
    *others, found = waits_for_rules(source, pools)
    assert not any(others)
    return found


def test_an_arrival_waits_for_no_action_that_cannot_matter_to_its_rules() -> None:
    """A rule about who is beside whom asks about one node, one that counts about its own, and a root about nobody."""
    vms = ["1", "2", "3", "4"]
    assert waits({"rule": "spread", "vms": vms}) == waits({"rule": "lonely", "vms": ["3"]}) == {0}
    assert waits({"rule": "split", "groups": [["1", "2"], ["3", "4"]]}) == {0}
    assert waits({"rule": "gather", "vms": vms}) == {0, 1, 2}
    assert waits({"rule": "capacity", "nodes": ["n1", "n2"], "vms": vms, "most": 2}) == {0, 1}
    assert waits({"rule": "capacity", "nodes": ["n2"], "vms": vms, "most": 1}) == set()
    assert waits({"rule": "online", "nodes": ["n1", "n2", "n3"], "most": 2}) == {0, 2}
    assert waits({"rule": "online", "nodes": ["n2", "n3"], "most": 1}) == waits({"rule": "root", "vms": vms}) == set()


def test_a_node_may_host_vms_only_when_another_has_been_left_for_good() -> None:
    rule = {"rule": "online", "nodes": ["n1", "n2"], "most": 1}
    source = situation({"n1": ["1"], "n2": [], "n3": []}, rule, waiting=("2",))
    actions = [migrate(source.vm_by_name["1"], "n1", "n3"), run(source.vm_by_name["2"], "n2")]
    assert check_order(source, actions, [(), (0,)]) == []
    (early,) = check_order(source, actions, [(), ()])
    assert "it would be one of 2 nodes with VMs" in early.sentence


@pytest.mark.parametrize(
    "rule",
    [
        {"rule": "online", "nodes": ["n1", "n2"], "most": 1},
        {"rule": "capacity", "nodes": ["n1", "n2"], "vms": ["1", "2"], "most": 1},
        {"rule": "gather", "vms": ["1", "2"]},
    ],
)
def test_an_order_is_checked_against_those_who_never_leave_another_node(rule: Any) -> None:
    source = situation({"n1": ["1"], "n2": []}, rule, waiting=("2",))
    (broken,) = check_order(source, [run(source.vm_by_name["2"], "n2")], [()])
    assert broken.sentence.startswith("2 may not be on n2")


def waiting_for_another() -> tuple[Configuration, dict[str, VJobState]]:
    """1 waits until 2 has left, so that the plan costs more than its actions do alone; 3 makes way."""
    fence = {"rule": "fence", "vms": ["2"], "nodes": ["n3"]}
    source = situation({"n1": ["1"], "n2": ["2"], "n3": [], "n4": ["3"]}, SPREAD, FENCE_1_TO_N2, fence)
    leaves = replace(source.vjobs[2], preemptible=True)
    states = {"j1": VJobState.RUNNING, "j2": VJobState.RUNNING, "j3": VJobState.SLEEPING}
    return Configuration(source.nodes, (*source.vjobs[:2], leaves), source.locations), states


def test_the_bound_counts_what_each_action_costs_alone_and_no_more() -> None:
    source, states = waiting_for_another()
    found = place_by_rules(source, states, {"1": "n2", "2": "n3"}, Unreachable("not asked"), search=PARAMETERS.search)
    assert isinstance(found, Placed)
    assert [len(pool) for pool in found.plan.pools] == [2, 1]
    assert (found.plan.cost, found.lower_bound) == (2048, 1536)


def test_the_bound_without_rules_holds_unless_it_is_for_fewer_nodes() -> None:
    source, states = waiting_for_another()
    together = {"1": running_on("n2"), "2": running_on("n2"), "3": sleeping_on("n4")}
    relaxed = Placed(together, Plan(()), lower_bound=1700, nodes_used=1, nodes_lower_bound=1)
    bounds = []
    for objective in ("cost", "nodes"):
        found = place_by_rules(source, states, {"1": "n2", "2": "n3"}, relaxed, objective)  # type: ignore[arg-type]
        assert isinstance(found, Placed) and found.nodes_lower_bound == 1
        bounds.append(found.lower_bound)
    assert bounds == [1700, 1536]


def placed_without_solver(data: dict[str, Any]) -> tuple[dict[str, str], Mapping[str, str]]:
    """The states and the sample of a decision, as in a cluster that is too large for the program."""
    found = decide_by_rules("rjsp", parse(json.dumps(data), "large"), Parameters(exact_checks=0))
    assert isinstance(found, Decision)
    return {name: str(state) for name, state in found.states.items()}, found.placement


def test_who_runs_keeps_its_place_though_those_ahead_of_it_could_have_it() -> None:
    """The first node would be the head's by first fit, and the rooted one behind it could go nowhere else."""
    nodes = [{"name": name, "cpu": 1, "memory_mib": 4096} for name in ("n1", "n2")]
    vjobs = [
        {"name": "head", "state": "waiting", "vms": [size("1")]},
        {"name": "rooted", "state": "running", "vms": [{**size("2"), "host": "n1"}]},
    ]
    data = {"nodes": nodes, "vjobs": vjobs, "rules": [{"rule": "root", "vms": ["2"]}]}
    assert placed_without_solver(data) == ({"head": "running", "rooted": "running"}, {"1": "n2", "2": "n1"})


def test_one_that_finds_no_place_near_where_all_are_finds_one_where_the_policy_has_them() -> None:
    """Who is at home leaves no room for the wide one, which would stay where it breaks its rule."""
    sizes = {"n3": 1, "n1": 2, "n2": 2, "n4": 4, "n5": 4}
    nodes = [{"name": name, "cpu": cpu, "memory_mib": 4096} for name, cpu in sizes.items()]
    wide = [{"name": vm, "cpu": 2, "memory_mib": 512, "host": "n2"} for vm in ("2", "3")]
    fixed: dict[str, Any] = {"state": "running", "preemptible": False}
    vjobs = [
        {"name": "home", **fixed, "vms": [{**size("1"), "host": "n1"}]},
        {"name": "wide", **fixed, "nodes": ["n1", "n2"], "vms": wide},
        {"name": "pair", "state": "waiting", "nodes": ["n4", "n5"], "vms": [size("4"), size("5")]},
    ]
    rules = [{"rule": "spread", "vms": vms} for vms in (["2", "3"], ["4", "5"])]
    _, placement = placed_without_solver({"nodes": nodes, "vjobs": vjobs, "rules": rules})
    assert placement == {"1": "n3", "2": "n1", "3": "n2", "4": "n4", "5": "n5"}


def test_where_only_one_of_two_has_a_place_it_is_the_one_ahead_in_the_queue() -> None:
    vjobs = [
        {"name": "head", "state": "waiting", "vms": [size("1")]},
        {"name": "behind", "state": "running", "vms": [{**size("2"), "host": "n1"}]},
    ]
    data = {"nodes": [{"name": "n1", "cpu": 4, "memory_mib": 4096}], "vjobs": vjobs, "rules": [SPREAD]}
    states = planned(parse(json.dumps(data), "queue")).decision.states
    assert {name: str(state) for name, state in states.items()} == {"head": "running", "behind": "sleeping"}
