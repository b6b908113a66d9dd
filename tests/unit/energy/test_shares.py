"""Whose energy it was: by hand, and that nothing is lost or counted twice."""

from __future__ import annotations

from random import Random

import pytest

from rmsplugin.energy.account import OffTime
from rmsplugin.energy.daily import Daily
from rmsplugin.energy.local_clock import LocalClock
from rmsplugin.energy.meter import Energy
from rmsplugin.energy.parameters import EnergyParameters
from rmsplugin.energy.power import PowerClass
from rmsplugin.energy.shares import NOBODY, Period, Use, by_node, by_owner, total

POWER = PowerClass(120.0, 300.0, 8.0, 150.0, off_s=30.0, on_s=120.0)
CPUS = {"n1": 4, "n2": 2}
PARAMETERS = EnergyParameters(dict.fromkeys(CPUS, POWER))
HOUR = Period(0.0, 3600.0, LocalClock.steady())


def wh(found: dict[str, Energy]) -> dict[str, float]:
    return {owner: round(1000 * each.kwh, 6) for owner, each in found.items()}


def test_what_a_node_takes_is_divided_by_cpus_among_those_that_are_there() -> None:
    uses = [Use("alice", "n1", 0, 3600, 3), Use("bob", "n1", 0, 1800, 1)]
    found = by_owner(PARAMETERS, CPUS, uses, (), HOUR)
    assert wh(found) == {
        "alice": 180 * 3 / 4 + 0.5 * 120 * 3 / 4 + 0.5 * 120,
        "bob": 0.5 * (180 / 4 + 120 / 4),
        NOBODY: 120,  # n2
    }


def test_a_node_that_has_nothing_or_is_off_is_nobodys() -> None:
    uses = [Use("alice", "n1", 0, 3600, 4), Use("alice", "n2", 0, 1800, 2)]
    found = by_owner(PARAMETERS, CPUS, uses, [OffTime("n2", 1800, None)], HOUR)
    assert wh(found) == {"alice": 300 + 150, NOBODY: round((30 * 150 + 1770 * 8) / 3600, 6)}


def test_what_lies_outside_the_period_does_not_count() -> None:
    uses = [Use("alice", "n1", -3600, 7200, 4)]
    assert wh(by_owner(PARAMETERS, CPUS, uses, (), HOUR)) == {"alice": 300, NOBODY: 120}


def test_vms_that_use_no_cpu_share_equally() -> None:
    uses = [Use("alice", "n1", 0, 3600, 0), Use("bob", "n1", 0, 3600, 0)]
    assert wh(by_owner(PARAMETERS, CPUS, uses, (), HOUR)) == {"alice": 60, "bob": 60, NOBODY: 120}


def test_a_nodes_account_has_its_own_cpus() -> None:
    found = by_node(PARAMETERS, CPUS, [Use("alice", "n1", 0, 3600, 2), Use("bob", "n2", 0, 3600, 2)], (), HOUR)
    assert [1000 * each.all_on.kwh for each in found.values()] == pytest.approx([120 + 90, 300])
    assert 1000 * found["n1"].oracle.kwh == pytest.approx(120 + 90)


def test_the_sum_knows_a_cost_only_where_each_part_does() -> None:
    assert total([Energy(1, 2, None), Energy(3, 4, None)]) == Energy(4, 6, None)
    assert total([Energy(1, None, 5), Energy(3, 4, 5)]) == Energy(4, None, 10)
    assert total([]) == Energy(0, 0, 0)


@pytest.mark.parametrize("seed", range(20))
def test_all_shares_together_are_what_the_cluster_took(seed: int) -> None:
    random = Random(seed)
    daily = Daily([(0.0, 0.2), (1000.0, 0.3), (2500.0, 0.1)])
    parameters = EnergyParameters(PARAMETERS.classes, price=daily, co2=daily)
    uses, off = [], []
    for node in CPUS:
        at = -500.0
        while at < 4000:
            end = at + random.choice([10.0, 300.0, 1000.0])
            if random.random() < 0.3 and end > at + 200:
                off.append(OffTime(node, at, random.choice([end - POWER.on_s, end - POWER.on_s - 5])))
            else:
                for _ in range(random.randint(0, 3)):
                    begin = random.uniform(at, end)
                    owner = random.choice(["alice", "bob", "carol"])
                    uses.append(Use(owner, node, begin, random.uniform(begin, end), random.choice([0, 0.5, 1, 2])))
            at = end
    shares = total(by_owner(parameters, CPUS, uses, off, HOUR).values())
    nodes = total(each.switched for each in by_node(parameters, CPUS, uses, off, HOUR).values())
    assert (shares.kwh, shares.cost, shares.co2_kg) == pytest.approx((nodes.kwh, nodes.cost, nodes.co2_kg))
