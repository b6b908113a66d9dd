"""Listings of names in any script: columns stand below each other, and lines fit the terminal."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmsplugin.cli.shared.cells import cut, width_of, wrapped
from rmsplugin.cli.shared.table import Column, Field, Table, text_of

FIELDS = [Field(name, "", text_of(name)) for name in ("name", "user", "reason")]
WORDS = st.text(alphabet="ab é\u0301日本ｱｶ한中", max_size=40)


def lines(names: list[str], reason: str, width: int | None) -> list[str]:
    rows = [{"name": name, "user": "u1", "reason": reason} for name in names]
    return [*Table([Column(field, field.right) for field in FIELDS], width=width).lines(rows)]


@pytest.mark.parametrize(
    ("text", "cells"),
    [("job", 3), ("日本語", 6), ("Ｊｏｂ", 6), ("e\u0301te\u0301", 3), ("étude", 5), ("ｼﾞｮﾌﾞ", 5), ("", 0)],
)
def test_wide_characters_take_two_cells_and_marks_none(text: str, cells: int) -> None:
    assert width_of(text) == cells


def test_columns_behind_names_in_any_script_stand_below_each_other() -> None:
    shown = lines(["plain", "日本語ジョブ", "e\u0301te\u0301"], "waits", None)
    assert {width_of(line[: line.index("u1")]) for line in shown[1:]} == {13}


def test_a_name_is_cut_between_characters() -> None:
    assert [cut("日本語", width) for width in range(1, 7)] == ["", "+", "日+", "日+", "日本+", "日本語"]


@given(WORDS, st.integers(min_value=2, max_value=30))
def test_no_line_is_wider_and_no_character_is_lost(text: str, width: int) -> None:
    assert all(width_of(line) <= width for line in wrapped(text, width))
    assert "".join(wrapped(text, width)).replace(" ", "") == "".join(text.split())
    assert width_of(cut(text, width)) <= width


@given(st.lists(WORDS, min_size=1, max_size=4), WORDS, st.integers(min_value=50, max_value=90))
def test_lines_fit_the_terminal_whatever_is_in_them(names: list[str], reason: str, width: int) -> None:
    assert all(width_of(line) <= width for line in itertools.chain(lines(names, reason, width)))
