"""A step of a replay looks once more whether its VMs may come, as an operation that failed may have left VMs there."""

from __future__ import annotations

import pytest

from rmsplugin.cli.simulate.replayed_rules import ReplayedRules
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import VJobState
from rmsplugin.settings.rules import PlacementRule
from rmsplugin.simulation.ruled import lets
from rmsplugin.simulation.vjob import SimulatedVJob
from rmsplugin.workload.activity import Phase
from rmsplugin.workload.jobs import Job

NODES = ("n1", "n2", "n3")


def vjob(number: int, user: str, hosts: dict[str, str], moving: dict[str, str] | None = None) -> SimulatedVJob:
    """A vjob of two VMs, some of which have memory."""
    names = tuple(f"{number}-{index}" for index in range(2))
    job = Job(number, 0, 100, 2, 100, 512, number, user=user)
    state = VJobState.RUNNING if hosts else VJobState.WAITING
    found = SimulatedVJob(number, job, names, Resources(1, 512), (Phase(100.0, (1.0,)),), state=state)
    found.hosts, found.moving = hosts, moving or {}
    return found


def may(to: dict[str, str], *others: SimulatedVJob, own: dict[str, str] | None = None, **rule: object) -> bool:
    """Whether VMs of a vjob of user 1 may come to nodes, by a rule for users 1 and 2."""
    each = PlacementRule(**rule)  # type: ignore[arg-type]
    comer = vjob(1, "1", own or {})
    return lets(ReplayedRules({"it": each}, NODES), comer, to, [comer, *others])


RIVALS = {"kind": "split", "users": ["1", "2"], "per": "user"}


def test_nobody_comes_to_a_node_where_a_rival_has_memory() -> None:
    rival = vjob(2, "2", {"2-0": "n1", "2-1": "n1"})
    assert not may({"1-0": "n1", "1-1": "n2"}, rival, **RIVALS)
    assert may({"1-0": "n2", "1-1": "n2"}, rival, **RIVALS)
    assert may({"1-0": "n1", "1-1": "n1"}, vjob(3, "3", {"3-0": "n1", "3-1": "n1"}), **RIVALS)


def test_one_that_migrates_has_memory_on_both_nodes() -> None:
    rival = vjob(2, "2", {"2-0": "n1", "2-1": "n1"}, moving={"2-0": "n2"})
    assert not may({"1-0": "n2", "1-1": "n3"}, rival, **RIVALS)


def test_those_that_come_together_are_in_each_others_way() -> None:
    assert not may({"1-0": "n1", "1-1": "n1"}, kind="spread", per="vjob")
    assert may({"1-0": "n1", "1-1": "n2"}, kind="spread", per="vjob")


def test_one_that_stays_is_not_in_its_own_way() -> None:
    assert may({"1-0": "n1"}, own={"1-0": "n1", "1-1": "n2"}, kind="spread", per="vjob")


@pytest.mark.parametrize("discrete", [False, True])
def test_a_rule_that_holds_in_the_end_only_keeps_no_step(discrete: bool) -> None:
    rival = vjob(2, "2", {"2-0": "n1", "2-1": "n1"})
    assert may({"1-0": "n1", "1-1": "n2"}, rival, **RIVALS, discrete=discrete) is discrete
