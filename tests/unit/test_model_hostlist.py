"""Host lists as Slurm prints them."""

from __future__ import annotations

import pytest

from rmsplugin.model.hostlist import expand


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
