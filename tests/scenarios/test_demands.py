"""What running VMs demand, seen cycle by cycle on the simulated world: boots, migrations, suspends, engine restarts."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from scenarios.world import NODES, KilledError, World

from rmsplugin.adapters.platform.base import VMPower, VMStatistics
from rmsplugin.adapters.simulated.hypervisor.faults import Point
from rmsplugin.engine.capacity.demands import Demands
from rmsplugin.engine.ledger.rows import OperationKind
from rmsplugin.engine.ledger.samples import Sample
from rmsplugin.engine.observe.observation import Observation, Observer
from rmsplugin.errors import OperationFailedError, UnavailableError
from rmsplugin.model.vjob import VJobState
from rmsplugin.model.vm_phase import VMPhase

S, K = VJobState, OperationKind
STEP_S = 30.0


def demands_of(world: World) -> Demands:
    """What looks after demands, in this life of the engine."""
    context = world.context
    return Demands(context.settings, context.ledger, context.bounds, context.demanded_cpus)


@pytest.fixture
def demands(world: World) -> Demands:
    return demands_of(world)


def running(world: World, vms: int = 1, cpus: int = 2, memory_mib: int = 256) -> tuple[int, list[str]]:
    """A running vjob and the names of its VMs."""
    job = world.submit(vms=vms, cpus=cpus, memory_mib=memory_mib, computing=False)
    world.until(job, S.RUNNING)
    return job, [vm.name for vm in world.context.ledger.vms(job)]


def cpus_of(world: World, vm: str) -> float | None:
    """What the VM was seen to demand."""
    return world.context.demanded_cpus.cpus(vm)


def look(world: World, demands: Demands, times: int = 1, step_s: float = STEP_S) -> None:
    """The looks of that many cycles, each after a while."""
    for _ in range(times):
        world.pass_time(step_s)
        demands.take_samples(Observer(world.context).observe())


def recorded(world: World, vm: str) -> int | None:
    (row,) = [row for row in world.context.ledger.vms() if row.name == vm]
    return row.centi_cpus


def host(world: World, vm: str) -> str:
    (node,) = world.hypervisor.where(vm)
    return node


def other(world: World, vm: str) -> str:
    return next(node for node in NODES if node != host(world, vm))


# -- the observation -------------------------------------------------------------------------------------------------


def test_an_observation_has_the_counters_of_all_vms_and_when_they_came(world: World) -> None:
    _, vms = running(world, vms=2, cpus=1)
    world.hypervisor.set_demand(vms[0], 0.5)
    first = Observer(world.context).observe()
    world.pass_time(10)
    second = Observer(world.context).observe()

    def counter(seen: Observation) -> int:
        return seen.statistics[host(world, vms[0])][vms[0]].cpu_time_ns or 0

    assert counter(second) - counter(first) == 5_000_000_000
    assert {name for each in second.statistics.values() for name in each} == set(vms)
    assert second.sampled == dict.fromkeys(second.statistics, world.time)


@pytest.mark.parametrize("error", [UnavailableError("gone"), RuntimeError("a bug")])
def test_a_node_that_has_no_counters_is_seen_without_them(world: World, error: Exception) -> None:
    _, vms = running(world, vms=3, cpus=2)
    silent = host(world, vms[0])
    ask = world.hypervisor.statistics

    def refusing(node: str) -> dict[str, VMStatistics]:
        if node == silent:
            raise error
        return ask(node)

    world.hypervisor.statistics = refusing  # type: ignore[method-assign]
    seen = Observer(world.context).observe()
    assert vms[0] in seen.vms[silent] and seen.unreachable == {}
    assert seen.statistics.keys() == seen.sampled.keys() == set(NODES) - {silent}


def test_a_node_that_does_not_answer_has_no_counters(world: World) -> None:
    _, vms = running(world)
    node = host(world, vms[0])
    world.hypervisor.set_reachable(node, False)
    seen = Observer(world.context).observe()
    assert node in seen.unreachable and node not in seen.statistics and node not in seen.sampled


# -- demand ----------------------------------------------------------------------------------------------------------


def test_nothing_is_known_of_a_vm_until_two_samples_show_it(world: World, demands: Demands) -> None:
    _, (vm,) = running(world)
    assert cpus_of(world, vm) is None
    look(world, demands, 2)
    assert cpus_of(world, vm) is None and recorded(world, vm) is None
    look(world, demands)
    assert cpus_of(world, vm) == 0 and recorded(world, vm) == 0


def test_demand_follows_what_a_vm_uses(world: World, demands: Demands) -> None:
    _, (vm,) = running(world)
    look(world, demands, 3)
    world.hypervisor.set_demand(vm, 1.25)
    look(world, demands)
    assert cpus_of(world, vm) == 0, "one sample is a spike"
    look(world, demands)
    assert cpus_of(world, vm) == 1.25 and recorded(world, vm) == 125


def test_the_window_is_that_of_the_settings(world: World) -> None:
    decision = world.settings.decision.model_copy(update={"demand_window_s": 300.0})
    world.settings = world.settings.model_copy(update={"decision": decision})
    world.start_engine()
    demands = demands_of(world)
    _, (vm,) = running(world)
    look(world, demands, 10)
    assert cpus_of(world, vm) is None
    look(world, demands)
    assert cpus_of(world, vm) == 0


def test_vms_that_share_cpus_show_what_they_would_use(world: World, demands: Demands) -> None:
    _, (a, b, c) = running(world, vms=3, cpus=2, memory_mib=256)
    job = world.context.ledger.vjobs()[0].job_id
    home = host(world, a)
    look(world, demands, 3)
    for vm in (b, c):
        world.hypervisor.migrate(vm, host(world, vm), home, timeout_s=1)
        world.context.ledger.enter_phase(vm, VMPhase.LIVE, host=home)
    for vm, cpus in ((a, 2.0), (b, 1.5), (c, 0.5)):
        world.hypervisor.set_demand(vm, cpus)
    look(world, demands, 3)
    assert {vm: cpus_of(world, vm) for vm in (a, b, c)} == {a: 2.0, b: 1.5, c: 0.5}
    assert world.state(job) is S.RUNNING


def test_samples_that_are_too_close_are_left_out(world: World, demands: Demands) -> None:
    _, (vm,) = running(world)
    look(world, demands, 3)
    world.hypervisor.set_demand(vm, 2)
    look(world, demands, 3, step_s=1)
    assert cpus_of(world, vm) == 0, "events started cycles early, and the VM has worked for 3 s"
    look(world, demands, 2)
    assert cpus_of(world, vm) == 2


# -- what a VM keeps, and where it begins anew -----------------------------------------------------------------------


def test_a_vm_that_migrates_keeps_its_demand_and_its_counters_begin_anew(world: World, demands: Demands) -> None:
    job, (vm,) = running(world)
    look(world, demands, 3)
    assert cpus_of(world, vm) == 0
    world.tick()
    world.ask(job, K.MIGRATE, other(world, vm))
    world.tick()
    world.hypervisor.set_demand(vm, 1)
    for _ in range(2):
        look(world, demands)
        assert cpus_of(world, vm) == 0, "its first sample there has none before it, its second may be a spike"
    look(world, demands)
    assert cpus_of(world, vm) == 1


def test_a_vm_on_two_nodes_gives_no_sample(world: World, demands: Demands) -> None:
    job, (vm,) = running(world)
    look(world, demands, 3)
    world.hypervisor.set_demand(vm, 1)
    world.tick()
    seen = []

    def meanwhile() -> None:
        assert len(world.hypervisor.where(vm)) == 2
        for _ in range(4):
            look(world, demands)
            seen.append(cpus_of(world, vm))

    world.hypervisor.hook_next("migrate", Point.DURING, meanwhile, vm=vm)
    world.ask(job, K.MIGRATE, other(world, vm))
    world.tick()
    assert seen == [0, 0, 0, 0]


def test_a_sample_of_the_source_that_comes_late_confuses_nobody(world: World, demands: Demands) -> None:
    job, (vm,) = running(world)
    source = host(world, vm)
    look(world, demands, 3)
    late = Observer(world.context).observe()
    world.tick()
    world.ask(job, K.MIGRATE, other(world, vm))
    world.tick()
    look(world, demands)
    now = Observer(world.context).observe()
    # The source answered before the VM left, its destination after it had come.
    counters = VMStatistics(10**13, 0, None, None)
    for number in range(1, 4):
        time = world.time + 10 * number
        mixed = replace(
            now,
            vms={**now.vms, source: late.vms[source]},
            statistics={**now.statistics, source: {vm: replace(counters, cpu_time_ns=10**13 * number)}},
            sampled=dict.fromkeys([*now.sampled, source], time),
        )
        demands.take_samples(mixed)
    assert cpus_of(world, vm) == 0


def test_a_resumed_vm_demands_what_it_did_when_it_was_suspended_until_its_samples_say_otherwise(
    world: World, demands: Demands
) -> None:
    job, (vm,) = running(world)
    look(world, demands, 3)
    assert cpus_of(world, vm) == 0
    world.ask(job, K.SUSPEND)
    world.until(job, S.SLEEPING)
    demands.take_samples(Observer(world.context).observe())
    assert cpus_of(world, vm) is None, "nobody samples what sleeps"
    assert recorded(world, vm) == 0, "and it is remembered"
    world.ask(job, K.RESUME)
    world.until(job, S.RUNNING)
    look(world, demands)
    assert cpus_of(world, vm) == 0
    world.hypervisor.set_demand(vm, 2.0)
    look(world, demands)
    assert cpus_of(world, vm) == 0, "one sample that shows it is none"
    look(world, demands)
    assert cpus_of(world, vm) == 2


def test_a_resumed_vm_of_which_nothing_was_known_demands_what_it_requested(world: World, demands: Demands) -> None:
    job, (vm,) = running(world)
    look(world, demands, 2)  # one more that shows it idle would do
    world.tick()
    world.ask(job, K.SUSPEND)
    world.until(job, S.SLEEPING)
    world.ask(job, K.RESUME)
    world.until(job, S.RUNNING)
    look(world, demands, 2)
    assert cpus_of(world, vm) is None
    assert recorded(world, vm) is None


def test_a_vjob_that_starts_again_demands_what_it_requested(world: World, demands: Demands) -> None:
    job, (vm,) = running(world)
    look(world, demands, 3)
    assert recorded(world, vm) == 0
    world.hypervisor.kill_vm(vm)
    world.until(job, S.WAITING)
    demands.take_samples(Observer(world.context).observe())
    assert cpus_of(world, vm) is None
    world.pass_time(200)
    world.until(job, S.RUNNING)
    assert recorded(world, vm) is None
    look(world, demands)
    assert cpus_of(world, vm) is None


def test_booting_says_nothing_about_work(world: World, demands: Demands) -> None:
    job = world.submit(vms=1, cpus=2)
    seen: list[float | None] = []

    def meanwhile() -> None:
        for _ in range(4):
            look(world, demands)
            seen.append(cpus_of(world, f"vjob{job}-0"))

    world.hypervisor.hook_next("boot", Point.AFTER, meanwhile)
    world.until(job, S.RUNNING)
    assert seen == [None] * 4
    look(world, demands, 2)
    assert cpus_of(world, f"vjob{job}-0") is None, "what it used while it booted is not compared with"


def test_a_vm_keeps_its_demand_while_a_suspend_of_it_fails(world: World, demands: Demands) -> None:
    job, (vm,) = running(world)
    world.hypervisor.set_demand(vm, 1)
    look(world, demands, 4)
    seen: list[float | None] = []

    def meanwhile() -> None:
        for _ in range(4):
            look(world, demands)
            seen.append(cpus_of(world, vm))

    world.hypervisor.hook_next("save", Point.DURING, meanwhile, vm=vm)
    world.hypervisor.fail_next("save", OperationFailedError("no"), vm=vm)
    world.tick()
    world.ask(job, K.SUSPEND)
    world.until(job, S.RUNNING)
    assert seen == [1, 1, 1, 1]
    look(world, demands)
    assert cpus_of(world, vm) == 1


def test_a_vm_that_stands_still_is_not_idle(world: World, demands: Demands) -> None:
    _, (vm,) = running(world)
    world.hypervisor.set_demand(vm, 1.5)
    look(world, demands, 4)
    node = host(world, vm)
    for power in (VMPower.PAUSED, VMPower.RUNNING) * 4:
        world.hypervisor.machines.become(node, vm, power)
        look(world, demands)
    assert cpus_of(world, vm) == 1.5


def test_a_vm_of_a_vjob_that_is_being_suspended_gives_no_sample(world: World, demands: Demands) -> None:
    job, (vm,) = running(world)
    world.hypervisor.set_demand(vm, 1)
    look(world, demands, 4)
    world.hypervisor.set_demand(vm, 0)
    before = Observer(world.context).observe()
    world.pass_time(600)
    world.context.ledger.transition(job, S.SUSPENDING, "its wrapper stands still, it waits to be saved")
    for _ in range(4):
        look(world, demands)
        assert cpus_of(world, vm) == 1
    world.context.ledger.transition(job, S.RUNNING, "it could not be saved")
    demands.take_samples(before)
    look(world, demands, 2)
    assert cpus_of(world, vm) == 1, "what was seen before it ran again is not compared with"
    look(world, demands)
    assert cpus_of(world, vm) == 0


def test_a_node_that_is_silent_for_a_while_changes_no_demand(world: World, demands: Demands) -> None:
    _, (vm,) = running(world)
    world.hypervisor.set_demand(vm, 1)
    look(world, demands, 4)
    node = host(world, vm)
    world.hypervisor.set_reachable(node, False)
    look(world, demands, 5)
    assert cpus_of(world, vm) == 1
    world.hypervisor.set_reachable(node, True)
    look(world, demands)
    assert cpus_of(world, vm) == 1


def test_clocks_that_are_set_back_give_nothing_away(world: World, demands: Demands) -> None:
    _, (vm,) = running(world)
    world.hypervisor.set_demand(vm, 1)
    look(world, demands, 4)
    seen = Observer(world.context).observe()
    for number in range(4):
        back = {node: time - 3600 + number * STEP_S for node, time in seen.sampled.items()}
        counters = VMStatistics(10**13 + round(number * 2 * STEP_S * 1e9), 0, None, None)
        demands.take_samples(replace(seen, sampled=back, statistics={host(world, vm): {vm: counters}}))
        assert cpus_of(world, vm) == (1 if number < 2 else 2)


# -- what is kept ----------------------------------------------------------------------------------------------------


def test_a_restarted_engine_goes_on_with_the_last_demand(world: World, demands: Demands) -> None:
    _, (vm,) = running(world)
    world.hypervisor.set_demand(vm, 0.75)
    look(world, demands, 4)
    world.start_engine()
    again = demands_of(world)
    look(world, again)
    assert cpus_of(world, vm) == 0.75
    look(world, again, 3)
    assert cpus_of(world, vm) == 0.75
    world.hypervisor.set_demand(vm, 2)
    look(world, again, 3)
    assert cpus_of(world, vm) == 2


def test_only_changes_are_written_all_of_a_cycle_together(world: World, demands: Demands) -> None:
    _, vms = running(world, vms=3, cpus=1)
    look(world, demands, 2)
    writes = []
    write = world.context.ledger.samples._write

    def counted():  # type: ignore[no-untyped-def]
        writes.append(world.time)
        return write()

    world.context.ledger.samples._write = counted
    look(world, demands)
    assert len(writes) == 1 and [recorded(world, vm) for vm in vms] == [0, 0, 0]
    look(world, demands, 5)
    assert len(writes) == 1


def test_an_engine_that_dies_in_the_write_has_written_all_or_nothing(world: World, demands: Demands) -> None:
    _, vms = running(world, vms=3, cpus=1)
    look(world, demands, 2)
    world.life.dead = True
    with pytest.raises(KilledError):
        demands.take_samples(Observer(world.context).observe())
    world.start_engine()
    assert [recorded(world, vm) for vm in vms] == [None, None, None]


def test_a_change_that_is_of_another_run_by_now_is_not_written(world: World, demands: Demands) -> None:
    job, (vm,) = running(world)
    look(world, demands, 3)
    ledger = world.context.ledger
    vjob, (row,) = ledger.vjob(job), ledger.vms(job)
    change = Sample(vm, world.time, 150, None)
    for other_run in ((replace(vjob, state_since=1.0), row), (vjob, replace(row, uuid="another"))):
        ledger.samples.record([(*other_run, change)])
        assert recorded(world, vm) == 0 and change.centi_cpus not in {each.centi_cpus for each in ledger.samples.of(vm)}
    ledger.samples.record([(vjob, row, change)])
    assert recorded(world, vm) == 150
    look(world, demands)
    assert cpus_of(world, vm) == 1.5, "the ledger is what counts"


def test_figures_are_kept_to_the_second_and_pruned(world: World, demands: Demands) -> None:
    _, (vm,) = running(world)
    ledger = world.context.ledger
    world.time += (
        -world.time % 1 + 0.25
    )  # what was seen in between is of the next second: no sample is older than its run
    begin = world.time + 0.75
    look(world, demands, 3)
    for cpus in (0.5, 1.0, 1.5):
        world.hypervisor.set_demand(vm, cpus)
        look(world, demands, 3, step_s=6)
    kept = ledger.samples.of(vm)
    held_kib = 256 * 1024
    seen = [(90, 0), (102, 50), (120, 100), (138, 150)]
    assert kept == [Sample(vm, begin + after_s, centi_cpus, held_kib, 256) for after_s, centi_cpus in seen]
    ledger.prune(kept[0].time + 1)
    assert ledger.samples.of(vm) == kept[1:]


def test_others_may_ask_while_a_cycle_looks(world: World, demands: Demands) -> None:
    _, (vm,) = running(world)
    look(world, demands, 3)
    stop, missing = threading.Event(), []

    def ask() -> None:
        while not stop.is_set():
            if cpus_of(world, vm) is None:
                missing.append(vm)

    thread = threading.Thread(target=ask)
    thread.start()
    look(world, demands, 20)
    stop.set()
    thread.join()
    assert missing == []


# -- memory ----------------------------------------------------------------------------------------------------------


def memory_recorded(world: World, vm: str) -> int | None:
    (row,) = [row for row in world.context.ledger.vms() if row.name == vm]
    return row.memory_demand_mib


def test_a_vm_that_needs_less_memory_than_was_requested_is_seen_to(world: World, demands: Demands) -> None:
    _, (vm,) = running(world, memory_mib=800)
    look(world, demands, 3)
    assert memory_recorded(world, vm) == 800
    world.hypervisor.set_working_set(vm, 300)
    look(world, demands, 3)
    assert memory_recorded(world, vm) == 336
    world.hypervisor.set_working_set(vm, 700)
    look(world, demands)
    assert memory_recorded(world, vm) == 784, "a rise counts at once"
    assert [sample.memory_demand_mib for sample in world.context.ledger.samples.of(vm)][-2:] == [336, 784]


def test_a_guest_that_says_nothing_of_its_memory_demands_what_was_requested(world: World, demands: Demands) -> None:
    _, (vm,) = running(world, memory_mib=800)
    world.hypervisor.set_working_set(vm, 300)
    for _ in range(4):
        world.pass_time(STEP_S)
        seen = Observer(world.context).observe()
        silent = {
            node: {name: replace(each, memory_usable_kib=None) for name, each in vms.items()}
            for node, vms in seen.statistics.items()
        }
        demands.take_samples(replace(seen, statistics=silent))
    assert recorded(world, vm) == 0, "its CPUs are seen"
    assert memory_recorded(world, vm) == 800


def test_a_resumed_vm_needs_the_memory_that_it_did_when_it_was_suspended(world: World, demands: Demands) -> None:
    job, (vm,) = running(world, memory_mib=800)
    world.hypervisor.set_working_set(vm, 300)
    look(world, demands, 3)
    world.ask(job, K.SUSPEND)
    world.until(job, S.SLEEPING)
    assert memory_recorded(world, vm) == 336
    world.ask(job, K.RESUME)
    world.until(job, S.RUNNING)
    look(world, demands)
    assert memory_recorded(world, vm) == 336


def test_a_restarted_engine_goes_on_with_the_last_demand_of_memory(world: World, demands: Demands) -> None:
    _, (vm,) = running(world, memory_mib=800)
    world.hypervisor.set_working_set(vm, 300)
    look(world, demands, 3)
    world.hypervisor.set_working_set(vm, 100)
    anew = demands_of(world)
    look(world, anew)
    assert memory_recorded(world, vm) == 336
    look(world, anew, 2)
    assert memory_recorded(world, vm) == 112


def test_memory_that_a_guest_was_just_given_back_is_not_what_it_needs(world: World, demands: Demands) -> None:
    """The size of its balloon is always that of now; what the guest says of the rest is some seconds old."""
    _, (vm,) = running(world, memory_mib=800)
    seen, node = Observer(world.context).observe(), host(world, vm)

    def look_at(number: int, said_s: int, current_mib: int, usable_mib: int) -> int | None:
        counters = VMStatistics(0, 0, None, current_mib << 10, usable_mib << 10, guest_said_s=said_s)
        at = dict.fromkeys(seen.sampled, world.time + STEP_S * number)
        demands.take_samples(replace(seen, sampled=at, statistics={node: {vm: counters}}))
        return memory_recorded(world, vm)

    for number in range(4):
        needed = look_at(number, number, 500, 200)
    assert needed == 336, "300 MiB, and a margin"
    assert look_at(4, 4, 800, 200) == 336, "it spoke before its balloon gave back"
    assert look_at(5, 4, 800, 200) == 336, "it has said nothing since"
    assert look_at(6, 6, 800, 500) == 336
    assert look_at(7, 7, 800, 300) == 560, "a rise counts at once"


def test_a_guest_that_keeps_reading_pages_back_needs_all_that_it_has(world: World, demands: Demands) -> None:
    _, (vm,) = running(world, memory_mib=800)
    world.hypervisor.set_working_set(vm, 300)
    look(world, demands, 3)
    assert memory_recorded(world, vm) == 336
    world.context.hypervisor.set_memory(host(world, vm), vm, 500, timeout_s=1.0)
    world.hypervisor.set_faults(vm, 90 * int(STEP_S), 0)
    look(world, demands)
    assert memory_recorded(world, vm) == 336, "90 pages a second are few"
    world.hypervisor.set_faults(vm, 180 * int(STEP_S), 4 * 60 * int(STEP_S))
    look(world, demands)
    assert memory_recorded(world, vm) == 560, "90 from files and 60 from swap are not: 500 MiB, and a tenth"
