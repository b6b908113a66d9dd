"""The site's placement rules, and users' wishes, on a living cluster: VMs beside each other, and on which nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scenarios.world import CPUS, NODES, World

from rmsplugin.engine.ledger.rows import OperationKind
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.errors import RefusedError
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.vjob import VJobState
from rmsplugin.proposer.proposer import Proposed
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.settings.rules import PlacementRule

S = VJobState


def rule(world: World, name: str = "site", **keys: Any) -> None:
    """The site writes a rule into its settings, and starts the engine again."""
    rules = {**world.settings.rule, name: PlacementRule.model_validate(keys)}
    world.settings = world.settings.model_copy(update={"rule": rules})
    world.start_engine()


def some(world: World, ticks: int = 5) -> None:
    for _ in range(ticks):
        world.tick()


def hosts(world: World, *jobs: int) -> list[str]:
    """The nodes of all VMs of these vjobs that have memory."""
    return [vm.host for job in jobs for vm in world.context.ledger.vms(job) if vm.host]


def reason(world: World, job: int) -> str:
    return str(world.requests().vjob(0, str(job))["reason"])


def test_vms_of_a_vjob_are_on_nodes_of_their_own_where_the_site_says_so(world: World) -> None:
    rule(world, kind="spread", per="vjob")
    job = world.running(vms=3)
    other = world.running(vms=2)
    assert sorted(hosts(world, job)) == sorted(NODES)
    assert len(set(hosts(world, other))) == 2


def test_without_the_rule_they_are_together(world: World) -> None:
    assert len(set(hosts(world, world.running(vms=2)))) == 1


def test_a_vjob_with_more_vms_than_nodes_waits_and_says_why(world: World) -> None:
    rule(world, "apart", kind="spread", per="vjob", names=["db*"])
    job = world.submit(vms=4, name="db1")
    other = world.submit(vms=4, name="web")
    some(world)
    assert world.states(job, other) == [S.WAITING, S.RUNNING]
    world.rms.finish(other)
    some(world)
    assert reason(world, job).startswith(
        "needs 4 CPUs and 1536 MiB in 4 VMs; 3 nodes have room for one of its VMs, but rule apart: spread of 4 VMs has "
        "each on a node of its own"
    )


def test_vms_that_break_a_new_rule_are_moved_apart(world: World) -> None:
    job = world.running(vms=2)
    assert len(set(hosts(world, job))) == 1
    rule(world, kind="spread", per="vjob")
    some(world)
    assert world.state(job) is S.RUNNING
    assert len(set(hosts(world, job))) == 2
    assert world.hypervisor.violations == []


def test_vms_that_nothing_can_move_apart_run_on(world: World) -> None:
    """Those of a partition whose vjobs are never suspended."""
    job = world.running(vms=2)
    world.rms.partitions["vjob"] = replace(world.rms.partitions["vjob"], preempt_mode="OFF")
    rule(world, kind="spread", per="vjob")
    some(world)
    assert world.state(job) is S.RUNNING
    assert len(set(hosts(world, job))) == 1


def test_a_user_has_his_nodes_alone(world: World) -> None:
    rule(world, "alone", kind="lonely", per="user")
    one = world.running(user="ann", cpus=1)
    two = world.running(user="ann", cpus=1)
    three = world.running(user="bob", cpus=1)
    assert hosts(world, one) == hosts(world, two) != hosts(world, three)


def test_two_accounts_are_never_on_one_node(world: World) -> None:
    rule(world, "rivals", kind="split", accounts=["red", "blue"], per="account")
    jobs = [world.submit(vms=1, account=account) for account in ("red", "blue", "green", "red")]
    some(world)
    places = dict(zip(jobs, hosts(world, *jobs), strict=True))
    assert {places[jobs[0]], places[jobs[3]]}.isdisjoint({places[jobs[1]]})


def test_so_many_vms_with_a_licence_run_at_a_time(world: World) -> None:
    rule(world, "matlab", kind="capacity", licenses=["matlab"], most=1)
    first, second = (world.submit(vms=1, licenses="matlab:1") for _ in range(2))
    other = world.submit(vms=1)
    some(world)
    assert world.states(first, second, other) == [S.RUNNING, S.WAITING, S.RUNNING]
    assert "rule matlab: capacity: at most 1 of" in reason(world, second)
    world.rms.finish(first)
    world.until(second, S.RUNNING)


def test_a_fence_and_a_ban(world: World) -> None:
    rule(world, "theirs", kind="fence", accounts=["red"], nodes="n3")
    rule(world, "ours", kind="ban", accounts=["blue"], nodes="n[1,3]")
    red, blue = world.running(account="red"), world.running(account="blue")
    assert hosts(world, red, blue) == ["n3", "n2"]
    last = world.submit(vms=1, cpus=CPUS, account="red")
    some(world)
    assert world.state(last) is S.WAITING


def test_vms_outside_of_a_new_fence_are_moved_into_it(world: World) -> None:
    job = world.running(account="red")
    assert hosts(world, job) == ["n1"]
    rule(world, kind="fence", accounts=["red"], nodes="n3")
    some(world)
    assert (world.state(job), hosts(world, job)) == (S.RUNNING, ["n3"])


def test_a_vjob_whose_nodes_are_all_closed_says_by_which_rules(world: World) -> None:
    rule(world, "theirs", kind="fence", accounts=["red"], nodes="n9")
    job = world.submit(vms=1, account="red")
    some(world)
    assert reason(world, job) == "may be on 3 nodes, and the site's rules (theirs) leave it none of them"


def test_what_is_reserved_is_kept_free(world: World) -> None:
    rule(world, kind="reserve", nodes="n[1-2]", cpus=1)
    jobs = [world.submit(vms=1, cpus=CPUS) for _ in range(2)]
    some(world)
    assert world.states(*jobs) == [S.RUNNING, S.WAITING]
    assert hosts(world, *jobs) == ["n3"]


def overbook(world: World, ratio: float, partition: str = "vjob") -> None:
    """The site writes a ratio into its settings, and starts the engine again."""
    found = world.settings.partition[partition].model_copy(update={"cpu_overbooking": ratio})
    world.settings = world.settings.model_copy(update={"partition": {**world.settings.partition, partition: found}})
    world.start_engine()


def test_as_many_vms_compute_on_a_node_as_its_cpus_are_overbooked(world: World) -> None:
    overbook(world, 1.5)
    jobs = [world.submit(vms=1, memory_mib=64) for _ in range(10)]
    some(world)
    assert world.states(*jobs) == [*[S.RUNNING] * 9, S.WAITING]
    assert {node: hosts(world, *jobs).count(node) for node in NODES} == dict.fromkeys(NODES, 3)
    assert "needs 0.66 CPUs" in reason(world, jobs[9])
    assert world.hypervisor.violations == []


def test_overbooked_vms_that_compute_count_with_their_part_and_suspend_nobody(world: World) -> None:
    """They idle, and then use all CPUs that they requested, twice as many as there are."""
    overbook(world, 2)
    jobs = [world.running(memory_mib=64, computing=False) for _ in range(12)]
    vms = [vm.name for job in jobs for vm in world.context.ledger.vms(job)]
    for used in (0.0, 1.0):
        for vm in vms:
            world.hypervisor.set_demand(vm, used)
        for _ in range(12):
            world.tick(10)
        assert [world.context.demanded_cpus.cpus(vm) for vm in vms] == [used] * 12
    assert world.cycle.seen is not None
    assert [host.used.cpus for host in world.capacities().hosts(world.cycle.seen).values()] == [2.0] * 3
    assert world.states(*jobs) == [S.RUNNING] * 12
    assert [call for call in world.hypervisor.calls if call[0] in ("save", "migrate")] == []


def test_overbooked_vms_that_are_seen_to_use_less_count_with_that(world: World) -> None:
    overbook(world, 2)
    job = world.running(vms=1, cpus=2)
    (vm,) = world.context.ledger.vms(job)
    world.hypervisor.set_demand(vm.name, 0.3)
    for _ in range(12):
        world.tick(10)
    assert world.cycle.seen is not None
    assert [host.used.cpus for host in world.capacities().hosts(world.cycle.seen).values() if host.parts] == [0.3]


def test_a_vm_comes_to_no_node_that_has_fewer_cpus_than_the_vm(world: World) -> None:
    overbook(world, 16)
    rule(world, "daemons", kind="reserve", nodes="n[1-2]", cpus=1)
    wide, wider = world.submit(vms=3, cpus=2, memory_mib=64), world.submit(vms=1, cpus=3)
    some(world)
    assert hosts(world, wide) == ["n3", "n3", "n3"]
    assert reason(world, wider) == "no node that it may use has 3 CPUs, as one of its VMs has"


def test_so_many_nodes_host_vms(world: World) -> None:
    rule(world, "few", kind="online", most=1)
    jobs = [world.submit(vms=1, cpus=CPUS) for _ in range(2)]
    some(world)
    assert world.states(*jobs) == [S.RUNNING, S.WAITING]
    assert "rule few: online: at most 1 of" in reason(world, jobs[1])


def test_vms_that_stay_are_saved_where_others_would_migrate(world: World) -> None:
    rule(world, "stay", kind="root", names=["rooted"])
    job = world.running(name="rooted")
    world.ask(job, OperationKind.MIGRATE)
    some(world)
    assert (world.state(job), hosts(world, job)) == (S.RUNNING, ["n1"])
    world.rms.set_node("n1", draining=True, reason="new fans")
    some(world)
    assert (world.state(job), hosts(world, job)) == (S.RUNNING, ["n2"])
    assert [call[0] for call in world.hypervisor.calls if call[0] in ("save", "restore", "migrate")] == [
        "save",
        "restore",
    ]


def test_an_operator_moves_no_vm_where_a_rule_bars_it(world: World) -> None:
    rule(world, "apart", kind="spread", per="vjob")
    job = world.running(vms=2)
    one, other = world.context.ledger.vms(job)
    told = f"1 node with room for {one.name}, but rule apart: spread of .* bars it from 1"
    with pytest.raises(RefusedError, match=told):
        world.placing.migrate(_seen(world), world.context.ledger.vjob(job), one.name, other.host, "asked", "root")
    some(world)
    assert len(set(hosts(world, job))) == 2


def _seen(world: World) -> Observation:
    assert world.cycle.seen is not None
    return world.cycle.seen


def _resumed_meanwhile(world: World) -> tuple[int, int]:
    """One of two vjobs may run. One sleeps; while a cycle decides to start the other, an operator resumes it."""
    rule(world, "one", kind="capacity", most=1)
    first = world.sleeping()
    propose = world.propose

    def meanwhile(configuration: Configuration, parameters: ProposalParameters) -> Proposed:
        found = propose(configuration, parameters)
        world.ask(first, OperationKind.RESUME, "n3")
        return found

    world.propose = meanwhile  # type: ignore[method-assign]
    return first, world.submit(vms=1)


def test_a_plan_is_stale_if_vms_have_come_beside_which_its_own_may_not_be(world: World) -> None:
    first, second = _resumed_meanwhile(world)
    world.tick()
    assert world.states(first, second) == [S.RUNNING, S.WAITING]
    [problem] = world.cycle.report.problems
    assert problem.startswith("a context switch was not begun: the cluster has changed since the plan was made: ")
    assert "rule one: capacity: at most 1 of" in problem


def test_a_step_does_not_begin_where_a_rule_bars_its_vms_by_now(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmsplugin.engine.execute.switch._broken", lambda *_: "")
    first, second = _resumed_meanwhile(world)
    world.tick()
    assert world.states(first, second) == [S.RUNNING, S.WAITING]
    [told] = world.events("step-failed")
    assert "may not come to" in told


@pytest.mark.parametrize("ticks", [40])
def test_nothing_changes_where_nothing_has_changed(world: World, ticks: int) -> None:
    """Whoever a rule keeps out does not change places with those that run."""
    rule(world, kind="lonely", per="user")
    jobs = [world.submit(vms=1, user=user) for user in ("ann", "bob", "cid", "dan", "eva", "ann")]
    some(world, 10)
    before = len(world.events("context-switch"))
    some(world, ticks)
    assert sum(state is S.RUNNING for state in world.states(*jobs)) == 4
    assert len(world.events("context-switch")) == before


# -- nodes that are borrowed while vjobs need them -------------------------------------------------------------------


@pytest.fixture
def elastic(directory: Path) -> Iterator[World]:
    world = World(directory, rooms="elastic", room_idle_s=10)
    yield world
    assert world.hypervisor.violations == []
    world.close()


def rooms(world: World) -> set[str]:
    assert world.cycle.seen is not None
    return set(world.cycle.seen.rooms.by_node)


def test_as_many_nodes_are_borrowed_as_vms_that_are_apart_need(elastic: World) -> None:
    rule(elastic, kind="spread", per="vjob")
    job = elastic.running(vms=3)
    assert sorted(hosts(elastic, job)) == sorted(NODES)


def test_no_node_is_borrowed_for_a_vjob_that_could_not_start_there(elastic: World) -> None:
    rule(elastic, kind="capacity", licenses=["matlab"], most=1)
    first, second = (elastic.submit(vms=1, cpus=CPUS, licenses="matlab:1") for _ in range(2))
    some(elastic, 60)
    assert elastic.states(first, second) == [S.RUNNING, S.WAITING]
    assert rooms(elastic) == set(hosts(elastic, first))
    assert reason(elastic, second).startswith("needs 2 CPUs and 384 MiB in 1 VM; 2 nodes with room for ")
    assert "rule site: capacity: at most 1 of" in reason(elastic, second)
    assert elastic.cycle.deciding.told[str(second)].code == "rule"
    proposal = elastic.cycle.preview().prepared.proposal
    assert proposal is not None
    ahead = proposal.decision.reasons[str(second)]
    assert (ahead.code, ahead.sentence) == ("rule", reason(elastic, second))


def test_a_node_is_borrowed_for_a_vjob_that_has_to_be_alone(elastic: World) -> None:
    rule(elastic, kind="lonely", names=["alone"])
    jobs = [elastic.running(), elastic.running(name="alone")]
    assert len(set(hosts(elastic, *jobs))) == 2


# -- wishes of users -------------------------------------------------------------------------------------------------

SPREAD, EXCLUSIVE, ALONE, LABELLED = ("spread",), ("exclusive",), ("alone",), ("labelled",)


def test_vms_of_a_vjob_are_apart_where_its_user_wishes(world: World) -> None:
    job = world.running(vms=3, wishes=SPREAD)
    assert sorted(hosts(world, job)) == sorted(NODES)
    wide = world.submit(vms=4, wishes=SPREAD)
    some(world)
    assert world.state(wide) is S.WAITING
    world.rms.finish(job)
    some(world)
    assert "but rule --spread-job: spread of 4 VMs has each on a node of its own" in reason(world, wide)


def test_nobody_elses_vm_comes_beside_those_of_a_user_who_wishes_so(world: World) -> None:
    mine = world.running(user="ann", wishes=EXCLUSIVE)
    also_mine = world.running(user="ann")
    others = world.running(user="bob")
    assert hosts(world, mine) == hosts(world, also_mine)
    assert hosts(world, others) != hosts(world, mine)


def test_ones_own_vms_without_the_wish_may_be_with_others(world: World) -> None:
    friends, bob = world.running(user="ann"), world.running(user="bob")
    assert hosts(world, friends) == hosts(world, bob)
    alone = world.running(user="ann", wishes=EXCLUSIVE)
    assert not {*hosts(world, alone)} & {*hosts(world, bob)}


def test_nobody_comes_beside_an_exclusive_vjob_not_even_its_users_own(world: World) -> None:
    first = world.running(vms=2, user="ann", wishes=ALONE)
    second = world.running(user="ann", wishes=ALONE)
    other = world.running(user="ann")
    assert [len(set(hosts(world, job))) for job in (first, second, other)] == [1, 1, 1]
    assert len(set(hosts(world, first, second, other))) == 3, "each on a node of its own"
    late = world.submit(vms=1, user="ann", wishes=ALONE)
    some(world)
    assert world.state(late) is S.WAITING
    assert "rule --exclusive: lonely 4 VMs bars it from 1 and rule --exclusive: split of" in reason(world, late)
    world.rms.finish(first)
    some(world)
    assert world.state(late) is S.RUNNING


def test_an_exclusive_vjob_waits_for_a_node_that_is_empty(world: World) -> None:
    bobs = [world.running(user="bob", wishes=SPREAD, vms=3)]
    alone = world.submit(user="ann", wishes=ALONE)
    some(world)
    assert world.state(alone) is S.WAITING
    assert "rule --exclusive: lonely" in reason(world, alone)
    world.rms.finish(bobs[0])
    some(world)
    assert world.state(alone) is S.RUNNING


def test_vms_of_another_label_or_of_none_come_not_beside_one_that_wishes_so(world: World) -> None:
    mine = world.running(user="ann", wishes=LABELLED, mcs_label="secret")
    same = world.running(user="bob", mcs_label="secret")
    another = world.running(user="ann", mcs_label="open")
    without = world.running(user="ann")
    assert hosts(world, same) == hosts(world, mine)
    assert hosts(world, another) == hosts(world, without) != hosts(world, mine)
    for job in (same, another, without):
        world.rms.finish(job)
    some(world)
    wide = world.submit(vms=3, user="ann", wishes=SPREAD, mcs_label="open")
    some(world)
    assert world.state(wide) is S.WAITING
    assert "rule --exclusive=mcs: lonely" in reason(world, wide)


def test_where_no_job_has_a_label_all_are_of_one(world: World) -> None:
    mine, other = world.running(user="ann", wishes=LABELLED), world.running(user="bob")
    assert hosts(world, mine) == hosts(world, other)


def test_an_operator_moves_no_vm_beside_one_that_wishes_to_be_alone(world: World) -> None:
    alone, other = world.running(user="ann", wishes=EXCLUSIVE), world.running(user="bob")
    [home], [vm] = hosts(world, alone), world.context.ledger.vms(other)
    with pytest.raises(RefusedError, match=f"{vm.name}, but rule --exclusive=user: lonely .* bars it from 1"):
        world.placing.migrate(_seen(world), world.context.ledger.vjob(other), vm.name, home, "asked", "root")


def test_elements_of_an_array_wish_before_they_have_rows(world: World) -> None:
    world.running(user="bob")
    array = world.submit(vms=1, user="ann", wishes=EXCLUSIVE, array=range(2))
    some(world, 10)
    places = {vm.host for vm in world.context.ledger.live_vms() if vm.job_id != 1}
    assert len(world.context.ledger.live_vms()) == 3, array
    assert "n1" not in places


# -- the most switches ------------------------------------------------------------------------------------------------

TWO_SWITCHES = (("n1",), ("n2", "n3"))


def test_vms_are_on_as_few_switches_as_their_user_says(world: World) -> None:
    world.rms.switches = TWO_SWITCHES
    near = world.running(vms=2, cpus=CPUS, switches=1)
    assert set(hosts(world, near)) == {"n2", "n3"}, "one after the other they would begin on n1"
    assert world.rms.calls.count(("leaf_switches", "")) == 1


def test_a_vjob_that_finds_no_place_on_so_few_switches_waits_and_is_told_why(world: World) -> None:
    world.rms.switches = TWO_SWITCHES
    wide = world.submit(vms=3, cpus=CPUS, switches=1)
    some(world)
    assert world.state(wide) is S.WAITING
    rule_words = "rule --switches=1: within: '1-0' '1-1' '1-2' on at most 1 of 2 sets of nodes bars it from 2"
    assert f"2 nodes with room for 1-1, but {rule_words}" in reason(world, wide)
    two = world.running(vms=3, cpus=CPUS, switches=2)
    assert set(hosts(world, two)) == set(NODES)


def test_without_a_topology_all_nodes_are_on_one_switch(world: World) -> None:
    job = world.running(vms=3, cpus=CPUS, switches=1)
    assert set(hosts(world, job)) == set(NODES)


def test_an_operator_moves_no_vm_to_a_switch_too_many(world: World) -> None:
    world.rms.switches = TWO_SWITCHES
    near = world.running(vms=2, switches=1)
    here = set(hosts(world, near))
    away, vm = ("n1" if "n1" not in here else "n2"), world.context.ledger.vms(near)[0]
    with pytest.raises(RefusedError, match=f"{vm.name}, but rule --switches=1: within: .* bars it from 1"):
        world.placing.migrate(_seen(world), world.context.ledger.vjob(near), vm.name, away, "asked", "root")


def test_rooms_are_borrowed_on_as_few_switches_as_the_user_says(elastic: World) -> None:
    elastic.rms.switches = TWO_SWITCHES
    near = elastic.running(vms=2, cpus=CPUS, switches=1)
    assert set(hosts(elastic, near)) == {"n2", "n3"}
