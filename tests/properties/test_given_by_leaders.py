"""Whatever leaders and engines read late, or not at all, no vjob is ever two engines'; and who waits finds the room."""

from __future__ import annotations

from dataclasses import dataclass, field

from examples import few
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from unit.groups.summed import live, summary

from rmsplugin.groups.given import Given, faults
from rmsplugin.groups.giving import Heard, give
from rmsplugin.model.vjob import VJobState

NAMES = ("a", "b", "c")
JOBS = (1, 2, 3)


@dataclass
class Engine:
    """An engine as the contract of givings has it."""

    name: str
    free: int
    text: Given = field(default_factory=lambda: Given(1))
    rows: dict[int, VJobState] = field(default_factory=dict)
    released: set[int] = field(default_factory=set)

    def read(self, text: Given) -> None:
        assert text.version >= self.text.version, "it never goes back"
        self.text = text
        for job, place in text.vjobs.items():
            if place.group != self.name:
                self.released.discard(job)
            elif place.to is None:
                self.released.discard(job)
                self.rows.setdefault(job, VJobState.WAITING)
            elif self.rows.get(job, VJobState.WAITING) is VJobState.WAITING:
                self.rows.pop(job, None)
                self.released.add(job)

    def begin(self, job: int) -> None:
        if self.rows.get(job) is VJobState.WAITING and self.free:
            self.free -= 1
            self.rows[job] = VJobState.RUNNING

    def end(self, job: int) -> None:
        if self.rows.get(job) is VJobState.RUNNING:
            self.free += 1
            del self.rows[job]

    def says(self) -> Heard:
        return Heard(self.text.version, frozenset(self.released), dict(self.rows), summary(self.name, [self.free]))


ACTS = st.one_of(
    st.tuples(st.just("read"), st.sampled_from(NAMES)),
    st.tuples(st.just("hear"), st.sampled_from(NAMES)),
    st.tuples(st.just("silent"), st.sampled_from(NAMES)),
    st.tuples(st.just("begin"), st.sampled_from(NAMES), st.sampled_from(JOBS)),
    st.tuples(st.just("only room in"), st.sampled_from(NAMES[:2])),
    st.tuples(st.just("turn of"), st.sampled_from(NAMES[:2])),
    st.tuples(st.just("lead")),
    st.tuples(st.just("give")),
    st.tuples(st.just("give")),
)


@drawn(st.lists(ACTS, max_size=100), st.integers(0, 2))
@settings(max_examples=few(2000), deadline=None)
def test_no_two_engines_ever_have_a_vjob(acts: list[tuple[str, ...]], free: int) -> None:
    engines = {name: Engine(name, free) for name in NAMES}
    text = Given(1, 0, {name: (f"{name}1",) for name in NAMES})
    heard = {name: engines[name].says() for name in NAMES}  # what the leader was told last
    queue = [live(job) for job in JOBS]
    for act, *about in acts:
        if act == "read":
            engines[about[0]].read(text)
        elif act == "hear":
            heard[about[0]] = engines[about[0]].says()
        elif act == "silent":
            heard.pop(about[0], None)
        elif act == "begin":
            engines[about[0]].begin(int(about[1]))
        elif act == "only room in":
            for name, engine in engines.items():
                engine.free = int(name == about[0])
        elif act == "turn of":
            engines[about[0]].read(text)
            heard[about[0]] = engines[about[0]].says()
        elif act == "lead":
            text, heard = text.begun(text.epoch + 1), {}
        else:
            found = give(text, queue, heard)
            if found.vjobs != text.vjobs:
                text = text.next(vjobs=found.vjobs)
            assert faults(text) == []
        for job in JOBS:
            assert sum(job in engine.rows for engine in engines.values()) <= 1


@drawn(st.lists(st.integers(0, 3), min_size=3, max_size=3), st.lists(st.integers(1, 3), max_size=12))
@settings(max_examples=few(500), deadline=None)
def test_nobody_waits_while_a_group_has_the_room_and_nothing_moves_for_ever(frees: list[int], first: list[int]) -> None:
    """``first``: the vjobs that are given before any room is known, so perhaps to groups that have none."""
    engines = {name: Engine(name, 0) for name in NAMES}
    text = Given(1, 0, {name: (f"{name}1",) for name in NAMES})
    queue = [live(job) for job in dict.fromkeys((*first, *JOBS))]

    def turn(text: Given) -> Given:
        for engine in engines.values():
            engine.read(text)
            for job in JOBS:
                engine.begin(job)
        found = give(text, queue, {name: engine.says() for name, engine in engines.items()})
        return text if found.vjobs == text.vjobs else text.next(vjobs=found.vjobs)

    for _ in range(3):
        text = turn(text)
    for engine, free in zip(engines.values(), frees, strict=True):
        engine.free = free
    for _ in range(8):
        text = turn(text)
    running = sum(state is VJobState.RUNNING for engine in engines.values() for state in engine.rows.values())
    assert running == min(len(JOBS), sum(frees))
    assert turn(text) == text
