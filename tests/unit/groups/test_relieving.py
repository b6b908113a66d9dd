"""Which vjob that runs the leader has go to another group; and that it does not go to and fro."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from unit.groups.summed import heard, live

from rmsplugin.groups.given import Given, Place
from rmsplugin.groups.giving import Heard, Packed, Patience, Wishes, give
from rmsplugin.groups.relieving import Hot
from rmsplugin.model.rules import allowing
from rmsplugin.model.vjob import VJobState

GROUPS = {"a": ("a1",), "b": ("b1",), "c": ("c1",)}
BOTH = (("a", "b"),)
#: Vjob 1 runs in group a, vjob 2 with two VMs has room nowhere.
QUEUE = [live(1, eligible=False), live(2, 2)]


def given(**vjobs: Place) -> Given:
    places = {1: Place("a"), 2: Place("a")} | {int(job[1:]): place for job, place in vjobs.items()}
    return Given(1, 0, GROUPS, places)


def groups(**changed: Any) -> dict[str, Heard]:
    """``changed``: of group a."""
    a = replace(heard("a", [1], j1="running", j2="waiting"), hot=Hot(2, (1,)), takes=True)
    others = {name: replace(heard(name, [1]), takes=True) for name in ("b", "c")}
    return {"a": replace(a, **changed), **others}


def wished(before: Given | None = None, heard: dict[str, Heard] | None = None, **about: Any) -> Wishes:
    return give(
        before or given(), about.pop("queue", QUEUE), heard or groups(), **{"domains": BOTH, "due": {1}, **about}
    )


WISH = Place("a", "b", relieves=True)


def test_one_that_runs_is_wished_where_it_has_room_so_that_another_one_has_its_own() -> None:
    found = wished()
    assert (found.vjobs, found.named) == ({1: WISH, 2: Place("a")}, {1})


def test_it_goes_only_after_it_was_named_for_a_while_and_rests_then() -> None:
    patience, before = Patience(90, 600), given()
    for now in (0, 89):
        found = wished(before, due=patience.due(now), spared=patience.spared(now))
        assert (found.vjobs[1], found.named) == (Place("a"), {1})
        patience.note(found, now)
    found = wished(before, due=patience.due(90), spared=patience.spared(90))
    assert found.vjobs[1] == WISH
    patience.note(found, 90)
    assert wished(before, due={1}, spared=patience.spared(689)).named == set()
    assert patience.spared(690) == set()


def test_a_pause_in_which_it_was_not_named_begins_its_patience_anew() -> None:
    patience = Patience(90, 600)
    patience.note(Wishes({}, named=frozenset({1})), 0)
    patience.note(Wishes({}), 50)
    patience.note(Wishes({}, named=frozenset({1})), 60)
    assert patience.due(100) == set()


@pytest.mark.parametrize(
    ("what", "about"),
    [
        ("no domain", {"domains": ()}),
        ("another domain", {"domains": (("b", "c"),)}),
        ("the group is not hot", {"heard": groups(hot=None)}),
        ("who waits has room elsewhere", {"heard": {**groups(), "c": replace(heard("c", [2]), takes=True)}}),
        ("who waits has gone", {"queue": QUEUE[:1]}),
        ("who waits waits for something else", {"queue": [QUEUE[0], live(2, 2, eligible=False)]}),
        ("it does not run", {"heard": groups(vjobs={1: VJobState.PAUSED, 2: VJobState.WAITING})}),
        ("it may use no host there", {"queue": [live(1, rules=allowing(frozenset({"a1"}))), QUEUE[1]]}),
        ("the other group is full", {"heard": {**groups(), "b": replace(heard("b", [0]), takes=True)}}),
        ("the other group is silent", {"heard": {name: each for name, each in groups().items() if name != "b"}}),
        ("the other group is hot", {"heard": {**groups(), "b": replace(groups()["b"], hot=Hot(9, (8,)))}}),
    ],
)
def test_nobody_that_runs_moves(what: str, about: dict[str, Any]) -> None:
    found = wished(**about)
    assert found.named == set(), what
    assert not any(place.relieves for place in found.vjobs.values()), what


@pytest.mark.parametrize("changed", [{"unclean": frozenset({1})}, {"takes": False}, {"seen": (0, 9)}])
def test_it_is_not_wished_where_it_could_not_come_yet(changed: dict[str, Any]) -> None:
    others = groups()
    others["b"] = replace(others["b"], **changed)
    found = wished(heard=others)
    assert (found.vjobs[1], found.named) == (Place("a"), {1})


def test_room_that_a_vjob_ahead_of_it_waits_for_is_not_taken_from_that() -> None:
    others = groups()
    others["b"] = replace(others["b"], vjobs={3: VJobState.WAITING})
    first = [live(3, 2), *QUEUE]
    assert wished(given(j3=Place("b")), others, queue=first).named == set()
    assert wished(given(j3=Place("b")), others, queue=[*QUEUE, live(3, 2)]).named == {1}, "it is behind"


def test_one_vjob_at_a_time_leaves_a_group_and_one_comes_to_it() -> None:
    both = groups(vjobs=heard("a", [1], j1="running", j2="waiting", j3="suspending").vjobs, going=frozenset({3}))
    before = given(j3=Place("a", "c", relieves=True))
    assert wished(before, both, queue=[*QUEUE, live(3)], domains=(("a", "b", "c"),)).named == set()
    queue = [live(1, eligible=False), live(2, 3), live(3)]
    coming = groups()
    coming["b"] = replace(heard("b", [1, 1]), takes=True)
    coming["c"] = replace(coming["c"], vjobs={3: VJobState.SUSPENDING}, going=frozenset({3}))
    before = given(j3=Place("c", "b", relieves=True))
    assert wished(before, coming, queue=queue).named == set()
    arrived = given(j3=Place("b", None, "abc"))
    room = {**groups(), "b": coming["b"]}
    assert wished(arrived, room, queue=queue).named == set(), "its room there is not told yet"


def test_the_first_one_that_has_room_elsewhere_goes_of_those_that_are_in_the_way() -> None:
    queue = [live(1, eligible=False), live(2, 2), live(3, 3, eligible=False)]
    said = groups(hot=Hot(2, (3, 1)), vjobs=heard("a", [1], j1="running", j2="waiting", j3="running").vjobs)
    assert wished(given(j3=Place("a")), said, queue=queue).named == {1}


# -- what becomes of a wish ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["running", "suspending", "sleeping"])
def test_the_wish_stands_until_the_engine_has_read_it_and_while_it_is_at_it(state: str) -> None:
    before = given(j1=WISH)
    states = heard("a", [1], j1=state, j2="waiting").vjobs
    assert wished(before, groups(vjobs=states, seen=(0, 9))).vjobs[1] == WISH
    assert wished(before, groups(vjobs=states, going=frozenset({1}))).vjobs[1] == WISH
    assert wished(before, groups(vjobs=states), due=()).vjobs[1] == Place("a"), "its engine did nothing about it"


@pytest.mark.parametrize("state", ["paused", "resuming", "stopping"])
def test_the_wish_is_taken_back_when_something_else_has_begun_with_the_vjob(state: str) -> None:
    states = heard("a", [1], j1=state, j2="waiting").vjobs
    assert wished(given(j1=WISH), groups(vjobs=states, going=frozenset({1}))).vjobs[1] == Place("a")


def test_a_wish_of_before_it_ran_does_not_have_it_suspended() -> None:
    before = given(j1=Place("a", "b"))
    assert wished(before, groups(going=frozenset({1})), due=()).vjobs[1] == Place("a")


def test_once_packed_it_is_given_with_its_parcel() -> None:
    said = groups(vjobs={2: VJobState.WAITING}, packed={1: Packed("abc", "b")}, hot=None)
    assert wished(given(j1=WISH), said).vjobs[1] == Place("b", None, "abc")


def test_the_room_to_which_it_goes_is_given_to_nobody_behind_it_though_it_does_not_wait_at_slurm() -> None:
    said = groups(vjobs=heard("a", [1], j1="suspending", j2="waiting").vjobs, going=frozenset({1}))
    said["a"] = replace(said["a"], summary=heard("a", [0]).summary)
    said["c"] = replace(heard("c", [0], j9="waiting"), takes=True)
    before = given(j1=WISH, j9=Place("c"))
    assert wished(before, said, queue=[*QUEUE, live(9)]).vjobs[9] == Place("c"), "the only room, in b, is taken"
    assert wished(before, said, queue=[live(9), *QUEUE]).vjobs[9] == Place("c", "b"), "it is ahead"
