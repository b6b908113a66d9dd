"""Generated weeks in which vjobs that run make room by going to other groups: each move pays, none goes to and fro."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

import examples
from examples import few
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from rmsplugin.decision.unburdening import in_the_way, pays
from rmsplugin.groups.choosing import Shape
from rmsplugin.groups.forming import Group
from rmsplugin.groups.given import Given, Place
from rmsplugin.groups.giving import Heard, Live, Patience, give
from rmsplugin.groups.relieving import Hot
from rmsplugin.groups.summary import summaries
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, Node, VJob, running_on
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.first_fit import FirstFit

S = VJobState
STEP_S, STANDSTILL_S, STAYS_S = 200.0, 60.0, 600.0
#: CI lives so many days of a week.
DAYS = 7 if examples.whole else 1
SIZE = Resources(4, 8192)
NAMES = ("a", "b", "c")


@dataclass
class Job:
    """A vjob of equal VMs."""

    job_id: int
    came: float
    vms: tuple[VM, ...]
    works_s: float
    ran_s: float = 0.0
    group: str = ""
    state: S = S.WAITING
    at: dict[str, str] = field(default_factory=dict)
    resumed: float = -STAYS_S  # when it last went on after it was suspended
    moved: list[float] = field(default_factory=list)

    def vjob(self) -> VJob:
        return VJob(str(self.job_id), self.vms, time_limit_s=2 * self.works_s, ran_s=self.ran_s)


class Week:
    """Groups whose engines run what fits in the order of the queue, and a leader."""

    def __init__(self, seed: int, nodes: int) -> None:
        self.dice = Random(seed)
        self.given = Given(1, 0, {name: tuple(f"{name}{number}" for number in range(nodes)) for name in NAMES})
        self.jobs: list[Job] = []
        self.left: dict[str, tuple[int, float]] = {}  # by group, who was left without room, and since when
        self.now, self.count = 0.0, 0
        self.patience = Patience(STEP_S, STAYS_S)
        self.moves: list[tuple[float, int, str, str, int]] = []  # when, who, from, to, for whom

    def arrive(self) -> None:
        self.count += 1
        cpus, vms = self.dice.choice((1, 1, 1, 2, 3, 4)), self.dice.choice((1, 1, 1, 2))
        demand = Resources(cpus, self.dice.choice((256, 512, 1024)) * cpus)
        members = tuple(VM(f"{self.count}-{number}", demand) for number in range(vms))
        self.jobs.append(Job(self.count, self.now, members, self.dice.choice((600.0, 3600.0, 4 * 3600.0))))

    def configuration(self, name: str) -> Configuration:
        there = [job for job in self.jobs if job.group == name and job.at]
        nodes = tuple(Node(host, SIZE) for host in self.given.groups[name])
        locations = {vm: running_on(node) for job in there for vm, node in job.at.items()}
        return Configuration(nodes, tuple(job.vjob() for job in there), locations)

    def live(self, steps: int, arrivals: float) -> None:
        for _ in range(steps):
            if self.dice.random() < arrivals:
                self.arrive()
            self.step()

    def step(self) -> None:
        self.now += STEP_S
        for job in self.jobs:
            job.ran_s += STEP_S if job.at else 0.0
        self.jobs = [job for job in self.jobs if job.ran_s < job.works_s]
        heard = {name: self.engine(name) for name in NAMES}
        queue = [Live(job.job_id, Shape.of([vm.demand for vm in job.vms], ()), not job.at) for job in self.jobs]
        due, spared = self.patience.due(self.now), self.patience.spared(self.now)
        wishes = give(
            self.given, queue, heard, self.patience.refused(self.now), domains=(NAMES,), due=due, spared=spared
        )
        self.patience.note(wishes, self.now)
        self.given = self.given.next(vjobs=dict(self.carried_out(wishes.vjobs, heard)))

    def engine(self, name: str) -> Heard:
        """What an engine does and says: it runs what fits, and tells who is in the way of the first that does not."""
        mine = [job for job in self.jobs if job.group == name]
        for job in mine:
            if not job.at and (found := self.places(name, job)) is not None:
                job.at = found
                job.resumed = self.now if job.state is S.SLEEPING else job.resumed
                job.state = S.RUNNING
        waits = next((job for job in mine if not job.at), None)
        hot = None if waits is None else self.hot(name, waits)
        if waits is None:
            self.left.pop(name, None)
        states = {job.job_id: job.state for job in mine}
        (summary,) = summaries(self.configuration(name), [Group(name, tuple(self.given.groups[name]))])
        return Heard(self.given.version, frozenset(), states, summary, takes=True, hot=hot)

    def places(self, name: str, job: Job) -> dict[str, str] | None:
        configuration = self.configuration(name)
        packing = FirstFit.on(configuration.nodes)
        for vm, at in configuration.locations.items():
            packing.take(configuration.vm_by_name[vm], str(at.node))
        return packing.place(job.vms)

    def hot(self, name: str, waits: Job) -> Hot | None:
        if self.left.get(name, (0, 0.0))[0] != waits.job_id:
            self.left[name] = (waits.job_id, self.now)
        without_room_s = self.now - self.left[name][1]
        configuration = self.configuration(name)
        stay = {str(job.job_id) for job in self.jobs if self.now - job.resumed < STAYS_S}

        def may_go(vjob: VJob) -> bool:
            return vjob.name not in stay and pays(waits.vjob(), without_room_s, vjob, STANDSTILL_S)

        found = in_the_way(configuration, waits.vjob(), may_go)
        return Hot(waits.job_id, tuple(int(vjob.name) for vjob in found)) if found else None

    def carried_out(self, places: dict[int, Place] | object, heard: dict[str, Heard]) -> Iterator[tuple[int, Place]]:
        """Give what waits at once; suspend who relieves a group, and have it sleep in the other one."""
        assert isinstance(places, dict)
        by_id = {job.job_id: job for job in self.jobs}
        for job_id, place in places.items():
            if (job := by_id.get(job_id)) is None:
                continue
            if place.relieves:
                hot = heard[place.group].hot
                assert hot is not None and job.at and job_id in hot.vjobs
                self.moves.append((self.now, job_id, place.group, str(place.to), hot.waits))
                job.moved.append(self.now)
                job.at, job.state, job.group = {}, S.SLEEPING, str(place.to)
                yield job_id, Place(str(place.to))
            else:
                moves = place.to is not None and job.state is S.WAITING
                job.group = str(place.to) if moves else place.group
                yield job_id, Place(job.group)


@drawn(st.integers(0, 10**6), st.integers(1, 3), st.sampled_from([0.1, 0.2]))
@settings(max_examples=few(4), deadline=None)
def test_in_generated_weeks_each_move_lets_two_run_and_none_goes_to_and_fro(
    seed: int, nodes: int, arrivals: float
) -> None:
    week = Week(seed, nodes)
    for _ in range(int(DAYS * 86400 / STEP_S)):
        before = len(week.moves)
        week.live(1, arrivals)
        if (moved := week.moves[before:]) and len({each[2] for each in moved}) == 1:
            week.step()  # the engines run what fits now
            for _, job_id, _, _, for_whom in moved:
                runs = {job.job_id for job in week.jobs if job.at}
                ended = {job_id, for_whom} - {job.job_id for job in week.jobs}
                assert {job_id, for_whom} <= runs | ended, "the one goes on where it went, the other one starts"
    for job in week.jobs:
        apart = [later - earlier for earlier, later in zip(job.moved, job.moved[1:], strict=False)]
        assert all(each >= STAYS_S for each in apart)


@drawn(st.integers(0, 10**6), st.integers(1, 3))
@settings(max_examples=few(5), deadline=None)
def test_where_nothing_comes_and_nothing_ends_the_moves_end(seed: int, nodes: int) -> None:
    week = Week(seed, nodes)
    for _ in range(6 * nodes):
        week.arrive()
    for job in week.jobs:
        job.works_s = 1e9
    week.live(60, 0.0)
    waiting = [sum(not job.at for job in week.jobs)]
    assert len(week.moves) <= 6 * nodes, "each one has let one more run"
    moves = len(week.moves)
    week.live(20, 0.0)
    assert len(week.moves) == moves
    assert sum(not job.at for job in week.jobs) == waiting[0]


def test_weeks_have_moves() -> None:
    moves = 0
    for seed in range(4):
        week = Week(seed, 2)
        week.live(int(DAYS * 86400 / STEP_S), 0.2)
        moves += len(week.moves)
    print(f"\n{moves} moves in four weeks")
    assert moves > 0
