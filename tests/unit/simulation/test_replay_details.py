"""The replay: what its monitor sees of VMs that move, and what becomes of a step whose vjob has gone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from rmsplugin.model.operation import OperationKind
from rmsplugin.proposing.steps import PlannedStep
from rmsplugin.simulation.observed import Observed
from rmsplugin.simulation.switches import Foreseen, Switches
from rmsplugin.workload.activity import Phase


def test_a_migration_of_one_vm_does_not_blind_the_monitor_to_the_others() -> None:
    observed = Observed(vcpus=1, columns=2)
    for now in range(0, 100, 10):  # both idle for long enough
        observed.take_samples(now)
    assert [observed.cpus(vm) for vm in (0, 1)] == [0, 0]
    for now in range(100, 120, 10):  # both compute, and the first one moves
        observed.count(10, Phase(100, (1.0,)))
        observed.went_on({0})
        observed.take_samples(now)
    assert [observed.cpus(vm) for vm in (0, 1)] == [0, 1]


def test_a_vjob_that_resumes_demands_what_it_did_until_two_samples_show_more() -> None:
    observed = Observed(vcpus=1, columns=1)
    for now in range(0, 100, 10):  # idle for long enough
        observed.take_samples(now)
    observed.went_on({0, 1, 2})
    found = []
    for now in range(500, 540, 10):  # asleep until then, and it computes now
        observed.count(10, Phase(100, (1.0,)))
        observed.take_samples(now)
        found.append(observed.cpus(0))
    assert found == [0, 0, 1, 1]


def test_a_step_of_a_vjob_that_has_ended_is_skipped() -> None:
    switches = Switches(cast(Any, SimpleNamespace(by_vjob={})), {}, lambda vjob, to: True)
    step = SimpleNamespace(vjob="7", kind=OperationKind.MIGRATE, hosts={"7-0": "n1"}, needs=())
    switches.add(Foreseen(0, 1.0, {}), [cast(PlannedStep, step)], now=5.0)
    assert switches.advance(6.0)
    assert [(each.begin_s, each.end_s, each.failed) for each in switches.done] == [(5.0, 6.0, 1)]
