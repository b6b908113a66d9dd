"""The engine with several groups of VM hosts: whole vjobs, one plan, other groups for what one has no room for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import PATIENCE_S
from scenarios.world import World

from rmsplugin.engine.decide import grouping
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.vjob import VJobState
from rmsplugin.proposer.proposer import Proposed
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.settings.groups import Group

S = VJobState
LEFT, RIGHT = ("n1", "n2"), ("n3", "n4")


class GroupedWorld(World):
    """Four nodes of four CPUs in two groups; counts the proposals, and the most at the same time."""

    def __init__(self, directory: Path, *, right: str = "n[3-4]") -> None:
        self.asked: list[frozenset[str]] = []
        self._beside = threading.Barrier(2)
        self.side_by_side = False
        self.met: list[int] = []
        super().__init__(directory, nodes=dict.fromkeys((*LEFT, *RIGHT), (4, 4096)), policy="mixed")
        self.regroup({"left": Group(hosts="n[1-2]"), "right": Group(hosts=right)} if right else {})

    def regroup(self, groups: dict[str, Group]) -> None:
        planning = self.settings.planning.model_copy(update={"processes": 2})
        self.settings = self.settings.model_copy(update={"group": groups, "planning": planning})
        self.start_engine()

    def propose(self, configuration: Configuration, parameters: ProposalParameters) -> Proposed:
        self.asked.append(frozenset(node.name for node in configuration.nodes if node.capacity.cpus > 0))
        if self.side_by_side:
            self._beside.wait(PATIENCE_S)
            self.met.append(threading.get_ident())
        return super().propose(configuration, parameters)

    def nodes_of(self, job: int) -> set[str]:
        return {vm.host for vm in self.context.ledger.vms(job)}


@pytest.fixture
def world(directory: Path) -> Iterator[GroupedWorld]:
    world = GroupedWorld(directory)
    yield world
    assert world.hypervisor.violations == []
    world.close()


def test_a_vjob_runs_in_one_group(world: GroupedWorld) -> None:
    jobs = [world.submit(vms=2, cpus=4, memory_mib=256) for _ in range(2)]
    for job in jobs:
        world.until(job, S.RUNNING)
    assert sorted(map(sorted, map(world.nodes_of, jobs))) == [list(LEFT), list(RIGHT)]


def test_the_groups_are_asked_at_the_same_time(world: GroupedWorld) -> None:
    jobs = [world.submit(vms=2, cpus=4, memory_mib=256) for _ in range(2)]
    for job in jobs:
        world.until(job, S.RUNNING)
    world.side_by_side = True  # each waits for the other
    world.asked.clear()
    world.tick()
    assert set(world.asked) == {frozenset(LEFT), frozenset(RIGHT)}
    assert len(set(world.met)) == 2, world.cycle.report


def test_a_vjob_wider_than_each_group_waits_and_is_told_in_which_group(world: GroupedWorld) -> None:
    job = world.submit(vms=3, cpus=4, memory_mib=256)
    for _ in range(5):
        world.tick()
    row = world.context.ledger.vjob(job)
    assert row.state is S.WAITING
    assert row.reason.endswith("no group can host it, and a vjob is never split")


def test_a_vjob_that_waits_for_room_is_told_its_group(world: GroupedWorld) -> None:
    for _ in range(4):
        world.until(world.submit(vms=1, cpus=4, memory_mib=256), S.RUNNING)
    job = world.submit(vms=1, cpus=4, memory_mib=256)
    for _ in range(3):
        world.tick()
    reason = world.context.ledger.vjob(job).reason
    assert reason.startswith(("in group left: ", "in group right: ")), reason


def test_a_vjob_resumes_in_the_other_group_if_its_own_has_no_room(world: GroupedWorld) -> None:
    sleeper = world.sleeping(vms=1, cpus=4, memory_mib=256)
    image = {vm.image_node for vm in world.context.ledger.vms(sleeper)}
    own = LEFT if image <= set(LEFT) else RIGHT
    for node in own:
        world.rms.set_node(node, draining=True, reason="a new fan")
    world.context.ledger.update_vjob(sleeper, resumes=True)
    world.until(sleeper, S.RUNNING)
    assert world.nodes_of(sleeper) <= {*LEFT, *RIGHT} - set(own)


def test_a_vjob_that_spans_groups_since_they_were_changed_ties_them_together(directory: Path) -> None:
    world = GroupedWorld(directory, right="")
    job = world.submit(vms=4, cpus=4, memory_mib=256)
    world.until(job, S.RUNNING)
    world.regroup({"left": Group(hosts="n[1-2]"), "right": Group(hosts="n[3-4]")})
    world.asked.clear()
    world.tick()
    assert set(world.asked) == {frozenset((*LEFT, *RIGHT))}
    assert world.state(job) is S.RUNNING and world.nodes_of(job) == {*LEFT, *RIGHT}
    world.close()


def test_faults_of_the_settings_are_problems_of_the_cycle(directory: Path) -> None:
    world = GroupedWorld(directory, right="n[4-5]")
    world.tick()
    problems = world.cycle.report.problems
    assert "[group.right] names n5: no hosts partition has such a node" in problems
    assert any(problem.startswith("n3 of hosts partition vmhosts are in no [group.NAME]") for problem in problems)
    world.close()


def test_a_large_partition_is_split_along_the_switches_which_are_asked_for_once(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grouping, "MOST_HOSTS", 2)
    world = GroupedWorld(directory, right="")
    world.rms.switches = (("n1", "n3"), ("n2", "n4"))
    for _ in range(3):
        world.tick()
    groups = world.cycle.deciding.groups
    assert groups is not None
    assert [group.hosts for group in groups.formed.groups] == [("n1", "n3"), ("n2", "n4")]
    assert world.rms.calls.count(("leaf_switches", "")) == 1
    world.close()
