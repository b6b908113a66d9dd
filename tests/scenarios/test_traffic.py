"""The bytes that VMs receive and send, from readings to what is told of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from scenarios.world import World
from unit.told_metrics import metrics_of, tick, value

from rmsplugin.adapters.platform.base import VMInfo, VMPower, VMStatistics
from rmsplugin.engine.capacity.traffic import NetworkBytes, Traffic
from rmsplugin.engine.observe.observation import Observation, Observer
from rmsplugin.engine.serve.views import vm_views
from rmsplugin.model.vjob import VJobState

STEP_S = 30.0


def running(world: World, **wanted: Any) -> list[str]:
    job = world.submit(**{"cpus": 1, "memory_mib": 256, "computing": False, **wanted})
    world.until(job, VJobState.RUNNING)
    return [vm.name for vm in world.context.ledger.vms(job)]


def test_what_each_vm_receives_and_sends_is_told(world: World) -> None:
    busy, still = running(world, vms=2)
    world.hypervisor.machines.set_traffic(busy, 2000.0, 500.0)
    metrics = metrics_of(world)
    for _ in range(2):
        world.pass_time(STEP_S)
        text = tick(world, metrics)
    rows = {row["name"]: row for row in vm_views(world.context.ledger, world.cycle.traffic)["vms"]}
    assert (rows[busy]["received_bytes_s"], rows[busy]["sent_bytes_s"]) == (2000, 500)
    assert (rows[still]["received_bytes_s"], rows[still]["sent_bytes_s"]) == (0, 0)
    received, sent = value(text, "vm_received_bytes_total"), value(text, "vm_sent_bytes_total")
    assert received == 4 * sent > 0
    before = world.time
    world.pass_time(STEP_S)
    again = tick(world, metrics)
    assert value(again, "vm_received_bytes_total") - received == 2000 * (world.time - before)


def test_a_vm_that_sleeps_has_no_rate(world: World) -> None:
    (vm,) = running(world, vms=1)
    world.hypervisor.machines.set_traffic(vm, 2000.0, 500.0)
    for _ in range(2):
        world.pass_time(STEP_S)
        world.tick()
    assert world.cycle.traffic.rate(vm) == NetworkBytes(2000.0, 500.0)
    job = world.context.ledger.live_vms()[0].job_id
    world.rms.suspend(job)  # by hand: the engine follows
    world.until(job, VJobState.SLEEPING)
    world.tick()
    [row] = vm_views(world.context.ledger, world.cycle.traffic)["vms"]
    assert (row["received_bytes_s"], row["sent_bytes_s"]) == (None, None)


# -- readings ----------------------------------------------------------------------------------------------------------

VM = "vjob1-0"


def look(
    world: World, time_s: float, counted: dict[str, tuple[int | None, int | None]], uuid: str = "u"
) -> Observation:
    """An observation in which nodes have counted so many bytes of the VM."""
    return replace(
        Observer(world.context).observe(),
        vms={node: {VM: VMInfo(VM, node, VMPower.RUNNING, uuid, False)} for node in counted},
        statistics={
            node: {VM: VMStatistics(0, 0, 0, 0, received_bytes=r, sent_bytes=s)} for node, (r, s) in counted.items()
        },
        sampled=dict.fromkeys(counted, time_s),
    )


def without_counters(seen: Observation) -> Observation:
    """The same look, in which nodes list their VMs and give no statistics."""
    return replace(seen, statistics={}, sampled={})


def without_answer(seen: Observation) -> Observation:
    """The same look, in which the nodes do not answer."""
    return replace(without_counters(seen), vms={}, unreachable=dict.fromkeys(seen.vms, "no answer"))


def rates(world: World, *looks: Observation) -> list[NetworkBytes | None]:
    traffic, found = Traffic(), []
    for seen in looks:
        traffic.take(seen)
        found.append(traffic.rate(VM))
    return found


def test_one_reading_says_nothing_and_two_say_the_rate(world: World) -> None:
    looks = [look(world, 100.0 + 10 * number, {"n1": (1000 + 50 * number, 70)}) for number in range(3)]
    assert rates(world, *looks) == [None, NetworkBytes(5.0, 0.0), NetworkBytes(5.0, 0.0)]


def test_readings_of_early_cycles_keep_the_rate_and_lose_no_byte(world: World) -> None:
    looks = [look(world, at, {"n1": (counted, counted)}) for at, counted in ((0, 0), (10, 100), (11, 900), (20, 1000))]
    traffic = Traffic()
    found = []
    for seen in looks:
        traffic.take(seen)
        found.append(traffic.rate(VM))
    assert found == [None, NetworkBytes(10.0, 10.0), NetworkBytes(10.0, 10.0), NetworkBytes(90.0, 90.0)]
    assert traffic.total == NetworkBytes(1000.0, 1000.0)


def test_counters_that_begin_anew_count_from_nothing(world: World) -> None:
    """A VM that was suspended and resumed on its node between two readings, and one that is another VM."""
    first = look(world, 0.0, {"n1": (5000, 5000)})
    assert rates(world, first, look(world, 10.0, {"n1": (40, 20)})) == [None, NetworkBytes(4.0, 2.0)]
    assert rates(world, first, look(world, 10.0, {"n1": (9000, 9000)}, uuid="other")) == [None, None]


def test_a_vm_on_two_nodes_or_on_another_one_has_no_rate_yet(world: World) -> None:
    looks = [
        look(world, 0.0, {"n1": (100, 0)}),
        look(world, 10.0, {"n1": (200, 0), "n2": (10, 0)}),
        look(world, 20.0, {"n2": (30, 0)}),
    ]
    assert rates(world, *looks) == [None, None, NetworkBytes(2.0, 0.0)]


@pytest.mark.parametrize("less", [without_counters, without_answer])
@pytest.mark.parametrize("looks", [1, 20])
def test_looks_without_counters_lose_no_byte(
    world: World, less: Callable[[Observation], Observation], looks: int
) -> None:
    traffic = Traffic()
    traffic.take(look(world, 0.0, {"n1": (0, 0)}))
    traffic.take(look(world, 30.0, {"n1": (1000, 10)}))
    for _ in range(looks):
        traffic.take(less(look(world, 60.0, {"n1": (1000, 10)})))
    traffic.take(look(world, 90.0, {"n1": (901000, 310)}))
    assert traffic.total == NetworkBytes(901000.0, 310.0)
    assert traffic.rate(VM) == NetworkBytes(15000.0, 5.0)  # over the whole minute
    traffic.take(look(world, 120.0, {"n1": (901300, 310)}))
    assert traffic.total == NetworkBytes(901300.0, 310.0)
    assert traffic.rate(VM) == NetworkBytes(10.0, 0.0)


def test_a_vm_whose_interfaces_are_not_counted_once_loses_no_byte(world: World) -> None:
    looks = [look(world, at, {"n1": (counted, counted)}) for at, counted in ((0.0, 0), (30.0, None), (60.0, 600))]
    assert rates(world, *looks) == [None, None, NetworkBytes(10.0, 10.0)]


def test_the_last_rate_is_told_while_counters_lack_and_none_where_the_vm_is_not_seen(world: World) -> None:
    first, second = (look(world, at, {"n1": (counted, 0)}) for at, counted in ((0.0, 0), (10.0, 50)))
    found = rates(world, first, second, without_counters(second), without_answer(second))
    assert found == [None, NetworkBytes(5.0, 0.0), NetworkBytes(5.0, 0.0), None]


def test_a_reading_is_forgotten_where_the_vm_is_gone_or_another_one(world: World) -> None:
    """The process has ended, so counters of a later one say nothing of it, however far they have come."""
    first, later = look(world, 0.0, {"n1": (100, 0)}), look(world, 60.0, {"n1": (900, 0)})
    gone = without_counters(replace(first, vms={"n1": {}}))
    left = replace(gone, vms={})  # the node is no VM host any more
    other = without_counters(look(world, 30.0, {"n1": (0, 0)}, uuid="other"))
    for between in (gone, left, other):
        traffic = Traffic()
        for seen in (first, between, later):
            traffic.take(seen)
        assert (traffic.total, traffic.rate(VM)) == (NetworkBytes(), None)


def test_a_platform_that_does_not_count_gives_no_rate(world: World) -> None:
    assert rates(world, *(look(world, at, {"n1": (None, None)}) for at in (0.0, 10.0))) == [None, None]
