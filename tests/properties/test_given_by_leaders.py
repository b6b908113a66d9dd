"""Whatever leaders and engines read late, or not at all, no vjob is ever two engines'; and who waits finds the room."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from examples import few
from hypothesis import example, settings
from hypothesis import given as drawn
from hypothesis import strategies as st
from unit.groups.summed import live, summary

from rmsplugin.adapters.coordination.epoch_files import EpochFiles, EpochText
from rmsplugin.errors import UnavailableError
from rmsplugin.groups.given import Given, faults, read, text_of
from rmsplugin.groups.giving import Heard, Packed, give
from rmsplugin.groups.relieving import Hot
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
    packed: dict[int, Packed] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    unclean: set[int] = field(default_factory=set)

    def read(self, text: Given) -> None:
        assert text.version >= self.text.version, "it never goes back"
        self.text = text
        for job, place in text.vjobs.items():
            if place.group != self.name:
                self.released.discard(job)
            elif place.parcel is not None and place.parcel not in self.taken:
                continue  # it comes with a parcel, which was not taken in
            elif job in self.packed:
                if place.to != self.packed[job].to:
                    del self.packed[job]
                    self.rows[job] = VJobState.SLEEPING
            elif place.to is None:
                self.released.discard(job)
                self.rows.setdefault(job, VJobState.WAITING)
            elif place.relieves and self.rows.get(job) is VJobState.RUNNING:
                if (hot := self.hot()) is not None and job in hot.vjobs:
                    self.rows[job] = VJobState.SUSPENDING
            elif self.rows.get(job) is VJobState.SLEEPING:
                del self.rows[job]
                self.packed[job] = Packed(f"{self.name}{len(self.taken)}-{job}-{text.version}", place.to)
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

    def sleep(self, job: int) -> None:
        if self.rows.get(job) in (VJobState.RUNNING, VJobState.SUSPENDING):
            self.free += 1
            self.rows[job] = VJobState.SLEEPING

    def hot(self) -> Hot | None:
        waiting = [job for job, state in self.rows.items() if state is VJobState.WAITING]
        running = [job for job, state in self.rows.items() if state is VJobState.RUNNING]
        return Hot(waiting[0], tuple(running)) if waiting and running and not self.free else None

    def take_in(self, parcels: dict[str, int]) -> None:
        """``parcels``: by id, the vjob of each that there is a file of."""
        for job, place in self.text.vjobs.items():
            if place.group == self.name and place.parcel in parcels and place.parcel not in self.taken:
                assert job not in self.unclean, "the states that have just come would be removed"
                self.taken.add(place.parcel)
                self.rows[job] = VJobState.SLEEPING

    def see_proofs(self, proofs: set[str]) -> None:
        for job, packed in [*self.packed.items()]:
            if packed.parcel in proofs:
                del self.packed[job]
                self.unclean.add(job)

    def says(self) -> Heard:
        return Heard(
            self.text.version,
            frozenset(self.released),
            dict(self.rows),
            summary(self.name, [self.free]),
            can_go=frozenset(job for job, state in self.rows.items() if state is VJobState.SLEEPING),
            packed=dict(self.packed),
            unclean=frozenset(self.unclean | self.packed.keys()),
            takes=True,
            going=frozenset(job for job, state in self.rows.items() if state is VJobState.SUSPENDING),
            hot=self.hot(),
        )


def sent(engines: dict[str, Engine]) -> dict[str, int]:
    """By id, the vjob of each parcel that there is a file of."""
    return {each.parcel: job for engine in engines.values() for job, each in engine.packed.items()}


def proofs(engines: dict[str, Engine]) -> set[str]:
    """The parcels that were taken in."""
    return {parcel for engine in engines.values() for parcel in engine.taken}


def nobodys(engines: dict[str, Engine]) -> set[int]:
    """The vjobs that were packed, and not taken in."""
    return {job for parcel, job in sent(engines).items() if parcel not in proofs(engines)}


def require_one_owner(engines: dict[str, Engine]) -> set[int]:
    """See that no vjob is two engines', or on its way besides. Returns those that have begun, and that engines have."""
    waiting = nobodys(engines)
    for job in JOBS:
        owners = [engine.name for engine in engines.values() if job in engine.rows]
        assert len(owners) + (job in waiting) <= 1, f"vjob {job} is in {owners}; on their way are {waiting}"
    rows = [each for engine in engines.values() for each in engine.rows.items()]
    return {job for job, state in rows if state is not VJobState.WAITING}


ACTS = st.one_of(
    st.tuples(st.just("read"), st.sampled_from(NAMES)),
    st.tuples(st.just("hear"), st.sampled_from(NAMES)),
    st.tuples(st.just("silent"), st.sampled_from(NAMES)),
    st.tuples(st.just("begin"), st.sampled_from(NAMES), st.sampled_from(JOBS)),
    st.tuples(st.just("sleep"), st.sampled_from(NAMES), st.sampled_from(JOBS)),
    st.tuples(st.just("take in"), st.sampled_from(NAMES)),
    st.tuples(st.just("see proofs"), st.sampled_from(NAMES)),
    st.tuples(st.just("clean"), st.sampled_from(NAMES)),
    st.tuples(st.just("only room in"), st.sampled_from(NAMES[:2])),
    st.tuples(st.just("turn of"), st.sampled_from(NAMES[:2])),
    st.tuples(st.just("lead")),
    st.tuples(st.just("give")),
    st.tuples(st.just("give")),
)


#: Migration domains of some groups only, and of all.
DOMAINS = ((("a", "b"),), (NAMES,))


def require_in_domain(engines: dict[str, Engine], domain: tuple[str, ...], first: dict[int, str]) -> None:
    """See that no vjob that has begun is outside its domain. ``first``: where each has begun, noted here."""
    for name, engine in engines.items():
        for job, state in engine.rows.items():
            if state is not VJobState.WAITING:
                begun = first.setdefault(job, name)
                assert name == begun or {name, begun} <= {*domain}, f"vjob {job} has begun in {begun}, and is in {name}"


#: What has begun in c sleeps there, and a has room: it would go there if the two were of one domain.
ROOM_ELSEWHERE = [
    ("give",),
    *[("read", name) for name in NAMES],
    *[("begin", name, job) for name in NAMES for job in JOBS],
    *[("sleep", "c", job) for job in JOBS],
    ("only room in", "a"),
    *[each for _ in range(3) for each in (*[("hear", name) for name in NAMES], ("give",), ("read", "c"))],
    *[each for _ in range(2) for each in (("turn of", "a"), ("take in", "a"), ("give",))],
]


@example(ROOM_ELSEWHERE, 1, DOMAINS[0])
@drawn(st.lists(ACTS, max_size=100), st.integers(0, 2), st.sampled_from(DOMAINS))
@settings(max_examples=few(2000), deadline=None)
def test_no_two_engines_ever_have_a_vjob_and_no_state_leaves_its_domain(
    acts: list[tuple[str, ...]], free: int, domains: tuple[tuple[str, ...], ...]
) -> None:
    first: dict[int, str] = {}
    engines = {name: Engine(name, free) for name in NAMES}
    text = Given(1, 0, {name: (f"{name}1",) for name in NAMES})
    heard = {name: engines[name].says() for name in NAMES}  # what the leader was told last
    queue = [live(job) for job in JOBS]
    begun: set[int] = set()
    for act, *about in acts:
        if act == "read":
            engines[about[0]].read(text)
        elif act == "hear":
            heard[about[0]] = engines[about[0]].says()
        elif act == "silent":
            heard.pop(about[0], None)
        elif act == "begin":
            engines[about[0]].begin(int(about[1]))
        elif act == "sleep":
            engines[about[0]].sleep(int(about[1]))
        elif act == "take in":
            engines[about[0]].take_in(sent(engines))
        elif act == "see proofs":
            engines[about[0]].see_proofs(proofs(engines))
        elif act == "clean":
            engines[about[0]].unclean.clear()
        elif act == "only room in":
            for name, engine in engines.items():
                engine.free = int(name == about[0])
        elif act == "turn of":
            engines[about[0]].read(text)
            heard[about[0]] = engines[about[0]].says()
        elif act == "lead":
            text, heard = text.begun(text.epoch + 1), {}
        else:
            found = give(text, queue, heard, ripe=JOBS, domains=domains, due=JOBS)
            if found.vjobs != text.vjobs:
                text = text.next(vjobs=found.vjobs)
            assert faults(text) == []
        require_in_domain(engines, domains[0], first)
        begun |= require_one_owner(engines)
        assert begun <= require_one_owner(engines) | nobodys(engines), "a vjob is lost"


class Lead:
    """A leader, which goes on as if it led for as long as it is asked to."""

    def __init__(self, epoch: int, files: EpochFiles) -> None:
        self.files, self.text = files, Given(epoch)
        self.heard: dict[str, Heard] = {}

    def begin(self, meanwhile: Callable[[], None]) -> None:
        def first(before: EpochText | None) -> str:
            meanwhile()
            if before is None:
                return text_of(Given(self.text.epoch, 0, {name: (f"{name}1",) for name in NAMES}))
            return text_of(read(before.text, epoch=before.epoch, name=before.name).begun(self.text.epoch))

        meanwhile()
        self.text = read(self.files.begin(self.text.epoch, first), epoch=self.text.epoch, name="given")

    def give(self) -> None:
        found = give(self.text, [live(job) for job in JOBS], self.heard, ripe=JOBS, domains=(NAMES,), due=JOBS)
        if found.vjobs != self.text.vjobs:
            self.text = self.text.next(vjobs=found.vjobs)
            self.files.write(self.text.epoch, text_of(self.text))


LATE = st.one_of(
    st.tuples(st.just("read"), st.sampled_from(NAMES), st.just(0)),
    st.tuples(st.just("hear"), st.sampled_from(NAMES), st.integers(0, 2)),
    st.tuples(st.just("begin"), st.sampled_from(NAMES), st.sampled_from(JOBS)),
    st.tuples(st.just("sleep"), st.sampled_from(NAMES), st.sampled_from(JOBS)),
    st.tuples(st.just("post"), st.sampled_from(NAMES), st.just(0)),
    st.tuples(st.just("only room in"), st.sampled_from(NAMES), st.just(0)),
    st.tuples(st.just("give"), st.just(""), st.integers(0, 2)),
    st.tuples(st.just("round"), st.sampled_from(NAMES), st.integers(0, 2)),
    st.tuples(st.just("round"), st.sampled_from(NAMES), st.integers(0, 2)),
)


#: The leader before moves vjobs between the new one's look at what there is, and its first text.
MOVED_MEANWHILE = [
    *[("round", "a", 0)] * 3,
    [*[("read", "c", 0)] * 5, *[("round", "b", 0)] * 5],
    *[("read", name, 0) for name in NAMES],
]


@example(MOVED_MEANWHILE)
@drawn(st.lists(st.one_of(LATE, LATE, st.lists(LATE, max_size=12)), max_size=60))
@settings(max_examples=few(300), deadline=None)
def test_leaders_that_do_not_know_that_they_have_lost_harm_nobody(acts: list[Any]) -> None:
    """``acts``: a list among them is a new leader, and what the others and engines do while that begins."""
    with tempfile.TemporaryDirectory() as directory:
        files = EpochFiles(Path(directory), "given")
        leads = [Lead(1, files)]
        leads[0].begin(lambda: None)
        engines = {name: Engine(name, 1) for name in NAMES}

        def do(what: str, name: str, number: int) -> None:
            lead = leads[-1 - number % len(leads)]
            if what == "read":
                with contextlib.suppress(UnavailableError):
                    if (newest := files.newest()) is not None:
                        engines[name].read(read(newest.text, epoch=newest.epoch, name=newest.name))
            elif what == "hear":
                lead.heard[name] = engines[name].says()
            elif what == "begin":
                engines[name].begin(number)
            elif what == "sleep":
                engines[name].sleep(number)
            elif what == "post":
                engines[name].take_in(sent(engines))
                engines[name].see_proofs(proofs(engines))
                engines[name].unclean.clear()
            elif what == "only room in":
                for engine in engines.values():
                    engine.free = int(engine.name == name)
            elif what == "round":
                do("only room in", name, 0)
                for each in NAMES:
                    do("read", each, 0)
                    do("hear", each, number)
                lead.give()
            else:
                lead.give()
            require_one_owner(engines)

        for act in acts:
            if isinstance(act, tuple):
                do(*act)
                continue
            parts = iter((act[: len(act) // 2], act[len(act) // 2 :]))
            new = Lead(leads[-1].text.epoch + 1, files)
            new.begin(lambda parts=parts: [do(*each) for each in next(parts)])  # type: ignore[misc]
            leads.append(new)


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
