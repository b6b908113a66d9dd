"""What a job id means, in every request that takes one: an array's id means the array, not its last element."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from scenarios.world import NODES, World

from rmsplugin.engine.serve.naming import named, the_one
from rmsplugin.engine.serve.plan_views import decision_views
from rmsplugin.engine.serve.requests import Requests, Several
from rmsplugin.errors import ForbiddenError, NotFoundError, RefusedError
from rmsplugin.model.vjob import VJobState

S = VJobState
OWNER, STRANGER, ROOT = 65534, 4711, 0


def array(world: World) -> tuple[Requests, int, dict[str, int]]:
    """An array whose elements 1 to 3 run; returns its id, and the job ids of its elements by name."""
    number = world.submit(vms=1, array=[1, 2, 3])
    for _ in range(60):
        world.tick()
        rows = {row.display_id: row.job_id for row in world.context.ledger.vjobs() if row.state is S.RUNNING}
        if len(rows) == 3:
            break
    assert set(rows) == {f"{number}_{index}" for index in (1, 2, 3)}
    assert number in rows.values(), "in Slurm one element has the id of its array"
    for job_id in rows.values():
        world.context.ledger.update_vjob(job_id, script_started=True)
    return world.requests(), number, rows


def names_of(found: Any) -> list[str]:
    assert isinstance(found, Several), found
    return [each["vjob"] for each in found.view["elements"]]


ACTS: dict[str, Callable[[Requests, str], Any]] = {
    "suspend": lambda requests, name: requests.suspend(OWNER, name),
    "resume": lambda requests, name: requests.resume(OWNER, name, ""),
    "migrate": lambda requests, name: requests.migrate(ROOT, name, "", ""),
}


@pytest.mark.parametrize("act", ACTS)
def test_an_arrays_id_means_all_of_its_elements(world: World, act: str) -> None:
    requests, number, rows = array(world)
    ask = ACTS[act]
    before = len(world.context.ledger.running_operations())
    assert names_of(ask(requests, str(number))) == sorted(rows)
    assert names_of(ask(requests, f"{number}_[1,3]")) == [f"{number}_1", f"{number}_3"]
    assert len(world.context.ledger.running_operations()) == before, "nothing is done to one of them by mistake"
    with pytest.raises(NotFoundError, match="has no element 4-9"):
        ask(requests, f"{number}_[1-9]")
    with pytest.raises(NotFoundError):
        ask(requests, f"{number}_9")


def test_one_element_is_suspended_alone(world: World) -> None:
    requests, number, rows = array(world)
    operation = requests.suspend(OWNER, f"{number}_2")
    assert not isinstance(operation, Several)
    assert operation.job_id == rows[f"{number}_2"]
    world.until(operation.job_id, S.SLEEPING)
    assert [world.state(job_id) for job_id in rows.values()].count(S.RUNNING) == 2


def test_the_id_that_an_element_has_in_slurm_means_this_element(world: World) -> None:
    requests, number, rows = array(world)
    (name, job_id) = next((name, job_id) for name, job_id in rows.items() if job_id != number)
    operation = requests.suspend(OWNER, str(job_id))
    assert not isinstance(operation, Several)
    assert operation.job_id == job_id
    assert {event.vjob for event in world.context.ledger.events(vjob=name)} == {name}


def test_elements_that_have_ended_are_left_out_unless_all_have(world: World) -> None:
    requests, number, rows = array(world)
    for name in (f"{number}_1", f"{number}_3"):
        world.rms.finish(rows[name])
        world.until(rows[name], S.TERMINATED)
    operation = requests.suspend(OWNER, str(number))
    assert not isinstance(operation, Several)
    assert operation.job_id == rows[f"{number}_2"]
    world.rms.finish(rows[f"{number}_2"])
    world.until(rows[f"{number}_2"], S.TERMINATED)
    assert names_of(requests.suspend(OWNER, str(number))) == sorted(rows)


def test_elements_that_wait_for_their_turn_are_elements_too(world: World) -> None:
    number = world.submit(vms=3, cpus=2, array=[1, 2, 3])
    for _ in range(20):
        world.tick()
    requests = world.requests()
    (row,) = world.context.ledger.vjobs()
    assert names_of(requests.suspend(OWNER, str(number))) == [f"{number}_{index}" for index in (1, 2, 3)]
    waiting = next(name for name in (f"{number}_1", f"{number}_2", f"{number}_3") if name != row.display_id)
    with pytest.raises(RefusedError, match=f"vjob {waiting} is waiting"):
        requests.suspend(OWNER, waiting)


@pytest.mark.parametrize(
    "ask",
    [
        lambda requests, name: requests.owned(OWNER, name, wrapper=False),
        lambda requests, name: requests.access(OWNER, name, wrapper=False),
        lambda requests, name: requests.vjob(OWNER, name),
        lambda requests, name: requests.resume(OWNER, name, NODES[0]),
        lambda requests, name: requests.migrate(ROOT, name, "", NODES[0]),
        lambda requests, name: requests.migrate(ROOT, name, "vjob1-0", ""),
    ],
    ids=["ssh, which", "ssh", "vjob", "resume --to", "migrate --to", "migrate --vm"],
)
def test_what_takes_one_vjob_names_the_elements(world: World, ask: Callable[[Requests, str], Any]) -> None:
    requests, number, _ = array(world)
    with pytest.raises(RefusedError, match=rf"{number} is a job array.* {number}_\[1-3\]"):
        ask(requests, str(number))
    with pytest.raises(RefusedError, match=rf"name an element of {number}_\[2-3\]"):
        ask(requests, f"{number}_[2-3]")


def test_a_wrapper_names_its_job_as_slurm_does(world: World) -> None:
    """SLURM_JOB_ID of the last element is the array's id."""
    requests, number, rows = array(world)
    (name,) = (name for name, job_id in rows.items() if job_id == number)
    assert requests.owned(OWNER, str(number), wrapper=True) == number
    assert requests.access(OWNER, str(number), wrapper=True)["job_id"] == number
    requests.finished(OWNER, str(number), 0, 0)
    assert [row.display_id for row in world.context.ledger.vjobs() if row.finished] == [name]


def test_usage_decisions_and_events_are_of_all_elements(world: World) -> None:
    requests, number, rows = array(world)
    two = [f"{number}_1", f"{number}_3"]
    assert [each["display_id"] for each in requests.usage(OWNER, str(number))] == sorted(rows)
    assert [each["display_id"] for each in requests.usage(OWNER, f"{number}_[1,3]")] == two
    for name, expected in ((str(number), sorted(rows)), (f"{number}_[1,3]", two), (f"{number}_3", two[1:])):
        assert {each["vjob"] for each in decision_views(world.context.ledger, name)} == set(expected)
        assert {each.vjob for each in world.context.ledger.events(vjob=name)} == set(expected)


def test_others_may_not(world: World) -> None:
    requests, number, _ = array(world)
    for act in (requests.suspend, lambda uid, name: requests.resume(uid, name, ""), requests.usage):
        with pytest.raises(ForbiddenError):
            act(STRANGER, str(number))


def test_what_is_held_back_is_confirmed_for_all_elements(world: World) -> None:
    requests, number, rows = array(world)
    for job_id in rows.values():
        world.rms.forget(job_id)
    world.rms.accounting = False
    for _ in range(3):
        world.tick()
    assert {held.vjob for held in world.cycle.brake.held} == set(rows)
    assert sorted(requests.orders.confirm(ROOT, [f"{number}_[1-2]"])) == [f"{number}_1", f"{number}_2"]
    assert sorted(requests.orders.confirm(ROOT, [str(number)])) == sorted(rows)


def test_a_job_that_is_called_so_comes_before_an_array_of_long_ago(world: World) -> None:
    """Job ids are given out again one day."""
    job = world.submit(vms=1)
    world.until(job, S.RUNNING)
    old = world.context.ledger.vjob(job)
    world.context.ledger.add_vjob(replace(old, job_id=9000, display_id=f"{job}_5", state=S.TERMINATED))
    assert named(world.context.settings, world.context.ledger, None, str(job)).names == [str(job)]
    assert the_one(world.context.settings, world.context.ledger, None, str(job)).job_id == job
