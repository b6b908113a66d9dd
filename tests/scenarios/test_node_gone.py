"""A node dies: silence proves nothing; an operator's word does, and so does the epilog of the engine's room there."""

from __future__ import annotations

import pytest
from scenarios.world import NODES, World

from rmsplugin.adapters.simulated.hypervisor.faults import Point
from rmsplugin.engine.ledger.rows import OperationKind, RoomReport
from rmsplugin.errors import ForbiddenError, NotFoundError, RefusedError, UnavailableError
from rmsplugin.model.vjob import VJobState

S, K = VJobState, OperationKind


def ticks(world: World, count: int = 8) -> None:
    for _ in range(count):
        world.tick(5.0)


def begun_again(world: World, job: int, dead: str) -> None:
    """It runs once, elsewhere, from the start."""
    world.until(job, S.RUNNING)
    vjob = world.context.ledger.vjob(job)
    assert (vjob.losses, vjob.script_started) == (1, False)
    for vm in world.context.ledger.vms(job):
        assert vm.host != dead
        assert world.hypervisor.where(vm.name) == [vm.host]


def test_nothing_is_concluded_of_a_dead_node_until_an_operator_says_that_it_is_gone(world: World) -> None:
    job = world.running()
    dead = world.host(job)
    world.kill_node(dead)
    ticks(world, 20)
    assert (world.state(job), world.context.ledger.vjob(job).losses) == (S.RUNNING, 0)
    answer = world.requests().orders.node_gone(0, dead)
    assert answer == {"begin_again": [str(job)], "wait": []}
    begun_again(world, job, dead)
    assert any(f"{dead} is gone" in said for said in world.events("node-gone"))


def test_a_node_that_is_gone_is_asked_nothing_until_it_is_back(world: World) -> None:
    job = world.running()
    dead = world.host(job)
    world.kill_node(dead)
    world.tick()
    world.requests().orders.node_gone(0, dead)
    calls = dict(world.neighbours.calls)
    begun_again(world, job, dead)
    ticks(world)
    asked = [f"hypervisor {dead}", f"agent {dead}"]
    assert [world.neighbours.calls[each] for each in asked] == [calls.get(each, 0) for each in asked]
    world.start_engine()  # a new engine knows it, too
    calls = dict(world.neighbours.calls)
    ticks(world)
    assert [world.neighbours.calls[each] for each in asked] == [calls.get(each, 0) for each in asked]
    world.revive_node(dead)
    world.requests().orders.node_back(0, dead)
    ticks(world)
    assert world.neighbours.calls[asked[0]] > calls[asked[0]]
    assert world.context.ledger.nodes.left_behind() == {}
    world.rms.finish(job)
    world.until(job, S.TERMINATED)
    assert world.leftovers() == []


def test_more_vjobs_than_the_brake_lets_through_begin_again_at_an_operators_word(world: World) -> None:
    jobs = [world.running() for _ in range(6)]
    dead = set(NODES) - {NODES[0]}
    for node in dead:
        world.kill_node(node)
    world.tick()
    lost = [job for job in jobs if world.host(job) in dead]
    assert len(lost) > 3
    for node in dead:
        world.requests().orders.node_gone(0, node)
    ticks(world)
    assert [world.context.ledger.vjob(job).losses for job in lost] == [1] * len(lost)
    assert world.cycle.brake.held == ()


@pytest.mark.parametrize("answers", ["libvirt", "agent"])
def test_a_node_that_answers_is_not_gone_whatever_an_operator_says(world: World, answers: str) -> None:
    job = world.running()
    node = world.host(job)
    if answers == "libvirt":
        world.nodes.set_reachable(node, False)
    else:
        world.hypervisor.set_reachable(node, False)
    world.tick()
    with pytest.raises(RefusedError, match=f"{node} is not gone: its .*{answers} answers"):
        world.requests().orders.node_gone(0, node)
    ticks(world)
    assert (world.state(job), world.context.ledger.vjob(job).losses) == (S.RUNNING, 0)


def test_a_preview_says_what_would_become_of_vjobs_and_records_nothing(world: World) -> None:
    job, asleep = world.running(), world.sleeping()
    node, image = world.host(job), world.context.ledger.vms(asleep)[0].image_node
    for name in {node, image}:
        world.kill_node(name)
    world.tick()
    ask = world.requests().orders.node_gone
    told = [ask(0, name, preview=True) for name in (node, image)]
    assert told[0]["begin_again"] == [str(job)] and told[1]["wait"] == [str(asleep)]
    assert world.context.ledger.nodes.gone() == {} and world.events("node-gone") == []
    assert [ask(0, name) for name in dict.fromkeys((node, image))] == [told[0], told[1]][: len({node, image})]


@pytest.mark.parametrize(("uid", "node", "why"), [(0, "n1", "libvirt answers"), (0, "n9", "knows a node n9")])
def test_what_would_be_refused_is_refused_before_anybody_confirms_it(
    world: World, uid: int, node: str, why: str
) -> None:
    world.tick()
    with pytest.raises((RefusedError, NotFoundError), match=why):
        world.requests().orders.node_gone(uid, node, preview=True)
    with pytest.raises(ForbiddenError):
        world.requests().orders.node_gone(65534, "n1", preview=True)


def test_only_operators_say_what_has_become_of_nodes_and_only_of_known_ones(world: World) -> None:
    world.tick()
    for ask in (world.requests().orders.node_gone, world.requests().orders.node_back):
        with pytest.raises(ForbiddenError):
            ask(65534, "n1")
    with pytest.raises(NotFoundError, match="knows a node n9"):
        world.requests().orders.node_gone(0, "n9")
    with pytest.raises(NotFoundError, match="n1 is not gone"):
        world.requests().orders.node_back(0, "n1")
    world.kill_node("n1")
    world.requests().orders.node_gone(0, "n1")
    with pytest.raises(RefusedError, match="n1 is gone since"):
        world.requests().orders.node_gone(0, "n1")


def test_vms_found_on_a_node_that_had_been_said_to_be_gone_are_ended_when_it_is_back(world: World) -> None:
    job = world.running()
    node = world.host(job)
    name = world.context.ledger.vms(job)[0].name
    world.hypervisor.set_reachable(node, False)  # it lives: nobody can reach it
    world.nodes.set_reachable(node, False)
    for other in set(NODES) - {node}:
        world.rms.set_node(other, draining=True)
    world.tick()
    world.requests().orders.node_gone(0, node)
    world.until(job, S.WAITING)
    world.hypervisor.set_reachable(node, True)
    ticks(world)
    assert world.hypervisor.where(name) == [node]  # nobody said that it is back
    world.requests().orders.node_back(0, node)
    ticks(world)
    assert len([said for said in world.events("stray-stopped") if "which had been gone" in said]) == 1
    assert world.hypervisor.where(name) == []
    assert world.state(job) is S.WAITING  # its files are still there: nothing is started beside them
    assert world.cycle.seen is not None
    assert "left behind" in world.capacities().hosts(world.cycle.seen)[node].why_not
    world.nodes.set_reachable(node, True)
    world.until(job, S.RUNNING)
    assert world.context.ledger.nodes.left_behind() == {}
    world.rms.finish(job)
    world.until(job, S.TERMINATED)
    assert world.leftovers() == []


def test_a_vjob_that_sleeps_on_a_node_that_is_gone_waits_says_why_and_resumes_when_it_is_back(world: World) -> None:
    job = world.sleeping()
    node = world.context.ledger.vms(job)[0].image_node
    world.kill_node(node)
    world.tick()
    assert world.requests().orders.node_gone(0, node) == {"begin_again": [], "wait": [str(job)]}
    world.context.ledger.update_vjob(job, resumes=True)  # the engine itself would resume it
    ticks(world)
    vjob = world.context.ledger.vjob(job)
    assert (vjob.state, vjob.losses) == (S.SLEEPING, 0)
    assert f"is on {node}, and {node} is gone" in vjob.reason
    with pytest.raises(RefusedError, match=f"and {node} is gone"):
        world.requests().resume(0, str(job), "")
    world.rms.resume(job)  # by hand
    ticks(world)
    assert (world.state(job), world.context.ledger.vjob(job).losses) == (S.SLEEPING, 0)
    world.revive_node(node)
    world.requests().orders.node_back(0, node)
    world.until(job, S.RUNNING)
    assert (world.context.ledger.vjob(job).losses, world.context.ledger.vjob(job).script_started) == (0, True)


def test_the_job_of_a_vjob_that_sleeps_on_a_node_that_is_gone_can_end(world: World) -> None:
    job = world.sleeping()
    node = world.context.ledger.vms(job)[0].image_node
    world.kill_node(node)
    world.tick()
    world.requests().orders.node_gone(0, node)
    world.rms.cancel(job)
    world.until(job, S.TERMINATED)
    world.revive_node(node)
    world.requests().orders.node_back(0, node)
    ticks(world, 3)
    assert world.leftovers() == []


@pytest.mark.parametrize("kind", [K.START, K.SUSPEND, K.RESUME, K.MIGRATE])
@pytest.mark.parametrize("point", [Point.BEFORE, Point.DURING, Point.AFTER])
@pytest.mark.parametrize("which", ["source", "destination"])
def test_a_node_that_dies_in_the_middle_of_anything_costs_a_new_start_at_most(
    world: World, kind: OperationKind, point: Point, which: str
) -> None:
    job = world.submit(vms=1, memory_mib=128)
    if kind is not K.START:
        world.until(job, S.RUNNING)
        world.context.ledger.update_vjob(job, script_started=True)
    if kind is K.RESUME:
        world.ask(job, K.SUSPEND)
        world.until(job, S.SLEEPING)
    before = world.context.ledger.vms(job)[0] if kind is not K.START else None
    to = next(node for node in reversed(NODES) if before is None or node not in (before.host, before.image_node))
    dead: list[str] = []

    def die() -> None:
        vm = world.context.ledger.vms(job)[0]
        dead.append((vm.destination or vm.host) if which == "destination" else (vm.image_node or vm.host))
        world.kill_node(dead[0])
        if point is not Point.AFTER or dead[0] == vm.host:
            raise UnavailableError("the connection was broken off")

    method = {K.START: "boot", K.SUSPEND: "save", K.RESUME: "restore", K.MIGRATE: "migrate"}[kind]
    world.hypervisor.hook_next(method, point, die, vm=f"vjob{job}-0")
    if kind is not K.START:
        world.ask(job, kind, to if kind is not K.SUSPEND else "")
    ticks(world, 3)
    assert dead
    world.settle()
    world.requests().orders.node_gone(0, dead[0])
    for _ in range(40):
        world.tick(30.0)
        if world.state(job) in (S.RUNNING, S.SLEEPING) and not world.context.ledger.vms(job)[0].destination:
            break
    assert world.state(job) in (S.RUNNING, S.SLEEPING), world.cycle.report
    vjob = world.context.ledger.vjob(job)
    vm = world.context.ledger.vms(job)[0]
    if vjob.state is S.SLEEPING:  # its state is whole, here or on the node that is gone
        assert world.hypervisor.where(vm.name) == []
    else:
        assert (vjob.state, world.hypervisor.where(vm.name)) == (S.RUNNING, [vm.host])
        assert vm.host != dead[0]
    world.revive_node(dead[0])
    world.requests().orders.node_back(0, dead[0])
    world.rms.finish(job) if vjob.state is S.RUNNING else world.rms.cancel(job)
    world.until(job, S.TERMINATED)
    ticks(world, 3)
    assert world.leftovers() == []


def test_a_node_that_dies_when_the_files_of_a_resume_are_history_costs_a_new_start(world: World) -> None:
    job = world.sleeping()

    def die() -> None:
        world.kill_node(world.host(job))
        raise UnavailableError("the connection was broken off")

    world.hypervisor.hook_next("unpause", Point.BEFORE, die, vm=f"vjob{job}-0")
    world.ask(job, K.RESUME)
    ticks(world, 3)
    dead = world.host(job)
    assert (world.state(job), world.context.ledger.vms(job)[0].image_node) == (S.RESUMING, "")
    world.requests().orders.node_gone(0, dead)
    begun_again(world, job, dead)


# -- the epilog of the room --------------------------------------------------------------------------------------------


def report(world: World, node: str, *, problem: str = "", hook: str = "epilog", age_s: float = 0.0) -> None:
    room = 999
    world.context.ledger.room_reports.add(RoomReport(world.time - age_s, room, node, hook, problem, ()))


def test_the_epilog_of_the_room_proves_that_a_silent_node_has_no_vm_of_ours_any_more(world: World) -> None:
    job = world.running()
    node = world.host(job)
    ticks(world)
    world.kill_node(node)  # its libvirt is dead; the epilog ran before
    ticks(world)
    assert world.context.ledger.vjob(job).losses == 0
    report(world, node)
    begun_again(world, job, node)
    world.revive_node(node)
    ticks(world)
    assert world.context.ledger.nodes.left_behind() == {}


@pytest.mark.parametrize("what", [{"problem": "cannot end vjob1-0"}, {"hook": "prolog"}, {"age_s": 400.0}])
def test_an_epilog_that_failed_or_ran_before_the_vm_was_last_seen_proves_nothing(world: World, what: dict) -> None:  # type: ignore[type-arg]
    job = world.running()
    node = world.host(job)
    world.tick(300.0)
    world.tick(60.0)
    world.kill_node(node)
    ticks(world)
    report(world, node, **what)
    ticks(world)
    assert (world.state(job), world.context.ledger.vjob(job).losses) == (S.RUNNING, 0)
