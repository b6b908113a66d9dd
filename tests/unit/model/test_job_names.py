"""How users name jobs and elements of arrays."""

from __future__ import annotations

import pytest

from rmsplugin.model.job_names import fold, parse


@pytest.mark.parametrize(
    ("text", "job", "covered"),
    [
        ("12", 12, {0, 1, 2, 3, 4}),
        ("12_0", 12, {0}),
        ("12_3", 12, {3}),
        ("12_1-3", 12, {1, 2, 3}),
        ("12_[1-3]", 12, {1, 2, 3}),
        ("12_[0,2-3]", 12, {0, 2, 3}),
        ("12_[1-2,2-4]", 12, {1, 2, 3, 4}),
    ],
)
def test_a_name_covers_elements(text: str, job: int, covered: set[int]) -> None:
    name = parse(text)
    assert (name.job, {element for element in range(5) if name.covers(element)}) == (job, covered)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "0",
            "x",
            "12_",
            "12_x",
            "12_[",
            "12_[]",
            "12_[1-]",
            "12_[3-1]",
            "12_3-1",
            "12_*",
            "12_[0-4:2]",
            "12_1,2",
        ),
        *("12_01", "012", "12 ", "12_[1]x", "-1", "12+1", "1" * 11, "12_[1%2]", f"12_[1{',1' * 3000}]", "٣"),
    ],
)
def test_what_slurm_does_not_take_is_no_name(text: str) -> None:
    with pytest.raises(ValueError, match="is not a job id"):
        parse(text)


def test_one_element() -> None:
    assert parse("12_3").is_one
    assert not any(parse(text).is_one for text in ("12", "12_[1-2]", "12_[1,1]"))


def test_what_is_missing() -> None:
    assert parse("12_[1-9]").missing(["12_1", "12_2", "12_5"]) == "3-4,6-9"
    assert parse("12_[1-3]").missing([f"12_{index}" for index in (4, 3, 2, 1)]) == ""
    assert parse("12_[1-4294967295]").missing(["12_2"]) == "1,3-4294967295"
    assert parse("12").missing(["12"]) == ""
    assert parse("12").missing([]) == ""


def test_names_are_folded() -> None:
    assert fold(["12_1", "12_3", "12_2", "14", "12_7", "15_0"]) == "12_[1-3,7],14,15_0"
