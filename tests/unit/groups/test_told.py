"""What the engine of a group tells the leader, over JSON and back."""

from __future__ import annotations

import json

import pytest
from unit.groups.summed import heard, summary

from rmsplugin.errors import RefusedError
from rmsplugin.groups import told
from rmsplugin.groups.giving import Packed
from rmsplugin.groups.relieving import Hot


def answer(**changes: object) -> dict[str, object]:
    found = {
        "group": "a",
        "epoch": 7,
        "seen": [4, 2],
        "released": [9],
        "summary": told.view(summary("a", [4, 1, 1, 0])),
        "vjobs": {"12": "running"},
    }
    return json.loads(json.dumps({**found, **changes}))


def test_what_is_told_is_what_is_heard() -> None:
    assert told.heard(answer()) == (7, heard("a", [4, 1, 1, 0], seen=(4, 2), released=[9], j12="running"))


def test_an_engine_of_a_release_without_parcels_takes_none_and_others_tell_what_goes_and_comes() -> None:
    assert not told.heard(answer())[1].takes
    _, found = told.heard(answer(can_go=[1], going=[2], packed={"3": {"parcel": "abc", "to": "b"}}, unclean=[3, 4]))
    assert (found.can_go, found.going, found.unclean, found.takes) == ({1}, {2}, {3, 4}, True)
    assert found.packed == {3: Packed("abc", "b")}


def test_who_is_in_whose_way_is_told_and_an_older_release_tells_nothing_of_it() -> None:
    assert told.heard(answer())[1].hot is None
    assert told.heard(answer(hot=told.hot_view(None)))[1].hot is None
    hot = Hot(7, (5, 4))
    assert told.heard(answer(hot=told.hot_view(hot)))[1].hot == hot


@pytest.mark.parametrize(
    "changes",
    [
        {"seen": None},
        {"vjobs": {"12": "flying"}},
        {"summary": {}},
        {"released": ["x"]},
        {"epoch": None},
        {"hot": {"waits": 7}},
    ],
)
def test_what_is_not_understood_is_refused_in_a_sentence(changes: dict[str, object]) -> None:
    with pytest.raises(RefusedError, match="does not understand"):
        told.heard(answer(**changes))
