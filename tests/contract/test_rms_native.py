"""The contract of ``adapters.rms.base.Rms`` for plain jobs: what one asks for, and what nodes have left."""

from __future__ import annotations

import pytest
from contract.rms_worlds import World

from rmsplugin.adapters.rms.base import JobState, RmsNode
from rmsplugin.errors import NotFoundError
from rmsplugin.model.constraints import Constraints
from rmsplugin.model.vjob import Geometry

NO_JOB = 99999999


def nodes(world: World) -> tuple[RmsNode, RmsNode]:
    found = world.rms.snapshot().nodes
    return found["n1"], found["n2"]


def taken(world: World) -> list[tuple[int, int]]:
    return [(node.cpus_taken, node.memory_taken_mib) for node in nodes(world)]


def test_geometry_of_a_job_of_one_node(world: World) -> None:
    job_id = world.submit("--ntasks=2", "--nodes=1", "--mem=40", "--exclude=n2")
    expected = Geometry(1, 2, 40, ntasks=2, constraints=Constraints.parse(exclude="n2"))
    assert world.rms.geometry(job_id) == expected


def test_geometry_of_a_job_of_two_nodes(world: World) -> None:
    job_id = world.submit("--nodes=2", "--ntasks=4", "--mem=40")
    assert world.rms.geometry(job_id) == Geometry(2, 2, 40, ntasks=4)


def test_geometry_of_an_array(world: World) -> None:
    job_id = world.submit("--array=1-3", "--nodelist=n1", "--mem=40")
    expected = Geometry(1, 1, 40, constraints=Constraints.parse(nodes="n1"))
    assert world.rms.geometry(job_id) == expected
    element = world.rms.split(f"{job_id}_2")
    assert world.rms.geometry(element) == expected
    assert world.rms.geometry(job_id) == expected


def test_geometry_of_a_job_that_does_not_exist(world: World) -> None:
    with pytest.raises(NotFoundError):
        world.rms.geometry(NO_JOB)


def test_a_node_has_taken_what_its_jobs_have(world: World) -> None:
    assert taken(world) == [(0, 0), (0, 0)]
    job_id = world.started("--nodes=2", "--ntasks=4", "--mem=40")
    assert world.rms.job(job_id).nodes == ("n1", "n2")
    assert taken(world) == [(2, 40), (2, 40)]
    beside = world.submit("--nodes=1", "--nodelist=n1", "--mem=50")
    world.rms.suspend(job_id)
    assert world.rms.job(job_id).state is JobState.SUSPENDED
    assert taken(world) == [(0, 40), (0, 40)]
    world.rms.open_gate(beside)
    world.wait_for(beside, JobState.RUNNING)
    assert taken(world) == [(1, 90), (0, 40)]
    world.rms.cancel(job_id)
    world.wait("its memory to be free", lambda: taken(world) == [(1, 50), (0, 0)])
