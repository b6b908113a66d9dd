"""Rules about VMs of several vjobs: who makes way for one, and what the search for another decision takes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from unit.queues import Queue, nodes, states

from rmsplugin.decision import ruled
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.policies import POLICIES
from rmsplugin.decision.result import Decision, Infeasible, ReasonCode
from rmsplugin.decision.ruled import decide_by_rules
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import NodeState
from rmsplugin.model.given_rules import given_rules
from rmsplugin.model.joint import Spread
from rmsplugin.model.rules import allowing
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.search import Search

#: Policies under which nobody makes way for one that waits.
KEEPING = ("fcfs", "easy", "conservative", "load-sharing", "v-reconfiguration")
#: Those of them under which nobody makes way at all; and those under which vjobs do where nodes are short.
NEVER, SHARING = KEEPING[:3], KEEPING[3:]
#: Policies under which those that run make way for others.
MAKING_WAY = ("easy-preempt", "mixed", "slowdown", "rjsp", "rjsp-exact")


def spread(*pairs: str) -> list[Spread]:
    """Rules that have the first VMs of two vjobs on nodes of their own: ``ab`` for ``a`` and ``b``."""
    return [Spread(frozenset(f"{name}-0" for name in pair)) for pair in pairs]


def with_rules(queue: Queue, *pairs: str) -> Configuration:
    source = queue.configuration
    vjobs = given_rules(source.vjobs, [(rule, rule.names) for rule in spread(*pairs)])
    return Configuration(source.nodes, vjobs, source.locations)


def decide(policy: str, source: Configuration) -> Decision:
    found = decide_by_rules(policy, source, Parameters())
    assert isinstance(found, Decision)
    return found


@pytest.mark.parametrize("policy", POLICIES)
def test_nobody_who_runs_makes_way_so_that_a_rule_lets_another_one_in(policy: str) -> None:
    """Of whatever tier that is; but where the order of the queue alone decides, whoever is behind does."""
    queue = Queue(*nodes(1, cpus=2)).add("a", priority=2).add("b", "n1", priority=1, state_s=1e6)
    found = decide(policy, with_rules(queue, "ab"))
    if policy in ("rjsp", "rjsp-exact"):
        assert states(found) == {"a": "running", "b": "sleeping"}
        assert found.reasons["b"].code is ReasonCode.RULE
    else:
        assert states(found) == {"a": "waiting", "b": "running"}
        assert found.reasons["a"].code is ReasonCode.RULE


@pytest.mark.parametrize("policy", POLICIES)
def test_of_two_that_break_a_new_rule_one_makes_way_whom_the_policy_would_suspend(policy: str) -> None:
    """The last one; but none under policies that suspend nobody for that, and none that is exempt."""
    both, last = {"a": "running", "b": "running"}, {"a": "running", "b": "sleeping"}
    first = {"a": "sleeping", "b": "running"}
    for state_s in (10, 1e6):
        queue = Queue(*nodes(1, cpus=2)).add("a", "n1", state_s=1e6).add("b", "n1", state_s=state_s)
        found = decide(policy, with_rules(queue, "ab"))
        exempts = policy in ("easy-preempt", "mixed", "slowdown") and state_s == 10
        assert states(found) == (both if policy in KEEPING else first if exempts else last)


@pytest.mark.parametrize("policy", SHARING)
def test_where_a_rule_bars_the_only_migration_from_a_node_that_is_short_the_last_one_there_makes_way(
    policy: str,
) -> None:
    """So it is where no migration makes room for another reason."""
    queue = Queue(*nodes(2, cpus=4, memory_mib=4096)).add("a", "n1", memory_mib=3000)
    queue.add("b", "n1", memory_mib=2000).add("c", "n2", memory_mib=2000)
    assert set(states(decide(policy, with_rules(queue))).values()) == {"running"}
    found = decide(policy, with_rules(queue, "bc"))
    assert states(found) == {"a": "running", "b": "sleeping", "c": "running"}


@pytest.mark.parametrize("policy", KEEPING)
def test_none_migrates_for_one_that_a_rule_keeps_out_under_a_policy_that_moves_nobody_for_it(policy: str) -> None:
    """``a`` may be beside neither of the others, which could be together."""
    queue = Queue(*nodes(2, cpus=2)).add("a").add("b", "n1").add("c", "n2")
    found = decide(policy, with_rules(queue, "ab", "ac"))
    assert states(found) == {"a": "running" if policy in NEVER else "waiting", "b": "running", "c": "running"}


@pytest.mark.parametrize("w_is_ahead", [True, False])
@pytest.mark.parametrize("policy", MAKING_WAY)
def test_whoever_may_be_suspended_makes_way_for_one_whose_target_is_to_run(policy: str, w_is_ahead: bool) -> None:
    queue = Queue(*nodes(1, cpus=2)).add("r", "n1", state_s=1e6).add("w", target=VJobState.RUNNING)
    if w_is_ahead:
        queue.vjobs.reverse()
    assert states(decide(policy, with_rules(queue, "wr"))) == {"w": "running", "r": "sleeping"}


@pytest.mark.parametrize("known", [{"preemptible": False}, {"target": VJobState.RUNNING}])
def test_a_target_that_a_rule_bars_beside_one_that_runs_on_is_refused(known: dict[str, Any]) -> None:
    queue = Queue(*nodes(1, cpus=2)).add("w", target=VJobState.RUNNING).add("r", "n1", **known)
    found = decide_by_rules("mixed", with_rules(queue, "wr"), Parameters())
    assert isinstance(found, Infeasible) and "'w' cannot run, as its target demands" in found.explanation


@pytest.mark.parametrize("a_is_ahead", [True, False])
@pytest.mark.parametrize("policy", MAKING_WAY)
def test_others_make_way_for_one_that_an_administrator_prefers_to_run(policy: str, a_is_ahead: bool) -> None:
    queue = Queue(*nodes(1, cpus=2)).add("b", "n1", state_s=1e6).add("a", preference=VJobState.RUNNING)
    if a_is_ahead:
        queue.vjobs.reverse()
    found = decide(policy, with_rules(queue, "ab"))
    assert states(found) == {"a": "running", "b": "sleeping"}
    assert found.reasons["b"].code is ReasonCode.RULE


def test_one_that_was_started_just_now_makes_no_way_for_one_that_an_administrator_prefers() -> None:
    queue = Queue(*nodes(1, cpus=2)).add("a", preference=VJobState.RUNNING).add("b", "n1", state_s=10)
    assert states(decide("mixed", with_rules(queue, "ab"))) == {"a": "waiting", "b": "running"}


@pytest.mark.parametrize("state_s", [10, 1e6])
@pytest.mark.parametrize("policy", MAKING_WAY)
def test_one_that_an_administrator_prefers_to_run_makes_no_way_for_a_new_rule(policy: str, state_s: float) -> None:
    """Whether it is exempt or not, and though it is behind the other one."""
    queue = Queue(*nodes(1, cpus=2)).add("a", "n1", state_s=1e6)
    queue.add("b", "n1", state_s=state_s, preference=VJobState.RUNNING)
    assert states(decide(policy, with_rules(queue, "ab"))) == {"a": "sleeping", "b": "running"}


@pytest.mark.parametrize("policy", ["easy-preempt", "mixed", "slowdown"])
def test_of_one_that_is_exempt_and_one_that_is_preferred_none_makes_way_for_a_new_rule(policy: str) -> None:
    queue = Queue(*nodes(1, cpus=2)).add("a", "n1", state_s=10)
    queue.add("b", "n1", state_s=1e6, preference=VJobState.RUNNING)
    assert states(decide(policy, with_rules(queue, "ab"))) == {"a": "running", "b": "running"}


def short_of_cpus(**known: Any) -> Configuration:
    """``a`` has grown, so that ``n1`` has too few CPUs. By memory it could leave for ``n2``, where a rule bars it."""
    queue = Queue(*nodes(2, cpus=4, memory_mib=4096)).add("b", "n1", cpus=2, memory_mib=3000, state_s=1e6)
    queue.add("c", "n2", memory_mib=3000, preemptible=False).add("a", "n1", cpus=3, memory_mib=500, **known)
    return with_rules(queue, "ac")


@pytest.mark.parametrize("policy", ["easy-preempt", "mixed", "slowdown"])
@pytest.mark.parametrize("known", [{"state_s": 10}, {"state_s": 1e6, "preference": VJobState.RUNNING}])
def test_a_rule_that_bars_one_from_leaving_a_node_short_of_cpus_suspends_another_one_if_it_is_spared(
    policy: str, known: dict[str, Any]
) -> None:
    """It is exempt, or preferred to run: without the rule, and room elsewhere, ``b`` makes way for it, too."""
    assert states(decide(policy, short_of_cpus(**known))) == {"a": "running", "b": "sleeping", "c": "running"}


@pytest.mark.parametrize("policy", ["easy-preempt", "mixed", "slowdown"])
def test_two_that_are_exempt_share_the_cpus_of_their_node_where_a_rule_bars_one_from_leaving_it(policy: str) -> None:
    source = short_of_cpus(state_s=10)
    exempt = source.with_vjobs([replace(vjob, state_s=10.0) for vjob in source.vjobs])
    assert set(states(decide(policy, exempt)).values()) == {"running"}


@pytest.mark.parametrize("policy", ["easy-preempt", "mixed", "slowdown"])
def test_one_that_is_exempt_leaves_a_node_that_drains_by_a_suspend_where_a_rule_bars_it_from_the_others(
    policy: str,
) -> None:
    n1, n2 = nodes(2, cpus=4)
    queue = Queue(replace(n1, state=NodeState.DRAINING), n2).add("c", "n2", state_s=1e6).add("a", "n1", state_s=10)
    assert states(decide(policy, with_rules(queue, "ac"))) == {"c": "running", "a": "sleeping"}


@pytest.mark.parametrize("policy", MAKING_WAY)
@pytest.mark.parametrize("known", [{"state_s": 10}, {"state_s": 1e6}, {"preference": VJobState.RUNNING}])
def test_a_target_is_refused_for_a_rule_where_it_is_for_cpus(policy: str, known: dict[str, Any]) -> None:
    """Beside the same vjob: one that is exempt, that may be suspended, or that an administrator prefers."""

    def refused(cpus: int, *pairs: str) -> bool:
        queue = Queue(*nodes(1, cpus=cpus)).add("w", target=VJobState.RUNNING).add("r", "n1", **known)
        return isinstance(decide_by_rules(policy, with_rules(queue, *pairs), Parameters()), Infeasible)

    makes_way = "state_s" in known and (known["state_s"] > 10 or policy.startswith("rjsp"))
    assert refused(1) is refused(2, "wr") is not makes_way


@pytest.mark.parametrize("policy", ["mixed", "slowdown"])
@pytest.mark.parametrize("pairs", [(), ("xy",), ("sy",)])
def test_no_rule_suspends_one_that_shares_its_cpus_until_another_one_has_gone(
    policy: str, pairs: tuple[str, ...]
) -> None:
    """Whether the rule names it or not."""
    queue = Queue(*nodes(2, cpus=2)).add("s", "n1", cpus=2).add("y", "n2").add("x")
    queue.add("l", "n1", cpus=2, in_transit=True, leaves=True, rules=allowing(frozenset({"n1"})), preemptible=False)
    found = decide(policy, with_rules(queue, *pairs))
    assert found.reasons["s"].code is ReasonCode.AWAITS
    assert (states(found)["s"], found.placement["s-0"], states(found)["y"]) == ("running", "n1", "running")
    assert states(found)["x"] == ("waiting" if "xy" in pairs else "running")


@pytest.mark.parametrize("policy", ["mixed", "slowdown"])
def test_one_that_runs_on_until_another_one_has_gone_migrates_for_a_new_rule_if_its_node_is_not_short(
    policy: str,
) -> None:
    queue = Queue(*nodes(3, cpus=2)).add("s", "n1", cpus=2).add("h", "n3", cpus=1).add("y", "n2").add("z", "n2")
    queue.add("l", "n1", cpus=2, in_transit=True, leaves=True, rules=allowing(frozenset({"n1"})), preemptible=False)
    found = decide(policy, with_rules(queue, "yz"))
    assert set(states(found).values()) == {"running"}
    assert found.reasons["y"].code is ReasonCode.AWAITS
    assert found.placement["s-0"] == "n1" and {found.placement["y-0"], found.placement["z-0"]} == {"n2", "n3"}


def test_each_further_decision_has_half_the_limits_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is room for one more beside ``a``; it is kept out by a rule, and so is the next one that fills in."""
    limits: list[float | None] = []
    decided = ruled.decide_with_pauses

    def noted(policy: str, source: Configuration, parameters: Parameters) -> Decision | Infeasible:
        limits.append(parameters.search.deterministic_limit)
        return decided(policy, source, parameters)

    monkeypatch.setattr(ruled, "decide_with_pauses", noted)
    queue = Queue(*nodes(1, cpus=2)).add("a", "n1").add("b").add("c").add("d")
    source = with_rules(queue, "ab", "ac", "ad")
    found = decide_by_rules("rjsp", source, Parameters(search=Search(deterministic_limit=4.0)))
    assert isinstance(found, Decision) and set(states(found)) == {"a", "b", "c", "d"}
    assert limits == [4.0, 2.0, 1.0, 0.5]
