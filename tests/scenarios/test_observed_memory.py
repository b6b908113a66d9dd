"""Memory by observation on the simulated world: more VMs run, nodes that are short are relieved, nodes are reserved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scenarios.world import World

from rmsplugin.adapters.rms.base import RmsPartition
from rmsplugin.engine.ledger.rows import OperationKind
from rmsplugin.model.vjob import VJobState

S = VJobState
GIB = 1024
OVERHEAD = 128
#: Cycles until a fall of demand counts, and what follows from it is done.
FALLS = 4
STEP_S = 30.0

Make = Callable[..., World]


@pytest.fixture
def make(directory: Path) -> Any:
    made: list[World] = []

    def world(
        nodes: int = 3,
        memory_mib: int = 2 * GIB,
        memory: str = "observed",
        policy: str = "",
        templates: bool = False,
        **settings: Any,
    ) -> World:
        sizes = {f"n{index}": (16, memory_mib) for index in range(1, nodes + 1)}
        found = World(directory, nodes=sizes, policy=policy, templates=templates)
        changed = found.settings.model_dump()
        changed["partition"]["vjob"]["memory"] = memory
        changed["memory"] |= settings
        found.settings = type(found.settings).model_validate(changed)
        found.start_engine()
        made.append(found)
        return found

    yield world
    for each in made:
        assert each.hypervisor.violations == []
        each.close()


def submit(world: World, memory_mib: int, needs_mib: int, vms: int = 1, name: str = "job") -> int:
    job = world.submit(vms=vms, memory_mib=memory_mib, computing=False, name=name)
    for index in range(vms):
        needs(world, job, needs_mib, index)
    return job


def needs(world: World, job: int, needs_mib: int, index: int = 0) -> None:
    world.hypervisor.set_working_set(f"vjob{job}-{index}", needs_mib)


def ticks(world: World, times: int = FALLS) -> None:
    for _ in range(times):
        world.tick(STEP_S)


def running(world: World, jobs: list[int]) -> list[int]:
    known = {vjob.job_id: vjob.state for vjob in world.context.ledger.vjobs()}
    return [job for job in jobs if known.get(job) is S.RUNNING]


def demanded(world: World) -> dict[str, int]:
    """By node, what the VMs there demand with their hypervisor processes."""
    found: dict[str, int] = {}
    for vm in world.context.ledger.live_vms():
        if vm.host:
            assert vm.memory_demand_mib is not None
            found[vm.host] = found.get(vm.host, 0) + vm.memory_demand_mib + OVERHEAD
    return found


# -- more VMs run ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("memory", "together"), [("requested", 1), ("observed", 3)])
def test_vjobs_that_ask_for_three_times_what_they_need_run_together(make: Make, memory: str, together: int) -> None:
    world = make(nodes=1, memory=memory)
    jobs = [submit(world, 1200, 400) for _ in range(4)]
    ticks(world, 3 * FALLS)
    assert len(running(world, jobs)) == together
    assert not world.events("suspend")


def test_where_context_switches_are_off_memory_is_as_requested(make: Make) -> None:
    world = make(nodes=1)
    old = world.rms.partitions["vjob"]
    world.rms.partitions["vjob"] = RmsPartition("vjob", True, old.nodes, "OFF", 1, 0)
    jobs = [submit(world, 1200, 400) for _ in range(3)]
    ticks(world, 2 * FALLS)
    assert len(running(world, jobs)) == 1


def test_a_new_vjob_needs_what_earlier_ones_of_its_name_did(make: Make) -> None:
    world = make(nodes=1)
    first = submit(world, 1600, 300, name="solver")
    ticks(world)
    world.rms.cancel(first)
    ticks(world, 2)
    later = [submit(world, 1600, 300, name=name) for name in ("solver", "solver", "solver", "other")]
    for _ in range(8):
        world.tick(1.0)
    assert running(world, later) == later[:3], "336 MiB each; the other one is expected to need half of its request"
    assert [vm.memory_demand_mib for vm in world.context.ledger.vms(later[0])] == [336]


def test_estimates_are_of_the_same_user_name_and_request(make: Make) -> None:
    world = make(nodes=1)
    job = submit(world, 1600, 300, name="solver")
    ticks(world, 2 * FALLS)
    peaks = world.context.ledger.samples.peaks
    user = world.context.ledger.vjob(job).user
    assert peaks(user, "solver", 1600, "default") == [336]
    others = [("somebody", "solver", 1600), (user, "other", 1600), (user, "solver", 1601)]
    assert [peaks(*other, "default") for other in others] == [[]] * 3
    assert peaks(user, "solver", 1600, "debian") == [], "its kernel and tools need another amount"


# -- templates ---------------------------------------------------------------------------------------------------------


def test_a_vm_makes_a_template_only_where_all_of_its_memory_is_left(make: Make) -> None:
    world = make(nodes=1, templates=True)
    calm = submit(world, 1200, 900)
    ticks(world)
    beside = submit(world, 1100, 200)
    ticks(world)
    assert running(world, [calm, beside]) == [calm, beside]
    assert made(world) == [f"vjob{calm}-0"], "the bound of 1,984 MiB leaves the other one less than its 1,228"
    assert not world.events("template-failed")
    world.rms.cancel(calm)
    world.rms.cancel(beside)
    ticks(world)
    alone = submit(world, 1100, 200)
    ticks(world)
    assert made(world) == [f"vjob{calm}-0", f"vjob{alone}-0"], "it was left to another one of this kind"


def made(world: World) -> list[str]:
    return [words.split()[2] for words in world.events("template-made")]


# -- shortage ----------------------------------------------------------------------------------------------------------


def test_a_node_whose_vm_grows_is_relieved_within_a_cycle_by_a_migration(make: Make) -> None:
    world = make(nodes=2)
    jobs = [submit(world, 1600, 300) for _ in range(4)]
    ticks(world, 3 * FALLS)
    assert running(world, jobs) == jobs
    grown = jobs[0]
    needs(world, grown, 1400)
    ticks(world, 2)
    assert max(demanded(world).values()) <= 0.9 * 2 * GIB
    assert running(world, jobs) == jobs
    assert not [job for job in jobs if world.state(job) is S.SLEEPING]


def test_without_room_anywhere_the_last_in_the_queue_is_suspended_and_comes_back(make: Make) -> None:
    world = make(nodes=1, policy="mixed")
    jobs = [submit(world, 1600, 300) for _ in range(3)]
    ticks(world, 3 * FALLS)
    assert running(world, jobs) == jobs
    ticks(world, 20)  # nobody is exempt any more
    needs(world, jobs[0], 1000)
    ticks(world, 2)
    assert world.state(jobs[2]) is S.SLEEPING
    assert running(world, jobs) == jobs[:2]
    needs(world, jobs[0], 300)
    ticks(world, 3 * FALLS)
    assert running(world, jobs) == jobs


def test_a_vm_that_is_larger_than_the_threshold_runs_alone(make: Make) -> None:
    world = make(nodes=1)
    job = submit(world, 1900, 1900)
    other = submit(world, 1600, 300)
    ticks(world, 2 * FALLS)
    assert world.state(job) is S.RUNNING
    assert world.state(other) is S.WAITING


def test_balloons_take_back_caches_and_give_them_again(make: Make) -> None:
    world = make(nodes=1)
    first = submit(world, 1500, 300)
    ticks(world)
    assert not world.events("balloon"), "there is room for all that it asked for"
    second = submit(world, 1500, 300)
    ticks(world, 2 * FALLS)
    assert len(running(world, [first, second])) == 2
    taken = world.events("balloon")
    assert taken and all("is asked to do with" in each for each in taken)
    left = world.hypervisor.statistics("n1")
    assert sum(each.memory_current_kib or 0 for each in left.values()) // GIB <= 2 * GIB - 64 - 2 * OVERHEAD
    told = len(taken)
    ticks(world, 4)
    assert len(world.events("balloon")) == told, "with the same needs nothing is asked again"
    world.rms.cancel(second)
    ticks(world, 3)
    (alone,) = world.hypervisor.statistics("n1").values()
    assert alone.memory_current_kib == 1500 * GIB


def test_a_node_on_which_vms_wait_for_memory_loses_one(make: Make) -> None:
    world = make(nodes=2)
    jobs = [submit(world, 1600, 300) for _ in range(2)]
    ticks(world, 2 * FALLS)
    if world.host(jobs[0]) != world.host(jobs[1]):
        world.ask(jobs[1], OperationKind.MIGRATE, world.host(jobs[0]))
        ticks(world, 1)
    short = world.host(jobs[0])
    world.nodes.bounds.pressure[short] = 50.0
    ticks(world, 6)
    del world.nodes.bounds.pressure[short]
    ticks(world, 1)
    assert world.host(jobs[0]) != world.host(jobs[1])
    assert running(world, jobs) == jobs


def test_a_vm_that_waits_for_memory_is_asked_nothing_and_needs_all_that_it_asked_for(make: Make) -> None:
    world = make(nodes=1, policy="mixed")
    jobs = [submit(world, 1800, 300, name=name) for name in ("first", "last")]
    ticks(world, 20)
    assert running(world, jobs) == jobs
    needs(world, jobs[1], 1790)  # with 330 of the other one more than the bound of 1984
    asked: list[str] = []
    statistics, save = world.hypervisor.statistics, world.hypervisor.save
    bounds: list[int] = []

    def noting(node: str) -> Any:
        asked.append(node)
        return statistics(node)

    def saving(node: str, *words: Any, **options: Any) -> None:
        bounds.append(world.nodes.bounds.set[node])
        save(node, *words, **options)

    world.hypervisor.statistics = noting  # type: ignore[method-assign]
    world.hypervisor.save = saving  # type: ignore[method-assign]
    world.tick(STEP_S)
    assert asked == []
    assert [vm.memory_demand_mib for vm in world.context.ledger.vms(jobs[1])] == [1800]
    ticks(world, 2)
    assert running(world, jobs) == jobs[:1]
    assert world.state(jobs[1]) is S.SLEEPING, "the last in the queue, and nobody else"
    assert bounds == [2 * GIB], "what was kept back is given before anything is asked of it"
    assert asked


# -- VMs whose memory is as requested are safe -------------------------------------------------------------------------


def mixed_site(make: Make) -> World:
    """As observed; and a partition `firm` on the same hosts, whose VMs take what was requested."""
    world = make(nodes=1)
    changed = world.settings.model_dump()
    changed["slurm"]["partitions"] = ["vjob", "firm"]
    changed["partition"]["firm"] = {"hosts": "vmhosts"}
    world.settings = type(world.settings).model_validate(changed)
    old = world.rms.partitions["vjob"]
    world.rms.partitions["firm"] = RmsPartition("firm", True, old.nodes, "REQUEUE", 1, 0)
    world.rms._vjob_partitions = ("vjob", "firm")
    world.start_engine()
    return world


def test_observed_vms_are_bounded_before_one_comes_that_is_not(make: Make) -> None:
    world = mixed_site(make)
    observed = submit(world, 1600, 300)
    ticks(world)
    assert world.nodes.bounds.set["n1"] == 2 * GIB - 64
    firm = world.submit(vms=1, memory_mib=700, computing=False, partition="firm")
    world.until(firm, S.RUNNING)
    assert world.nodes.bounds.set["n1"] == 2 * GIB - 64 - 700 - OVERHEAD
    assert running(world, [observed, firm]) == [observed, firm]
    world.rms.cancel(firm)
    ticks(world, 3)
    assert world.nodes.bounds.set["n1"] == 2 * GIB - 64


def test_a_node_that_has_restarted_has_its_bound_again_before_a_vm_starts_there(make: Make) -> None:
    world = make(nodes=1)
    world.tick()
    world.nodes.bounds.lose("n1")
    boot = world.hypervisor.boot
    bounded: list[int | None] = []

    def noting(node: str, *words: Any, **options: Any) -> None:
        bounded.append(world.nodes.bounds.set.get(node))
        boot(node, *words, **options)

    world.hypervisor.boot = noting  # type: ignore[method-assign]
    submit(world, 1600, 300)
    ticks(world, 2)
    assert bounded == [2 * GIB - 64]


def test_a_silent_node_agent_is_asked_less_and_less_often(make: Make) -> None:
    world = make(nodes=1)
    world.nodes.set_reachable("n1", False)
    for _ in range(40):
        world.tick(1.0)
    asked = sum(call[0] == "bound_memory" for call in world.nodes.calls)
    assert 2 <= asked <= 8
    world.nodes.set_reachable("n1", True)
    ticks(world, 12)
    assert world.nodes.bounds.set["n1"] == 2 * GIB - 64


def test_where_observed_vms_cannot_do_with_less_no_other_comes(make: Make) -> None:
    world = mixed_site(make)
    observed = submit(world, 1600, 300)
    ticks(world)
    needs(world, observed, 1500)
    firm = world.submit(vms=1, memory_mib=700, computing=False, partition="firm")
    ticks(world)
    assert world.state(firm) is S.WAITING
    assert world.nodes.bounds.set["n1"] == 2 * GIB - 64, "the old bound holds"
    needs(world, observed, 300)
    ticks(world, 20)
    world.until(firm, S.RUNNING)
    assert running(world, [observed, firm]) == [observed, firm]


# -- reservations ------------------------------------------------------------------------------------------------------


def blocked(make: Make, reserving_s: float = 3600) -> tuple[World, int, int, list[int]]:
    """Six nodes, full of small vjobs, with 451 MiB left each: too little for one more. Only n(large) has but one.

    Returns the world, a large vjob that still needs little, the small one beside it, and all others.
    """
    world = make(nodes=6, unknown=0.31, reserving_s=reserving_s)
    large = submit(world, 1600, 300, name="large")
    small: list[int] = []
    while len(running(world, small)) == len(small):
        small.append(submit(world, 1100, 300, name="small"))
        ticks(world)
    world.rms.cancel(small.pop())
    beside, *others = [job for job in small if world.host(job) == world.host(large)]
    for job in others:
        world.rms.cancel(job)
    ticks(world, 20)  # nobody is exempt from suspension any more
    left = [job for job in small if job not in (beside, *others)]
    assert running(world, left) == left and len(left) == 15
    return world, large, beside, left


def reserved(make: Make, reserving_s: float = 3600) -> tuple[World, int, int, list[int], str]:
    """The large one has grown: a node is reserved for it."""
    world, large, beside, small = blocked(make, reserving_s)
    needs(world, large, 1200)
    ticks(world, 2)
    (held,) = world.context.ledger.reservations.read().held
    assert held.vm == f"vjob{large}-0" and not held.guests
    return world, large, beside, small, held.node


def test_the_blocking_problem_ends_with_a_reserved_node(make: Make) -> None:
    world, large, beside, small, node = reserved(make)
    (told,) = world.events("node-reserved")
    assert all(way in told for way in ("compaction", "reservation", "suspension"))
    assert running(world, [large, beside, *small]) == [large, beside, *small], "nobody is suspended meanwhile"
    assert world.host(large) == world.host(beside)

    here = [job for job in small if world.host(job) == node]
    world.rms.cancel(here[0])
    late = submit(world, 1100, 300, name="small")
    ticks(world, 2)
    assert running(world, [late]) == [], "there is room for it on the reserved node only"

    for job in here[1:]:
        world.rms.cancel(job)
    ticks(world, 3)
    assert world.host(large) == node
    (held,) = world.context.ledger.reservations.read().held
    assert held.guests == {f"vjob{large}-0"}
    world.until(late, S.RUNNING)
    assert world.host(late) == world.host(beside), "small ones flow on elsewhere"
    world.rms.cancel(large)
    ticks(world, 3)
    assert not world.context.ledger.reservations.read().held
    assert world.events("node-released")


def test_a_reserved_node_without_room_in_time_is_told_as_a_full_cluster_and_the_last_in_the_queue_sleeps(
    make: Make,
) -> None:
    world, large, beside, small, node = reserved(make, reserving_s=300)
    ticks(world, 8)
    assert not world.events("cluster-full"), "240 s are not over yet"
    assert running(world, [large, beside, *small]) == [large, beside, *small]
    ticks(world, 4)
    (told,) = world.events("cluster-full")
    assert told == f"{node} is released: it has no room after 300 s; the cluster is truly full"
    assert not world.context.ledger.reservations.read().held, "nobody reserves for as long again"
    assert world.state(small[-1]) is S.SLEEPING or world.state(beside) is S.SLEEPING
    ticks(world, 4)
    assert len(world.events("cluster-full")) == len(world.events("node-reserved")) == 1


def test_a_reservation_survives_the_engine(make: Make) -> None:
    world, *_ = reserved(make)
    before = world.context.ledger.reservations.read()
    world.start_engine()
    assert world.context.ledger.reservations.read() == before
    ticks(world, 2)
    assert world.context.ledger.reservations.read() == before


def test_without_reservations_the_last_in_the_queue_is_suspended(make: Make) -> None:
    world, large, *_ = blocked(make)
    changed = world.settings.model_dump()
    changed["decision"]["policy"] = "rjsp"
    world.settings = type(world.settings).model_validate(changed)
    world.start_engine()
    needs(world, large, 1200)
    ticks(world, 3)
    assert not world.context.ledger.reservations.read().held
    assert S.SLEEPING in {vjob.state for vjob in world.context.ledger.vjobs()}


def test_a_reservation_ends_when_its_vjob_is_cancelled(make: Make) -> None:
    world, large, *_ = reserved(make)
    world.rms.cancel(large)
    ticks(world, 3)
    assert not world.context.ledger.reservations.read().held


@pytest.mark.parametrize("lost", [False, True], ids=["drained", "lost"])
def test_a_reservation_ends_when_its_node_takes_no_vms_any_more(make: Make, lost: bool) -> None:
    world, *_, node = reserved(make)
    if lost:
        world.kill_node(node)
    else:
        world.rms.set_node(node, draining=True, reason="disk")
    ticks(world, 2)
    assert node not in world.context.ledger.reservations.read().nodes


# -- three nodes -------------------------------------------------------------------------------------------------------


def place(world: World, vm: str, node: str) -> None:
    """Have a VM run on a node, as an operator would."""
    ledger = world.context.ledger
    job = int(vm.removeprefix("vjob").partition("-")[0])
    if at(world, vm) != node:
        seen = world.cycle.seen
        assert seen is not None
        world.alive(lambda: world.placing.migrate(seen, ledger.vjob(job), vm, node, "asked", "root"))
        ticks(world, 2)
    assert at(world, vm) == node


def at(world: World, vm: str) -> str:
    (found,) = (each.host for each in world.context.ledger.live_vms() if each.name == vm)
    return found


def three_nodes(make: Make, policy: str) -> tuple[World, int, list[int]]:
    """A large one and the first VM of a gang on a node, small ones and the other VM on the other two; the first grows.

    Both need more than any other node has idle, and the other two have more than a node idle together.
    Returns the world, the gang, and the others, the large one first.
    """
    world = make(nodes=3, unknown=0.31, reserving_s=3600)
    changed = world.settings.model_dump()
    changed["decision"]["policy"] = policy
    world.settings = type(world.settings).model_validate(changed)
    world.start_engine()
    # They need little while they are placed: no node is short meanwhile, so the engine moves none of them.
    large = submit(world, 1500, 100, name="large")
    gang = submit(world, 1500, 100, vms=2, name="gang")
    small = [submit(world, 600, 100, name="small") for _ in range(3)]
    ticks(world, 2 * FALLS)
    jobs = [large, gang, *small]
    assert running(world, jobs) == jobs
    home = world.host(large)
    apart, beside = sorted({"n1", "n2", "n3"} - {home})
    homes = {f"vjob{gang}-0": home, f"vjob{gang}-1": beside}
    homes |= {f"vjob{job}-0": node for job, node in zip(small, (beside, apart, apart), strict=True)}
    homes[f"vjob{large}-0"] = home
    # Who comes before balloons have made room waits for a moment, and the engine may then have moved somebody away.
    for _ in range(5):
        for vm, node in homes.items():
            place(world, vm, node)
        ticks(world, FALLS)
        if all(at(world, vm) == node for vm, node in homes.items()):
            break
    for job in (gang, *small):
        needs(world, job, 290)
    needs(world, gang, 290, 1)
    needs(world, large, 760)
    ticks(world, 20)  # nobody is exempt from suspension any more
    assert running(world, jobs) == jobs
    needs(world, gang, 760)
    return world, gang, [large, *small]


def test_on_three_nodes_the_seeds_policy_reserves_one_for_the_grown_vm_of_a_gang(make: Make) -> None:
    world, gang, others = three_nodes(make, "v-reconfiguration")
    grown, home = f"vjob{gang}-0", world.host(others[0])
    ticks(world, 2)
    (held,) = world.context.ledger.reservations.read().held
    assert held.node != home and not held.guests
    assert at(world, grown) == home and running(world, [gang, *others]) == [gang, *others]
    (told,) = world.events("node-reserved")
    assert "compaction" not in told, "the seed compares no costs"

    for job in [job for job in others[1:] if world.host(job) == held.node]:
        world.rms.cancel(job)
    ticks(world, 3)
    assert at(world, grown) == held.node
    (held,) = world.context.ledger.reservations.read().held
    assert held.guests == {grown}
    assert not world.events("vjob-suspending")
    world.rms.cancel(gang)
    ticks(world, 3)
    assert not world.context.ledger.reservations.read().held


def test_on_three_nodes_migrations_relieve_a_gang_where_nothing_is_reserved(make: Make) -> None:
    world, gang, others = three_nodes(make, "load-sharing")
    moved = len(world.events("migrated"))
    ticks(world, 3)
    assert len(world.events("migrated")) >= moved + 2, "those in the way, and one of the two"
    assert at(world, f"vjob{gang}-0") != world.host(others[0])
    assert running(world, [gang, *others]) == [gang, *others]
    assert not world.events("node-reserved") and not world.events("vjob-suspending")


def test_a_smaller_vm_is_not_expected_to_need_more_than_it_has(make: Make) -> None:
    world = make(unknown=1.0)
    job = world.submit(vms=2, cpus=2, memory_mib=1024, computing=False, name="job", small=(1, 256))
    needs(world, job, 1024, 0)
    needs(world, job, 256, 1)
    world.until(job, S.RUNNING)
    vms = world.context.ledger.vms(job)
    assert [(vm.memory_mib, vm.memory_demand_mib) for vm in vms] == [(1024, 1024), (256, 256)]
