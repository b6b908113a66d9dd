"""Host lists as Slurm prints them."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmsplugin.model.hostlist import HostList, expand


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("(null)", []),
        ("n1", ["n1"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[08-11,20],gpu1", ["n08", "n09", "n10", "n11", "n20", "gpu1"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("a-b.c,n[1,3]-ib", ["a-b.c", "n1-ib", "n3-ib"]),
    ],
)
def test_hostlist(text: str, names: list[str]) -> None:
    assert list(expand(text)) == names


NUMBERS = st.tuples(st.integers(0, 105), st.integers(0, 105), st.sampled_from(["", "0", "00"])).map(
    lambda drawn: f"{drawn[2]}{min(drawn[:2])}-{max(drawn[:2])}"
)
BRACKETS = st.lists(NUMBERS, min_size=1, max_size=2).map(lambda ranges: f"[{','.join(ranges)}]")
PARTS = st.lists(st.one_of(st.sampled_from(["n", "1", "0", "-x"]), BRACKETS), min_size=1, max_size=4).filter(
    lambda pieces: sum(piece.startswith("[") for piece in pieces) <= 2
)
LISTS = st.tuples(PARTS.map("".join), st.sampled_from(["", ",n7", ",n[6-8,07]"])).map("".join)


@given(LISTS, st.sets(st.text("n01279-x", max_size=5), max_size=20))
def test_names_are_found_among_few_as_among_many(text: str, others: set[str]) -> None:
    names = expand(text)
    few = {*itertools.islice(names, 0, None, 1 + len(names) // 5), *others}
    assert HostList(text).among(few) == few & set(names)
    assert HostList(text).among({*names, *few}) == set(names)
