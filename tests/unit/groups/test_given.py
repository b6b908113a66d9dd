"""What a leader gives to groups, as a text: written and read again it is the same, and what is wrong is said."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from rmsplugin.errors import RefusedError
from rmsplugin.groups.given import Given, Place, read, text_of

GROUPS = {"g1": ("n1", "n2"), "g2": ("n3",)}
GIVEN = Given(7, 3, GROUPS, {50010: Place("g1"), 9: Place("g1", "g2"), 11: Place("g2")})


def content(**changed: Any) -> str:
    return json.dumps(json.loads(text_of(GIVEN)) | changed)


def refusal(text: str) -> str:
    with pytest.raises(RefusedError) as refused:
        read(text, epoch=7, name="given-7.json")
    return str(refused.value)


def test_what_is_written_is_read() -> None:
    assert read(text_of(GIVEN), epoch=7, name="given-7.json") == GIVEN


def test_the_text_is_that_of_the_contract() -> None:
    assert json.loads(text_of(Given(1, 2, {"g1": ("n1",)}, {50010: Place("g1")}))) == {
        "format": 1,
        "epoch": 1,
        "serial": 2,
        "groups": {"g1": ["n1"]},
        "vjobs": {"50010": {"group": "g1", "to": None}},
    }


def test_a_text_with_a_parcel_is_of_a_format_that_releases_without_parcels_refuse() -> None:
    plain = replace(GIVEN, vjobs={9: Place("g1", "g2")})
    parcel = replace(GIVEN, vjobs={9: Place("g1", parcel="abc")})
    assert [json.loads(text_of(each))["format"] for each in (plain, parcel)] == [1, 2]
    assert read(text_of(parcel), epoch=7, name="given-7.json").vjobs[9] == Place("g1", None, "abc")


def test_a_wish_for_one_that_runs_is_read_and_has_to_say_where_to() -> None:
    wish = replace(GIVEN, vjobs={9: Place("g1", "g2", relieves=True)})
    assert read(text_of(wish), epoch=7, name="given-7.json") == wish
    assert json.loads(text_of(wish))["vjobs"]["9"] == {"group": "g1", "to": "g2", "relieves": True}
    assert wish.vjobs[9].stays() == Place("g1")
    assert "vjob 9 relieves group g1, and is to go nowhere" in refusal(
        content(vjobs={"9": {"group": "g1", "to": None, "relieves": True}})
    )
    assert "vjob 9: relieves is 'x'" in refusal(content(vjobs={"9": {"group": "g1", "to": "g2", "relieves": "x"}}))


def test_a_group_owns_what_is_to_go_to_another_still() -> None:
    assert (GIVEN.of_group("g1"), GIVEN.of_group("g2")) == ({9, 50010}, {11})


def test_a_later_text_has_a_higher_version_and_so_has_the_next_leaders() -> None:
    later = GIVEN.next(vjobs={})
    assert (later.groups, later.vjobs) == (GROUPS, {})
    assert GIVEN.version < later.version < later.begun(8).version < later.begun(8).next().version


def test_a_leader_does_not_go_on_from_a_newer_one() -> None:
    with pytest.raises(RefusedError, match="epoch 7 does not go on from one of epoch 7"):
        GIVEN.begun(7)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "given-7.json is no JSON"),
        ("[]", "is of format None"),
        (content(format=3), "is of format 3; this release reads formats 1 and 2"),
        (content(epoch=8), "it says that it is of epoch 8"),
        (content(serial=-1), "serial -1"),
        (content(serial="3"), "serial '3' is no number"),
        (content(epoch=True), "epoch True is no number"),
        (content(groups=None), "given-7.json: "),
        (content(groups={"g1": "n1"}), "the hosts of group g1 are no list of names"),
        (content(groups={"g1": ["n1"], "g2": ["n1"]}), "host n1 is in group g1 and in group g2"),
        (content(groups={"g1": ["n1", "n1"], "g2": []}), "group g1 has a host twice"),
        (content(vjobs={"x": {"group": "g1", "to": None}}), "'x' is no job id"),
        (content(vjobs={"5": {"group": "g3", "to": None}}), "vjob 5 is given to group g3, which is not there"),
        (content(vjobs={"5": {"group": "g1", "to": "g3"}}), "vjob 5 is given to group g3, which is not there"),
        (content(vjobs={"5": {"group": "g1", "to": "g1"}}), "vjob 5 is to go to group g1, where it is"),
        (content(vjobs={"5": {"group": None, "to": None}}), "vjob 5 is in no group with a name"),
        (content(vjobs={"5": {"group": "g1"}}), "'to' is missing"),
        (content(vjobs={"5": 1}), "given-7.json: "),
        (json.dumps({"format": 1}), "'epoch' is missing"),
    ],
)
def test_what_is_wrong_is_said(text: str, said: str) -> None:
    assert said in refusal(text)
    assert refusal(text).endswith("is the release the same on all controllers?")


def test_what_is_wrong_is_not_written() -> None:
    with pytest.raises(RefusedError, match="vjob 1 is given to group g3, which is not there"):
        text_of(GIVEN.next(vjobs={1: Place("g3")}))


def test_of_many_faults_three_are_named() -> None:
    assert "; and 7 more." in refusal(content(vjobs={str(job): {"group": "g9", "to": None} for job in range(10)}))
