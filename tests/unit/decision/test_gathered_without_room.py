"""VMs that have to be together, and are more than any node has room for: as many of their vjobs run as fit one node."""

from __future__ import annotations

import pytest
from unit.queues import Queue, nodes, states

from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.policies import POLICIES
from rmsplugin.decision.result import Decision, ReasonCode
from rmsplugin.decision.ruled import decide_by_rules
from rmsplugin.model.abiding import abiding
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.given_rules import given_rules
from rmsplugin.model.joint import Gather


def decide(policy: str, queue: Queue, *vjobs: str) -> Decision:
    """Decide, where all VMs of these vjobs, two each, have to be together."""
    rule = Gather(frozenset(f"{vjob}-{number}" for vjob in vjobs for number in range(2)), label="rule.together")
    source = queue.configuration
    ruled = given_rules(source.vjobs, [(rule, rule.names)])
    found = decide_by_rules(
        policy,
        Configuration(source.nodes, abiding(source.nodes, ruled, source.locations), source.locations),
        Parameters(),
    )
    assert isinstance(found, Decision)
    return found


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_one_that_comes_later_and_has_no_room_beside_those_that_run_ends_none_of_them(policy: str) -> None:
    """A user who submits one more vjob has neither the own ones suspended, nor those of others of the rule."""
    queue = Queue(*nodes(2, cpus=4))
    for name, priority in (("first", 3), ("second", 2)):
        queue.add(name, "n2", "n2", vms=2, priority=priority, time_limit_s=600, ran_s=100, state_s=100)
    queue.add("late", vms=2, priority=1, time_limit_s=600)
    found = decide(policy, queue, "first", "second", "late")
    assert states(found) == {"first": "running", "second": "running", "late": "waiting"}
    assert found.reasons["late"].code is ReasonCode.RULE


@pytest.mark.parametrize("policy", ["fcfs", "easy", "slowdown"])
def test_those_begin_that_have_room_together_where_there_is_room_for_them(policy: str) -> None:
    queue = Queue(*nodes(2, cpus=4))
    queue.add("other", "n1", cpus=3, priority=9, time_limit_s=600, ran_s=100, state_s=100)
    for name, priority in (("first", 3), ("second", 2), ("late", 1)):
        queue.add(name, vms=2, priority=priority, time_limit_s=600)
    found = decide(policy, queue, "first", "second", "late")
    assert states(found) == {"other": "running", "first": "running", "second": "running", "late": "waiting"}
    assert {found.placement[f"{name}-{number}"] for name in ("first", "second") for number in range(2)} == {"n2"}
