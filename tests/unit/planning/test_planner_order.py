"""Dependency order and makespan: what waits for what, and how long a plan takes."""

from __future__ import annotations

import pytest

from rmsplugin.model.action import migrate, pause, resume, run, stop, suspend, unpause
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import SHARED, VM, WAITING, Location, Node, VJob, paused_on, running_on, sleeping_on
from rmsplugin.model.resources import Resources
from rmsplugin.planning.order.dependencies import dependency_order
from rmsplugin.planning.order.makespan import makespan
from rmsplugin.planning.order.transfers import Duration, Durations
from rmsplugin.planning.order_checker import check_order
from rmsplugin.planning.plan import Plan
from rmsplugin.planning.violations import Rule
from rmsplugin.settings.deciding import Durations as Section


def vm(name: str, memory_mib: int) -> VM:
    return VM(name, Resources(0, memory_mib))


def configuration(
    cluster: dict[str, int], locations: dict[VM, Location], vjobs: list[VJob] | None = None
) -> Configuration:
    nodes = tuple(Node(name, Resources(0, memory)) for name, memory in cluster.items())
    known = vjobs or [VJob(f"vjob-{each.name}", (each,)) for each in locations]
    return Configuration(nodes, tuple(known), {each.name: location for each, location in locations.items()})


A, B, C, D, E = (vm(name, 512) for name in "abcde")


# -- dependency order ------------------------------------------------------------------------------------------------


def test_two_arrivals_do_not_count_on_the_same_departure() -> None:
    source = configuration({"n1": 1024, "n2": 1024}, {A: running_on("n1"), B: running_on("n1"), C: WAITING, D: WAITING})
    plan = Plan(((stop(A, "n1"), stop(B, "n1")), (run(C, "n1"), run(D, "n1"))))
    assert dependency_order(source, plan).needs == ((), (), (0,), (1,))


def test_who_finds_memory_free_from_the_start_waits_for_nobody_though_it_is_in_a_later_pool() -> None:
    source = configuration({"n1": 512, "n2": 512}, {A: running_on("n1"), B: WAITING, C: WAITING})
    plan = Plan(((stop(A, "n1"),), (run(B, "n1"), run(C, "n2"))))
    assert dependency_order(source, plan).needs == ((), (0,), ())


def test_the_departure_with_the_least_that_is_enough_is_waited_for() -> None:
    big, small, arrives = vm("big", 1024), vm("small", 512), vm("arrives", 512)
    source = configuration({"n": 1536}, {big: running_on("n"), small: running_on("n"), arrives: WAITING})
    plan = Plan(((stop(big, "n"), stop(small, "n")), (run(arrives, "n"),)))
    assert dependency_order(source, plan).needs[2] == (1,)


def test_a_large_arrival_waits_for_as_few_as_can_be() -> None:
    small = [vm(f"s{i}", 128) for i in range(4)]
    big, arrives = vm("big", 768), vm("arrives", 1024)
    source = configuration({"n": 1408}, {**dict.fromkeys([*small, big], running_on("n")), arrives: WAITING})
    plan = Plan((tuple(stop(each, "n") for each in [*small, big]), (run(arrives, "n"),)))
    # 128 MiB are free, 768 come from `big`: one of the small ones gives the rest
    assert dependency_order(source, plan).needs[5] == (0, 4)


def test_a_vm_waits_for_its_own_detour_and_who_takes_its_place_for_it() -> None:
    source = configuration({"n1": 512, "n2": 512, "n3": 512}, {A: running_on("n1"), B: running_on("n2")})
    plan = Plan(
        ((migrate(A, "n1", "n3", bypass=True),), (migrate(B, "n2", "n1"),), (migrate(A, "n3", "n2"),)),
    )
    assert dependency_order(source, plan).needs == ((), (0,), (0, 1))


def test_the_resumes_of_a_vjob_begin_together_when_all_of_them_can() -> None:
    source = configuration(
        {"n1": 512, "n2": 512},
        {A: sleeping_on("n1"), B: sleeping_on("n2"), C: running_on("n2")},
        [VJob("v", (A, B)), VJob("w", (C,))],
    )
    plan = Plan(((stop(C, "n2"),), (resume(A, "n1", "n1"), resume(B, "n2", "n2"))))
    order = dependency_order(source, plan)
    assert order.needs == ((), (0,), (0,))
    assert order.together == ((1, 2),)


def test_where_more_is_demanded_than_there_is_nothing_arrives_before_that_is_mended() -> None:
    source = configuration({"n": 1024}, {A: running_on("n"), B: running_on("n"), C: running_on("n"), D: WAITING})
    plan = Plan(((stop(A, "n"), stop(B, "n")), (run(D, "n"),)))
    assert dependency_order(source, plan).needs[2] == (0, 1)


def test_a_plan_that_is_not_valid_is_refused() -> None:
    source = configuration({"n": 512}, {A: running_on("n"), B: WAITING})
    with pytest.raises(ValueError, match="run b to n: n has not the memory"):
        dependency_order(source, Plan(((stop(A, "n"), run(B, "n")),)))


def test_an_order_is_wrong_in_which_two_arrivals_count_on_the_same_departure() -> None:
    source = configuration({"n1": 1024, "n2": 1024}, {A: running_on("n1"), B: running_on("n1"), C: WAITING, D: WAITING})
    actions = (stop(A, "n1"), stop(B, "n1"), run(C, "n1"), run(D, "n1"))
    assert check_order(source, actions, ((), (), (0,), (1,))) == []
    assert check_order(source, actions, ((), (), (0, 1), (0,))) == [], "C can have what B gives back"
    assert [fault.rule for fault in check_order(source, actions, ((), (), (0,), (0,)))] == [Rule.MEMORY]


def test_an_order_is_wrong_in_which_something_arrives_before_it_is_mended_that_more_is_demanded_than_there_is() -> None:
    source = configuration({"n": 1024}, {A: running_on("n"), B: running_on("n"), C: running_on("n"), D: WAITING})
    actions = (stop(A, "n"), stop(B, "n"), run(D, "n"))
    assert check_order(source, actions, ((), (), (0, 1))) == []
    assert [fault.rule for fault in check_order(source, actions, ((), (), (0,)))] == [Rule.MEMORY]


# -- makespan --------------------------------------------------------------------------------------------------------

SIMPLE = Durations(
    run=Duration(6),
    stop=Duration(25),
    migrate=Duration(0, 1 / 64),
    suspend=Duration(0, 1 / 32),
    resume_local=Duration(0, 1 / 32),
    resume_remote=Duration(0, 1 / 16),
)


def seconds(source: Configuration, *pools: tuple[object, ...]) -> tuple[float, float]:
    plan = Plan(pools)  # type: ignore[arg-type]
    found = makespan(plan, dependency_order(source, plan), SIMPLE)
    return round(found.by_pools_s, 6), round(found.by_dependencies_s, 6)


def test_the_defaults_are_those_of_the_paper() -> None:
    gib2 = vm("a", 2048)
    durations = Durations()

    def alone(action: object) -> float:
        each = durations.of(action)  # type: ignore[arg-type]
        return each.constant_s + each.s_per_mib * 2048

    assert alone(run(gib2, "n")) == 6
    assert alone(stop(gib2, "n")) == 25
    assert alone(migrate(gib2, "n", "m")) == pytest.approx(26, abs=0.1)
    assert alone(resume(gib2, "n", "m")) == pytest.approx(180, abs=1)
    assert alone(resume(gib2, "n", "m")) == pytest.approx(2 * alone(resume(gib2, "n", "n")))
    assert alone(resume(gib2, SHARED, "m")) == alone(resume(gib2, "n", "n")) == alone(suspend(gib2, "n"))
    assert alone(suspend(gib2, "n")) > 2 * alone(migrate(gib2, "n", "m"))


def test_the_settings_have_the_same_defaults_and_set_each_of_them() -> None:
    assert Durations.from_values(Section().model_dump()) == Durations()
    values = {name: float(number) for number, name in enumerate(Section.model_fields, start=1)}
    changed = Durations.from_values(values)
    assert sorted(
        amount
        for each in (changed.run, changed.stop, changed.migrate, changed.suspend)
        for amount in (each.constant_s, each.s_per_mib)
        if amount
    ) == [1, 2, 3, 4, 5, 6]
    assert (changed.resume_local, changed.resume_remote) == (Duration(7, 8), Duration(9, 10))
    assert (changed.pause, changed.unpause) == (Duration(12), Duration(13))
    assert changed.pipeline_s == 11


def test_nothing_to_do_takes_no_time() -> None:
    assert seconds(configuration({"n": 512}, {A: WAITING})) == (0, 0)


def test_pools_wait_for_their_longest_action_and_dependencies_only_for_what_they_need() -> None:
    source = configuration(
        {"n1": 512, "n2": 512, "n3": 512},
        {A: running_on("n1"), B: running_on("n2"), C: WAITING},
    )
    # run C needs only that the migration of A (8 s) has ended, not the suspend of B (16 s)
    assert seconds(source, (migrate(A, "n1", "n3"), suspend(B, "n2")), (run(C, "n1"),)) == (22, 16)


def test_transfers_on_one_node_share_its_bandwidth() -> None:
    source = configuration(
        {"n1": 1536, "n2": 512, "n3": 512, "n4": 512}, {A: running_on("n1"), B: running_on("n1"), C: running_on("n4")}
    )
    alone = seconds(source, (migrate(A, "n1", "n2"),))
    assert alone == (8, 8)
    assert seconds(source, (migrate(A, "n1", "n2"), migrate(C, "n4", "n3"))) == (8, 8)
    assert seconds(source, (migrate(A, "n1", "n2"), migrate(B, "n1", "n3"))) == (16, 16)
    assert seconds(source, (migrate(A, "n1", "n2"), migrate(C, "n4", "n1"))) == (16, 16), "also one in, one out"


def test_a_transfer_goes_faster_when_another_has_ended() -> None:
    small = vm("small", 128)
    source = configuration({"n1": 1024, "n2": 512, "n3": 512}, {A: running_on("n1"), small: running_on("n1")})
    # both at half speed until `small` has its 2 s of work done, at 4 s; A then has 6 of its 8 s left
    plan = Plan(((migrate(A, "n1", "n2"), migrate(small, "n1", "n3")),))
    found = makespan(plan, dependency_order(source, plan), SIMPLE)
    assert found.ends_s == pytest.approx((10, 4))


def test_shared_storage_takes_no_bandwidth_of_another_node() -> None:
    source = configuration({"n1": 512, "n2": 512}, {A: sleeping_on(SHARED), B: sleeping_on(SHARED)})
    assert seconds(source, (resume(A, SHARED, "n1"), resume(B, SHARED, "n2"))) == (16, 16)


def test_the_suspends_of_a_vjob_begin_one_second_apart() -> None:
    vms = [vm(name, 512) for name in "abc"]
    locations = {each: running_on(f"n{each.name}") for each in vms}
    cluster = {f"n{each.name}": 512 for each in vms}
    pool = tuple(suspend(each, f"n{each.name}") for each in vms)
    assert seconds(configuration(cluster, locations), pool) == (16, 16)
    assert seconds(configuration(cluster, locations, [VJob("v", tuple(vms))]), pool) == (18, 18)


def test_the_resumed_vms_of_a_vjob_go_on_one_second_apart_after_what_they_wait_for() -> None:
    source = configuration(
        {"n1": 512, "n2": 512},
        {A: sleeping_on("n1"), B: sleeping_on("n2"), C: running_on("n2")},
        [VJob("v", (A, B)), VJob("w", (C,))],
    )
    assert seconds(source, (stop(C, "n2"),), (resume(A, "n1", "n1"), resume(B, "n2", "n2"))) == (42, 42)


@pytest.mark.parametrize("hosts", [("n1", "n2"), ("n2", "n1")])
def test_the_last_vm_of_a_vjob_to_go_on_waits_for_the_slowest_to_be_restored(hosts: tuple[str, str]) -> None:
    """All are restored at once (16 s, and 2 s), whichever goes on first, by the names of the hosts."""
    small = vm("small", 64)
    here = {A: sleeping_on(hosts[0]), small: sleeping_on(hosts[1])}
    source = configuration({"n1": 512, "n2": 512}, here, [VJob("v", (A, small))])
    plan = Plan(((resume(A, hosts[0], hosts[0]), resume(small, hosts[1], hosts[1])),))
    found = makespan(plan, dependency_order(source, plan), SIMPLE)
    assert sorted(found.ends_s) == [16, 17] and (found.by_pools_s, found.by_dependencies_s) == (17, 17)
    assert found.ends_s[hosts.index("n1")] == 16


def test_the_vms_of_a_vjob_are_paused_and_go_on_again_at_one_instant() -> None:
    """As the engine does it (decision 0141), and as an estimate of one step by hand says."""
    vms = [vm(name, 64) for name in "abc"]
    vjob = [VJob("v", tuple(vms))]
    runs = configuration({"n1": 512}, {each: running_on("n1") for each in vms}, vjob)
    stands = configuration({"n1": 512}, {each: paused_on("n1") for each in vms}, vjob)
    for source, act in ((runs, pause), (stands, unpause)):
        assert seconds(source, tuple(act(each, "n1") for each in vms)) == (0.1, 0.1)
